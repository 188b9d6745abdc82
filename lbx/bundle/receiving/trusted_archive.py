"""Archives read in two verified stages: the sums of the volumes, then the tag files and the payload.

The first stage (``ArchiveFiles``) locates the files of an archive, checks their sums, and reads the volumes as one
sequence of bytes. It parses only NAME.SHA256SUMS, a few lines of text, after checking its signature; the archive itself
is not parsed there. The second stage (``TrustedArchive``) reads the tag files, then exactly the files in the manifest.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Self

from lbx.base.bundle_folder import TAG_MANIFEST, TAGS_LIMIT
from lbx.base.errors import BundleError
from lbx.base.inputs import is_database, open_input, read_input
from lbx.base.visible import as_command
from lbx.bundle.compression import Decompressor
from lbx.bundle.disk import BLOCK, BackgroundSha256, Checkpoints, Progress, Tally, map_in_threads, read_ahead
from lbx.bundle.manifest import PAYLOAD, TAG_SIGNATURE, Contents, ManifestEntry, parse_tags, refuse_foreign_tag
from lbx.bundle.names import (
    PathSet,
    UnsafeContent,
    find_unsafe_content,
    first_names,
    is_bundle_name,
    needs_content_check,
    unsafe_format,
    unsafe_reason,
)
from lbx.bundle.signing.trust import SignedBy, Trust
from lbx.bundle.tar import ArchiveStream, Member, SeekableStream, TarReader
from lbx.bundle.volumes import SUMS, split_name, volume_name

CHECK_DISK = "Check its permissions, and its disk or network mount."
"""Remedy for a file that the system cannot read."""
_SUMS_LIMIT = 1 << 20
_ZIP_READ_LIMIT = 64 << 20
_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")
_AGAIN = "Copy {} again from the machine that made the archive; keep the other volumes."


@dataclass(frozen=True, slots=True)
class VolumeResult:
    """Result of checking a volume: "intact", "changed", or "not listed" if no sums are available."""

    name: str
    size: int
    sha256: str
    result: str


@dataclass(frozen=True)
class ArchiveFiles:
    """Files of one archive: volumes and sums.

    Attributes:
        archive: path of NAME.tar or NAME.tar.zst, which exists only if there is a single volume.
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
"""Function that checks path, text and signature of NAME.SHA256SUMS. Raises BundleError for a bad signature."""


