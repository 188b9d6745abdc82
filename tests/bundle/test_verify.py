"""``verify``: every byte counts, and everything wrong is named."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbx.base.errors import BundleError
from lbx.bundle import VerifyReport, unpack, verify, verify_folder
from lbx.bundle.tar import ArchiveStream, TarReader, TarWriter, tar_size
from tests.bundle.forge import FILES, forged, member, members, write
from tests.profiles import examples


def put_sums(archive: Path, listed: str = "") -> Path:
    sums = archive.with_suffix(".SHA256SUMS")
    sums.write_text(f"{hashlib.sha256(archive.read_bytes()).hexdigest()}  {listed or archive.name}\n")
    return sums


def test_a_good_archive_gives_its_evidence(good: Path) -> None:
    report = verify(good)
    with tarfile.open(good) as tar:
        tag_manifest = tar.extractfile("x/tagmanifest-sha256.txt")
        assert tag_manifest is not None
        assert report.digest == hashlib.sha256(tag_manifest.read()).hexdigest()
    assert (report.name, report.files, report.bytes) == ("x", 3, 2405)
    assert (report.archive_sha256, report.sums) == ("", "")
    assert json.loads(report.to_json())["problems"] == []
    put_sums(good)
    report = verify(good)
    assert (report.archive_sha256, report.sums) == (hashlib.sha256(good.read_bytes()).hexdigest(), "x.SHA256SUMS")


def test_an_archive_needs_no_particular_owner_mode_or_time(tmp_path: Path) -> None:
    entries = members()
    for entry in entries:
        entry.info.mtime, entry.info.uname, entry.info.mode = 1_700_000_000, "someone", 0o600
    assert verify(write(tmp_path / "x.tar", entries)).files == 3
    assert verify(write(tmp_path / "gnu.tar", entries, tarfile.GNU_FORMAT)).files == 3


# No archive at all


def test_a_missing_archive_names_those_beside_it(good: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"Archive .*y\.tar does not exist\. Archives in that folder: x\.tar"):
        verify(tmp_path / "y.tar")
    with pytest.raises(BundleError, match=r"Archive .* does not exist\. Check the path"):
        verify(tmp_path / "no/y.tar")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"hello", "not a tar archive"),
        (b"hello" * 1000, "not a tar archive"),
        (bytes(10240), "not a tar archive"),
        (b"\x1f\x8b" + bytes(1000), "gzip file, not a plain tar"),
        (b"PK\x03\x04" + bytes(1000), "zip file, not a plain tar"),
    ],
)
def test_what_is_no_tar_is_called_so(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(content)
    with pytest.raises(BundleError, match=message):
        verify(path)


def test_a_folder_is_no_archive(tmp_path: Path) -> None:
    for folder in (tmp_path, Path(), Path("/")):
        with pytest.raises(BundleError, match="is a folder, not an archive"):
            verify(folder)


def test_a_tar_of_something_else_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"not a complete bundle: bagit\.txt is missing"):
        verify(write(tmp_path / "x.tar", [member("x/bag-info.txt", b"hi")]))


# Damage


def test_every_changed_file_is_named(tmp_path: Path) -> None:
    changed = {path: content.replace(b"s", b"S") for path, content in FILES.items()}
    with pytest.raises(BundleError) as caught:
        verify(write(tmp_path / "x.tar", members(changed, listed=FILES)))
    assert "manifest (2): " in caught.value.cause
    assert "data/files/a.txt (changed), data/files/b/c.txt (changed)" in caught.value.cause


def test_no_more_than_ten_are_named(tmp_path: Path) -> None:
    files = {f"data/files/{n:02}": b"right" for n in range(25)}
    with pytest.raises(BundleError) as caught:
        verify(write(tmp_path / "x.tar", members(dict.fromkeys(files, b"wrong"), listed=files)))
    assert "manifest (25): " in caught.value.cause
    assert "data/files/09 (changed) and 15 more" in caught.value.cause


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    archive = forged(tmp_path, lambda entries: entries.pop())
    with pytest.raises(BundleError, match=r"data/files/empty\.txt \(missing\)"):
        verify(archive)


def test_an_archive_cut_anywhere_is_cut_short(good: Path) -> None:
    whole = good.read_bytes()
    for length in range(512, len(whole), 512):
        good.write_bytes(whole[:length])
        with pytest.raises(BundleError, match="truncated: it ends after"):
            verify(good)
    good.write_bytes(whole[: whole.index(b"secondsecond") + 100])
    with pytest.raises(BundleError, match=r"in the middle of x/data/files/b/c\.txt"):
        verify(good)


def test_bytes_behind_the_end_are_found(good: Path) -> None:
    good.write_bytes(good.read_bytes() + b"x" * 10240)
    with pytest.raises(BundleError, match="extra bytes follow its end mark"):
        verify(good)


def test_another_sum_beside_the_archive_is_found(good: Path) -> None:
    sums = put_sums(good)
    sums.write_text("0" * 64 + "  x.tar\n")
    with pytest.raises(BundleError, match=r"x\.tar does not have the sha256 listed in x\.SHA256SUMS"):
        verify(good)
    put_sums(good, listed="other.tar")
    with pytest.raises(BundleError, match=r"does not list x\.tar"):
        verify(good)


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, VerifyReport]:
    path = write(tmp_path_factory.mktemp("fuzz") / "x.tar", members())
    return path, path.read_bytes(), verify(path)


@settings(max_examples=examples(300))
@given(data=st.data())
def test_one_changed_byte_is_always_found(small: tuple[Path, bytes, VerifyReport], data: st.DataObject) -> None:
    path, whole, _ = small
    place = data.draw(st.integers(0, len(whole) - 1))
    flipped = whole[place] ^ data.draw(st.integers(1, 255))
    path.write_bytes(whole[:place] + bytes([flipped]) + whole[place + 1 :])
    with pytest.raises(BundleError):
        verify(path)


@settings(max_examples=examples(150))
@given(data=st.data())
def test_any_damage_is_found_or_harmless(small: tuple[Path, bytes, VerifyReport], data: st.DataObject) -> None:
    """Blocks overwritten, moved, cut: never another exception; what still passes holds the same files."""
    path, whole, report = small
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(damaged)))
        piece = data.draw(
            st.one_of(st.binary(max_size=600), st.sampled_from([whole[n : n + 512] for n in range(0, 8192, 512)]))
        )
        cut = data.draw(st.sampled_from([0, len(piece), 512, len(damaged)]))
        damaged[at : at + cut] = piece
    path.write_bytes(damaged)
    try:
        passed = verify(path)
    except BundleError:
        return
    assert (passed.digest, passed.files, passed.bytes) == (report.digest, report.files, report.bytes)


@settings(max_examples=50)
@given(data=st.data())
def test_with_sums_beside_it_no_damage_passes(small: tuple[Path, bytes, VerifyReport], data: st.DataObject) -> None:
    path, whole, _ = small
    path.write_bytes(whole)
    sums = put_sums(path)
    try:
        damaged = data.draw(st.one_of(st.just(whole + bytes(10240)), st.binary(max_size=2000), st.just(whole[:-512])))
        path.write_bytes(damaged)
        with pytest.raises(BundleError):
            verify(path)
    finally:
        sums.unlink()


# A bundle that contradicts itself


def tags_with(tmp_path: Path, path: str, change: Callable[[bytes], bytes], reseal: bool = True) -> Path:
    """An archive with one tag file changed, and the tag manifest made to fit again."""
    entries = members()
    tags = {entry.info.name.removeprefix("x/"): entry for entry in entries if "/data/" not in entry.info.name}
    tags[path].content = change(tags[path].content)
    if reseal:
        sealed = {name: entry.content for name, entry in tags.items() if not name.startswith("tagmanifest")}
        lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(sealed.items())]
        tags["tagmanifest-sha256.txt"].content = "".join(lines).encode()
    for entry in tags.values():
        entry.info.size = len(entry.content)
    return write(tmp_path / "x.tar", entries)


@pytest.mark.parametrize(
    ("path", "old", "new", "message"),
    [
        ("bag-info.txt", b"2405.3", b"2405.4", "Payload-Oxum"),
        ("bagit.txt", b"1.0", b"9.9", "does not have a bundle's content"),
        (
            "lbx/bundle.json",
            b'"format": 1',
            b'"format": 2',
            "bundle format 2, but this version of lbx reads only format 1",
        ),
        ("lbx/bundle.json", b'"format": 1', b'"format": "1"', "no format number"),
        ("lbx/bundle.json", b'"size": 5', b'"size": -5', "no valid size"),
        ("lbx/bundle.json", b'"size": 5', b'"size": true', "no valid size"),
        ("lbx/bundle.json", b'"files"', b'"filez"', "no valid list of files"),
        ("lbx/bundle.json", b'"name": "x"', b'"name": "\\u001b[2J"', "has the invalid bundle name"),
        ("lbx/bundle.json", b'"sources"', b'"sourcez"', "lacks name, description or sources"),
        ("lbx/bundle.json", b"{", b"", "not valid JSON"),
        ("lbx/bundle.json", b"a.txt", b"A.txt", "disagree about 'data/files/A.txt'"),
        ("manifest-sha256.txt", b"  data/files/a.txt", b" data/files/a.txt", "line 1 of manifest-sha256.txt"),
        ("manifest-sha256.txt", b"files/a.txt", b"files/../../a", "leads out"),
        ("manifest-sha256.txt", b"data/files/a.txt", b"/data/files/a.txt", "absolute"),
        ("manifest-sha256.txt", b"files/empty.txt", b"files/b/C.txt", "upper and lower"),
        ("manifest-sha256.txt", b"files/empty.txt", b"files/b/c.txt", "twice"),
        ("manifest-sha256.txt", b"files/empty.txt", b"files/e\xcc\x81.txt", "NFC"),
        ("manifest-sha256.txt", b"a.txt", b"\xff.txt", "not UTF-8"),
    ],
)
def test_a_bundle_that_contradicts_itself_is_refused(
    tmp_path: Path, path: str, old: bytes, new: bytes, message: str
) -> None:
    with pytest.raises(BundleError, match=message):
        verify(tags_with(tmp_path, path, lambda content: content.replace(old, new, 1)))


@pytest.mark.parametrize("path", ["bag-info.txt", "lbx/bundle.json", "manifest-sha256.txt"])
def test_a_changed_tag_file_is_named(tmp_path: Path, path: str) -> None:
    with pytest.raises(BundleError, match=f"{path} has changed since"):
        verify(tags_with(tmp_path, path, lambda content: content + b"\n", reseal=False))


def test_a_file_of_no_source_is_refused(tmp_path: Path) -> None:
    line = f"{'0' * 64}  data/files/z.txt\n".encode()
    with pytest.raises(BundleError, match=r"data/files/z\.txt does not belong to any source"):
        verify(tags_with(tmp_path, "manifest-sha256.txt", lambda content: content + line))


def test_a_tag_file_that_nothing_lists_is_refused(tmp_path: Path) -> None:
    archive = forged(tmp_path, lambda entries: entries.insert(0, member("x/extra.txt", b"hi")))
    with pytest.raises(BundleError, match=r"contains extra\.txt, but outside data/ a bundle has only its own records"):
        verify(archive)


def test_payload_before_its_manifest_is_refused(tmp_path: Path) -> None:
    archive = forged(tmp_path, lambda entries: entries.insert(0, entries.pop(5)))
    with pytest.raises(BundleError, match=r"data/files/a\.txt comes before tagmanifest-sha256\.txt"):
        verify(archive)


def test_a_tag_file_after_the_payload_is_refused(tmp_path: Path) -> None:
    archive = forged(tmp_path, lambda entries: entries.append(member("x/late.txt", b"hi")))
    with pytest.raises(BundleError, match=r"late\.txt is not in its manifest"):
        verify(archive)


def test_deeply_nested_json_is_no_traceback(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="not valid JSON"):
        verify(tags_with(tmp_path, "lbx/bundle.json", lambda _: b"[" * 200_000))


# The tar itself


def test_the_writer_and_tarfile_agree(tmp_path: Path) -> None:
    files = {"x/a": b"one", "x/" + "long/" * 30 + "name.txt": b"two" * 1000, "x/中文.txt": b"", "x/b": bytes(512)}
    path = tmp_path / "x.tar"
    with path.open("wb") as out:
        writer = TarWriter(out, 77)
        for name, content in files.items():
            writer.add(name, len(content), [content])
        writer.close()
    assert path.stat().st_size == tar_size((name, len(content)) for name, content in files.items())
    with tarfile.open(path) as tar:
        found = tar.getmembers()
        assert [info.name for info in found] == list(files)
        assert {(info.mtime, info.mode, info.uid, info.gid, info.uname) for info in found} == {(77, 0o644, 0, 0, "")}
        assert [tar.extractfile(info).read() for info in found] == list(files.values())  # type: ignore[union-attr]
    with path.open("rb") as file:
        reader = TarReader(ArchiveStream(file), path)
        assert {item.name: b"".join(reader.blocks()) for item in reader} == files


def test_files_beyond_eight_gigabytes_keep_their_size() -> None:
    header = io.BytesIO()
    with pytest.raises(ValueError, match="instead of 9000000000"):
        TarWriter(header, 0).add("x/big", 9_000_000_000, [b""])
    header.seek(0)
    member = next(iter(TarReader(ArchiveStream(header), Path("x.tar"))))
    assert (member.name, member.size) == ("x/big", 9_000_000_000)


def test_memory_stays_flat(tmp_path: Path) -> None:
    files = {"data/files/big": bytes(48 << 20)}
    path = write(tmp_path / "x.tar", members(files))
    del files
    tracemalloc.start()
    try:
        verify(path)
        unpack(path, tmp_path / "root")
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


# An unpacked bundle


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    return unpack(good, tmp_path / "root").root


def test_an_unpacked_bundle_can_be_checked_again(folder: Path, good: Path) -> None:
    assert verify_folder(folder).digest == verify(good).digest


def test_what_changed_in_a_folder_is_named(folder: Path) -> None:
    (folder / "data/files/a.txt").write_bytes(b"First")
    (folder / "data/files/b/c.txt").unlink()
    (folder / "data/files/new.txt").write_text("")
    with pytest.raises(BundleError) as caught:
        verify_folder(folder)
    for problem in ("a.txt (changed)", "c.txt (missing)", "new.txt (not part of the bundle)"):
        assert problem in caught.value.cause


def test_a_link_in_a_folder_is_refused(folder: Path) -> None:
    (folder / "data/files/a.txt").unlink()
    (folder / "data/files/a.txt").symlink_to("/etc/hostname")
    with pytest.raises(BundleError, match=r"data/files/a\.txt is not a regular file"):
        verify_folder(folder)


def test_a_folder_that_is_no_bundle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"Bundle folder .* does not exist"):
        verify_folder(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", Path("/")):
        with pytest.raises(BundleError, match="is not an unpacked bundle"):
            verify_folder(folder)
