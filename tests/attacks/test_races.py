"""Archives that are overwritten while they are read: what is parsed and written is what was hashed, or nothing.

The attacker sits at the system call: as soon as the bytes that he is about to replace have been read for the last time
that matters to him, he writes, long before the next read.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from tests.attacks.attack_parts import files, main, refused
from tests.bundle.forge import FILES, members
from tests.bundle.sealed import make_key, seal

SIZE = 1 << 16
BIG = {**FILES, "data/files/big.txt": random.Random(1).randbytes(3 * SIZE)}


@contextmanager
def writing_after(path: Path, reads: int, place: slice, content: bytes) -> Iterator[list[int]]:
    """Replace a file's bytes in place, once so many reads have taken some of them; gives the reads so far."""
    pread, seen = os.pread, list[int]()
    target = path.stat().st_ino

    def watched(handle: int, size: int, offset: int) -> bytes:
        data = pread(handle, size, offset)
        if os.fstat(handle).st_ino == target and offset < place.stop and offset + len(data) > place.start:
            seen.append(offset)
            if len(seen) == reads:
                with path.open("r+b") as file:
                    file.seek(place.start)
                    file.write(content)
        return data

    with mock.patch("os.pread", watched):
        yield seen
    assert len(seen) >= reads, "the attack never came to its moment"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("keys")
    return make_key(folder, "bundler"), make_key(folder, "stranger")


def stranger(folder: Path, number: int, key: Path, **options: object) -> bytes:
    """The first volume of the same bundle but for one small file, with a signature of its own.

    The file's length changes with its number: of some keys no signature has another's length when it is compressed.
    """
    small = (b"%d" % number**3)[: number % 16 + 1]
    sums = seal(folder, members({**BIG, "data/files/a.txt": small}), key=key, **options)
    data = sorted(folder.glob("x.tar*"))[0].read_bytes()
    assert sums.is_file() and data
    return data


@pytest.mark.parametrize("command", ["verify", "unpack"])
@pytest.mark.parametrize("zstd", [False, True])
@pytest.mark.parametrize("size", [SIZE, 1 << 30])
def test_the_front_is_replaced_by_a_strangers_once_it_has_been_hashed(
    command: str, zstd: bool, size: int, tmp_path: Path, keys: tuple[Path, Path]
) -> None:
    """The tags, signed by the stranger, and a small payload that fits them: all that the old sums no longer cover."""
    good = seal(tmp_path / "good", members(BIG), key=keys[0], volume_size=size, zstd=zstd)
    first = sorted(good.parent.glob("x.tar*"))[0]
    mine = first.read_bytes()
    theirs = next(
        data
        for number in range(10_000, 13_000)
        if len(data := stranger(tmp_path / f"{number}", number, keys[1], volume_size=size, zstd=zstd)) == len(mine)
    )
    to = ("--to", tmp_path / "out") if command == "unpack" else ()
    with writing_after(first, 1, slice(0, len(mine)), theirs):
        said = main(command, good, "--trust", f"{keys[0]}.pub", *to)
    refused(said)
    assert not (tmp_path / "out").exists()


def test_what_is_looked_into_is_what_was_hashed(tmp_path: Path) -> None:
    """A configuration that loads code, harmless only in the moment when it is looked at."""
    evil, mild = b'{"auto_map": {}}', b'{"auto_nap": {}}'
    for sums_there in (True, False):
        sums = seal(tmp_path / f"{sums_there}", members({**FILES, "data/files/config.json": evil}))
        archive = sums.with_name("x.tar")
        place = archive.read_bytes().index(evil)
        if not sums_there:
            sums.unlink()
        for command in (("verify", archive), ("unpack", archive, "--to", tmp_path / "out")):
            archive.write_bytes(archive.read_bytes().replace(mild, evil))
            with writing_after(archive, 1 + sums_there, slice(place, place + len(evil)), mild):
                refused(main(*command, "--allow-unsigned"))
    assert not (tmp_path / "out").exists()


def test_what_is_written_is_what_was_hashed(tmp_path: Path, keys: tuple[Path, Path]) -> None:
    big = random.Random(2).randbytes(3 << 20)
    sums = seal(tmp_path / "in", members({**FILES, "data/files/big.txt": big}), key=keys[0])
    archive = sums.with_name("x.tar")
    place = archive.read_bytes().index(big) + (2 << 20)
    with writing_after(archive, 1, slice(place, place + 4), b"EVIL"):
        refused(main("unpack", sums, "--trust", f"{keys[0]}.pub", "--to", tmp_path / "out"), "big.txt (changed)")
    assert not (tmp_path / "out").exists()


def test_a_name_that_is_pointed_elsewhere_changes_nothing(tmp_path: Path, keys: tuple[Path, Path]) -> None:
    """The files are opened once: another archive that takes their names is not looked at any more."""
    good = seal(tmp_path / "good", members(BIG), key=keys[0])
    evil = seal(tmp_path / "evil", members({**BIG, "data/files/a.txt": b"EVIL!"}), key=keys[1])
    archive, pread, once = good.with_name("x.tar"), os.pread, list[bool]()

    def renamed(handle: int, size: int, offset: int) -> bytes:
        if not once:
            once.append(True)
            evil.with_name("x.tar").replace(archive)
        return pread(handle, size, offset)

    with mock.patch("os.pread", renamed):
        assert main("unpack", good, "--trust", f"{keys[0]}.pub", "--to", tmp_path / "out").code == 0
    assert {path: data for path, data in files(tmp_path / "out").items() if path.startswith("data/")} == BIG
