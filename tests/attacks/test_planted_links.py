"""Links that somebody plants where lbx is about to write, at the worst moment: between its look and its opening."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import duckdb
import pytest

from lbx.backends.llama import variants
from lbx.base.errors import LbxError, StoreError
from lbx.cli import showing
from lbx.cluster.folder import RunFolder, Submission
from lbx.exchange.annotation.dataset import ANSWERS, Dataset
from lbx.exchange.exporting import write_files
from lbx.opinions.journal import Journal
from lbx.options.run_spec import RunSpec
from lbx.results import Store
from lbx.results.read import queries
from lbx.results.whole import commit_copies
from lbx.running.forecast.shards import ShardPlan
from lbx.running.monitor import log_path
from tests.attacks.attack_parts import refused
from tests.attacks.results_parts import lbx, results_file

KEPT = "precious"
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
_armed: list[tuple[str, Path]] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if event != "open" or not _armed:
        return
    path, _, flags = arguments
    folder, victim = _armed[0]
    if not isinstance(path, str | bytes) or not isinstance(flags, int) or not flags & os.O_CREAT:
        return
    place = Path(os.fsdecode(path))
    if str(place.resolve().parent).startswith(folder) and not os.path.lexists(place):
        place.symlink_to(victim)


sys.addaudithook(_hook)  # none is ever removed; it does nothing unless it is armed


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder that somebody else may write to."""
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return results_file(tmp_path / "got.duckdb")


@pytest.fixture
def planted(place: Path, tmp_path: Path) -> Iterator[Path]:
    """What every new file becomes a link to, a moment before it is opened."""
    victim = tmp_path / "victim"
    victim.write_text(KEPT)
    _armed.append((str(place.resolve()), victim))
    yield victim
    _armed.clear()


def _annotated(place: Path) -> None:
    (place.parent / "data.jsonl").write_text('{"input": "d", "instructions": ["q"], "outputs": ["a"]}\n')
    with Dataset(place.parent / "data.jsonl", place / "out.jsonl") as dataset:
        dataset.set(0, 0, ANSWERS, "new", 0)
        dataset.write()


def _copied(place: Path) -> None:
    (place.parent / "disk").mkdir()
    with commit_copies.open_copy(place / "r.duckdb", place.parent / "disk", print) as held:
        results_file(held.path)


def _kept(place: Path) -> None:
    with commit_copies.exclusive_lock(place / "r.duckdb"):
        pass


def _journal(place: Path) -> None:
    with Journal(place / "r.ratings.jsonl") as journal:
        journal.append({"set": {"set_id": "s"}})


