"""A file on a disk of this machine and its copy elsewhere: whole at any moment, never mixed, never lost unsaid."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from store_rows import RUN, fill, generation, sample, score

from lbx.base.errors import StoreError
from lbx.base.processes import PIPE, start_python
from lbx.store import Store
from lbx.store.copies import open_copy

NOW = 1e-9


@pytest.fixture
def target(tmp_path: Path) -> Path:
    for name in ("shared", "disk"):
        (tmp_path / name).mkdir()
    return tmp_path / "shared" / "results.duckdb"


@contextmanager
def running(target: Path, every_s: float, said: list[str]) -> Iterator[Store]:
    """A run that has begun, with its file open."""
    disk = target.parent.parent / "disk"
    with open_copy(target, disk, every_s, said.append) as copies:
        assert copies.path.parent.parent == disk
        with Store(copies.path, after_commit=copies.when_due) as store:
            store.begin_run(RUN)
            yield store


def answer(store: Store, name: str) -> None:
    store.write(samples=[sample(name)], generations=[generation(sample_id=name)], scores=[score(sample_id=name)])


def held(file: Path) -> list[str]:
    with Store(file, read_only=True) as store:
        return [row[0] for row in store.query("SELECT sample_id FROM generations ORDER BY ALL").rows]


def test_each_copy_that_is_due_holds_every_commit_before_it(target: Path) -> None:
    said: list[str] = []
    with running(target, NOW, said) as store:
        for number in range(5):
            answer(store, f"s{number}")
            assert held(target) == [f"s{n}" for n in range(number + 1)]
        assert [path.name for path in target.parent.iterdir() if path.suffix != ".lock"] == ["results.duckdb"]
    assert not said and not list((target.parent.parent / "disk").iterdir())


def test_the_first_commit_is_copied_and_then_what_is_due(target: Path) -> None:
    with running(target, 3600, []) as store:
        assert held(target) == [], "it shows that a run began"
        answer(store, "s1")
        assert held(target) == []
    assert held(target) == ["s1"]


def test_only_at_the_end(target: Path) -> None:
    with pytest.raises(RuntimeError), running(target, 0, []) as store:
        answer(store, "s1")
        assert not target.exists()
        raise RuntimeError
    assert held(target) == ["s1"], "however it ends"


def test_a_run_goes_on_with_the_copy(target: Path) -> None:
    fill(target, "r0")
    with running(target, 0, []) as store:
        answer(store, "s2")
    assert held(target) == ["s1", "s2"]


def test_a_copy_that_fails_is_told_and_the_last_one_says_where_the_results_are(target: Path) -> None:
    said: list[str] = []
    aside = target.with_name("aside")
    with pytest.raises(StoreError, match=r"could not be copied") as caught, running(target, NOW, said) as store:
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
    with running(target, 0, said):
        pass
    assert held(target) == ["s1", "s2"], "the same command takes them up"


def killed(target: Path, tmp_path: Path) -> Path:
    """What a run leaves that was killed after its second answer, the first of which was copied."""
    with running(target, NOW, []) as store:
        answer(store, "s1")
        (folder,) = (tmp_path / "disk").iterdir()
        copy = target.read_bytes()
        store._after_commit = None
        answer(store, "s2")
        kept = shutil.copytree(folder, tmp_path / "kept")
        times = target.stat().st_mtime_ns
    target.write_bytes(copy)
    os.utime(target, ns=(times, times))
    return Path(shutil.copytree(kept, tmp_path / "disk" / folder.name))


def test_what_a_killed_run_has_left_is_taken_up(target: Path, tmp_path: Path) -> None:
    left = killed(target, tmp_path)
    assert held(target) == ["s1"]
    said: list[str] = []
    with running(target, 0, said) as store:
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
    with running(target, 0, said):
        pass
    assert len(said) == 1 and str(left) in said[0] and "has changed since" in said[0]
    assert held(target) == ["s1", "s9"]
    assert list((tmp_path / "disk").iterdir()) == [left]


def test_of_two_runs_of_one_file_the_second_is_refused(target: Path) -> None:
    with running(target, 0, []), pytest.raises(StoreError, match=r"in use by .* \(PID "), running(target, 0, []):
        pass


def test_a_scratch_folder_that_is_not_there(target: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="--scratch"), open_copy(target, tmp_path / "nowhere", 0, print):
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
    with running(target, NOW, []) as store:
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
    with running(target, 0, []) as store:
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
    with running(target, 0, said):
        pass
    assert len(said) == 1 and str(left) in said[0] and "has changed since" in said[0]
    assert held(target) == ["s1", "s9"]


def test_a_file_that_a_run_writes_itself_is_not_copied(target: Path, tmp_path: Path) -> None:
    program = f"""
from pathlib import Path
from lbx.store import Store
store = Store(Path({str(target)!r}))
print("open", flush=True)
input()
"""
    with start_python(program, stdin=PIPE, stdout=PIPE) as writer:
        assert writer.stdout and writer.stdout.readline()
        with pytest.raises(StoreError, match=r"in use by .* \(PID "), running(target, 0, []):
            pass
        writer.communicate(b"\n")
    assert not list((tmp_path / "disk").iterdir())
    with running(target, 0, []) as store:
        answer(store, "s1")
    assert held(target) == ["s1"]
