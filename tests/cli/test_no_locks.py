"""Results files on a file system without locks, such as NFS without lockd or Lustre without its option flock."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from lbx.base.database import open_database
from lbx.results.whole.commit_copies import copy_database
from tests.command_line import Lbx, fails

TASKS = ("--tasks", "needle/single_en", "--no-plan")
LIBRARY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static int refuses(int file) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    errno = REASON;
    return strstr(path, "/lockless/") != NULL;
}

#define WRAP(NAME)                                                                                            \
    int NAME(int file, int command, ...) {                                                                    \
        va_list list;                                                                                         \
        va_start(list, command);                                                                              \
        void *value = va_arg(list, void *);                                                                   \
        if ((command == F_SETLK || command == F_SETLKW) && refuses(file)) return -1;                          \
        return ((int (*)(int, int, ...))dlsym(RTLD_NEXT, #NAME))(file, command, value);                       \
    }
WRAP(fcntl)
WRAP(fcntl64)

int flock(int file, int operation) {
    return refuses(file) ? -1 : ((int (*)(int, int))dlsym(RTLD_NEXT, "flock"))(file, operation);
}
"""


@pytest.fixture
def without_locks(tmp_path: Path) -> Callable[[str], Mapping[str, str]]:
    """Environment of a process in which folders named "lockless" have no locks, with this error."""
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("needs a C compiler")
    (tmp_path / "lockless").mkdir()
    source, library = tmp_path / "lockless.c", tmp_path / "lockless.so"

    def compile_library(reason: str) -> Mapping[str, str]:
        source.write_text(f"#define REASON {reason}\n{LIBRARY}")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        return {**os.environ, "LD_PRELOAD": str(library)}

    return compile_library


@pytest.mark.parametrize(("reason", "text"), [("ENOLCK", "No locks available"), ("EOPNOTSUPP", "not supported")])
def test_the_cause_and_a_remedy_that_works_are_named(
    reason: str,
    text: str,
    lbx: Lbx,
    bundle: Path,
    answers: Path,
    tmp_path: Path,
    without_locks: Callable[[str], Mapping[str, str]],
) -> None:
    environment = without_locks(reason)
    new, other = tmp_path / "lockless" / "new.duckdb", tmp_path / "other.duckdb"
    run = ("run", "--bundle", bundle, "--model", answers, *TASKS, "-o", new)
    done = lbx.process(*run, environment=environment)
    fails(done, 1, f"The file system of {new} has no locks (", text, "--scratch DIR")
    assert "in use" not in done.stderr and not list(new.parent.iterdir())

    (tmp_path / "scratch").mkdir()
    for limit in (("--limit", 2), ()):
        done = lbx.process(*run, *limit, "--scratch", tmp_path / "scratch", environment=environment)
        assert done.returncode == 0, done.stderr
    assert "6 answered, 0 failed, 2 already done" in done.stdout

    if reason == "ENOLCK":  # DuckDB reads without a lock after EOPNOTSUPP
        fails(lbx.process("report", new, environment=environment), 1, "has no locks (", "read the copy")
        merge = lbx.process("merge", new, "-o", tmp_path / "merged.duckdb", environment=environment)
        fails(merge, 1, f"The file system of {new} has no locks (")
    shutil.copy(new, other)
    assert lbx.process("report", other, environment=environment).returncode == 0
    assert "8 answers" in lbx.process("merge", other, "-o", tmp_path / "m.duckdb", environment=environment).stdout


def test_a_killed_run_continues_with_its_log(
    lbx: Lbx, bundle: Path, answers: Path, tmp_path: Path, without_locks: Callable[[str], Mapping[str, str]]
) -> None:
    environment = without_locks("ENOLCK")
    one, target = tmp_path / "one.duckdb", tmp_path / "lockless" / "one.duckdb"
    run = ("run", "--bundle", bundle, "--model", answers, *TASKS)
    lbx.ok(*run, "--limit", 2, "-o", one)
    with closing(open_database(one, read_only=False)) as connection:
        connection.execute("CREATE TABLE of_the_log AS SELECT 7 AS number")
        copy_database(one, target)
    assert target.with_name("one.duckdb.wal").exists()
    done = lbx.process(*run, "-o", target, "--scratch", tmp_path, environment=environment)
    assert "6 answered, 0 failed, 2 already done" in done.stdout, done.stderr
    assert lbx.rows(target, "FROM of_the_log") == [{"number": 7}]
    assert [path.name for path in sorted(target.parent.iterdir())] == ["one.duckdb", "one.duckdb.log"]


def test_an_annotated_dataset_names_the_cause(
    lbx: Lbx, tmp_path: Path, without_locks: Callable[[str], Mapping[str, str]]
) -> None:
    pytest.importorskip("uvicorn", reason="needs lbx[web]")
    dataset = tmp_path / "set.jsonl"
    row = '{"input": "A text.", "instructions": ["Which?"], "outputs": ["A"], "source": "s", "evaluation": "exam"}'
    dataset.write_text(f"{row}\n")
    output = tmp_path / "lockless" / "out.jsonl"
    done = lbx.process("annotate", dataset, "-o", output, environment=without_locks("ENOSYS"))
    fails(done, 2, f"The file system of {output} has no locks.", "on a local disk")


def test_a_journal_of_ratings_names_the_cause(
    tmp_path: Path, without_locks: Callable[[str], Mapping[str, str]]
) -> None:
    journal = tmp_path / "lockless" / "r.ratings.jsonl"
    code = "import sys, pathlib, lbx.opinions.journal as it; it.Journal(pathlib.Path(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, journal], env=without_locks("ENOLCK"), capture_output=True, text=True, check=False
    )
    error = done.stderr.splitlines()[-1]
    assert error.startswith(f"lbx.base.errors.StoreError: The journal {journal} cannot be written: its file system")
