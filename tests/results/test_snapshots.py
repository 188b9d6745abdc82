"""Copies of a file that another process writes: whole at every moment, made seldom, never where the run needs room."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

from lbx.base.errors import StoreError
from lbx.base.processes import PIPE, Popen, run_tool, start_python
from lbx.results import SessionRow, Store
from lbx.results.file import snapshots
from lbx.results.file.sessions import progress_of_runs, store_sessions
from lbx.results.read.runs import states_of_runs
from lbx.results.whole.commit_copies import open_copy
from tests.results.store_rows import RUN, fill, generation, sample, score

_COMMITS = """
import random, sys
from pathlib import Path
from lbx.base.database import open_database
chance = random.Random(0)
connection = open_database(Path(sys.argv[1]), read_only=False)
connection.execute("CREATE TABLE t (i BIGINT, j BIGINT, s VARCHAR, PRIMARY KEY (i, j))")
connection.execute("CREATE TABLE n AS SELECT 0::BIGINT AS i, 0::BIGINT AS n")
print(1, flush=True)
i = 0
while True:
    i += 1
    n = chance.choice([1, 64, 64, 2000, 50000 if i % 10 == 0 else 10])
    connection.begin()
    connection.execute("INSERT INTO t SELECT $1, r, repeat(md5($1 || '/' || r), 4) FROM range($2) x(r)", [i, n])
    connection.execute("INSERT INTO n VALUES (?, ?)", [i, n])
    if i % 7 == 0:
        connection.execute("DELETE FROM t WHERE i = ?", [i - 5])
        connection.execute("UPDATE n SET n = 0 WHERE i = ?", [i - 5])
    connection.commit()
    if chance.random() < 0.2:
        connection.execute("CHECKPOINT")
"""
_WRONG = """
    SELECT n.i, n.n, count(t.i) FROM n FULL JOIN t USING (i) GROUP BY ALL
    HAVING n.n IS NULL OR n.n <> count(t.i) OR bool_or(s <> repeat(md5(i || '/' || j), 4))
"""
_HOLDS = """
import sys
from pathlib import Path
from lbx.results import Store
with Store(Path(sys.argv[1])):
    print(1, flush=True)
    input()
"""


_COMMITS_WHEN_TOLD = """
import sys
from pathlib import Path
from lbx.results import Store
with Store(Path(sys.argv[1])) as store:
    print(1, flush=True)
    for word in sys.stdin:
        store.finish_run("r1", word.strip())
        store.checkpoint()
        print(1, flush=True)
"""


@contextmanager
def written(path: Path, program: str = _HOLDS) -> Iterator[Popen[bytes]]:
    """A process that has the file open."""
    process = start_python(program, str(path), stdin=PIPE, stdout=PIPE)
    try:
        assert process.stdout and process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "results.duckdb"
    fill(made, "r1")
    return made


def left(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if "partial" in path.name]


def test_a_copy_is_whole_whatever_is_written_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer commits and takes its log into the file without a pause, 4 pages of it at a time or 50,000 rows."""
    path = tmp_path / "busy.duckdb"
    newest: list[int] = []
    monkeypatch.setattr(snapshots, "_REST", 0)
    with written(path, _COMMITS):
        while len(newest) < 12:
            try:
                connection, snapshot = snapshots.connect_reader(path)
            except StoreError as error:
                assert "faster than it can be copied" in str(error)
                continue
            assert snapshot is not None
            with closing(connection):
                assert connection.execute(_WRONG).fetchall() == []
                newest += connection.execute("SELECT max(i) FROM n").fetchone() or ()
    assert newest == sorted(newest) and len(set(newest)) > 3, newest


