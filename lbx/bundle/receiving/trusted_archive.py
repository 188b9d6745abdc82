"""Second stage of ``lbx verify``: read the tag files of an archive, then exactly the files in its manifest."""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO

from lbx.base.errors import BundleError
from lbx.base.layout import TAG_MANIFEST, TAGS_LIMIT
from lbx.bundle.bag import PAYLOAD, TAG_SIGNATURE, Contents, ManifestEntry, parse_tags, refuse_foreign_tag
from lbx.bundle.compression import Decompressor
from lbx.bundle.hashing import BackgroundSha256, Checkpoints
from lbx.bundle.names import (
    PathSet,
    Unsafe,
    find_unsafe_content,
    first_names,
    is_bundle_name,
    needs_content_check,
    unsafe_format,
    unsafe_reason,
)
from lbx.bundle.progress import Progress, Tally, in_parallel
from lbx.bundle.receiving.archive_files import (
    ArchiveFiles,
    Extent,
    VerifiedReader,
    VolumeReader,
    check_volumes,
    find_archive,
)
from lbx.bundle.signing.trust import SignedBy, Trust
from lbx.bundle.tar import ArchiveStream, Member, SeekableStream, TarReader
from lbx.bundle.volumes import SUMS

_FRONT = TAGS_LIMIT + (2 << 20)  # includes the tag files' headers and the header of the first payload file
_COPY_AGAIN = "Copy the archive again from the machine that made it; if that does not help, bundle again."


Sink = Callable[[ManifestEntry, Iterator[bytes]], None]
"""Consumer of payload files; must read all blocks and may be called from several threads at once.

If the hash is wrong and the run stops at the first wrong file, the iterator raises after the last block.
"""


def discard(_entry: ManifestEntry, blocks: Iterator[bytes]) -> None:
    """Read and drop all blocks of a payload file."""
    for _ in blocks:
        pass


class TrustedArchive:
    """Archive with verified volumes, signatures and tag files; ``read_payload`` reads and verifies the payload.

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
        """Check the signature inside the archive; its signer need not be trusted if the sums' signer is."""
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
            name_all: continue after a wrong file, to name all of them; False stops before ``sink`` has finished it.

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
                problems += self._take(entry, blocks, sink, tally, name_all=name_all)
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
            problems = self._take(entry, blocks, sink, tally, name_all=names_all_problems, checkpoints=checkpoints)
            if checkpoints is not None and not problems:
                proven = VerifiedReader(self._reader, [offset], [checkpoints], self._archive)
                self.check_content(entry, io.BufferedReader(Extent(proven, offset, entry.size)))
            return problems

        jobs = sorted(results, key=lambda job: -job[0].size)
        results_of = dict(zip((entry.path for entry, _ in jobs), in_parallel(work, jobs, tally), strict=True))
        return [problem for entry, _ in results for problem in results_of[entry.path]], seen

    def _payload_entries(self) -> Iterator[tuple[ManifestEntry, int]]:
        """Yield entry and offset of each payload file; the caller must read or skip a file before the next."""
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
        """Return the next member and its path inside the bag, after checking its name and kind."""
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

    def _take(
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
            self._require_allowed(path, Unsafe(f"it is {reason}"))

    def _require_allowed(self, path: str, unsafe: Unsafe) -> None:
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
    """Open an archive, check volumes and signatures, and read its tag files.

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
            raise BundleError(f"Cannot read {archive}: {exc}.") from exc
        yield reading


def allowed_files(contents: Contents) -> frozenset[str]:
    """Return the files of unsafe formats that the recipe allows by name, including paths outside the payload."""
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