def find_archive(input_path: Path, check_sums: SumsCheck) -> ArchiveFiles:
    """Find all files of an archive by the path of one of them: NAME.tar, a volume, or NAME.SHA256SUMS.

    Args:
        check_sums: called with NAME.SHA256SUMS, if present, before any line is parsed.

    Raises:
        BundleError: the archive or a volume is missing, or the folder contains a volume of another archive.
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
    numbers = sorted(number for _, number in _find_volumes(path.parent, (archive.name,)) if number)
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


def _find_volumes(folder: Path, archives: Sequence[str]) -> Iterator[tuple[str, int]]:
    for path in folder.iterdir() if folder.is_dir() else ():
        part = split_name(path.name)
        if part is not None and part[0] in archives:
            yield path.name, part[1]


def _refuse_foreign(folder: Path, stem: str, digests: Mapping[str, str], sums: str) -> None:
    parts = _find_volumes(folder, (f"{stem}.tar", f"{stem}.tar.zst"))
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
    """Reader of all volumes as one sequence of bytes, usable from several threads.

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
        """Read up to ``size`` bytes, or fewer only at the end of a volume or of the archive."""
        if not 0 <= offset < self.size:
            return b""
        number = bisect_right(self.starts, offset) - 1
        start = offset - self.starts[number]
        if size >= BLOCK:
            read_ahead(self._files[number].fileno(), start + size)
        return os.pread(self._files[number].fileno(), size, start)

    def blocks(self, offset: int, size: int) -> Iterator[bytes]:
        """Yield ``size`` bytes from ``offset`` in blocks of at most 1 MiB, or fewer if the archive ends earlier."""
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
    """Hash every volume, and compare the hashes with NAME.SHA256SUMS.

    Args:
        checkpoints: one per volume, filled with intermediate states of the hash.

    Raises:
        BundleError: volumes differ; the message names them.
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

    results = map_in_threads(examine, range(len(files.volumes)), tally)
    wrong = [describe_volume(result, results) for result in results if result.result != "intact"]
    if wrong:
        raise BundleError(
            f"{files.archive}: {first_names(wrong)} does not have the sha256 listed in {files.sums.name}; "
            "it is damaged or belongs to another archive.",
            fix=_AGAIN.format("it" if len(wrong) == 1 else "these") if len(results) > 1 else "Copy both again.",
        )
    return results


def describe_volume(result: VolumeResult, results: Sequence[VolumeResult]) -> str:
    """Name of a changed volume for a message, with both sizes if the size is wrong."""
    usual = results[0].size if result is not results[0] or len(results) < 3 else results[1].size
    if len(results) > 1 and result is not results[-1] and result.size != usual:
        return f"{result.name} ({result.size:,} bytes instead of {usual:,})"
    return result.name


class VerifiedReader:
    """Reader of previously hashed spans of an archive, which checks the bytes again. Not thread-safe.

    Args:
        starts: offset of each span in the archive, ascending.
        checkpoints: hash states recorded for each span.
        archive: name of the archive in messages.
    """

    def __init__(
        self, reader: VolumeReader, starts: Sequence[int], checkpoints: Sequence[Checkpoints], archive: Path
    ) -> None:
        self._reader, self._starts, self._checkpoints, self._archive = reader, starts, checkpoints, archive
        self._begin, self._data = 0, b""

    def read_at(self, offset: int, size: int) -> bytes:
        """Read up to ``size`` bytes: fewer at the next checkpoint, none after the last checkpoint.

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
        begin, end = checkpoints.span_around(offset - start)
        self._begin, self._data = start + begin, b"".join(self._reader.blocks(start + begin, end - begin))
        if end > begin and not checkpoints.proves(begin, self._data):
            raise BundleError(
                f"{self._archive} changed while lbx was reading it (near byte {self._begin:,}).",
                fix="Another program writes to it. Copy it to a folder that only you can write to, and check the copy.",
            )


class Extent(io.RawIOBase):
    """File inside an archive, seekable and read through a ``VerifiedReader``.

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


_FRONT = TAGS_LIMIT + (2 << 20)  # includes the tag files' headers and the header of the first payload file
_COPY_AGAIN = "Copy the archive again from the machine that made it; if that does not help, bundle again."


Sink = Callable[[ManifestEntry, Iterator[bytes]], None]
"""Consumer of payload files, which must read all blocks and may be called from several threads at once.

