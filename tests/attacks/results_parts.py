"""What attacks on results files share: the command line in this process, a results file, and what is done to one."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb

from lbx.base.records import Sample
from lbx.results import GenerationRow, RunRow, SampleRow, ScoreRow, Store
from tests.attacks import attack_parts
from tests.attacks.attack_parts import Said, files, main, refused  # noqa: F401  # tests import them from here
from tests.made_numbers import task_row

LBX_HOME = Path(__file__).parents[2] / "lbx"
PRED = {"pred": "seven", "answers": ["seven"], "all_classes": None, "length": 5}

lbx = main
"""A command line, run in this process."""
tree = files
"""Everything in a folder."""


def process(*arguments: object, before: Sequence[str] = (), **options: Any) -> Said:
    """The same as a process of its own, started by the words ``before`` it."""
    return attack_parts.process(*before, sys.executable, "-P", "-m", "lbx.cli", *arguments, **options)


def results_file(
    path: Path,
    *,
    run: str = "r1",
    model: str = "model",
    output: str = "seven",
    error: str | None = None,
    settings: dict[str, Any] | None = None,
    backend: str = "import",
    task: str = "qasper",
) -> Path:
    """A results file with one run of one answer, scored, added up and done."""
    sample = Sample("longbench", task, "0000", "", "", ("seven",), "en", 5, "words", {"category": "qa"})
    files = [{"name": f"{task}.jsonl", "task": task, "rows": 1, "final_newline": True}]
    settings = {"imported": "longbench", "content_sha256": "0", "files": files} if settings is None else settings
    with Store(path) as store:
        store.begin_run(RunRow(run, model, backend, "1", {"longbench": 1}, "", settings, {}, "0"))
        row = GenerationRow(
            run, *sample.key, output=None if error else output, error=error, source_row=json.dumps(PRED)
        )
        scores = [] if error else [ScoreRow(run, *sample.key, "f1", 1, 1.0, None, True)]
        store.write(samples=[SampleRow(sample, 0)], generations=[row], scores=scores)
        store.write_results([task_row(run, "longbench", task, "f1", 1, 1.0, official=100.0)])
        store.finish_run(run, "done")
    return path


def changed(path: Path, *statements: str) -> Path:
    """The same file after somebody else's SQL on it."""
    with duckdb.connect(str(path)) as connection:
        for statement in statements:
            connection.execute(statement)
    return path


def view_for_table(path: Path, table: str, source: str) -> Path:
    """The table's rows put aside, and a view in its place that reads ``source`` whenever somebody reads the table."""
    return changed(
        path,
        *(f"DROP VIEW IF EXISTS {name}" for name in _views(path)),
        f"CREATE TABLE aside AS SELECT * FROM {table}",
        f"DROP TABLE {table}",
        f"CREATE VIEW {table} AS SELECT a.* FROM aside a, ({source}) s",
    )


def _views(path: Path) -> list[str]:
    with duckdb.connect(str(path), read_only=True) as connection:
        found = connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
    return [name for (name,) in found]


@contextlib.contextmanager
def inside_folder(folder: Path) -> Iterator[None]:
    """With the folder as the current one."""
    with contextlib.chdir(folder):
        yield


_DRIVER = """
import json, sys
from results_parts import lbx
for arguments in json.load(open(sys.argv[1])):
    said = lbx(*arguments)
    print(json.dumps([said.code, said.out, said.err]), flush=True)
"""


def with_parts() -> dict[str, str]:
    """The environment of a process that imports this module."""
    before = os.environ.get("PYTHONPATH", "")
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (*map(str, Path(__file__).parents[:2]), before)))}


def watched(commands: Sequence[Sequence[object]], folder: Path) -> tuple[list[Said], str]:
    """Commands in a process without a network, and every connection that it tried to make, as strace saw it."""
    (folder / "commands.json").write_text(json.dumps([[str(part) for part in command] for command in commands]))
    log = folder / "strace.log"
    trace = ["strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=connect,sendto,sendmsg", "-o", str(log)]
    done = subprocess.run(
        ["unshare", "-rn", *trace, sys.executable, "-P", "-c", _DRIVER, str(folder / "commands.json")],
        capture_output=True, text=True, cwd=folder, check=False,
        env=with_parts() | {"HOME": str(folder)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line for line in log.read_text().splitlines() if "AF_INET" in line]
    return [Said(*json.loads(line)) for line in done.stdout.splitlines()], "\n".join(lines)


def can_watch() -> bool:
    """Whether this machine lets a test make a namespace and trace in it."""
    try:
        command = ["unshare", "-rn", "strace", "-qq", "-o", os.devnull, "true"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False
