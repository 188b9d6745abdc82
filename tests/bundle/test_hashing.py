"""Hashing on other threads, and bringing to the disk on others still: the same sums, and no error lost."""

from __future__ import annotations

import errno
import hashlib
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbx.base.errors import BundleError, UsageError
from lbx.bundle import CreateResult, disk, unpack
from lbx.bundle.disk import BackgroundSha256, Flusher, Tally, map_in_threads, silent
from tests.bundle.forge import members
from tests.bundle.sealed import seal


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([0, 1, 511, 512, 40_000, (1 << 16) - 1, 1 << 16, 1 << 20]), max_size=12), st.booleans())
def test_pieces_of_any_size_give_the_sum_of_the_whole(sizes: list[int], threaded: bool) -> None:
    rng = random.Random(str(sizes))
    pieces = [rng.randbytes(size) for size in sizes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "_BEGIN", 100_000)
        patch.setattr(disk, "usable_cpu_count", lambda: 2)
        digest = BackgroundSha256(threaded=threaded)
        for piece in pieces:
            digest.update(memoryview(piece))
        assert digest.hexdigest() == hashlib.sha256(b"".join(pieces)).hexdigest()


def test_the_work_of_many_threads_comes_back_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lbx.bundle.disk.usable_cpu_count", lambda: 3)
    steps: list[int] = []
    tally = Tally(lambda stage, item, done, total: steps.append(done), "read", 20 << 20)

    def work(number: int) -> int:
        tally.add(f"{number}", 1 << 20)
        return -number

    assert map_in_threads(work, range(20), tally) == [-number for number in range(20)]
    assert steps == [n << 20 for n in range(1, 21)]
    assert [tally.outweighs(size) for size in (6 << 20, 7 << 20)] == [False, True]


def test_the_first_failure_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lbx.bundle.disk.usable_cpu_count", lambda: 2)
    tally = Tally(silent, "read", 1 << 30)

    def work(number: int) -> None:
        if number == 1:
            raise BundleError("the second one")
        while True:  # a file without end: only being given up ends it
            tally.add("", 1)

    with pytest.raises(BundleError, match="the second one"):
        map_in_threads(work, range(4), tally)


def fail_after(monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """The disk fails in the background, once, and the file's own fsync knows nothing of it: so does Linux."""
    monkeypatch.setattr(disk, "_EVERY", 1 << 19)
    left = [calls]

    def fdatasync(handle: int) -> None:
        left[0] -= 1
        if not left[0]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", fdatasync)


def test_a_flusher_tells_what_went_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fail_after(monkeypatch, 1)
    with (tmp_path / "x").open("wb") as out:
        flusher = Flusher(out.fileno())
        flusher.wrote(1 << 20)
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            flusher.close()


@pytest.mark.parametrize("calls", [1, 2])  # more there may not be: what is late is flushed together
def test_a_disk_that_fails_while_it_packs_leaves_no_archive(
    bundle: Callable[..., CreateResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    fail_after(monkeypatch, calls)
    with pytest.raises(UsageError, match=r"Could not write the bundle: .*Input/output error"):
        bundle()
    assert not list((tmp_path / "out").rglob("*.tar*"))


def test_a_disk_that_fails_while_it_unpacks_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sums = seal(tmp_path / "made", members({f"data/files/{n}": bytes(3 << 20) for n in range(3)}))
    fail_after(monkeypatch, 2)
    with pytest.raises(BundleError, match=r"Could not unpack .*Input/output error"):
        unpack(sums, tmp_path / "root")
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
