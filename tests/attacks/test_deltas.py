"""Deltas: who may write to the base must not write to the bundle that was built on it, before, while or after."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest import mock

import pytest

from lbx.bundle.receiving import unpacking as lending
from tests.attacks.attack_parts import files, main, refused
from tests.bundle.forge import members
from tests.bundle.sealed import seal

BIG = bytes(range(256)) * (3 << 12)
OLD = {"data/files/old.txt": BIG, "data/files/small.txt": b"small"}
NEW = {"data/files/new.txt": BIG, "data/files/more.txt": b"more"}
HELD = {"data/files/new.txt": "data/files/old.txt"}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    root = tmp_path / "base"
    assert main("unpack", seal(tmp_path / "old", members(OLD)), "--allow-unsigned", "--to", root).code == 0
    return root


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    return seal(tmp_path / "new", members(NEW, held=HELD))


def unpacking(delta: Path, base: Path, to: Path) -> tuple[object, ...]:
    return ("unpack", delta, "--base", base, "--allow-unsigned", "--to", to)


def test_a_base_that_is_changed_afterwards_changes_nothing(base: Path, delta: Path, tmp_path: Path) -> None:
    root = tmp_path / "out"
    assert main(*unpacking(delta, base, root)).code == 0
    lent = root / "data/files/new.txt"
    assert lent.stat().st_nlink == 1 and not lent.samefile(base / "data/files/old.txt")
    with (base / "data/files/old.txt").open("r+b") as file:
        file.write(b"EVIL")
    assert lent.read_bytes() == BIG
    assert main("verify", root, "--allow-unsigned").code == 0


@pytest.mark.parametrize("block", [1, 2])
def test_a_base_that_changes_while_it_is_copied_is_refused(block: int, base: Path, delta: Path, tmp_path: Path) -> None:
    """After its first or second block has been copied, the second is replaced: half old, half new, or as it was."""
    copy, victim = shutil.copyfileobj, base / "data/files/old.txt"

    def slowly(source, target, length):  # type: ignore[no-untyped-def]
        for _ in range(block):
            target.write(source.read(length))
        with victim.open("r+b") as file:
            file.seek(1 << 20)
            file.write(b"EVIL")
        copy(source, target, length)

    with mock.patch.object(lending, "_clone", return_value=False), mock.patch.object(shutil, "copyfileobj", slowly):
        said = main(*unpacking(delta, base, tmp_path / "out"))
    if block == 1:
        refused(said, "old.txt has changed since")
        assert not (tmp_path / "out").exists()
    else:
        assert said.code == 0 and (tmp_path / "out/data/files/new.txt").read_bytes() == BIG


@pytest.mark.parametrize(
    "there", ["../../etc/passwd", "data/files/../../../x", "bagit.txt", "/etc/passwd", "data/%2e%2e/x"]
)
def test_a_delta_takes_nothing_from_outside_the_base(there: str, base: Path, tmp_path: Path) -> None:
    delta = seal(tmp_path / "new", members(NEW, held={"data/files/new.txt": there}))
    refused(main(*unpacking(delta, base, tmp_path / "out")))
    assert not (tmp_path / "out").exists()


def test_a_link_in_the_base_lends_nothing(base: Path, delta: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(BIG)
    (base / "data/files/old.txt").unlink()
    (base / "data/files/old.txt").symlink_to(tmp_path / "secret")
    refused(main(*unpacking(delta, base, tmp_path / "out")), "lacks files that")


def test_a_base_of_another_name_with_the_right_bytes_is_no_harm(delta: Path, tmp_path: Path) -> None:
    """What counts is what the delta's own manifest says of the bytes."""
    other = tmp_path / "other"
    sums = seal(tmp_path / "o", members({"data/files/elsewhere.txt": BIG}))
    assert main("unpack", sums, "--allow-unsigned", "--to", other).code == 0
    assert main(*unpacking(delta, other, tmp_path / "out")).code == 0
    payload = {path: data for path, data in files(tmp_path / "out").items() if path.startswith("data/")}
    assert payload == NEW
