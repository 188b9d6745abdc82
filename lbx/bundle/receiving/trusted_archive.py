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
    first_names,
    is_bundle_name,
    unsafe_inside,
    wants_look,
    why_refused,
    why_unsafe,
)
from lbx.bundle.progress import Progress, Tally, in_parallel
from lbx.bundle.receiving.received import Extent, Joined, Proven, Received, check_volumes, locate
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
    """Archive with verified volumes, signatures and tag files; ``run`` reads and verifies the payload.

    Attributes:
        received: files of the archive.
        volumes: result per volume.
        signatures: valid signatures; the signature of NAME.SHA256SUMS comes first.
        tags: tag files by path.
        contents: parsed tag files.
        unsafe: payload files of unsafe formats that the recipe allows by name.
    """

    def __init__(
        self,
        received: Received,
        joined: Joined,
        signatures: list[SignedBy],
        trust: Trust,
        progress: Progress,
        *,
        unsafe: bool = True,
    ) -> None:
        self.received = received
        self._archive = received.archive
        self._joined = joined
        self.signatures = signatures
        checkpoints = [Checkpoints(sys.maxsize if received.compressed else _FRONT) for _ in received.volumes]
        self.volumes = check_volumes(received, joined, progress, checkpoints)
        # Parsing starts only now, and ``Proven`` checks that the parsed bytes equal the hashed ones.
        proven = Proven(joined, joined.starts[:-1], checkpoints, self._archive)
        self._read_at = proven.read_at if received.sums is not None else joined.read_at
        plain = SeekableStream(self._read, joined.size)
        stream = ArchiveStream(Decompressor(plain, received.archive)) if received.compressed else plain
        self._tar = TarReader(stream, self._archive)
        self._members = iter(self._tar)
        self._top = ""
        self._names = PathSet()
        self.tags: dict[str, bytes] = {}
        self._next = self._read_tags()
        if not received.compressed:
            self._read_at = joined.read_at  # every file after the tags is checked against its own sum
        self._judge_tags(trust)
        self.contents = parse_tags(self.tags, f"{self._archive}")
        self._allowed = allowed_files(self.contents)
        self.unsafe = unsafe_files(self.contents)
        if not unsafe:
            require_safe(self._archive, self.contents)

    def _read(self, offset: int, size: int) -> bytes:
        return self._read_at(offset, size)  # looked up on each call: ``_read_at`` changes after the tags have been read

    @property
    def trusted(self) -> bool:
        """Whether a trusted key has signed the whole archive.

        If NAME.SHA256SUMS exists, it must be signed itself; a signature inside the archive does not suffice.
        """
        inside = self.received.sums is None
        return any(signed.trusted for signed in self.signatures if inside or signed.file != TAG_MANIFEST)

    def _judge_tags(self, trust: Trust) -> None:
        """Check the signature inside the archive; its signer need not be trusted if the sums' signer is."""
        if TAG_SIGNATURE not in self.tags or TAG_MANIFEST not in self.tags:
            return
        vouched = any(signed.trusted for signed in self.signatures)
        where = f"{self._archive}: {TAG_SIGNATURE}"
        signature, manifest = self.tags[TAG_SIGNATURE], self.tags[TAG_MANIFEST]
        self.signatures.append(trust.judge(signature, manifest, TAG_MANIFEST, where, vouched=vouched))

    def _read_tags(self) -> tuple[str, Member] | None:
        """Read the tag files and return the first payload file."""
        left = TAGS_LIMIT
        while (step := self._advance()) is not None:
            path, member = step
            if path.startswith(PAYLOAD):
                if TAG_MANIFEST not in self.tags:
                    raise self._refuse(f"{path} comes before {TAG_MANIFEST}, which must be first")
                return step
            refuse_foreign_tag(path, f"{self._archive}")
            left -= member.size
            if left < 0:
                raise self._refuse(f"{path} is too large for a tag file ({member.size:,} bytes)")
            self.tags[path] = b"".join(self._tar.blocks())
        return None

    def run(self, sink: Sink, stage: str, progress: Progress, *, name_all: bool = True) -> None:
        """Read the payload and pass it to ``sink``.

        Args:
            name_all: continue after a wrong file, to name all of them; False stops before ``sink`` has finished it.

        Raises:
            BundleError: a file is changed, missing, not listed or unsafe; names up to 10.
        """
        for path in self.contents.fetched:
            self._look_at_name(path)
        here = {path: entry for path, entry in self.contents.entries.items() if path not in self.contents.fetched}
        tally = Tally(progress, stage, sum(entry.size for entry in here.values()))
        whole = self._in_order if self.received.compressed else self._in_parallel
        problems, seen = whole(sink, tally, name_all)
        problems += [f"{path} (missing)" for path in here if path not in seen]
        if problems:
            raise damage(self._archive, problems, _COPY_AGAIN)

    def _in_order(self, sink: Sink, tally: Tally, name_all: bool) -> tuple[list[str], set[str]]:
        """Read the payload of a compressed archive, which allows sequential access only."""
        problems, seen = [], set()
        for entry, _ in self._listed():
            with tempfile.TemporaryFile() as copy:
                blocks = self._tar.blocks()
                if wants_look(entry.path):
                    blocks = _copied(blocks, copy)
                problems += self._take(entry, blocks, sink, tally, name_all=name_all)
                copy.seek(0)
                self.look(entry, copy)
            seen.add(entry.path)
        return problems, seen

    def _in_parallel(self, sink: Sink, tally: Tally, name_all: bool) -> tuple[list[str], set[str]]:
        """Read all headers, then the files by descending size, so that the threads finish at about the same time."""
        results = []
        for entry, offset in self._listed():
            self._tar.skip()
            results.append((entry, offset))
        seen = {entry.path for entry, _ in results}
        missing = sorted(self.contents.entries.keys() - seen - self.contents.fetched.keys())
        if missing and not name_all:
            raise damage(self._archive, [f"{path} (missing)" for path in missing], _COPY_AGAIN)

        def work(job: tuple[ManifestEntry, int]) -> list[str]:
            entry, offset = job
            checkpoints = Checkpoints() if wants_look(entry.path) else None
            blocks = self._joined.blocks(offset, entry.size)
            problems = self._take(entry, blocks, sink, tally, name_all=name_all, checkpoints=checkpoints)
            if checkpoints is not None and not problems:
                proven = Proven(self._joined, [offset], [checkpoints], self._archive)
                self.look(entry, io.BufferedReader(Extent(proven, offset, entry.size)))
            return problems

        jobs = sorted(results, key=lambda job: -job[0].size)
        results_of = dict(zip((entry.path for entry, _ in jobs), in_parallel(work, jobs, tally), strict=True))
        return [problem for entry, _ in results for problem in results_of[entry.path]], seen

    def _listed(self) -> Iterator[tuple[ManifestEntry, int]]:
        """Yield entry and offset of each payload file; the caller must read or skip a file before the next."""
        step = self._next
        while step is not None:
            path, member = step
            entry = self.contents.entries.get(path)
            if entry is None:
                raise self._refuse(f"{path} is not in its manifest")
            if path in self.contents.fetched:
                raise self._refuse(f"it contains {path}, although fetch.txt takes that file from the base bundle")
            if entry.size != member.size:
                raise self._refuse(f"{path} has {member.size:,} bytes instead of {entry.size:,}")
            self._look_at_name(path)
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
        if reason := why_unsafe(member.name):
            raise self._refuse(f"it contains the unsafe name {member.name!r}: {reason}")
        self._top = self._top or top
        if not path or top != self._top or not is_bundle_name(top):
            raise self._refuse(f"{member.name} is outside the bundle's folder")
        if reason := self._names.why_not(path):
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
        threaded = tally.outweighs(entry.size) or self.received.compressed
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
                    raise damage(self._archive, wrong, "Run `lbx verify` to list all changed files.")

        try:
            sink(entry, passing())
        finally:
            digest.close()
        return wrong

    def look(self, entry: ManifestEntry, file: IO[bytes]) -> None:
        """Refuse a payload file with unsafe content: code that the recipe does not allow, or a zip bomb."""
        if wants_look(entry.path) and (unsafe := unsafe_inside(entry.path, entry.size, file)):
            self._let_through(entry.path, unsafe)

    def _look_at_name(self, path: str) -> None:
        if reason := why_refused(path):
            self._let_through(path, Unsafe(f"it is {reason}"))

    def _let_through(self, path: str, unsafe: Unsafe) -> None:
        if path not in self._allowed or not unsafe.may_be_allowed:
            raise self._refuse(f"{path} is unsafe: {unsafe.reason}")

    def _refuse(self, what: str) -> BundleError:
        return BundleError(
            f"{self._archive} is refused: {what}.",
            fix="No files were written. Do not trust it; ask its author for a new copy.",
        )


