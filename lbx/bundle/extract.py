"""``lbx unpack``: an archive to a folder that exists only when it is whole.

Files are written into a folder beside the target, each under a passing name until its hash is right; the
folder takes its own name last. A kill at any moment leaves no half bundle, only a passing folder that the
next run sweeps away.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lbx.bundle.bag import Contents, Entry
from lbx.bundle.check import VerifyReport, read_contents, scan
from lbx.bundle.disk import sync_folder
from lbx.bundle.evidence import Evidence
from lbx.bundle.progress import Progress, silent
from lbx.errors import BundleError
from lbx.layout import TAG_MANIFEST

_INCOMING = ".incoming"


@dataclass(frozen=True)
class UnpackResult(Evidence):
    """Where a bundle now lies.

    Attributes:
        root: the folder to give to ``lbx run --bundle``.
        digest: the bundle's digest.
        files, bytes: number and total size of its payload files.
        already: True where the same bundle was there before, and nothing was written.
    """

    root: Path
    name: str
    digest: str
    files: int
    bytes: int
    sources: Sequence[Mapping[str, Any]]
    already: bool = False


def unpack(archive: Path, to: Path, progress: Progress | None = None) -> UnpackResult:
    """Verify an archive and unpack it, in one pass.

    Args:
        archive: NAME.tar; NAME.SHA256SUMS beside it is checked too.
        to: the folder to make; it may exist when it is empty, or already holds this very bundle.

    Raises:
        BundleError: the archive is damaged or unsafe, ``to`` holds something else, or the disk is too small.
            Nothing is left behind.
    """
    try:
        contents = read_contents(archive)
        if _occupied(to, contents):
            files, size = len(contents.entries), contents.payload_bytes
            return UnpackResult(to, contents.name, contents.digest, files, size, contents.sources, already=True)
        to.parent.mkdir(parents=True, exist_ok=True)
        _sweep(to)
        _require_space(to, contents)
        report = _unpack_beside(archive, to, progress or silent)
    except OSError as exc:
        raise BundleError(
            f"{archive} cannot be unpacked to {to}: {exc}.", fix="Give another folder with --to."
        ) from exc
    return UnpackResult(to, report.name, report.digest, report.files, report.bytes, report.sources)


def _occupied(to: Path, contents: Contents) -> bool:
    """Whether ``to`` is this very bundle already; a folder with anything else is refused."""
    if not os.path.lexists(to) or (to.is_dir() and not any(to.iterdir())):
        return False
    manifest = to / TAG_MANIFEST
    if not manifest.is_file():
        raise BundleError(f"{to} exists and is not a bundle.", fix="Give a folder that does not exist yet with --to.")
    if hashlib.sha256(manifest.read_bytes()).hexdigest() != contents.digest:
        raise BundleError(f"{to} holds another bundle.", fix="Give a folder that does not exist yet with --to.")
    return True


def _require_space(to: Path, contents: Contents) -> None:
    free = shutil.disk_usage(to.parent).free
    if contents.payload_bytes > free:
        raise BundleError(
            f"The disk of {to} is too small: the bundle holds {contents.payload_bytes:,} bytes, but {free:,} are free.",
            fix="Free some space, or give a folder on a larger disk with --to.",
        )


def _unpack_beside(archive: Path, to: Path, progress: Progress) -> VerifyReport:
    with _passing_folder(to) as folder:
        sink = _Writer(folder)
        report = scan(archive, sink, "unpack", progress, name_all=False)
        sink.settle()
        folder.chmod(0o755)
        folder.rename(to)
    sync_folder(to.parent)
    return report


@contextmanager
def _passing_folder(to: Path) -> Iterator[Path]:
    """A locked folder beside ``to``; whatever is left of it in the end is removed."""
    folder = Path(tempfile.mkdtemp(prefix=f".{to.name}.partial-{os.getpid()}-", dir=to.parent))
    lock = _lock(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _sweep(to: Path) -> None:
    """Remove what killed runs have left: passing folders whose process is gone and whose lock is free."""
    pattern = re.compile(re.escape(f".{to.name}.partial-") + r"(\d+)-.*")
    for path in sorted(to.parent.iterdir()):
        match = pattern.fullmatch(path.name)
        if match is None or not path.is_dir() or path.is_symlink() or _alive(int(match[1])):
            continue
        # In another container the process may live unseen; its lock is seen everywhere.
        lock = _lock(path)
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _lock(folder: Path) -> int | None:
    """A lock on ``folder`` that dies with this process, or None where another has it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


class _Writer:
    """The sink that writes: every file under one passing name, hashed, flushed to the disk, renamed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folders = {folder}

    def begin(self, contents: Contents, tags: Mapping[str, bytes]) -> None:
        for path, content in tags.items():
            self._write(path, iter([content]))

    def payload(self, entry: Entry, blocks: Iterator[bytes]) -> None:
        self._write(entry.path, blocks)

    def settle(self) -> None:
        """Flush the folders' lists of names, so that the root's own name is the last thing to reach the disk."""
        for folder in self._folders:
            sync_folder(folder)

    def _write(self, path: str, blocks: Iterator[bytes]) -> None:
        passing, final = self._folder / _INCOMING, self._folder / path
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(passing, flags, 0o644), "wb") as out:
            for block in blocks:  # raises at the end where the hash is wrong, before the file has its name
                out.write(block)
            out.flush()
            os.fsync(out.fileno())
        final.parent.mkdir(parents=True, exist_ok=True)
        self._folders.update(parent for parent in final.parents if self._folder in (parent, *parent.parents))
        passing.rename(final)
