"""Locate the files of an archive, check their sums, and read the volumes as one sequence of bytes.

First of the two stages of ``lbx verify``. Parses only NAME.SHA256SUMS, a few lines of text, after checking its
signature; the archive itself is not parsed here.
"""

from __future__ import annotations

import io
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from lbx.base.commands import as_command
from lbx.base.errors import BundleError
from lbx.base.inputs import is_database, open_input, read_input
from lbx.bundle.disk import BLOCK, read_ahead
from lbx.bundle.hashing import BackgroundSha256, Checkpoints
from lbx.bundle.names import first_names
from lbx.bundle.progress import Progress, Tally, in_parallel
from lbx.bundle.volumes import SUMS, split_name, volume_name

_SUMS_LIMIT = 1 << 20
_ZIP_READ_LIMIT = 64 << 20
_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")
_AGAIN = "Copy {} again from the machine that made the archive; keep the other volumes."


@dataclass(frozen=True, slots=True)
class VolumeResult:
    """Result of checking one volume: "intact", or "not listed" if no sums are available."""

    name: str
    size: int
    sha256: str
    result: str


@dataclass(frozen=True)
class ArchiveFiles:
    """The files of one archive.

    Attributes:
        archive: path of NAME.tar or NAME.tar.zst; exists only if the archive has a single volume.
        volumes: paths, in order.
        sums: path of NAME.SHA256SUMS, if present.
        digests: SHA-256 by volume name, from ``sums``.
    """

    archive: Path
    volumes: Sequence[Path]
    sums: Path | None = None
    digests: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_compressed(self) -> bool:
        return self.archive.suffix == ".zst"


SumsCheck = Callable[[Path, bytes, bytes | None], None]
"""Check the path, text and signature of NAME.SHA256SUMS; raises BundleError if the signature is not sufficient."""


def find_archive(input_path: Path, check_sums: SumsCheck) -> ArchiveFiles:
    """Find all files of an archive from one of its names: NAME.tar, a volume, or NAME.SHA256SUMS.

    Args:
        check_sums: called with NAME.SHA256SUMS, if present, before any line of it is parsed.

    Raises:
        BundleError: the archive or a volume is missing, or the folder has a volume of another archive; names it.
    """
    if input_path.is_dir():
        raise BundleError(
            f"{input_path} is a folder, not an archive.", fix="Give the NAME.tar that `lbx bundle` wrote."
        )
    name = input_path.name.removesuffix(".sig")
    split = split_name(input_path.name)
    stem = (
        name.removesuffix(SUMS) if name.endswith(SUMS) else re.sub(r"\.tar(\.zst)?$", "", split[0] if split else name)
    )
    sums = input_path.with_name(stem + SUMS)
    text = _read_small(sums)
    if text is None:
        if input_path.name.endswith((SUMS, f"{SUMS}.sig")):
            raise BundleError(f"{sums} does not exist.", fix="Copy it from the machine that made the archive.")
        return _without_sums(input_path, input_path.with_name(split[0]) if split else input_path)
    check_sums(sums, text, _read_small(sums.with_name(f"{sums.name}.sig")))
    digests = _parse_sums(text, sums)
    archive = (split_name(next(iter(digests))) or (input_path.name, 0))[0]
    a_volume = split is not None and split[1] > 0
    if input_path.name not in digests and (a_volume or (input_path.exists() and not name.endswith(SUMS))):
        raise BundleError(f"{sums} does not list {input_path.name}.", fix="Copy both again, under their own names.")
    _refuse_foreign(input_path.parent, stem, digests, sums.name)
    volumes = [input_path.with_name(volume) for volume in digests]
    missing = [path.name for path in volumes if not path.is_file()]
    if missing:
        raise _missing_volumes_error(input_path, missing, sums)
    return ArchiveFiles(input_path.with_name(archive), volumes, sums, digests)


def _without_sums(path: Path, archive: Path) -> ArchiveFiles:
    numbers = sorted(number for _, number in _parts(path.parent, (archive.name,)) if number)
    if numbers and archive.exists():
        raise BundleError(
            f"{archive.name} and {volume_name(archive.name, numbers[0])} cannot both belong to the same bundle.",
            fix="Move the files of other bundles away, or also copy NAME.SHA256SUMS, which lists the right files.",
        )
    if not numbers:
        _require_file(path)
        return ArchiveFiles(archive, [archive])
    missing = [volume_name(archive.name, n) for n in range(1, numbers[-1]) if n not in numbers]
    if missing:
        raise BundleError(f"{archive} lacks its volumes {', '.join(missing[:10])}.", fix="Copy them, too.")
    return ArchiveFiles(archive, [archive.with_name(volume_name(archive.name, n)) for n in numbers])


