"""Atomic writing of files, safe against links planted by other users.

Every file that lbx writes is opened here; ``tests/test_one_way.py`` enforces it. A file is written in a private
temporary folder next to its destination and moved there when complete. The folder is kept open and addressed by its
descriptor, so that other users cannot replace it.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from lbx.base.inputs import too_large_error
from lbx.base.processes import lock

_DESCRIPTOR_PATH = re.compile(r"/dev/(stdout|stderr)|/(?:dev|proc/self)/fd/([0-9]{1,9})")
_NUMBERS = {"stdout": 1, "stderr": 2}
_TEMPORARY_SUFFIX = ".partial-"
_LONGEST = 150
_LONG_AGO_S = 7 * 86_400


@contextmanager
def atomic_file(path: Path, *, mode: int = 0o666, sync: bool = False) -> Iterator[BinaryIO]:
    """Open a new file for writing, which replaces ``path`` when the block ends without an error.

    Args:
        path: a link is replaced, not followed.
        mode: permissions, before the umask.
        sync: flush the file to the disk before the rename, and the folder after it.

    Raises:
        OSError: the file cannot be written; ``path`` is then unchanged.
    """
    with atomic_path(path, sync=sync) as temporary_path, new_file(temporary_path, mode) as file:
        yield file
        file.flush()
        if sync:
            os.fsync(file.fileno())


def new_file(path: Path, mode: int = 0o666) -> BinaryIO:
    """Create a file for writing, in a folder that other users cannot write to. Raises OSError if it exists."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode), "wb")


@contextmanager
def atomic_path(path: Path, *, sync: bool = False) -> Iterator[Path]:
    """Yield a temporary path for a library to write to. The file then replaces ``path``, like ``atomic_file``."""
    temporary_path = None
    try:
        with temporary_folder(path) as (_, handle):
            temporary_path = Path(f"/proc/self/fd/{handle}/{path.name}")
            yield temporary_path
            temporary_path.replace(path)
            if sync:
                sync_folder(path.parent)
    except OSError as exc:
        if exc.filename == str(temporary_path) or _TEMPORARY_SUFFIX in str(exc.filename):
            exc.filename = str(path)  # the name that the user gave
        raise


def write_file(path: Path, content: str | bytes, *, sync: bool = False) -> None:
    """Write a file, text as UTF-8. Raises OSError like ``atomic_file``."""
    with atomic_file(path, sync=sync) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


def write_all(contents: Mapping[Path, Iterable[bytes]]) -> None:
    """Write several files, all or none: they are moved to their destinations only when all are complete.

    Missing folders are created. Raises OSError like ``atomic_file``.
    """
    with ExitStack() as stack:
        handles: dict[Path, int] = {}
        temporary_paths: dict[Path, Path] = {}
        for number, (path, pieces) in enumerate(contents.items()):
            if path.parent not in handles:
                path.parent.mkdir(parents=True, exist_ok=True)
                handles[path.parent] = stack.enter_context(temporary_folder(path))[1]
            temporary_paths[path] = Path(f"/proc/self/fd/{handles[path.parent]}/{number}")
            with new_file(temporary_paths[path]) as file:
                file.writelines(pieces)
        for path in filter(Path.is_dir, contents):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        for path, temporary_path in temporary_paths.items():
            temporary_path.replace(path)


def link_files(folder: Path, targets: Mapping[Path | str, Path]) -> None:
    """Create symbolic links below a folder, from {path of the link relative to ``folder``: target}."""
    for link, target in targets.items():
        (folder / link).parent.mkdir(parents=True, exist_ok=True)
        (folder / link).symlink_to(target.resolve())


@contextmanager
def open_output(path: Path) -> Iterator[BinaryIO]:
    """Open the output given by ``-o``: a file, an inherited descriptor (``/dev/stdout``), a device or a pipe.

    A file is written atomically. A link owned by this user or root is followed; other users' links are refused.

    Raises:
        OSError: the output cannot be written.
    """
    with ExitStack() as stack:
        path = _resolve_link(path)
        if not _DESCRIPTOR_PATH.fullmatch(str(path)) and is_regular_or_missing(path):
            yield stack.enter_context(atomic_file(path))
        else:
            yield stack.enter_context(open_append(path, create=False))


