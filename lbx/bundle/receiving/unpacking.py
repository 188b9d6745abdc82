"""Atomic unpacking of archives (``lbx unpack``): the target folder appears only when it is complete.

Files are written from the volumes into a temporary folder next to the target, each under a temporary name until its
hash has been verified; the folder is renamed last. A kill at any moment leaves only a temporary folder, which the
next run removes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from threading import Lock
from typing import IO, Any

from lbx.base.bundle_folder import BUNDLE_JSON, MANIFEST, TAG_MANIFEST, TAGS_LIMIT, Bundle
from lbx.base.errors import BundleError
from lbx.base.inputs import open_input, read_input
from lbx.base.outputs import new_file, remove_leftovers, sync_folder, temporary_folder
from lbx.base.units import format_size
from lbx.base.visible import as_command
from lbx.bundle.disk import BLOCK, BackgroundSha256, Flusher, Progress, Tally, map_in_threads, read_blocks, silent
from lbx.bundle.manifest import Contents, Evidence, ManifestEntry
from lbx.bundle.names import first_names
from lbx.bundle.receiving.trusted_archive import TrustedArchive, open_archive
from lbx.bundle.receiving.verification import verify_folder
from lbx.bundle.signing.trust import ANYONE, SignedBy, Trust

_CLONE = 0x40049409  # FICLONE of linux/fs.h: a copy that shares its blocks until one of the two is changed
_INCOMING = ".incoming"


class BaseFolder:
    """Unpacked base bundle, which supplies the files that a delta omits.

    Args:
        base_path: folder of the bundle, or its ``lbx/bundle.json``.
        contents: parsed tag files of the delta.
        delta: name of the delta in messages.

    Raises:
        BundleError: the folder is not a bundle, or lacks a file that the delta needs; names up to 10.
    """

    def __init__(self, base_path: Path, contents: Contents, delta: Path) -> None:
        self.root = base_path.parent.parent if base_path.name == Path(BUNDLE_JSON).name else base_path
        Bundle(self.root)
        self._delta = delta
        self._base_label = f"{contents.base['name']} {contents.base['digest']}".strip()
        located = {path: self._find(contents.entries[path], name) for path, name in contents.base_paths.items()}
        if missing := [f"{contents.base_paths[path]}" for path, file in located.items() if file is None]:
            raise BundleError(
                f"{self.root} lacks files that {delta} takes from its base bundle ({len(missing)}): "
                f"{first_names(missing)}.",
                fix=f"Pass --base with the folder of its unpacked base bundle ({self._base_label}).",
            )
        self._files: Mapping[str, Path] = {path: file for path, file in located.items() if file is not None}

    def _find(self, entry: ManifestEntry, base_path: str) -> Path | None:
        """Find a file in the base by its path, or by its sum in the base's manifest. Checks only the size."""
        for candidate in (base_path, self._paths_by_sum.get(entry.sha256)):
            path = self.root / candidate if candidate else None
            if path is not None and path.is_file() and not path.is_symlink() and path.stat().st_size == entry.size:
                return path
        return None

    def can_clone_into(self, folder: Path) -> bool:
        """Whether files of the base can be cloned into ``folder`` with shared blocks."""
        probe = folder / f".{self._delta.name}.clone-{os.getpid()}"
        try:
            return _clone(self.root / BUNDLE_JSON, probe)
        except OSError:
            return False
        finally:
            probe.unlink(missing_ok=True)

    @cached_property
    def _paths_by_sum(self) -> dict[str, str]:
        complete = (self.root / MANIFEST).is_file()
        text = read_input(self.root / MANIFEST, TAGS_LIMIT).decode("utf-8", "replace") if complete else ""
        return {line[:64]: line[66:] for line in text.splitlines() if ".." not in line and line[66:67] != "/"}

    def copy_to(self, entry: ManifestEntry, target: Path, tally: Tally) -> None:
        """Clone a file of the base to ``target``, or copy the file if the file system cannot clone.

        Never links, because a writer of the base would then change this bundle, too. Hashes ``target``, to detect
        changes of the base during the copy.

        Raises:
            BundleError: the file has changed since the base was bundled.
        """
        source = self._files[entry.path]
        if not _clone(source, target):
            with open_input(source) as file, new_file(target) as out:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
                shutil.copyfileobj(file, out, BLOCK)
                out.flush()
                os.fsync(out.fileno())
        digest = BackgroundSha256(threaded=tally.outweighs(entry.size))
        try:
            for block in read_blocks(target):
                digest.update(block)
                tally.add(entry.path, len(block))
        finally:
            digest.close()
        if not stat.S_ISREG(target.lstat().st_mode) or digest.hexdigest() != entry.sha256:
            raise BundleError(
                f"{source} has changed since {self._base_label} was bundled, so {self._delta} cannot use it.",
                fix="Unpack the base bundle again, from its own archive.",
                command=as_command("lbx", "verify", self.root),
            )