@contextmanager
def opened(
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
            signatures.append(trust.judge(signature, text, sums.name, f"{sums}.sig"))

    with ExitStack() as stack:
        try:
            received = locate(archive, judge)
            if received.sums is None:
                trust.require_signed(f"{archive}, without its {SUMS.removeprefix('.')} file,")
            joined = stack.enter_context(Joined(received.volumes))
            received = received if sums else replace(received, sums=None)
            reading = TrustedArchive(received, joined, signatures, trust, progress, unsafe=unsafe)
        except OSError as exc:
            raise BundleError(f"Cannot read {archive}: {exc}.") from exc
        yield reading


def allowed_files(contents: Contents) -> frozenset[str]:
    """Return the files of unsafe formats that the recipe allows by name, including paths outside the payload."""
    named: set[str] = set()
    for source in contents.sources:
        allowed = source.get("allowed", [])
        named.update(path for path in (allowed if isinstance(allowed, list) else []) if isinstance(path, str))
    return frozenset(named)


def unsafe_files(contents: Contents) -> list[str]:
    """Return the payload files among ``allowed_files``, sorted."""
    return sorted(allowed_files(contents) & contents.entries.keys())


def require_safe(where: Path, contents: Contents) -> None:
    """Raise BundleError if the recipe allows unsafe files, for users who accept none (``--refuse-unsafe``)."""
    if unsafe := unsafe_files(contents):
        raise BundleError(
            f"{where} is refused: its recipe allows unsafe files ({len(unsafe)}), and --refuse-unsafe does not: "
            f"{first_names(unsafe)}.",
            fix="Ask its author for a bundle without them, or omit --refuse-unsafe.",
        )


def damage(where: Path, problems: Sequence[str], fix: str) -> BundleError:
    """Create the error for files that differ from the manifest."""
    named = first_names(problems)
    return BundleError(f"{where} is damaged. Files that differ from its manifest ({len(problems)}): {named}.", fix=fix)


def _copied(blocks: Iterator[bytes], copy: IO[bytes]) -> Iterator[bytes]:
    for block in blocks:
        copy.write(block)
        yield block