def open_append(path: Path, *, create: bool = True) -> BinaryIO:
    """Open the output given by ``--log`` for appending. Accepts the same outputs and links as ``open_output``.

    Args:
        create: whether regular files are accepted, and created if missing.

    Raises:
        OSError: the output cannot be written.
    """
    path = _resolve_link(path)
    if handed := _DESCRIPTOR_PATH.fullmatch(str(path)):
        return os.fdopen(os.dup(_NUMBERS.get(handed[1]) or int(handed[2])), "ab")
    flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(path, flags | (os.O_CREAT if create else 0), 0o666)
    except OSError as exc:
        if exc.errno == errno.ENXIO:
            exc.strerror = "it is a pipe without a reader"
        raise
    if not create and stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EEXIST, "it was replaced in the meantime", str(path))
    os.set_blocking(handle, not create)  # a slow reader of the log must not block lbx
    return os.fdopen(handle, "ab")


def _resolve_link(path: Path) -> Path:
    if _DESCRIPTOR_PATH.fullmatch(str(path)) or not path.is_symlink():
        return path
    refuse_foreign_link(path)
    return path.resolve()


def refuse_foreign_link(path: Path) -> None:
    """Raise OSError if ``path`` is a link owned by neither this user nor root."""
    if path.is_symlink() and path.lstat().st_uid not in (os.geteuid(), 0):
        raise OSError(errno.ELOOP, "it is a link that belongs to another user", str(path))


def is_regular_or_missing(path: Path) -> bool:
    """Whether the path is a regular file or does not exist."""
    return not path.is_symlink() and (path.is_file() or not path.exists())


def open_or_create(path: Path, flags: int, mode: int = 0o666, *, limit: int = sys.maxsize) -> int:
    """Open a file that is kept and extended (a log, a lock), creating it if missing, and return its descriptor.

    Args:
        flags: access flags of ``os.open``.
        limit: maximum size in bytes, for files that are also read.

    Raises:
        OSError: the file is a link, a pipe or a device, is too large, or cannot be written.
    """
    handle = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    status = os.fstat(handle)
    if stat.S_ISREG(status.st_mode) and status.st_size <= limit:
        return handle
    os.close(handle)
    if stat.S_ISREG(status.st_mode):
        raise too_large_error(path, limit)
    raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))


def open_folder(folder: Path) -> int:
    """Open a folder for locking or flushing, and return the descriptor. Raises OSError, also for a link."""
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def sync_folder(folder: Path) -> None:
    """Flush a folder's directory entries to the disk. Raises OSError."""
    handle = open_folder(folder.resolve())
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def temporary_folder(target: Path) -> Iterator[tuple[Path, int]]:
    """Create a private, locked folder next to ``target``, yield its path and descriptor, and remove it afterwards.

    Folders left by killed processes are removed first. Raises OSError.
    """
    remove_leftovers(target)
    folder, handle = _locked_folder(target)
    try:
        yield folder, handle
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _locked_folder(target: Path) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{_prefix(target)}{os.getpid()}-", dir=target.parent))
        # Until it is locked, a sweep from another container may remove it.
        with suppress(FileNotFoundError):
            handle = open_folder(folder)
            if lock(handle) is not False and os.fstat(handle).st_nlink:
                return folder, handle
            os.close(handle)


def remove_leftovers(target: Path) -> list[Path]:
    """Remove the temporary folders of ``target`` that dead processes left, and return their paths. Raises OSError."""
    removed: list[Path] = []
    pattern = re.compile(re.escape(_prefix(target)) + r"(\d+)-.*")
    if not os.access(target.parent, os.R_OK):  # a folder can be writable without being readable
        return removed
    for path in sorted(target.parent.iterdir()):
        match = pattern.fullmatch(path.name)
        if match is None or _is_alive(int(match[1])):
            continue
        with suppress(OSError):
            handle = open_folder(path)
            # A process in another container has no visible PID here; its lock is visible, unless the file system
            # does not support locks.
            free = lock(handle)
            if free or (free is None and time.time() - path.stat().st_mtime > _LONG_AGO_S):
                shutil.rmtree(path, ignore_errors=True)
                removed.append(path)
            os.close(handle)
    return removed


def _prefix(target: Path) -> str:
    name = os.fsencode(target.name)
    return f".{target.name if len(name) <= _LONGEST else sha256(name).hexdigest()}{_TEMPORARY_SUFFIX}"


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
