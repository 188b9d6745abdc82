"""A file on a disk of this machine and its copy elsewhere: whole at any moment, never mixed, never lost unsaid."""

from __future__ import annotations

import os
import shutil
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import pwrite
from pathlib import Path
from typing import BinaryIO

import duckdb
import pytest

from lbx.base.errors import StoreError
from lbx.base.outputs import atomic_file
from lbx.base.processes import PIPE, start_python
from lbx.results import Store
from lbx.results.whole import commit_copies
from lbx.results.whole.commit_copies import open_copy, repair_wal, wal_path
from tests.results.store_rows import RUN, fill, generation, sample, score


@pytest.fixture
def target(tmp_path: Path) -> Path:
    for name in ("shared", "disk"):
        (tmp_path / name).mkdir()
    return tmp_path / "shared" / "results.duckdb"


@contextmanager
def running(target: Path, said: list[str]) -> Iterator[Store]:
    """A run that has begun, with its file open."""
    disk = target.parent.parent / "disk"
    with open_copy(target, disk, said.append) as copies:
        assert copies.path.parent.parent == disk
        with Store(copies.path, after_commit=copies.update) as store:
            store.begin_run(RUN)
            yield store


def answer(store: Store, name: str) -> None:
    store.write(samples=[sample(name)], generations=[generation(sample_id=name)], scores=[score(sample_id=name)])


def held(file: Path) -> list[str]:
    with Store(file, read_only=True) as store:
        return [row[0] for row in store.query("SELECT sample_id FROM generations ORDER BY ALL").rows]


def test_duckdb_is_the_version_whose_log_and_errors_these_tests_know() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    (tested,) = (text.partition("==")[2] for text in project["dependencies"] if text.startswith("duckdb"))
    assert duckdb.__version__ == tested, (
        f"DuckDB {duckdb.__version__} is installed. lbx/results/whole/commit_copies.py reads the log and the error "
        f"texts of {tested}. Pass tests/results and tests/anyorder with this version, then name it in pyproject.toml"
    )


def test_a_copy_has_every_commit(target: Path) -> None:
    said: list[str] = []
    with running(target, said) as store:
        assert held(target) == [], "it shows that a run began"
        for number in range(6):
            answer(store, f"s{number}")
            assert held(target) == [f"s{n}" for n in range(number + 1)]
            if number == 2:
                store.checkpoint()
        assert {path.name for path in target.parent.iterdir() if path.suffix != ".lock"} == {
            target.name,
            wal_path(target).name,
        }
        unchanged = target.stat().st_ino
        answer(store, "s6")
        assert target.stat().st_ino == unchanged, "a commit is appended"
    assert not said and not list((target.parent.parent / "disk").iterdir())
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_a_run_that_fails_is_copied(target: Path) -> None:
    with pytest.raises(RuntimeError), running(target, []) as store:
        answer(store, "s1")
        raise RuntimeError
    assert held(target) == ["s1"]


