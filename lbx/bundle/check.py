"""``lbx verify``: read a bundle once, from start to end, and believe nothing that is not in its manifest."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from lbx.bundle.bag import PAYLOAD, Contents, Entry, parse_tags
from lbx.bundle.evidence import Evidence
from lbx.bundle.fetch import read_blocks
from lbx.bundle.names import PathSet, is_bundle_name, why_unsafe
from lbx.bundle.progress import Meter, Progress, silent
from lbx.bundle.tar import ArchiveStream, Member, TarReader
from lbx.errors import BundleError
from lbx.layout import TAG_MANIFEST, Bundle

_TAG_LIMIT = 256 << 20
_NAMED = 10
_COPY_AGAIN = "Copy the archive again from where it was made; if that does not help, bundle anew."


@dataclass(frozen=True)
class VerifyReport(Evidence):
    """The evidence of a bundle that passed.

    Attributes:
        path: the archive or folder.
        digest: SHA-256 of the tag manifest, hex; equals ``Bundle.digest`` and covers every other byte of the bundle.
        files, bytes: number and total size of the payload files, all of them hashed.
        sources: as in bundle.json.
        archive_sha256: of the archive's bytes, where NAME.SHA256SUMS lies beside it to compare with; "" otherwise.
        sums: the name of that file, or "".
        problems: always empty in a report that was returned; there for scripts that read the JSON.
    """

    path: str
    name: str
    digest: str
    files: int
    bytes: int
    sources: Sequence[Mapping[str, Any]]
    archive_sha256: str = ""
    sums: str = ""
    problems: Sequence[str] = field(default_factory=list)


class Sink(Protocol):
    """What takes the files of an archive as they pass."""

    def begin(self, contents: Contents, tags: Mapping[str, bytes]) -> None:
        """The tag files, checked, before any payload."""
        ...

    def payload(self, entry: Entry, blocks: Iterator[bytes]) -> None:
        """One payload file; must read all blocks. The last step raises where ``scan`` stops at a wrong hash."""
        ...


class Discard:
    """A sink for those who only look."""

    def begin(self, contents: Contents, tags: Mapping[str, bytes]) -> None:
        pass

    def payload(self, entry: Entry, blocks: Iterator[bytes]) -> None:
        for _ in blocks:
            pass


def verify(archive: Path, progress: Progress | None = None) -> VerifyReport:
    """Check an archive without unpacking it: one pass, flat memory.

    Where NAME.SHA256SUMS lies beside it, the archive's own sum is checked in the same pass.

    Raises:
        BundleError: it is missing, no bundle, cut short, damaged or unsafe; names up to 10 changed files.
    """
    return scan(archive, Discard(), "verify", progress or silent)


def verify_folder(root: Path, progress: Progress | None = None) -> VerifyReport:
    """Hash an unpacked bundle again.

    Raises:
        BundleError: a file is missing, changed or not the bundle's; names up to 10 of them.
    """
    Bundle(root)  # refuses what is no bundle at all before the whole folder is walked
    try:
        found = _files_below(root)
        tags = {path: (root / path).read_bytes() for path in found if not path.startswith(PAYLOAD)}
        contents = parse_tags(tags, f"{root}")
        files = set(found)
        problems = [f"{path} (not part of the bundle)" for path in sorted(files - set(tags) - set(contents.entries))]
        meter = Meter(progress or silent, "verify", contents.payload_bytes)
        for path, entry in contents.entries.items():
            problems += _compare(root / path, entry) if path in files else [f"{path} (missing)"]
            meter.finish(path, entry.size)
    except OSError as exc:
        raise BundleError(f"{root} cannot be read: {exc}.") from exc
    if problems:
        raise _damage(root, problems, "Unpack the archive again.")
    return _report(root, contents)


def scan(archive: Path, sink: Sink, stage: str, progress: Progress, *, name_all: bool = True) -> VerifyReport:
    """Read an archive through, give its files to ``sink``, and return the evidence only when all of it is right.

    Args:
        name_all: go on after a changed file to name them all; False stops before ``sink`` has taken it.
    """
    try:
        with _open(archive) as file:
            sums, promised = _sum_beside(archive)
            stream = ArchiveStream(file, hashed=bool(promised))
            reading = _Reading(archive, TarReader(stream, archive), sink, name_all=name_all)
            contents = reading.run(stage, progress)
    except OSError as exc:
        raise BundleError(f"{archive} cannot be read: {exc}.") from exc
    found = stream.sha256()
    if found != promised:
        raise BundleError(
            f"{archive} has sha256 {found}, but {sums} beside it says {promised}.",
            fix="One of the two is damaged, or of another bundle: copy both again.",
        )
    return _report(archive, contents, found, sums)


def read_contents(archive: Path) -> Contents:
    """What an archive says it holds, from its tag files alone; the payload is not read.

    Raises:
        BundleError: as ``verify``.
    """
    with _open(archive) as file:
        reading = _Reading(archive, TarReader(ArchiveStream(file), archive), Discard())
        return reading.read_tags()


def _open(archive: Path) -> Any:
    if archive.is_dir():
        raise BundleError(f"{archive} is a folder, not an archive.", fix="Give the NAME.tar that `lbx bundle` wrote.")
    try:
        return archive.open("rb")
    except FileNotFoundError as exc:
        there = ", ".join(sorted(path.name for path in archive.parent.glob("*.tar"))) if archive.parent.is_dir() else ""
        raise BundleError(
            f"There is no archive {archive}.", fix=f"Archives there: {there}." if there else "Check the path."
        ) from exc
    except OSError as exc:
        raise BundleError(f"{archive} cannot be opened: {exc.strerror}.") from exc


class _Reading:
    """One pass over an archive: tag files, then payload, then what is missing."""

    def __init__(self, archive: Path, tar: TarReader, sink: Sink, *, name_all: bool = True) -> None:
        self._archive = archive
        self._tar = tar
        self._members = iter(tar)
        self._next: tuple[str, Member] | None = None
        self._sink = sink
        self._name_all = name_all
        self._top = ""
        self._names = PathSet()
        self._tags: dict[str, bytes] = {}

    def read_tags(self) -> Contents:
        """Take the members up to the first payload file."""
        while (step := self._advance()) is not None:
            path, member = step
            if path.startswith(PAYLOAD):
                if TAG_MANIFEST not in self._tags:
                    raise self._refuse(f"{path} comes before {TAG_MANIFEST}, which must be first")
                break
            if member.size > _TAG_LIMIT:
                raise self._refuse(f"{path} is too large for what it is ({member.size:,} bytes)")
            self._tags[path] = b"".join(self._tar.blocks())
        self._next = step
        return parse_tags(self._tags, f"{self._archive}")

    def run(self, stage: str, progress: Progress) -> Contents:
        """Take all members, and find out what is missing."""
        contents = self.read_tags()
        self._sink.begin(contents, self._tags)
        meter = Meter(progress, stage, contents.payload_bytes)
        problems: list[str] = []
        seen: set[str] = set()
        step = self._next
        while step is not None:
            path, member = step
            entry = self._listed(path, member, contents)
            problems += self._take(entry, meter)
            seen.add(path)
            step = self._advance()
        problems += [f"{path} (missing)" for path in contents.entries if path not in seen]
        if problems:
            raise _damage(self._archive, problems, _COPY_AGAIN)
        return contents

    def _advance(self) -> tuple[str, Member] | None:
        """The next member and its path inside the bag, once its name and kind have been found harmless."""
        member = next(self._members, None)
        if member is None:
            return None
        top, _, path = member.name.partition("/")
        if member.other_kind:
            raise self._refuse(f"{member.name!r} is {member.other_kind}, not a regular file")
        if reason := why_unsafe(member.name):
            raise self._refuse(f"it holds the name {member.name!r}, and {reason}")
        self._top = self._top or top
        if not path or top != self._top or not is_bundle_name(top):
            raise self._refuse(f"{member.name} does not lie in the bundle's one folder")
        if reason := self._names.why_not(path):
            raise self._refuse(f"{path} cannot be unpacked: {reason}")
        return path, member

    def _listed(self, path: str, member: Member, contents: Contents) -> Entry:
        entry = contents.entries.get(path)
        if entry is None:
            raise self._refuse(f"{path} is not in its manifest")
        if entry.size != member.size:
            raise self._refuse(f"{path} has {member.size:,} bytes instead of {entry.size:,}")
        return entry

    def _take(self, entry: Entry, meter: Meter) -> list[str]:
        digest = hashlib.sha256()
        here = 0

        def passing() -> Iterator[bytes]:
            nonlocal here
            for block in self._tar.blocks():
                digest.update(block)
                yield block
                here += len(block)
                meter.at(entry.path, here)
            if not self._name_all and digest.hexdigest() != entry.sha256:
                raise _damage(self._archive, [f"{entry.path} (changed)"], "`lbx verify` names all that changed.")

        self._sink.payload(entry, passing())
        meter.finish(entry.path, entry.size)
        return [] if digest.hexdigest() == entry.sha256 else [f"{entry.path} (changed)"]

    def _refuse(self, what: str) -> BundleError:
        return BundleError(
            f"{self._archive} is refused: {what}.",
            fix="Nothing was written. Do not trust it; get it anew from its maker.",
        )


def _sum_beside(archive: Path) -> tuple[str, str]:
    """The name of NAME.SHA256SUMS beside an archive and the sum it gives; two empty strings where there is none."""
    sums = archive.with_name(f"{archive.name.removesuffix('.tar')}.SHA256SUMS")
    try:
        lines = sums.read_text("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return "", ""
    except OSError as exc:
        raise BundleError(f"{sums} cannot be read: {exc.strerror}.") from exc
    for line in lines:
        digest, _, name = line.partition(" ")
        if name.lstrip(" *") == archive.name:
            return sums.name, digest or "nothing"
    raise BundleError(f"{sums} does not list {archive.name}.", fix="Copy both files again, under their own names.")


def _compare(path: Path, entry: Entry) -> list[str]:
    digest = hashlib.sha256()
    if path.stat().st_size == entry.size:
        for block in read_blocks(path):
            digest.update(block)
    return [] if digest.hexdigest() == entry.sha256 else [f"{entry.path} (changed)"]


def _files_below(root: Path) -> list[str]:
    """Every file below ``root``; a link or device there is none of the bundle's."""
    found = []
    for folder, folders, files in os.walk(root):
        for path in (Path(folder, name) for name in [*folders, *files]):
            name = path.relative_to(root).as_posix()
            if path.is_symlink() or not (path.is_dir() or path.is_file()):
                raise BundleError(f"{root}: {name} is not a regular file.", fix="Unpack the archive again.")
            if path.is_file():
                found.append(name)
    return sorted(found)


def _damage(where: Path, problems: Sequence[str], fix: str) -> BundleError:
    named = ", ".join(problems[:_NAMED]) + (f" and {len(problems) - _NAMED} more" if len(problems) > _NAMED else "")
    return BundleError(f"{where} is damaged. Files that differ from its manifest ({len(problems)}): {named}.", fix=fix)


def _report(path: Path, contents: Contents, archive_sha256: str = "", sums: str = "") -> VerifyReport:
    return VerifyReport(
        path=f"{path}",
        name=contents.name,
        digest=contents.digest,
        files=len(contents.entries),
        bytes=contents.payload_bytes,
        sources=contents.sources,
        archive_sha256=archive_sha256,
        sums=sums,
    )
