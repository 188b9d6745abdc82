"""``unpack``: all of it or nothing, and nothing anywhere else."""

from __future__ import annotations

import json
import os
import re
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.base import outputs
from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError
from lbx.bundle import unpack, verify, verify_folder
from tests.bundle.forge import FILES, Member, forged, member, members, reseal, write
from tests.bundle.sealed import contents


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_folder_holds_exactly_the_bag(good: Path, tmp_path: Path) -> None:
    result = unpack(good, tmp_path / "deep/er/root")
    assert result.root == tmp_path / "deep/er/root"
    assert not result.already
    assert (result.files, result.bytes) == (3, 2405)
    with tarfile.open(good) as tar:
        inside = {info.name.removeprefix("x/"): tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]
    assert contents(result.root) == inside
    assert json.loads(result.to_json())["root"] == str(result.root)
    assert Bundle(result.root).digest == result.digest == verify(good).digest
    assert [path.name for path in (tmp_path / "deep/er").iterdir()] == ["root"]
    assert {path.stat().st_mode & 0o777 for path in result.root.rglob("*") if path.is_file()} == {0o644}
    assert result.root.stat().st_mode & 0o777 == 0o755


def test_unpacking_again_says_so(good: Path, tmp_path: Path) -> None:
    first = unpack(good, tmp_path / "root")
    changed = (tmp_path / "root/bagit.txt").stat().st_mtime_ns
    again = unpack(good, tmp_path / "root")
    assert again.already
    assert again.digest == first.digest
    assert (tmp_path / "root/bagit.txt").stat().st_mtime_ns == changed