If the hash is wrong and the run stops at the first wrong file, the iterator raises after the last block.
"""


def discard(_entry: ManifestEntry, blocks: Iterator[bytes]) -> None:
    """Read and drop all blocks of a payload file."""
    for _ in blocks:
        pass


class TrustedArchive:
    """Archive with verified volumes, signatures and tag files. ``read_payload`` verifies the payload.

    Attributes:
        signatures: valid signatures; the signature of NAME.SHA256SUMS comes first.
        tags: contents of the tag files by path.
        unsafe: payload files of unsafe formats that the recipe allows by name.
    """

    def __init__(
        self,
        archive_files: ArchiveFiles,
        reader: VolumeReader,
        signatures: list[SignedBy],
        trust: Trust,
        progress: Progress,
        *,
        unsafe: bool = True,
    ) -> None:
        self.archive_files = archive_files
        self._archive = archive_files.archive
        self._reader = reader
        self.signatures = signatures
        checkpoints = [
            Checkpoints(sys.maxsize if archive_files.is_compressed else _FRONT) for _ in archive_files.volumes
        ]
        self.volumes = check_volumes(archive_files, reader, progress, checkpoints)
        # Parsing starts only now, and ``VerifiedReader`` checks that the parsed bytes equal the hashed ones.
        verified_reader = VerifiedReader(reader, reader.starts[:-1], checkpoints, self._archive)
        self._read_at = verified_reader.read_at if archive_files.sums is not None else reader.read_at
        plain = SeekableStream(self._read, reader.size)
        stream = ArchiveStream(Decompressor(plain, archive_files.archive)) if archive_files.is_compressed else plain
        self._tar = TarReader(stream, self._archive)
        self._members = iter(self._tar)
        self._top = ""
        self._names = PathSet()
        self.tags: dict[str, bytes] = {}
        self._next = self._read_tags()
        if not archive_files.is_compressed:
            self._read_at = reader.read_at  # every file after the tags is checked against its own sum
        self._check_signature(trust)
        self.contents = parse_tags(self.tags, f"{self._archive}")
        self._allowed_files = allowed_files(self.contents)
        self.unsafe = unsafe_files(self.contents)
        if not unsafe:
            require_safe(self._archive, self.contents)

    def _read(self, offset: int, size: int) -> bytes:
        return self._read_at(offset, size)  # looked up on each call: ``_read_at`` changes after the tags have been read

    @property
    def is_trusted(self) -> bool:
        """Whether a trusted key has signed the whole archive.

        If NAME.SHA256SUMS exists, it must be signed itself; a signature inside the archive does not suffice.
        """
        inside = self.archive_files.sums is None
        return any(signed.trusted for signed in self.signatures if inside or signed.file != TAG_MANIFEST)

    def _check_signature(self, trust: Trust) -> None:
        """Check the signature inside the archive, whose signer need not be trusted if the signer of the sums is."""
        if TAG_SIGNATURE not in self.tags or TAG_MANIFEST not in self.tags:
            return
        already_trusted = any(signed.trusted for signed in self.signatures)
        location = f"{self._archive}: {TAG_SIGNATURE}"
        signature, manifest = self.tags[TAG_SIGNATURE], self.tags[TAG_MANIFEST]
        self.signatures.append(
            trust.check_signature(signature, manifest, TAG_MANIFEST, location, already_trusted=already_trusted)
        )

    def _read_tags(self) -> tuple[str, Member] | None:
        """Read the tag files and return the first payload file."""
        remaining = TAGS_LIMIT
        while (step := self._advance()) is not None:
            path, member = step
            if path.startswith(PAYLOAD):
                if TAG_MANIFEST not in self.tags:
                    raise self._refuse(f"{path} comes before {TAG_MANIFEST}, which must be first")
                return step
            refuse_foreign_tag(path, f"{self._archive}")
            remaining -= member.size
            if remaining < 0:
                raise self._refuse(f"{path} is too large for a tag file ({member.size:,} bytes)")
            self.tags[path] = b"".join(self._tar.blocks())
        return None

    def read_payload(self, sink: Sink, stage: str, progress: Progress, *, name_all: bool = True) -> None:
        """Read the payload and pass it to ``sink``.

        Args:
            name_all: continue after a wrong file, to name all wrong files; False stops before ``sink`` ends.

        Raises:
            BundleError: a file is changed, missing, not listed or unsafe; names up to 10.
        """
        for path in self.contents.base_paths:
            self._check_name(path)
        here = {path: entry for path, entry in self.contents.entries.items() if path not in self.contents.base_paths}
        tally = Tally(progress, stage, sum(entry.size for entry in here.values()))
        read = self._read_in_order if self.archive_files.is_compressed else self._read_in_parallel
        problems, seen = read(sink, tally, name_all)
        problems += [f"{path} (missing)" for path in here if path not in seen]
        if problems:
            raise damage_error(self._archive, problems, _COPY_AGAIN)

    def _read_in_order(self, sink: Sink, tally: Tally, name_all: bool) -> tuple[list[str], set[str]]:
        """Read the payload of a compressed archive, which allows sequential access only."""
        problems, seen = [], set()
        for entry, _ in self._payload_entries():
            with tempfile.TemporaryFile() as copy:
                blocks = self._tar.blocks()
                if needs_content_check(entry.path):
                    blocks = _copy_blocks(blocks, copy)
                problems += self._verify_file(entry, blocks, sink, tally, name_all=name_all)
                copy.seek(0)
                self.check_content(entry, copy)
            seen.add(entry.path)
        return problems, seen

    def _read_in_parallel(self, sink: Sink, tally: Tally, names_all_problems: bool) -> tuple[list[str], set[str]]:
        """Read all headers, then the files by descending size, so that the threads finish at about the same time."""
        results = []
        for entry, offset in self._payload_entries():
            self._tar.skip()
            results.append((entry, offset))
        seen = {entry.path for entry, _ in results}
        missing = sorted(self.contents.entries.keys() - seen - self.contents.base_paths.keys())
        if missing and not names_all_problems:
            raise damage_error(self._archive, [f"{path} (missing)" for path in missing], _COPY_AGAIN)

        def work(job: tuple[ManifestEntry, int]) -> list[str]:
            entry, offset = job
            checkpoints = Checkpoints() if needs_content_check(entry.path) else None
            blocks = self._reader.blocks(offset, entry.size)
            problems = self._verify_file(
                entry, blocks, sink, tally, name_all=names_all_problems, checkpoints=checkpoints
            )
            if checkpoints is not None and not problems:
                proven = VerifiedReader(self._reader, [offset], [checkpoints], self._archive)
                self.check_content(entry, io.BufferedReader(Extent(proven, offset, entry.size)))
            return problems

        jobs = sorted(results, key=lambda job: -job[0].size)
        results_of = dict(zip((entry.path for entry, _ in jobs), map_in_threads(work, jobs, tally), strict=True))
        return [problem for entry, _ in results for problem in results_of[entry.path]], seen

    def _payload_entries(self) -> Iterator[tuple[ManifestEntry, int]]:
        """Yield each payload file with its offset. The caller must read or skip a file before the next."""
        step = self._next
        while step is not None:
            path, member = step
            entry = self.contents.entries.get(path)
            if entry is None:
                raise self._refuse(f"{path} is not in its manifest")
            if path in self.contents.base_paths:
                raise self._refuse(f"it contains {path}, although fetch.txt takes that file from the base bundle")
            if entry.size != member.size:
                raise self._refuse(f"{path} has {member.size:,} bytes instead of {entry.size:,}")
            self._check_name(path)
            yield entry, member.offset
            step = self._advance()

    def _advance(self) -> tuple[str, Member] | None:
        """Return the next member with its path inside the bag, after checking name and type."""
        member = next(self._members, None)
        if member is None:
            return None
        top, _, path = member.name.partition("/")
        if member.other_kind:
            raise self._refuse(f"{member.name!r} is {member.other_kind}, not a regular file")
        if reason := unsafe_reason(member.name):
            raise self._refuse(f"it contains the unsafe name {member.name!r}: {reason}")
        self._top = self._top or top
        if not path or top != self._top or not is_bundle_name(top):
            raise self._refuse(f"{member.name} is outside the bundle's folder")
        if reason := self._names.add(path):
            raise self._refuse(f"{path} cannot be unpacked: {reason}")
        return path, member

    def _verify_file(
        self,
        entry: ManifestEntry,
        blocks: Iterator[bytes],
        sink: Sink,
        tally: Tally,
        *,
        name_all: bool,
        checkpoints: Checkpoints | None = None,
    ) -> list[str]:
        threaded = tally.outweighs(entry.size) or self.archive_files.is_compressed
        digest = BackgroundSha256(threaded=threaded, checkpoints=checkpoints)
        wrong: list[str] = []

        def passing() -> Iterator[bytes]:
            for block in blocks:
                digest.update(block)
                yield block
                tally.add(entry.path, len(block))
            if digest.hexdigest() != entry.sha256:
                wrong.append(f"{entry.path} (changed)")
                if not name_all:
                    raise damage_error(self._archive, wrong, "Run `lbx verify` to list all changed files.")

        try:
            sink(entry, passing())
        finally:
            digest.close()
        return wrong

    def check_content(self, entry: ManifestEntry, file: IO[bytes]) -> None:
        """Refuse a payload file with unsafe content: code that the recipe does not allow, or a zip bomb."""
        if needs_content_check(entry.path) and (unsafe := find_unsafe_content(entry.path, entry.size, file)):
            self._require_allowed(entry.path, unsafe)

    def _check_name(self, path: str) -> None:
        if reason := unsafe_format(path):
            self._require_allowed(path, UnsafeContent(f"it is {reason}"))

    def _require_allowed(self, path: str, unsafe: UnsafeContent) -> None:
        if path not in self._allowed_files or not unsafe.can_allow:
            raise self._refuse(f"{path} is unsafe: {unsafe.reason}")

    def _refuse(self, what: str) -> BundleError:
        return BundleError(
            f"{self._archive} is refused: {what}.",
            fix="No files were written. Do not trust it; ask its author for a new copy.",
        )


@contextmanager
def open_archive(
    archive: Path, trust: Trust, progress: Progress, *, sums: bool = True, unsafe: bool = True
) -> Iterator[TrustedArchive]:
    """Open an archive: check volumes and signatures, and read the tag files.

    Args:
        sums: False skips hashing the volumes, for callers that only need the description of the bundle.
        unsafe: False refuses a bundle with unsafe formats that its recipe allows.

    Raises:
        BundleError: the archive is missing; a volume is missing, foreign or changed; a signature is missing, wrong or
            from an untrusted key; the tag files contradict each other.
    """
    signatures: list[SignedBy] = []

    def judge(sums: Path, text: bytes, signature: bytes | None) -> None:
        if signature is None:
            trust.require_signed(f"{sums}")
        else:
            signatures.append(trust.check_signature(signature, text, sums.name, f"{sums}.sig"))

    with ExitStack() as stack:
        try:
            archive_files = find_archive(archive, judge)
            if archive_files.sums is None:
                trust.require_signed(f"{archive}, without its {SUMS.removeprefix('.')} file,")
            reader = stack.enter_context(VolumeReader(archive_files.volumes))
            archive_files = archive_files if sums else replace(archive_files, sums=None)
            reading = TrustedArchive(archive_files, reader, signatures, trust, progress, unsafe=unsafe)
        except OSError as exc:
            raise BundleError(f"Cannot read {archive}: {exc}.", fix=CHECK_DISK) from exc
        yield reading


def allowed_files(contents: Contents) -> frozenset[str]:
    """Paths of unsafe files that the recipe allows by name, including paths outside the payload."""
    paths: set[str] = set()
    for source in contents.sources:
        allowed = source.get("allowed", [])
        paths.update(path for path in (allowed if isinstance(allowed, list) else []) if isinstance(path, str))
    return frozenset(paths)


def unsafe_files(contents: Contents) -> list[str]:
    """Return the payload files among ``allowed_files``, sorted."""
    return sorted(allowed_files(contents) & contents.entries.keys())


def require_safe(location: Path, contents: Contents) -> None:
    """Raise BundleError if the recipe allows unsafe files, for users who accept none (``--refuse-unsafe``)."""
    if unsafe := unsafe_files(contents):
        raise BundleError(
            f"{location} is refused: its recipe allows unsafe files ({len(unsafe)}), and --refuse-unsafe does not: "
            f"{first_names(unsafe)}.",
            fix="Ask its author for a bundle without them, or omit --refuse-unsafe.",
        )


def damage_error(location: Path, problems: Sequence[str], fix: str) -> BundleError:
    """Create the error for files that differ from the manifest."""
    names = first_names(problems)
    return BundleError(
        f"{location} is damaged. Files that differ from its manifest ({len(problems)}): {names}.", fix=fix
    )


def _copy_blocks(blocks: Iterator[bytes], copy: IO[bytes]) -> Iterator[bytes]:
    for block in blocks:
        copy.write(block)
        yield block