WRITERS: dict[str, Callable[[Path], object]] = {
    "prompts -o": lambda place: showing._write(place / "x.jsonl", iter(())),
    "files of an export": lambda place: write_files(place, {"a/b.jsonl": ["x"], "c.txt": ["y"]}, run_names="r1"),
    "a cache": lambda place: variants._cache_result(place / "known.json", {"a": 1}),
    "shards.json": lambda place: ShardPlan("d", ("r",), {}, "unit", "basis", ()).write(place / "shards.json"),
    "job.json": lambda place: RunFolder(place).save_submission(Submission("slurm")),
    "run.json": lambda place: RunSpec(bundle="b", model="m", tasks=("t",)).write(place / "run.json"),
    "a log": lambda place: log_path(place / "r.duckdb", None),
    "annotate": _annotated,
    "a copy of results": _copied,
    "a lock": _kept,
    "a journal": _journal,
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_link_planted_before_the_opening_is_not_followed(writer: str, place: Path, planted: Path) -> None:
    with suppress(LbxError, OSError):
        WRITERS[writer](place)
    assert planted.read_text() == KEPT


@pytest.mark.parametrize("output_format", ["table", "csv", "json", "markdown", "html", "latex"])
def test_a_reports_link_is_not_followed(results: Path, place: Path, planted: Path, output_format: str) -> None:
    lbx("report", results, "leaderboard", "--format", output_format, "-o", place / "x")
    if output_format in ("table", "csv", "json"):
        lbx("sql", results, "SELECT 1", "--format", output_format, "-o", place / "y")
    assert planted.read_text() == KEPT


@pytest.mark.parametrize("command", ["sql", "report"])
def test_parquets_link_is_not_followed(
    results: Path, place: Path, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB opens the file itself: everything that lies there is moved away and replaced before it does."""
    victim = tmp_path / "victim"
    victim.write_text(KEPT)
    ask = queries._interruptibly
    turns: list[int] = []

    def meddled(*arguments: object) -> object:
        turns.append(1)
        for number, path in enumerate([*place.iterdir(), place / ".x.parquet.part"]):
            if path.is_dir():
                path.rename(tmp_path / f"away-{len(turns)}-{number}")
                path.mkdir()
            (path / "x.parquet" if path.is_dir() else path).symlink_to(victim)
        return ask(*arguments)

    monkeypatch.setattr(queries, "_interruptibly", meddled)
    query = ["SELECT model FROM runs"] if command == "sql" else ["leaderboard"]
    lbx(command, results, *query, "--format", "parquet", "-o", place / "x.parquet")
    assert turns and victim.read_text() == KEPT


@AS_ROOT
def test_a_link_of_somebody_elses_is_not_followed(results: Path, place: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text(KEPT)
    (place / "x.csv").symlink_to(victim)
    os.chown(place / "x.csv", 12345, -1, follow_symlinks=False)
    refused(lbx("sql", results, "SELECT 1 AS n", "-f", "csv", "-o", place / "x.csv"), "belongs to another user")
    assert victim.read_text() == KEPT
    os.chown(place / "x.csv", os.geteuid(), -1, follow_symlinks=False)
    assert lbx("sql", results, "SELECT 1 AS n", "-f", "csv", "-o", place / "x.csv").code == 0
    assert (place / "x.csv").is_symlink() and victim.read_text() == "n\n1\n"


@AS_ROOT
def test_a_results_file_is_not_made_through_a_link_of_somebody_elses(place: Path, tmp_path: Path) -> None:
    link, victim = place / "r.duckdb", tmp_path / "victim.duckdb"
    link.symlink_to(victim)
    os.chown(link, 12345, -1, follow_symlinks=False)
    with pytest.raises(StoreError, match="belongs to another user"):
        Store(link)
    assert not victim.exists()
    os.chown(link, os.geteuid(), -1, follow_symlinks=False)
    Store(link).close()
    assert victim.exists() and link.is_symlink()


@AS_ROOT
def test_what_somebody_else_left_in_the_scratch_folder_is_not_taken_up(results: Path, tmp_path: Path) -> None:
    """Its name, and what says of which copy it is, anybody can work out."""
    disk = tmp_path / "disk"
    folder = disk / f"{commit_copies._prefix(results)}x"
    folder.mkdir(parents=True)
    results_file(folder / results.name)
    (folder / commit_copies._COPY_RECORD).write_text(commit_copies._version(results))
    os.chown(folder, 12345, -1)
    with commit_copies.open_copy(results, disk, print) as held:
        assert held.path.parent != folder
    os.chown(folder, os.geteuid(), -1)
    (folder / commit_copies._COPY_RECORD).write_text(commit_copies._version(results))
    with commit_copies.open_copy(results, disk, print) as held:
        assert held.path.parent == folder, "a killed run's own is"


def test_a_pipe_that_nobody_reads_is_not_waited_for(results: Path, place: Path) -> None:
    os.mkfifo(place / "x.csv")
    refused(lbx("sql", results, "SELECT 1 AS n", "-f", "csv", "-o", place / "x.csv"), "without a reader")
    reader = os.open(place / "x.csv", os.O_RDONLY | os.O_NONBLOCK)
    assert lbx("sql", results, "SELECT 1 AS n", "-f", "csv", "-o", place / "x.csv").code == 0
    assert os.read(reader, 100) == b"n\n1\n"
    os.close(reader)


def test_standard_output_stays_what_it_is(results: Path, tmp_path: Path) -> None:
    """A shell has opened it, and writes to it before and after."""
    command = [sys.executable, "-P", "-m", "lbx.cli", "sql", results, "SELECT 1 AS n", "-f", "csv", "-o", "/dev/stdout"]
    with (tmp_path / "out").open("wb") as out:
        out.write(b"before\n")
        out.flush()
        subprocess.run(list(map(str, command)), stdout=out, check=True, timeout=120)
        out.write(b"after\n")
    assert (tmp_path / "out").read_text().split() == ["before", "n", "1", "after"]
    assert duckdb.connect(str(results), read_only=True).execute("SELECT count(*) FROM runs").fetchone() == (1,)
