"""``lbx unpack``: an archive to a folder that exists only when it is whole.

Files are written into a folder beside the target, straight from the volumes, each under a passing name until its
hash is right; the folder takes its own name last. A kill at any moment leaves no half bundle, only a passing folder
that the next run sweeps away.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import Lock
from typing import IO, Any

from lbx.base.errors import BundleError
from lbx.base.inputs import open_input, read_input
from lbx.base.layout import BUNDLE_JSON, TAG_MANIFEST, TAGS_LIMIT
from lbx.base.outputs import new_file, passing_folder, sweep, sync_folder
from lbx.bundle.bag import Contents, ManifestEntry
from lbx.bundle.disk import Flusher
from lbx.bundle.evidence import Evidence
from lbx.bundle.parallel import Tally, in_parallel
from lbx.bundle.progress import Progress, silent
from lbx.bundle.receiving.base import Base
from lbx.bundle.receiving.check import verify_folder
from lbx.bundle.receiving.trusted_archive import TrustedArchive, opened
from lbx.bundle.signing.trust import ANYONE, SignedBy, Trust

_INCOMING = ".incoming"


@dataclass(frozen=True)
class UnpackResult(Evidence):
    """Where a bundle now lies.

    Attributes:
        root: the folder to give to ``lbx run --bundle``.
        digest: the bundle's digest.
        files, bytes: number and total size of its payload files.
        already: True where the same bundle was there before: its files were hashed again, and nothing was written.
        trusted, signatures, unsafe: as in ``VerifyReport``.
        from_base: how many of the files the base has lent.
    """

    root: Path
    name: str
    digest: str
    files: int
    bytes: int
    sources: Sequence[Mapping[str, Any]]
    already: bool = False
    trusted: bool = False
    signatures: Sequence[SignedBy] = ()
    unsafe: Sequence[str] = ()
    from_base: int = 0


def unpack(
    archive: Path | str,
    to: Path | str,
    progress: Progress | None = None,
    *,
    trust: Trust = ANYONE,
    unsafe: bool = True,
    base: Path | None = None,
) -> UnpackResult:
    """Verify an archive and unpack it; its payload is hashed as it is written.

    Args:
        archive: NAME.tar, one of its volumes, or NAME.SHA256SUMS; the other files are looked for beside it.
        to: the folder to make; it may exist when it is empty, or already holds this very bundle.
        trust, unsafe: as for ``verify``.
        base: for a delta, the unpacked bundle that it was made against.

    Raises:
        BundleError: as ``verify``; or ``to`` holds something else, or this bundle with changed files, the disk is too
            small, or the base is missing or changed. Nothing is left behind.
    """
    archive, to = Path(archive), Path(to)
    try:
        with opened(archive, trust, progress or silent, unsafe=unsafe) as reading:
            already = _occupied(to, reading.contents)
            if already:
                verify_folder(to, progress, unsafe=unsafe)
            else:
                to.parent.mkdir(parents=True, exist_ok=True)
                sweep(to)
                lender = _lender(reading, base, archive)
                _require_space(to, reading.contents, lender)
                _unpack_beside(reading, to, progress or silent, lender)
    except OSError as exc:
        raise BundleError(
            f"{archive} cannot be unpacked to {to}: {exc}.", fix="Give another folder with --to."
        ) from exc
    contents = reading.contents
    return UnpackResult(
        to,
        contents.name,
        contents.digest,
        len(contents.entries),
        contents.payload_bytes,
        contents.sources,
        already=already,
        trusted=reading.trusted,
        signatures=reading.signatures,
        unsafe=reading.unsafe,
        from_base=len(contents.fetched),
    )


def _lender(reading: TrustedArchive, base: Path | None, archive: Path) -> Base | None:
    contents = reading.contents
    if not contents.fetched:
        return None
    if base is None:
        raise BundleError(
            f"{archive} is a delta: {len(contents.fetched)} of its {len(contents.entries)} files are in the bundle "
            f"{contents.base['name']} {contents.base['digest']}.",
            fix="Give the folder where that bundle is unpacked with --base.",
        )
    return Base(base, contents, archive)


def _occupied(to: Path, contents: Contents) -> bool:
    """Whether ``to`` is this very bundle already; a folder with anything else is refused."""
    if not os.path.lexists(to) or (to.is_dir() and not any(to.iterdir())):
        return False
    manifest = to / TAG_MANIFEST
    if not manifest.is_file():
        raise BundleError(f"{to} exists and is not a bundle.", fix="Give a folder that does not exist yet with --to.")
    if hashlib.sha256(read_input(manifest, TAGS_LIMIT)).hexdigest() != contents.digest:
        raise BundleError(f"{to} holds another bundle.", fix="Give a folder that does not exist yet with --to.")
    return True


def _require_space(to: Path, contents: Contents, base: Base | None) -> None:
    """Refuse before anything is written. What is cloned from a base takes no space."""
    lent = 0
    if base is not None and base.takes_no_room(to.parent):
        lent = sum(contents.entries[path].size for path in contents.fetched)
    needed, free = contents.payload_bytes - lent, shutil.disk_usage(to.parent).free
    if needed > free:
        raise BundleError(
            f"The disk of {to} is too small: the bundle takes {needed:,} bytes, but {free:,} are free.",
            fix="Free some space, or give a folder on a larger disk with --to.",
        )


def _unpack_beside(reading: TrustedArchive, to: Path, progress: Progress, base: Base | None) -> None:
    with passing_folder(to) as (folder, _):
        writer = _Writer(folder)
        for path, content in reading.tags.items():
            writer.write(path, [content])
        reading.run(lambda entry, blocks: writer.write(entry.path, blocks), "unpack", progress, name_all=False)
        if base is not None:
            entries = [reading.contents.entries[path] for path in reading.contents.fetched]
            tally = Tally(progress, "base", sum(entry.size for entry in entries))
            in_parallel(lambda entry: writer.borrow(entry, base, tally, reading.look), entries, tally)
        writer.settle()
        os.utime(folder / TAG_MANIFEST)  # younger than all that it lists (``unchanged``)
        folder.chmod((folder / BUNDLE_JSON).parent.stat().st_mode)  # as the umask makes folders
        folder.rename(to)
    sync_folder(to.parent)


class _Writer:
    """Writes: every file under a passing name, hashed, flushed to the disk, renamed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folders = {folder}
        self._numbers = count()
        self._lock = Lock()

    def write(self, path: str, blocks: Iterable[bytes]) -> None:
        passing = self._passing()
        with new_file(passing, 0o644) as out:
            flusher = Flusher(out.fileno())
            try:
                for block in blocks:  # raises at the end where the hash is wrong, before the file has its name
                    out.write(block)
                    flusher.wrote(len(block))
                out.flush()
            finally:
                flusher.close()
            os.fsync(out.fileno())
        self._settle_one(passing, path)

    def borrow(
        self, entry: ManifestEntry, base: Base, tally: Tally, look: Callable[[ManifestEntry, IO[bytes]], None]
    ) -> None:
        """A file that the base has; what is safe there may be unsafe by the name that it gets here."""
        passing = self._passing()
        base.lend(entry, passing, tally)
        with open_input(passing) as file:
            look(entry, file)
        self._settle_one(passing, entry.path)

    def settle(self) -> None:
        """Flush the folders' lists of names, so that the root's own name is the last thing to reach the disk."""
        for folder in self._folders:
            sync_folder(folder)

    def _passing(self) -> Path:
        with self._lock:
            return self._folder / f"{_INCOMING}-{next(self._numbers)}"

    def _settle_one(self, passing: Path, path: str) -> None:
        final = self._folder / path
        with self._lock:
            if final.parent not in self._folders:
                final.parent.mkdir(parents=True, exist_ok=True)
                self._folders.update(parent for parent in final.parents if self._folder in (parent, *parent.parents))
        passing.rename(final)
