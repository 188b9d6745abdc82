"""`lbx merge --update` into a file with more in it: what it alone holds stays, and it is whole or as it was."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.base.database import database_files
from lbx.base.errors import StoreError
from lbx.base.processes import PIPE, start_python
from lbx.cluster import merge as merging
from lbx.cluster.merge import merge
from lbx.opinions.journal import journal_of
from lbx.results import RunRow, Store
from lbx.results.whole.commit_copies import exclusive_lock
from tests.cluster.same_rows import same_rows
from tests.command_line import Lbx

Answers = Callable[[float], Path]
PARTS = ("needle/single_en", "needle/single_zh", "needle/multikey_en")


@pytest.fixture(scope="module")
def made(lbx: Lbx, bundle: Path, answers: Answers, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two parts of one run."""
    folder = tmp_path_factory.mktemp("parts")
    what = ("run", "--bundle", bundle, "--model", answers(0.0), "--limit", 2, "--name", "whole", "--no-plan")
    for number, tasks in enumerate(PARTS[:2]):
        lbx.ok(*what, "--tasks", tasks, "-o", folder / f"{number}.duckdb")
    assert lbx(*what, "--tasks", ",".join(PARTS[:2]), "-o", folder / "whole.duckdb").returncode == 0
    return [folder / "0.duckdb", folder / "1.duckdb", folder / "whole.duckdb"]


@pytest.fixture
def parts(made: list[Path], tmp_path: Path) -> list[Path]:
    return [Path(shutil.copy(path, tmp_path / path.name)) for path in made]


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    with Store(path, read_only=True) as store:
        return list(store.query(sql).rows)


def by_an_older_metric(path: Path) -> None:
    """As an lbx left it whose needle had another metric version."""
    with Store(path) as store:
        for table in ("scores", "numbers"):
            store.query(f"UPDATE {table} SET metric_version = 0")
        store.query("UPDATE runs SET benchmark_versions = '{\"needle\": 0}'")


def test_merging_again_keeps_what_was_written_since(
    lbx: Lbx, bundle: Path, answers: Answers, parts: list[Path], tmp_path: Path
) -> None:
    one, other, whole = parts
    target = tmp_path / "all.duckdb"
    assert lbx("merge", one, "-o", target).returncode == 0
    refused = lbx("merge", one, other, "-o", target)
    assert refused.returncode == 2 and "--update to merge into it" in " ".join(refused.stderr.split())
    again = ("run", "--bundle", bundle, "--model", answers(0.0), "--limit", 1, "--no-plan", "-o", target)
    assert lbx(*again, "--name", "second", "--tasks", PARTS[2]).returncode == 0
    assert lbx("runs", "note", target, "whole", "PE=no").returncode == 0
    journal_of(target).write_text("{}\n")
    done = lbx.ok("merge", other, one, "-o", target, "--update", "--json")
    told = json.loads(done.stdout)
    assert told["runs"] == {"whole": 2, "second": 0}
    assert [note for note in told["notes"] if "ratings" in note] == [
        f"{journal_of(target)} has ratings that are not in the results file; lbx rate {target} --collect moves them."
    ]
    assert rows(target, "SELECT run_id, metadata->>'PE' FROM runs ORDER BY ALL") == [("second", None), ("whole", "no")]
    assert len(rows(target, "SELECT * FROM sessions WHERE run_id = 'second'")) == 1
    first = rows(target, "SELECT * FROM task_results ORDER BY ALL")
    assert lbx("merge", one, "-o", target, "--update").returncode == 0, "an older state of the files takes nothing away"
    assert rows(target, "SELECT * FROM task_results ORDER BY ALL") == first
    with Store(target) as store:
        for table in ("generations", "scores", "runs", "numbers"):
            store.query(f"DELETE FROM {table} WHERE run_id = 'second'")
        store.query(
            "DELETE FROM samples WHERE (benchmark, task, sample_id) NOT IN "
            "(SELECT (benchmark, task, sample_id) FROM generations)"
        )
    assert same_rows(target, whole)["generations"] == 4


def test_shards_of_two_metric_versions_are_merged_once_all_are_scored_again(
    lbx: Lbx, parts: list[Path], tmp_path: Path
) -> None:
    one, other, whole = parts
    by_an_older_metric(one)
    target = tmp_path / "all.duckdb"
    refused = lbx("merge", one, other, "-o", target)
    assert refused.returncode == 1 and not target.exists()
    assert "metric version 1 of needle" in (text := " ".join(refused.stderr.split())) and "lbx score" in text
    assert lbx("score", one).returncode == 0
    assert lbx("merge", one, other, "-o", target).returncode == 0
    assert same_rows(target, whole)["scores"] == 4


def test_scoring_again_says_which_metrics_score_now(lbx: Lbx, parts: list[Path]) -> None:
    by_an_older_metric(parts[0])
    assert lbx("score", parts[0]).returncode == 0
    assert rows(parts[0], "SELECT benchmark_versions->>'needle' FROM runs") == [("1",)]


