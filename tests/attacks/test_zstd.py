"""Compressed archives that want to be more than they are."""

from __future__ import annotations

import io
import struct
import sys
import tarfile
from pathlib import Path

import pytest

from lbx.bundle.compression import _zstd
from tests.attacks.attack_parts import main, process, refused
from tests.bundle.forge import FILES, members, reseal
from tests.bundle.sealed import seal, tar_bytes

zstd = _zstd()


def frame(data: bytes, **options: int) -> bytes:
    parameters = {getattr(zstd.CompressionParameter, name): value for name, value in options.items()}
    return bytes(zstd.compress(data, options=parameters or None))


def limited(archive: Path) -> None:
    """Refused within 1.5 GB of address space, most of which are libraries and stacks."""
    command = f"ulimit -v 1500000; exec {sys.executable} -P -m lbx.cli verify {archive} --allow-unsigned"
    refused(process("bash", "-c", command))


def zeros(header: tarfile.TarInfo, gigabytes: int) -> bytes:
    """A member that says it holds so many zeros, and does: some kilobytes, compressed."""
    out = io.BytesIO()
    compressor = zstd.ZstdCompressor()
    out.write(compressor.compress(header.tobuf(tarfile.PAX_FORMAT)))
    for _ in range(gigabytes * 64):
        out.write(compressor.compress(bytes(1 << 24)))
    return out.getvalue() + compressor.flush()


@pytest.mark.parametrize("name", ["x/bagit.txt", "x/manifest-sha256.txt"])
def test_a_tag_file_that_unpacks_without_end_is_refused_by_its_header(name: str, tmp_path: Path) -> None:
    info = tarfile.TarInfo(name)
    info.size = 1 << 40
    (tmp_path / "x.tar.zst").write_bytes(zeros(info, 1))
    limited(tmp_path / "x.tar.zst")


def test_zeros_without_end_behind_the_tar_are_not_waited_for(tmp_path: Path) -> None:
    compressor = zstd.ZstdCompressor()
    data = compressor.compress(tar_bytes(members()))
    data += b"".join(compressor.compress(bytes(1 << 24)) for _ in range(64))
    (tmp_path / "x.tar.zst").write_bytes(data + compressor.flush())
    refused(main("verify", tmp_path / "x.tar.zst", "--allow-unsigned"), "bytes of padding follow its end mark")


def test_a_window_that_takes_all_memory_is_refused(tmp_path: Path) -> None:
    """A frame's header may ask for a window of gigabytes before a byte is unpacked."""
    for window in (0xB0, 0xF8):  # 4 GiB, and the most that the format knows
        (tmp_path / "x.tar.zst").write_bytes(b"\x28\xb5\x2f\xfd\x00" + bytes([window]) + b"\x01\x00\x00")
        refused(main("verify", tmp_path / "x.tar.zst", "--allow-unsigned"), "damaged")


@pytest.mark.parametrize("more", ["a second frame", "a skippable frame", "bytes"])
def test_nothing_hides_behind_the_frame(more: str, tmp_path: Path) -> None:
    """`zstd -d` goes on with a second frame, so that other tools would see another archive."""
    behind = {
        "a second frame": frame(tar_bytes(members({**FILES, "data/files/evil": b"x"}))),
        "a skippable frame": struct.pack("<II", 0x184D2A50, 4) + b"evil",
        "bytes": b"evil",
    }[more]
    (tmp_path / "x.tar.zst").write_bytes(frame(tar_bytes(members())) + behind)
    refused(main("verify", tmp_path / "x.tar.zst", "--allow-unsigned"), "extra bytes follow its zstd frame")


def test_a_bomb_before_the_frame_is_not_skipped_to(tmp_path: Path) -> None:
    skippable = struct.pack("<II", 0x184D2A50, 1 << 20) + bytes(1 << 20)
    (tmp_path / "x.tar.zst").write_bytes(skippable + frame(tar_bytes(members({"data/files/a.txt": b"EVIL"}))))
    refused(main("verify", tmp_path / "x.tar.zst", "--allow-unsigned"))


def test_a_payload_that_unpacks_to_more_than_the_disk_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """A petabyte of zeros, as its manifest says: `verify` would read on for days, `unpack` asks the disk first."""
    tags = [entry for entry in members({"data/files/a.txt": b""}) if "/data/" not in entry.info.name]
    reseal(tags, b'"size": 0', b'"size": 1000000000000000', b"0.1", b"1000000000000000.1")
    sums = seal(tmp_path / "in", tags, zstd=True)
    refused(main("unpack", sums, "--allow-unsigned", "--to", tmp_path / "out"), "too small")
    assert not (tmp_path / "out").exists()