def test_a_copy_is_begun_again_where_a_checkpoint_comes_in_between(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words, copy = iter((b"first\n", b"second\n")), snapshots._copy

    with written(path, _COMMITS_WHEN_TOLD) as writer:

        def disturbed(file: BinaryIO, into: BinaryIO) -> None:
            copy(file, into)
            if word := next(words, None):
                assert writer.stdin and writer.stdout
                writer.stdin.write(word)
                writer.stdin.flush()
                writer.stdout.readline()

        monkeypatch.setattr(snapshots, "_copy", disturbed)
        with Store(path, allow_writer=True) as store:
            assert store.query("SELECT status FROM runs").rows == [("second",)]


def test_a_copy_is_made_once_for_what_is_the_same(path: Path, tmp_path: Path) -> None:
    with written(path):
        with Store(path, allow_writer=True) as one, Store(path, allow_writer=True) as two:
            assert one.snapshot is two.snapshot is not None
            assert one.query("SELECT run_id FROM runs").rows == two.query("SELECT run_id FROM runs").rows == [("r1",)]
        assert len(left(tmp_path)) == 1
    with Store(path, allow_writer=True) as store:
        assert store.snapshot is None and progress_of_runs(store) == {}
    del one, two, store
    assert left(tmp_path) == [], "the file is read itself as soon as nobody writes it"


def test_many_readers_at_once(path: Path) -> None:
    read = []

    def look() -> None:
        with Store(path, allow_writer=True) as store:
            read.append(store.query("SELECT run_id FROM runs").rows)

    with written(path):
        threads = [threading.Thread(target=look) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert read == [[("r1",)]] * 6


def test_no_copy_takes_the_room_that_the_run_needs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "_ROOM", 1 << 60)
    monkeypatch.setattr(snapshots.tempfile, "gettempdir", lambda: str(tmp_path))  # type: ignore[attr-defined]
    with written(path) as process:
        with pytest.raises(StoreError, match=r"PID \d+.*leave too little disk space for the run") as refused:
            Store(path, allow_writer=True)
        assert process.poll() is None and "Wait for it to end" in str(refused.value)
    assert left(tmp_path) == []


def test_on_a_disk_without_room_for_a_copy_it_lies_elsewhere(path: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if run_tool(["mount", "-t", "tmpfs", "-o", "size=32M", "tmpfs", str(small)], capture_output=True).returncode:
        pytest.skip("needs root and a kernel that lets it mount a tmpfs")
    try:
        on_it = small / path.name
        on_it.write_bytes(path.read_bytes())
        with written(on_it), Store(on_it, allow_writer=True) as store:
            assert store.snapshot is not None and not store.snapshot.path.is_relative_to(small)
            assert store.query("SELECT run_id FROM runs").rows == [("r1",)]
            assert left(small) == []
    finally:
        run_tool(["umount", str(small)], check=True)


def test_a_copy_that_a_run_on_another_disk_makes_says_so(tmp_path: Path) -> None:
    target, disk = tmp_path / "results.duckdb", tmp_path / "disk"
    disk.mkdir()
    with open_copy(target, disk, pytest.fail) as copies, Store(copies.path, after_commit=copies.update) as store:
        store.begin_run(RUN)
        with Store(target, allow_writer=True) as reader:
            assert progress_of_runs(reader) == {"r1": "running, 0 answers"}, "it prepares its first session"
            assert states_of_runs(reader) == {"r1": "running"}
        store_sessions(store, [SessionRow("r1", 1, 0, {}, done_before=40, to_ask=1_200)])
        store.write(samples=[sample()], generations=[generation()], scores=[score()])
        with Store(target, allow_writer=True) as reader:
            assert reader.snapshot is not None and reader.snapshot.path == target
            assert progress_of_runs(reader) == {"r1": "running, 41 of 1,240"}
    with Store(target, allow_writer=True) as reader:
        assert progress_of_runs(reader) == {}


def test_other_commands_are_refused_and_say_who_reads(path: Path) -> None:
    with written(path), pytest.raises(StoreError, match=r"in use by .* \(PID .* `lbx report`, `show`"):
        Store(path, read_only=True)


def test_a_pipe_in_the_place_of_the_lock_holds_nobody_up(path: Path) -> None:
    os.mkfifo(path.with_name(f".{path.name}.lock"))
    with Store(path, allow_writer=True) as store:
        assert store.snapshot is None


def test_a_process_does_not_read_what_it_writes(path: Path) -> None:
    """To close the file anywhere in it would take DuckDB's lock from the file: two processes could write it."""
    other = "import sys, duckdb; duckdb.connect(sys.argv[1])"
    with Store(path):
        for ways in ({"allow_writer": True}, {"read_only": True}, {}):
            with pytest.raises(StoreError, match="this process is writing to it"):
                Store(path, **ways)  # type: ignore[arg-type]
        with start_python(other, str(path), stderr=PIPE) as process:
            assert b"Could not set lock" in process.communicate()[1]
    with Store(path, read_only=True) as store:
        assert store.query("SELECT run_id FROM runs").rows == [("r1",)]


def test_a_file_that_has_just_been_made_holds_nothing_yet(tmp_path: Path) -> None:
    path = tmp_path / "new.duckdb"
    made = "import sys, duckdb; c = duckdb.connect(sys.argv[1]); print(1, flush=True); input()"
    with written(path, made), pytest.raises(StoreError, match=r"is still empty.* try again"):
        Store(path, allow_writer=True)