def test_unpacking_again_reads_the_folder_that_it_vouches_for(good: Path, tmp_path: Path) -> None:
    root = unpack(good, tmp_path / "root").root
    changed = max((path for path in (root / "data").rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    content = changed.read_bytes()
    changed.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(BundleError, match=re.escape(f"{changed.relative_to(root)} (changed)")):
        unpack(good, root)


def test_an_empty_folder_may_be_the_target(good: Path, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    assert unpack(good, tmp_path / "root").files == 3


def test_what_is_there_is_never_overwritten(good: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/mine").write_text("mine")
    (tmp_path / "dangling").symlink_to("nowhere")
    for name in ("file", "folder", "dangling"):
        with pytest.raises(BundleError, match=f"{name} exists and is not a bundle"):
            unpack(good, tmp_path / name)
    other = unpack(write(tmp_path / "y.tar", members({"data/files/y": b"y"})), tmp_path / "other").root
    with pytest.raises(BundleError, match="other contains another bundle"):
        unpack(good, other)
    assert contents(other)["data/files/y"] == b"y"


def test_a_target_that_cannot_be_made_is_named(good: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BundleError, match=r"Could not unpack .* to .*/file/root"):
        unpack(good, tmp_path / "file/root")


def test_a_missing_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"Archive .* does not exist"):
        unpack(tmp_path / "x.tar", tmp_path / "root")


def test_a_disk_that_is_too_small_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """The manifest promises an exabyte; nobody has to send it for the refusal."""
    entries = members({"data/files/big": b""})
    tags = [entry for entry in entries if "/data/" not in entry.info.name]
    archive = write(
        tmp_path / "x.tar", reseal(tags, b'"size": 0', b'"size": 1000000000000000000', b"0.1", b"1000000000000000000.1")
    )
    with pytest.raises(BundleError, match=r"931,322,574\.6 GiB, but"):
        unpack(archive, tmp_path / "root")
    assert listing(tmp_path) == ["x.tar"]


# Attacks: each an archive made by hand, in which only this is wrong


def replace_a(**claims: object) -> Callable[[list[Member]], None]:
    """The listed file data/files/a.txt becomes something else of the same name."""

    def change(entries: list[Member]) -> None:
        entries[5] = member("x/data/files/a.txt", **claims)

    return change


def add(name: str, content: bytes = b"evil", **claims: object) -> Callable[[list[Member]], None]:
    return lambda entries: entries.append(member(name, content, **claims))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (replace_a(type=tarfile.SYMTYPE, linkname="/etc/passwd"), "a.txt' is a symbolic link"),
        (replace_a(type=tarfile.LNKTYPE, linkname="x/bagit.txt"), "a.txt' is a hard link"),
        (replace_a(type=tarfile.FIFOTYPE), "a.txt' is a FIFO"),
        (replace_a(type=tarfile.CHRTYPE, devmajor=1, devminor=3), "a.txt' is a character device"),
        (replace_a(type=tarfile.BLKTYPE), "a.txt' is a block device"),
        (replace_a(type=tarfile.DIRTYPE), "a.txt/' is a folder"),
        (replace_a(type=b"Z"), "a.txt' is an entry of type b'Z'"),
        (replace_a(pax_headers={"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}), "a.txt' is a sparse file"),
        (add("x/link", b"", type=tarfile.SYMTYPE, linkname=".."), "'x/link' is a symbolic link"),
        (add("x/data/files/"), "empty or '.' part"),
        (add("/tmp/evil.txt"), "'/tmp/evil.txt': it is an absolute path"),
        (add("x/../../evil.txt"), "'x/../../evil.txt': it leads out"),
        (add("../evil.txt"), "'../evil.txt': it leads out"),
        (add("x/data/./a"), "empty or '.' part"),
        (add("x/data//a"), "empty or '.' part"),
        (add("x/data\\..\\evil.txt"), "a backslash"),
        (add("C:/evil.txt"), "absolute"),
        (add("x/data/files/a.txt", b"first"), "data/files/a.txt cannot be unpacked: it appears twice"),
        (add("x/data/files/A.TXT", b"first"), "data/files/A.TXT cannot be unpacked: it differs from"),
        (add("x/data/files/a.txt/b"), "data/files/a.txt is a file, not a folder"),
        (add("x/data/files/e\u0301"), "NFC"),
        (add("x/data/files/evil.txt"), "data/files/evil.txt is not in its manifest"),
        (add("x/bagit.txt", b"new"), "bagit.txt cannot be unpacked: it appears twice"),
        (add("evil.txt"), "evil.txt is outside the bundle's folder"),
        (add("y/data/files/a.txt"), "is outside the bundle's folder"),
        (lambda entries: entries.insert(0, member("x/a b/c", b"x")), "contains a b/c, but"),
        (replace_a(content=b"first and more"), "14 bytes instead of 5"),
        (replace_a(content=b"firs"), "4 bytes instead of 5"),
        (replace_a(content=b"FIRST"), "data/files/a.txt"),
        (lambda entries: entries.pop(6), "data/files/b/c.txt (missing)"),
    ],
)  # fmt: skip
def test_an_attack_is_refused_by_name_and_leaves_nothing(
    tmp_path: Path, change: Callable[[list[Member]], object], named: str
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    archive = forged(tmp_path, change)
    before = contents(tmp_path)
    with pytest.raises(BundleError) as caught:
        unpack(archive, place / "root")
    assert named in caught.value.cause
    assert listing(place) == []
    assert contents(tmp_path) == before
    assert not Path("/tmp/evil.txt").exists()
    with pytest.raises(BundleError):
        verify(archive)


@pytest.mark.parametrize("name", ["data/files/../../../evil.txt", "/tmp/evil.txt", "data/files/e\u0301"])
def test_a_manifest_that_lists_an_attack_is_refused(tmp_path: Path, name: str) -> None:
    files = {**FILES, name: b"evil"}
    with pytest.raises(BundleError, match=r"manifest-sha256\.txt lists"):
        unpack(write(tmp_path / "x.tar", members(FILES, listed=files)), tmp_path / "root")
    assert listing(tmp_path) == ["x.tar"]


def test_a_wrong_sum_beside_the_archive_stops_it(good: Path, tmp_path: Path) -> None:
    (tmp_path / "x.SHA256SUMS").write_text("0" * 64 + "  x.tar\n")
    with pytest.raises(BundleError, match=r"listed in .*SHA256SUMS"):
        unpack(good, tmp_path / "root")
    assert listing(tmp_path) == ["x.SHA256SUMS", "x.tar"]


def test_the_first_wrong_file_stops_it(tmp_path: Path) -> None:
    archive = forged(tmp_path, replace_a(content=b"FIRST"))
    with pytest.raises(BundleError, match=r"a\.txt \(changed\).*Run `lbx verify` to list all"):
        unpack(archive, tmp_path / "root")
    assert listing(tmp_path) == ["x.tar"]


def test_an_interrupt_leaves_nothing(good: Path, tmp_path: Path) -> None:
    def interrupt(stage: str, item: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unpack(good, tmp_path / "root", interrupt)
    assert listing(tmp_path) == ["x.tar"]


def test_a_sweep_from_another_namespace_takes_no_folder_that_is_in_use(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another container knows no process of this one: to it every passing folder is left over until it is locked."""
    make, swept = tempfile.mkdtemp, []

    def made_and_swept(*arguments: object, **options: object) -> str:
        folder = make(*arguments, **options)
        if len(swept) < 2:  # between making and locking
            swept.append(folder)
            outputs.remove_leftovers(tmp_path / "root")
        return folder

    monkeypatch.setattr(tempfile, "mkdtemp", made_and_swept)
    monkeypatch.setattr(outputs, "_is_alive", lambda process: False)
    root = unpack(good, tmp_path / "root").root
    assert len(swept) == 2
    assert verify_folder(root).files == 3
    assert listing(tmp_path) == ["root", "x.tar"]


def test_without_locks_what_is_left_goes_after_a_week(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Network file systems lock no folder: nobody can tell whether another machine still writes there."""
    young, old = (tmp_path / f".root.partial-999999999-{name}" for name in ("young", "old"))
    for folder in (young, old):
        folder.mkdir()
    os.utime(old, (0, 0))
    monkeypatch.setattr(outputs, "lock", lambda _: None)
    unpack(good, tmp_path / "root")
    assert listing(tmp_path) == [young.name, "root", "x.tar"]


def test_leftovers_of_dead_processes_are_swept_and_others_left_alone(good: Path, tmp_path: Path) -> None:
    dead = tmp_path / ".root.partial-999999999-abc"
    alive = tmp_path / f".root.partial-{os.getpid()}-abc"
    foreign = tmp_path / ".rooted.partial-999999999-abc"
    for folder in (dead, alive, foreign):
        (folder / "data").mkdir(parents=True)
    unpack(good, tmp_path / "root")
    assert not dead.exists()
    assert alive.exists()
    assert foreign.exists()