def _missing_volumes_error(path: Path, missing: Sequence[str], sums: Path) -> BundleError:
    if not path.exists() and len(missing) == 1:
        _require_file(path)
    names = first_names(missing)
    return BundleError(f"{sums} lists {names}, but its folder does not contain it.", fix=f"Copy {names}, too.")


def _require_file(path: Path) -> None:
    if not path.exists():
        archives = ", ".join(sorted(p.name for p in path.parent.glob("*.tar*"))) if path.parent.is_dir() else ""
        raise BundleError(
            f"Archive {path} does not exist.",
            fix=f"Archives in that folder: {archives}." if archives else "Check the path.",
        )
    fix = "Give the NAME.tar that `lbx bundle` wrote."
    if not path.is_file():
        raise BundleError(f"{path} is not a regular file.", fix=fix)
    with open_input(path) as file:
        if is_database(file.read(16)):
            command = as_command("lbx", "report", path)
            raise BundleError(
                f"{path} is a results file, not an archive.", fix=f"{fix} To read results:", command=command
            )


def _parse_sums(text: bytes, sums: Path) -> dict[str, str]:
    digests: dict[str, str] = {}
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
        match = _LINE.fullmatch(line)
        if match is None or match[2] in digests:
            raise BundleError(f"Line {number} of {sums} is not 'sha256  volume'.", fix="Copy it again.")
        digests[match[2]] = match[1]
    parts = [split_name(name) for name in digests]
    numbers = [part[1] for part in parts if part]
    archives = {part[0] if part else "" for part in parts}
    stem = sums.name.removesuffix(SUMS)
    if archives not in ({f"{stem}.tar"}, {f"{stem}.tar.zst"}) or numbers not in ([0], [*range(1, len(parts) + 1)]):
        raise BundleError(
            f"{sums} does not list {stem}.tar or all of its volumes in order.", fix="Copy it again, under its own name."
        )
    return digests


def _parts(folder: Path, archives: Sequence[str]) -> Iterator[tuple[str, int]]:
    for path in folder.iterdir() if folder.is_dir() else ():
        part = split_name(path.name)
        if part is not None and part[0] in archives:
            yield path.name, part[1]


def _refuse_foreign(folder: Path, stem: str, digests: Mapping[str, str], sums: str) -> None:
    parts = _parts(folder, (f"{stem}.tar", f"{stem}.tar.zst"))
    foreign = sorted(name for name, _ in parts if name not in digests)
    if foreign:
        raise BundleError(
            f"{', '.join(foreign[:10])} belongs to another or an older archive: {sums} does not list it.",
            fix="Move it away, or copy the matching NAME.SHA256SUMS.",
        )


def _read_small(path: Path) -> bytes | None:
    try:
        return read_input(path, _SUMS_LIMIT)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise BundleError(f"Cannot read {path}: {exc.strerror}.", fix="Copy it again.") from exc