def test_exit_code_3_is_about_the_files_that_are_merged(lbx: Lbx, parts: list[Path], tmp_path: Path) -> None:
    one, other, _ = parts
    target = tmp_path / "all.duckdb"
    assert lbx("merge", one, "-o", target).returncode == 0
    with Store(target) as store:
        for table in ("runs", "generations"):
            store.query(f"INSERT INTO {table} SELECT * REPLACE ('old' AS run_id) FROM {table}")
        store.query("UPDATE generations SET output = NULL, error = 'gone' WHERE run_id = 'old'")
    assert lbx("merge", other, "-o", target, "--update").returncode == 0


def test_whatever_ends_a_merge_the_file_is_as_it_was(
    parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, _ = parts
    target = tmp_path / "all.duckdb"
    merge([one], target, None, update=False)
    before = target.read_bytes()
    for name in ("merge_files", "_aggregate_joined_runs", "_close_runs", "journal_of"):
        with monkeypatch.context() as patched:
            patched.setattr(merging, name, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                merge([other], target, None, update=True)
        assert target.read_bytes() == before, name
        assert not [path.name for path in tmp_path.iterdir() if "part" in path.name]
    merge([other], target, None, update=True)
    assert rows(target, "SELECT count(*) FROM generations") == [(4,)]


def test_a_log_beside_the_file_is_merged_with_it(parts: list[Path], tmp_path: Path) -> None:
    one, other, _ = parts
    target = tmp_path / "all.duckdb"
    merge([one], target, None, update=False)
    with Store(target) as store:
        store.begin_run(RunRow("second", "m", "import", "", {}, "", {}, {}, "0.1"))
        kept = {path: path.read_bytes() for path in database_files(target)}
    assert len(kept) == 2
    for path, content in kept.items():  # as a kill leaves them
        path.write_bytes(content)
    merge([other], target, None, update=True)
    assert [path.name for path in database_files(target)] == ["all.duckdb"]
    assert rows(target, "SELECT run_id FROM runs ORDER BY ALL") == [("second",), ("whole",)]


WRITER = """
from pathlib import Path
from lbx.results import Store
from lbx.results.file import opening
opening._PATIENCE_S = 0
store = Store(Path({!r}))
print("open", flush=True)
input()
"""


def test_nobody_writes_to_the_file_while_it_is_merged_into(
    parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, _ = parts
    target = tmp_path / "all.duckdb"
    merge([one], target, None, update=False)
    program = WRITER.format(str(target))
    with exclusive_lock(target), pytest.raises(StoreError, match=r"in use by .* \(PID "):
        merge([other], target, None, update=True)
    with start_python(program, stdin=PIPE, stdout=PIPE) as writer:
        assert writer.stdout and writer.stdout.readline()
        with pytest.raises(StoreError, match=r"in use by .* \(PID "):
            merge([other], target, None, update=True)
        writer.communicate(b"\n")
    said: list[bytes] = []

    def late(*_: object) -> None:
        with start_python(program, stdin=PIPE, stdout=PIPE, stderr=PIPE) as writer:
            said.append(writer.communicate(b"\n")[1])

    monkeypatch.setattr(merging, "_close_runs", late)
    merge([other], target, None, update=True)
    assert b"is in use by" in said[0]


@pytest.mark.parametrize("moment", ["_close_runs", "Store.close"])
def test_a_kill_leaves_the_old_file_or_the_new_one(parts: list[Path], tmp_path: Path, moment: str) -> None:
    """Before the new file takes the old one's place, and right after."""
    one, other, _ = parts
    target = tmp_path / "all.duckdb"
    merge([one], target, None, update=False)
    program = f"""
import os, signal
from pathlib import Path
from lbx.cluster import merge
from lbx.results import Store
close = Store.close
def die(store, *_):
    if ".partial-" not in store.path.parent.name:
        return close(store)
    os.kill(os.getpid(), signal.SIGKILL)
merge.{moment} = die
merge.merge([Path({str(other)!r})], Path({str(target)!r}), None, update=True)
"""
    with start_python(program) as process:
        assert process.wait() == -signal.SIGKILL
    answers = 2 if moment == "_close_runs" else 4
    assert [path.name for path in database_files(target)] == ["all.duckdb"]
    assert rows(target, "SELECT count(*) FROM generations") == [(answers,)]
    merge([other], target, None, update=True)
    assert rows(target, "SELECT count(*) FROM generations") == [(4,)]
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".all.duckdb.part")]


def test_a_link_stays_a_link(parts: list[Path], tmp_path: Path) -> None:
    one, other, _ = parts
    (tmp_path / "elsewhere").mkdir()
    place = tmp_path / "elsewhere" / "r.duckdb"
    (tmp_path / "all.duckdb").symlink_to(place)
    for part in (one, other):
        merge([part], tmp_path / "all.duckdb", None, update=True)
    assert (tmp_path / "all.duckdb").is_symlink()
    assert rows(place, "SELECT count(*) FROM generations") == [(4,)]