@dataclass
class DyingNode:
    """Shared folders as a node could leave them that died at any moment, each with the answers that it must have."""

    shared: Path
    committed: list[str] = field(default_factory=list)
    folders: list[tuple[Path, list[str]]] = field(default_factory=list)

    def leave(self, change: Callable[[bytes], bytes] = lambda log: log) -> None:
        folder = self.shared.parent / f"left-{len(self.folders)}"
        folder.mkdir()
        for path in self.shared.glob("results.duckdb*"):
            content = path.read_bytes()
            (folder / path.name).write_bytes(change(content) if path.suffix == ".wal" else content)
        self.folders.append((folder, [*self.committed]))

    @contextmanager
    def replaces(self, path: Path, **options: bool) -> Iterator[BinaryIO]:
        self.leave()
        with atomic_file(path, **options) as file:
            yield file
        self.leave()

    def writes(self, handle: int, data: bytes, position: int) -> int:
        """Write a part of the data; the rest may be missing, zero or damaged when the node dies."""
        count = pwrite(handle, data[: max(500, len(data) // 2)], position)
        for rest in (b"", bytes(len(data) - count), b"\xff" * (len(data) - count)):
            self.leave(lambda log, rest=rest: log[: position + count] + rest)  # type: ignore[misc]
        hole = bytes(count // 2) + data[count // 2 :]
        self.leave(lambda log: log[:position] + hole)
        return count


def test_a_node_dies_at_any_moment(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next node has every answer whose commit had returned, and perhaps those of the commit at that moment."""
    node = DyingNode(target.parent)
    with monkeypatch.context() as patched, running(target, []) as store:
        patched.setattr(commit_copies, "atomic_file", node.replaces)
        patched.setattr(commit_copies.os, "pwrite", node.writes)  # type: ignore[attr-defined]
        for number in range(3):
            answer(store, f"s{number}")
            node.committed.append(f"s{number}")
            node.leave()
            if number == 0:
                store.checkpoint()
    assert len(node.folders) > 15
    repairs: list[str] = []
    for at, (folder, committed) in enumerate(node.folders):
        disk = folder / "disk"
        disk.mkdir()
        other = folder.parent / f"read-{at}"
        shutil.copytree(folder, other)
        repair_wal(other / target.name, repairs.append)
        left = held(other / target.name)
        assert left[: len(committed)] == committed and len(left) <= len(committed) + 1, (at, left, committed)
        with (
            open_copy(folder / target.name, disk, repairs.append) as new_copies,
            Store(new_copies.path, after_commit=new_copies.update) as store,
        ):
            assert store.query("SELECT sample_id FROM generations ORDER BY ALL").rows == [(name,) for name in left]
            store.begin_run(RUN)
        assert held(folder / target.name) == left and len(list(folder.glob("results*"))) == 1
    assert {said.split()[0] for said in repairs} == {"Removed", "Cut"}


def test_a_run_goes_on_with_the_copy(target: Path) -> None:
    fill(target, "r0")
    with running(target, []) as store:
        answer(store, "s2")
    assert held(target) == ["s1", "s2"]


def test_a_copy_that_fails_is_told_and_the_last_one_says_where_the_results_are(target: Path) -> None:
    said: list[str] = []
    aside = target.with_name("aside")
    with pytest.raises(StoreError, match=r"could not be copied") as caught, running(target, said) as store:
        answer(store, "s1")
        target.rename(aside)
        target.mkdir()  # in the way
        answer(store, "s2")
        assert len(said) == 1 and "could not be updated" in said[0]
        assert held(aside) == ["s1"]
    (left,) = (target.parent.parent / "disk").glob("*/*.duckdb")
    assert f"They are in {left}" in str(caught.value)
    assert held(left) == ["s1", "s2"]
    target.rmdir()
    aside.rename(target)
    with running(target, said):
        pass
    assert held(target) == ["s1", "s2"], "the same command takes them up"


def killed(target: Path, tmp_path: Path) -> Path:
    """What a run leaves that was killed after its second answer, before the copy had it."""
    with running(target, []) as store:
        answer(store, "s1")
        (folder,) = (tmp_path / "disk").iterdir()
        copy, log, times = target.read_bytes(), wal_path(target).read_bytes(), target.stat().st_mtime_ns
        store._after_commit = None
        answer(store, "s2")
        kept = shutil.copytree(folder, tmp_path / "kept")
    target.write_bytes(copy)
    wal_path(target).write_bytes(log)
    os.utime(target, ns=(times, times))
    return Path(shutil.copytree(kept, tmp_path / "disk" / folder.name))


def test_what_a_killed_run_has_left_is_taken_up(target: Path, tmp_path: Path) -> None:
    left = killed(target, tmp_path)
    assert held(target) == ["s1"]
    said: list[str] = []
    with running(target, said) as store:
        assert store.path.parent == left
        answer(store, "s3")
    assert len(said) == 1 and "this run continues it" in said[0]
    assert held(target) == ["s1", "s2", "s3"]
    assert not list((tmp_path / "disk").iterdir())


def test_what_a_killed_run_has_left_is_named_where_the_copy_has_gone_on(target: Path, tmp_path: Path) -> None:
    left = killed(target, tmp_path)
    with Store(target) as store:  # as on another node
        answer(store, "s9")
    said: list[str] = []
    with running(target, said):
        pass
    assert len(said) == 1 and str(left) in said[0] and "has changed since" in said[0]
    assert held(target) == ["s1", "s9"]
    assert list((tmp_path / "disk").iterdir()) == [left]


def test_of_two_runs_of_one_file_the_second_is_refused(target: Path) -> None:
    with running(target, []), pytest.raises(StoreError, match=r"in use by .* \(PID "), running(target, []):
        pass


def test_a_scratch_folder_that_is_not_there(target: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="--scratch"), open_copy(target, tmp_path / "nowhere", print):
        pass


def killed_without_scratch(target: Path) -> None:
    """What a run leaves that wrote to its results file itself and was killed: a database, and its answers' log."""
    with Store(target) as store:
        store.begin_run(RUN)
        store.checkpoint()
        answer(store, "s1")
        kept = {path: path.read_bytes() for path in target.parent.glob(f"{target.name}*")}
    assert sorted(path.suffix for path in kept) == [".duckdb", ".wal"]
    for path, content in kept.items():
        path.write_bytes(content)


def test_a_killed_runs_log_goes_along_with_its_file(target: Path) -> None:
    killed_without_scratch(target)
    with running(target, []) as store:
        assert store.query("SELECT sample_id FROM generations").rows == [("s1",)], "it is not asked again"
        answer(store, "s2")
        assert held(target) == ["s1", "s2"]
    assert held(target) == ["s1", "s2"]
    assert not target.with_name(f"{target.name}.wal").exists(), "a log beside a newer file"


def test_a_link_to_a_file_elsewhere_leads_to_its_log_and_stays_a_link(target: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    place = tmp_path / "elsewhere" / "r.duckdb"
    killed_without_scratch(place)
    target.symlink_to(place)
    with running(target, []) as store:
        answer(store, "s2")
    assert target.is_symlink() and held(place) == ["s1", "s2"]
    assert [path.name for path in place.parent.iterdir() if path.suffix != ".lock"] == ["r.duckdb"]


def test_what_was_left_on_this_disk_is_named_where_a_run_without_it_has_gone_on(target: Path, tmp_path: Path) -> None:
    left = killed(target, tmp_path)
    with Store(target) as store:
        log = target.with_name(f"{target.name}.wal")
        status = target.stat()
        answer(store, "s9")
        content = target.read_bytes(), log.read_bytes()
    target.write_bytes(content[0])
    os.utime(target, ns=(status.st_mtime_ns, status.st_mtime_ns))  # DuckDB has written to the log alone
    log.write_bytes(content[1])
    said: list[str] = []
    with running(target, said):
        pass
    assert len(said) == 1 and str(left) in said[0] and "has changed since" in said[0]
    assert held(target) == ["s1", "s9"]


def test_a_file_that_a_run_writes_itself_is_not_copied(target: Path, tmp_path: Path) -> None:
    program = f"""
from pathlib import Path
from lbx.results import Store
store = Store(Path({str(target)!r}))
print("open", flush=True)
input()
"""
    with start_python(program, stdin=PIPE, stdout=PIPE) as writer:
        assert writer.stdout and writer.stdout.readline()
        with pytest.raises(StoreError, match=r"in use by .* \(PID "), running(target, []):
            pass
        writer.communicate(b"\n")
    assert not list((tmp_path / "disk").iterdir())
    with running(target, []) as store:
        answer(store, "s1")
    assert held(target) == ["s1"]
