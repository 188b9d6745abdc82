"""Files of an archive: NAME.tar, or the volumes NAME.tar.001, NAME.tar.002 ..., with NAME.SHA256SUMS.

Volumes are slices of the archive, so that `cat NAME.tar.0*` restores it; lbx itself reads the volumes directly. The
maximum file size on FAT32 is 4,294,967,295 bytes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from lbx.base.errors import UsageError
from lbx.base.outputs import new_file, sync_folder, write_file
from lbx.bundle.disk import BackgroundSha256, Flusher

MAX_VOLUME = 4_294_967_295
MIN_VOLUME = 1 << 16
SUMS = ".SHA256SUMS"
_VOLUME = re.compile(r"(?P<archive>(?P<name>.+)\.tar(?:\.zst)?)(?:\.(?P<number>[0-9]{3,6}))?")
_UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30}


@dataclass(frozen=True, slots=True)
class Volume:
    """Volume of an archive: file name, SHA-256 in hex, size in bytes."""

    name: str
    sha256: str
    size: int


def parse_volume_size(text: str) -> int:
    """Parse "650M", "4GiB", "4294967295" ... into bytes (K, M and G are powers of 1000, Ki, Mi and Gi of 1024).

    Raises:
        UsageError: the text is not a size, or not between 64 KiB and the maximum file size on FAT32.
    """
    match = re.fullmatch(r"(\d{1,15})\s*([KMG]?I?)B?", text.strip().upper())
    if match is None or match[2] not in _UNITS:
        raise UsageError(f"--volume-size {text!r} is not a size.", fix="Write it as 4294967295, 650M or 2GiB.")
    size = int(match[1]) * _UNITS[match[2]]
    if not MIN_VOLUME <= size <= MAX_VOLUME:
        raise UsageError(
            f"--volume-size {text} is out of range.", fix=f"Give {MIN_VOLUME} to {MAX_VOLUME} bytes (FAT32's limit)."
        )
    return size


def volume_name(archive: str, number: int) -> str:
    """File name of a volume: ("demo.tar", 1) -> "demo.tar.001"."""
    return f"{archive}.{number:03}"


def split_name(file: str) -> tuple[str, int] | None:
    """Split a volume's file name into archive and volume number, or return None for other files.

    "demo.tar.001" -> ("demo.tar", 1), "demo.tar" -> ("demo.tar", 0).
    """
    match = _VOLUME.fullmatch(file)
    return (match["archive"], int(match["number"] or 0)) if match else None


class VolumeWriter:
    """Writer of an archive as volumes, which are hashed and flushed to the disk during writing.

    Files of the same archive left in ``folder`` by a killed run are removed first. A single volume gets the name of the
    archive, so that small bundles consist of just NAME.tar.

    Args:
        folder: hidden folder for the unfinished volumes, on the same disk as the destination.
        archive: "NAME.tar" or "NAME.tar.zst".
        volume_size: size in bytes of each volume except the last.
    """

    def __init__(self, folder: Path, archive: str, volume_size: int = MAX_VOLUME) -> None:
        self._folder = folder
        self._archive = archive
        self._volume_size = volume_size
        self._volumes: list[Volume] = []
        self._out: IO[bytes] | None = None
        self._flusher: Flusher | None = None
        self._sha256 = BackgroundSha256()
        self._size = 0
        _remove_parts(folder, (archive,), keep=())

    def write(self, data: bytes, /) -> int:
        """Append ``data`` to the archive."""
        view = memoryview(data)
        while view:
            if self._out is None or self._size == self._volume_size:
                self._next()
            assert self._out is not None
            assert self._flusher is not None
            part = view[: self._volume_size - self._size]
            self._sha256.update(part)
            self._out.write(part)
            self._flusher.wrote(len(part))
            self._size += len(part)
            view = view[len(part) :]
        return len(data)

    def close(self) -> list[Volume]:
        """Finish the last volume and return all volumes in order."""
        if self._out is None:
            self._next()
        self._finish()
        if len(self._volumes) == 1:
            (only,) = self._volumes
            (self._folder / only.name).replace(self._folder / self._archive)
            self._volumes = [Volume(self._archive, only.sha256, only.size)]
        return self._volumes

    def abort(self) -> None:
        """Close the open volume and remove all volumes written so far."""
        if self._out is not None and self._flusher is not None:
            with suppress(OSError):  # the original error has already been reported
                self._flusher.close()
            with suppress(OSError):
                self._out.close()
            self._out = None
            self._sha256.close()
        _remove_parts(self._folder, (self._archive,), keep=())

    def _next(self) -> None:
        if self._out is not None:
            self._finish()
        self._out = new_file(self._folder / volume_name(self._archive, len(self._volumes) + 1))
        self._flusher = Flusher(self._out.fileno())
        self._sha256, self._size = BackgroundSha256(), 0

    def _finish(self) -> None:
        assert self._out is not None
        assert self._flusher is not None
        self._out.flush()
        self._flusher.close()
        os.fsync(self._out.fileno())
        self._out.close()
        self._out = None
        name = volume_name(self._archive, len(self._volumes) + 1)
        self._volumes.append(Volume(name, self._sha256.hexdigest(), self._size))


def render_sums(volumes: Iterable[Volume]) -> bytes:
    """Render NAME.SHA256SUMS in the format of ``sha256sum -c``."""
    return "".join(f"{volume.sha256}  {volume.name}\n" for volume in volumes).encode()


def publish(
    folder: Path, out_dir: Path, name: str, volumes: Sequence[Volume], signature: bytes | None = None
) -> tuple[list[Path], Path]:
    """Publish an archive: move the volumes to ``out_dir``, then write NAME.SHA256SUMS and, if signed, its signature.

    The checksum file and all volumes of an older archive of this name are removed first: if the process is killed in
    between, the archive lacks a checksum file instead of having that of another archive.

    Args:
        signature: result of ``signature.sign(render_sums(volumes), key)``.

    Returns:
        The volumes in order, and the checksum file.

    Raises:
        OSError: a file cannot be moved, removed or written.
    """
    sums = out_dir / f"{name}{SUMS}"
    signed = sums.with_name(f"{sums.name}.sig")
    for path in (signed, sums):
        path.unlink(missing_ok=True)
    _remove_parts(out_dir, (f"{name}.tar", f"{name}.tar.zst"), keep=[volume.name for volume in volumes])
    for volume in volumes:
        (folder / volume.name).replace(out_dir / volume.name)
    sync_folder(out_dir)
    for path, content in ((signed, signature), (sums, render_sums(volumes))):
        if content is not None:
            write_file(path, content, sync=True)
    return [out_dir / volume.name for volume in volumes], sums


def _remove_parts(folder: Path, archives: Sequence[str], keep: Sequence[str]) -> None:
    for path in list(folder.iterdir()):
        parts = split_name(path.name)
        if parts is not None and parts[0] in archives and path.name not in keep and not path.is_dir():
            path.unlink()
