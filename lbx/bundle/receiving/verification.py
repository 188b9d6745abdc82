"""Verification of bundles for ``lbx verify``: sums and signatures before parsing, then tag files, then payload.

Only files in the manifest are accepted, and the manifest is trusted only as far as the signature.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lbx.base.bundle_folder import TAG_MANIFEST, TAGS_LIMIT, Bundle
from lbx.base.errors import BundleError
from lbx.base.inputs import open_input, read_input
from lbx.base.phases import phases
from lbx.base.units import format_count
from lbx.base.version import __version__
from lbx.bundle.disk import Progress, Tally, map_in_threads, read_blocks, silent
from lbx.bundle.manifest import (
    PAYLOAD,
    TAG_SIGNATURE,
    Contents,
    Evidence,
    ManifestEntry,
    parse_tags,
    refuse_foreign_tag,
)
from lbx.bundle.names import find_unsafe_content, needs_content_check, unsafe_format
from lbx.bundle.receiving.trusted_archive import (
    CHECK_DISK,
    VolumeResult,
    allowed_files,
    damage_error,
    discard,
    open_archive,
    require_safe,
    unsafe_files,
)
from lbx.bundle.signing.trust import ANYONE, SignedBy, Trust

_UNPACK_AGAIN = "Unpack the archive again, to another folder. To list all changed files, run `lbx verify` on this one."


@dataclass(frozen=True)
class VerifyReport(Evidence):
    """Report on a bundle that passed verification.

    Attributes:
        path: the archive or folder.
        digest: SHA-256 of the tag manifest, hex; equals ``Bundle.digest`` and covers every other byte of the bundle.
        files, bytes: number and total size of the payload files, all of them hashed except the ``from_base`` files.
        sources: as in bundle.json.
        archive_sha256: SHA-256 of the archive if NAME.SHA256SUMS lists it as one volume; "" otherwise.
        sums: name of the NAME.SHA256SUMS file, or "".
        trusted: whether a trusted key has signed the whole bundle.
        signatures: valid signatures, or empty for an unsigned bundle.
        volumes: result per volume.
        unsafe: payload files of unsafe formats that the recipe allows by name.
        base, from_base: for a delta, the required base bundle and the number of files taken from it.
        started_at, seconds: start and duration of the check.
        result: always "intact"; any problem raises an error instead.
        problems: always empty in a returned report; present for scripts that read the JSON.
    """

    path: str
    name: str
    digest: str
    files: int
    bytes: int
    sources: Sequence[Mapping[str, Any]]
    archive_sha256: str = ""
    sums: str = ""
    trusted: bool = False
    signatures: Sequence[SignedBy] = ()
    volumes: Sequence[VolumeResult] = ()
    unsafe: Sequence[str] = ()
    base: Mapping[str, str] = field(default_factory=dict)
    from_base: int = 0
    started_at: str = ""
    seconds: float = 0.0
    result: str = "intact"
    lbx_version: str = __version__
    problems: Sequence[str] = field(default_factory=list)


class Clock:
    """Clock of a check: start time and duration so far."""

    def __init__(self) -> None:
        self.started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self._start, 3)


def verify(
    archive: Path | str, progress: Progress | None = None, *, trust: Trust = ANYONE, unsafe: bool = True
) -> VerifyReport:
    """Verify an archive without unpacking, in constant memory: first the sums of the volumes, then the contents.

    Args:
        archive: NAME.tar, one of its volumes, or NAME.SHA256SUMS.
        trust: keys to accept; with ``ANYONE`` a signature is optional, but must be valid if present.
        unsafe: False refuses a bundle with pickles or code that its recipe allows by name.

    Raises:
        BundleError: the archive is missing, not a bundle, truncated, damaged, unsafe, or not signed as ``trust``
            requires; names up to 10 changed volumes or files.
    """
    archive, clock = Path(archive), Clock()
    try:
        with open_archive(archive, trust, progress or silent, unsafe=unsafe) as opened:
            opened.read_payload(discard, "verify", progress or silent)
    except OSError as exc:
        raise BundleError(f"Cannot read {archive}: {exc}.", fix=CHECK_DISK) from exc
    return _report(
        archive,
        opened.contents,
        clock,
        opened.is_trusted,
        archive_sha256=opened.volumes[0].sha256 if len(opened.volumes) == 1 else "",
        sums=opened.archive_files.sums.name if opened.archive_files.sums is not None else "",
        signatures=opened.signatures,
        volumes=opened.volumes,
    )


def verify_folder(
    root: Path, progress: Progress | None = None, *, trust: Trust = ANYONE, unsafe: bool = True
) -> VerifyReport:
    """Verify an unpacked bundle by hashing all files again. For ``trust`` and ``unsafe`` see ``verify``.

    Raises:
        BundleError: a file is missing, changed, unsafe or foreign, or the tag manifest is not signed as ``trust``
            requires; names up to 10 files.
    """
    clock = Clock()
    Bundle(root)  # fails early if the folder is not a bundle, before walking it
    try:
        present = list_files(root)
        tags = read_tags(root, present)
        if TAG_SIGNATURE not in tags:
            trust.require_signed(f"{root / TAG_MANIFEST}")
            signatures = []
        else:
            location = f"{root / TAG_SIGNATURE}"
            signatures = [trust.check_signature(tags[TAG_SIGNATURE], tags[TAG_MANIFEST], TAG_MANIFEST, location)]
        contents = parse_tags(tags, f"{root}")
        if not unsafe:
            require_safe(root, contents)
        files = set(present)
        problems = [f"{path} (not part of the bundle)" for path in sorted(files - set(tags) - set(contents.entries))]
        tally = Tally(progress or silent, "verify", contents.payload_bytes)
        allowed = allowed_files(contents)

        def work(entry: ManifestEntry) -> list[str]:
            if entry.path not in files:
                return [f"{entry.path} (missing)"]
            return compare_file(root / entry.path, entry, tally) or _unsafe_problems(root / entry.path, entry, allowed)

        entries = sorted(contents.entries.values(), key=lambda entry: -entry.size)
        results = dict(zip((entry.path for entry in entries), map_in_threads(work, entries, tally), strict=True))
        problems += [problem for path in contents.entries for problem in results[path]]
    except OSError as exc:
        raise BundleError(f"Cannot read {root}: {exc}.", fix=CHECK_DISK) from exc
    if problems:
        raise damage_error(root, problems, "Unpack the archive again.")
    return _report(root, contents, clock, any(signed.trusted for signed in signatures), signatures=signatures)


def read_tags(root: Path, all_paths: Iterable[str]) -> dict[str, bytes]:
    """Read the tag files among the paths from ``list_files``. Raises OSError, and BundleError for a foreign file."""
    paths = [path for path in all_paths if not path.startswith(PAYLOAD)]
    for path in paths:
        refuse_foreign_tag(path, f"{root}")
    return {path: read_input(root / path, TAGS_LIMIT) for path in paths}


def read_contents(archive: Path) -> Contents:
    """Read the contents of an archive from the tag files, without checking sums, trust or payload.

    Raises:
        BundleError: as ``verify``.
    """
    with open_archive(archive, ANYONE, silent, sums=False) as opened:
        return opened.contents


def compare_file(path: Path, entry: ManifestEntry, tally: Tally) -> list[str]:
    """Compare a file with size and hash in the manifest, and return the problems. Raises OSError."""
    digest = hashlib.sha256()
    if path.stat().st_size == entry.size:
        for block in read_blocks(path):
            digest.update(block)
            tally.add(entry.path, len(block))
    return [] if digest.hexdigest() == entry.sha256 else [f"{entry.path} (changed)"]


def _unsafe_problems(path: Path, entry: ManifestEntry, allowed_paths: frozenset[str]) -> list[str]:
    if entry.path in allowed_paths:
        return []
    reason = unsafe_format(entry.path)
    if not reason and needs_content_check(entry.path):
        with open_input(path) as file:
            unsafe = find_unsafe_content(entry.path, entry.size, file)
        reason = unsafe.reason if unsafe else ""
    return [f"{entry.path} (unsafe: {reason})"] if reason else []


def list_files(root: Path) -> list[str]:
    """List every file below ``root``. Raises BundleError for a link or device."""
    paths = []
    for folder, folders, files in os.walk(root):
        for path in (Path(folder, name) for name in [*folders, *files]):
            name = path.relative_to(root).as_posix()
            if path.is_symlink() or not (path.is_dir() or path.is_file()):
                raise BundleError(f"{root}: {name} is not a regular file.", fix="Unpack the archive again.")
            if path.is_file():
                paths.append(name)
    return sorted(paths)


def _report(
    path: Path, contents: Contents, clock: Clock, trusted: bool, *, signatures: Sequence[SignedBy], **more: Any
) -> VerifyReport:
    return VerifyReport(
        path=f"{path}",
        name=contents.name,
        digest=contents.digest,
        files=len(contents.entries),
        bytes=contents.payload_bytes,
        sources=contents.sources,
        trusted=trusted,
        signatures=signatures,
        unsafe=unsafe_files(contents),
        base=contents.base,
        from_base=len(contents.base_paths),
        started_at=clock.started_at,
        seconds=clock.seconds,
        **more,
    )


@phases.measure("check bundle")
def check_unchanged(root: Path, progress: Progress | None = None, *, hashes: bool = False) -> str:
    """Check that an unpacked bundle is unchanged: name, size and time of every file, and the hashes of newer files.

    ``lbx unpack`` touches the tag manifest last. A newer file was written later, or copied without its time, and is
    hashed. Only ``hashes`` detects a changed file with a reset time.

    Args:
        hashes: hash every file.

    Returns:
        Description of the check performed.

    Raises:
        BundleError: a file is missing, changed or foreign; names up to 10.
    """
    if hashes:
        return f"hashes of all {verify_folder(root, progress).files:,} files"
    Bundle(root)
    try:
        states = {path: (root / path).lstat() for path in list_files(root)}
        contents = parse_tags(read_tags(root, states), f"{root}")
        payload = {path: status for path, status in states.items() if path.startswith(PAYLOAD)}
        problems = [f"{path} (not part of the bundle)" for path in payload if path not in contents.entries]
        problems += [f"{path} (missing)" for path in contents.entries if path not in payload]
        entries = [entry for path, entry in contents.entries.items() if path in payload]
        problems += [f"{entry.path} (changed)" for entry in entries if payload[entry.path].st_size != entry.size]
        unpacked = states[TAG_MANIFEST].st_mtime_ns
        younger = [entry for entry in entries if payload[entry.path].st_mtime_ns > unpacked]
        tally = Tally(progress or silent, "verify", sum(entry.size for entry in younger))
        if not problems:
            results = map_in_threads(lambda entry: compare_file(root / entry.path, entry, tally), younger, tally)
            problems = [problem for wrong in results for problem in wrong]
    except OSError as exc:
        raise BundleError(f"Cannot read {root}: {exc}.", fix=CHECK_DISK) from exc
    if problems:
        raise damage_error(root, problems, _UNPACK_AGAIN)
    hashed = f", and hashes of the {len(younger):,} younger than the manifest" if younger else ""
    return f"sizes and times of {format_count(len(entries), 'file')}{hashed}"