def _clone(source: Path, target: Path) -> bool:
    with open_input(source) as file, new_file(target) as out:
        try:
            fcntl.ioctl(out.fileno(), _CLONE, file.fileno())
            os.fsync(out.fileno())
        except OSError:
            target.unlink()
            return False
    return True


@dataclass(frozen=True)
class UnpackResult(Evidence):
    """Result of unpacking a bundle.

    Attributes:
        root: folder to pass to ``lbx run --bundle``.
        files, bytes: number and total size of the payload files.
        already: whether the folder already contained this bundle: the files were hashed again and not rewritten.
        trusted, signatures, unsafe: as in ``VerifyReport``.
        from_base: number of files taken from the base.
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
    """Verify an archive and unpack it. The payload is hashed during writing.

    Args:
        archive: NAME.tar, one of its volumes, or NAME.SHA256SUMS; the other files must be in the same folder.
        to: folder to create; may exist if it is empty or already contains this bundle.
        trust, unsafe: as for ``verify``.
        base: for a delta, the unpacked base bundle.

    Raises:
        BundleError: as ``verify``; or ``to`` contains something else or changed files of this bundle, the disk is too
            small, or the base is missing or changed. No files remain after an error.
    """
    archive, to = Path(archive), Path(to)
    try:
        with open_archive(archive, trust, progress or silent, unsafe=unsafe) as source:
            already = _is_unpacked(to, source.contents)
            if already:
                verify_folder(to, progress, unsafe=unsafe)
            else:
                to.parent.mkdir(parents=True, exist_ok=True)
                remove_leftovers(to)
                lender = _open_base(source, base, archive)
                _require_space(to, source.contents, lender)
                _unpack_atomically(source, to, progress or silent, lender)
    except OSError as exc:
        raise BundleError(
            f"Could not unpack {archive} to {to}: {exc}.", fix="Choose another folder with --to."
        ) from exc
    contents = source.contents
    return UnpackResult(
        to,
        contents.name,
        contents.digest,
        len(contents.entries),
        contents.payload_bytes,
        contents.sources,
        already=already,
        trusted=source.is_trusted,
        signatures=source.signatures,
        unsafe=source.unsafe,
        from_base=len(contents.base_paths),
    )


def _open_base(source: TrustedArchive, base: Path | None, archive: Path) -> BaseFolder | None:
    contents = source.contents
    if not contents.base_paths:
        return None
    if base is None:
        raise BundleError(
            f"{archive} is a delta: {len(contents.base_paths)} of its {len(contents.entries)} files are in the bundle "
            f"{contents.base['name']} {contents.base['digest']}.",
            fix="Unpack that bundle and pass its folder with --base.",
        )
    return BaseFolder(base, contents, archive)


def _is_unpacked(to: Path, contents: Contents) -> bool:
    """Whether the folder ``to`` already contains this bundle. Raises BundleError for any other content."""
    if not os.path.lexists(to) or (to.is_dir() and not any(to.iterdir())):
        return False
    manifest = to / TAG_MANIFEST
    if not manifest.is_file():
        raise BundleError(f"{to} exists and is not a bundle.", fix="Choose a new folder with --to.")
    if hashlib.sha256(read_input(manifest, TAGS_LIMIT)).hexdigest() != contents.digest:
        raise BundleError(f"{to} contains another bundle.", fix="Choose a new folder with --to.")
    return True


def _require_space(to: Path, contents: Contents, base: BaseFolder | None) -> None:
    """Raise BundleError if the disk is too small, before writing. Files cloned from a base take no space."""
    lent = 0
    if base is not None and base.can_clone_into(to.parent):
        lent = sum(contents.entries[path].size for path in contents.base_paths)
    needed, free = contents.payload_bytes - lent, shutil.disk_usage(to.parent).free
    if needed > free:
        raise BundleError(
            f"The disk of {to} is too small: the bundle needs {format_size(needed)}, but {format_size(free)} are free.",
            fix="Free some space, or choose a folder on a larger disk with --to.",
        )


def _unpack_atomically(source: TrustedArchive, to: Path, progress: Progress, base: BaseFolder | None) -> None:
    with temporary_folder(to) as (folder, _):
        writer = _Writer(folder)
        for path, content in source.tags.items():
            writer.write(path, [content])
        source.read_payload(lambda entry, blocks: writer.write(entry.path, blocks), "unpack", progress, name_all=False)
        if base is not None:
            entries = [source.contents.entries[path] for path in source.contents.base_paths]
            tally = Tally(progress, "base", sum(entry.size for entry in entries))
            map_in_threads(
                lambda entry: writer.copy_from_base(entry, base, tally, source.check_content), entries, tally
            )
        writer.sync_folders()
        os.utime(folder / TAG_MANIFEST)  # newer than all files that it lists, see ``check_unchanged``
        folder.chmod((folder / BUNDLE_JSON).parent.stat().st_mode)  # the mode that the umask gives new folders
        folder.rename(to)
    sync_folder(to.parent)


class _Writer:
    """Writer of a bundle's files, each under a temporary name until it is hashed and flushed to disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folders = {folder}
        self._numbers = count()
        self._lock = Lock()

    def write(self, path: str, blocks: Iterable[bytes]) -> None:
        temporary = self._temporary_path()
        with new_file(temporary, 0o644) as out:
            flusher = Flusher(out.fileno())
            try:
                for block in blocks:  # raises at the end if the hash is wrong, before the file is renamed
                    out.write(block)
                    flusher.wrote(len(block))
                out.flush()
            finally:
                flusher.close()
            os.fsync(out.fileno())
        self._move_into_place(temporary, path)

    def copy_from_base(
        self, entry: ManifestEntry, base: BaseFolder, tally: Tally, check: Callable[[ManifestEntry, IO[bytes]], None]
    ) -> None:
        """Copy a file from the base and check it again, because the new name may make it unsafe."""
        temporary = self._temporary_path()
        base.copy_to(entry, temporary, tally)
        with open_input(temporary) as file:
            check(entry, file)
        self._move_into_place(temporary, entry.path)

    def sync_folders(self) -> None:
        """Sync all folders, so that all file names are on disk before the root folder is renamed."""
        for folder in self._folders:
            sync_folder(folder)

    def _temporary_path(self) -> Path:
        with self._lock:
            return self._folder / f"{_INCOMING}-{next(self._numbers)}"

    def _move_into_place(self, temporary: Path, path: str) -> None:
        final = self._folder / path
        with self._lock:
            if final.parent not in self._folders:
                final.parent.mkdir(parents=True, exist_ok=True)
                self._folders.update(parent for parent in final.parents if self._folder in (parent, *parent.parents))
        temporary.rename(final)