class VolumeReader:
    """Bytes of all volumes as one sequence, readable from several threads.

    The files are opened once, so that the bytes parsed later come from the files that were hashed. Raises OSError.
    """

    def __init__(self, volumes: Sequence[Path]) -> None:
        self.volumes = volumes
        self._files = []
        self.starts = [0]
        try:
            for path in volumes:
                self._files.append(open_input(path))
                self.starts.append(self.starts[-1] + os.fstat(self._files[-1].fileno()).st_size)
        except OSError:
            self.close()
            raise

    @property
    def size(self) -> int:
        return self.starts[-1]

    def size_of(self, number: int) -> int:
        return self.starts[number + 1] - self.starts[number]

    def read_at(self, offset: int, size: int) -> bytes:
        """Read up to ``size`` bytes; fewer only at the end of a volume or of the archive."""
        if not 0 <= offset < self.size:
            return b""
        number = bisect_right(self.starts, offset) - 1
        start = offset - self.starts[number]
        if size >= BLOCK:
            read_ahead(self._files[number].fileno(), start + size)
        return os.pread(self._files[number].fileno(), size, start)

    def blocks(self, offset: int, size: int) -> Iterator[bytes]:
        """Yield ``size`` bytes from ``offset`` in blocks of at most 1 MiB; fewer if the archive ends earlier."""
        while size:
            data = self.read_at(offset, min(size, BLOCK))
            if not data:
                return
            yield data
            offset += len(data)
            size -= len(data)

    def close(self) -> None:
        for file in self._files:
            file.close()
        self._files = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_volumes(
    files: ArchiveFiles, reader: VolumeReader, progress: Progress, checkpoints: Sequence[Checkpoints]
) -> list[VolumeResult]:
    """Hash every volume and compare it with NAME.SHA256SUMS.

    Args:
        checkpoints: one per volume, filled with intermediate states of its hash.

    Raises:
        BundleError: volumes differ; names them all.
    """
    if files.sums is None:
        return [VolumeResult(path.name, reader.size_of(n), "", "not listed") for n, path in enumerate(files.volumes)]
    tally = Tally(progress, "sums", reader.size)

    def examine(number: int) -> VolumeResult:
        name, size = files.volumes[number].name, reader.size_of(number)
        digest = BackgroundSha256(threaded=tally.outweighs(size), checkpoints=checkpoints[number])
        for block in reader.blocks(reader.starts[number], size):
            digest.update(block)
            tally.add(name, len(block))
        sha256 = digest.hexdigest()
        return VolumeResult(name, size, sha256, "intact" if sha256 == files.digests[name] else "changed")

    results = in_parallel(examine, range(len(files.volumes)), tally)
    wrong = [describe_volume(result, results) for result in results if result.result != "intact"]
    if wrong:
        raise BundleError(
            f"{files.archive}: {first_names(wrong)} does not have the sha256 listed in {files.sums.name}; "
            "it is damaged or belongs to another archive.",
            fix=_AGAIN.format("it" if len(wrong) == 1 else "these") if len(results) > 1 else "Copy both again.",
        )
    return results


def describe_volume(result: VolumeResult, results: Sequence[VolumeResult]) -> str:
    """Format the name of a changed volume, with both sizes if its size is wrong."""
    usual = results[0].size if result is not results[0] or len(results) < 3 else results[1].size
    if len(results) > 1 and result is not results[-1] and result.size != usual:
        return f"{result.name} ({result.size:,} bytes instead of {usual:,})"
    return result.name


class VerifiedReader:
    """Reader of previously hashed parts of an archive, which checks the bytes again. Not thread-safe.

    Args:
        starts: offset of each part in the archive, ascending.
        checkpoints: hash states recorded for each part.
        archive: name of the archive in messages.
    """

    def __init__(
        self, reader: VolumeReader, starts: Sequence[int], checkpoints: Sequence[Checkpoints], archive: Path
    ) -> None:
        self._reader, self._starts, self._checkpoints, self._archive = reader, starts, checkpoints, archive
        self._begin, self._data = 0, b""

    def read_at(self, offset: int, size: int) -> bytes:
        """Read up to ``size`` bytes; fewer at the end of a piece between two checkpoints, none after the last.

        Raises:
            BundleError: the bytes have changed since they were hashed.
        """
        if not self._begin <= offset < self._begin + len(self._data):
            self._load(offset)
        at = offset - self._begin
        return self._data[at : at + size]

    def _load(self, offset: int) -> None:
        number = max(bisect_right(self._starts, offset) - 1, 0)
        start, checkpoints = self._starts[number], self._checkpoints[number]
        begin, end = checkpoints.piece(offset - start)
        self._begin, self._data = start + begin, b"".join(self._reader.blocks(start + begin, end - begin))
        if end > begin and not checkpoints.proves(begin, self._data):
            raise BundleError(
                f"{self._archive} changed while lbx was reading it (near byte {self._begin:,}).",
                fix="Another program writes to it. Copy it to a folder that only you can write to, and check the copy.",
            )


class Extent(io.RawIOBase):
    """Seekable file inside an archive.

    Raises:
        ValueError: a single read exceeds the size of any zip's directory.
        BundleError: the bytes have changed since they were hashed.
    """

    def __init__(self, reader: VerifiedReader, offset: int, size: int) -> None:
        super().__init__()
        self._reader, self._offset, self._size = reader, offset, size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise OSError("before the start")
        self._at = start + offset
        return self._at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        count = min(len(buffer), max(self._size - self._at, 0))
        if count > _ZIP_READ_LIMIT:
            raise ValueError("the read is too large")
        data = self._reader.read_at(self._offset + self._at, min(count, BLOCK)) if count else b""
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
