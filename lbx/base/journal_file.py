"""Append-only files of lines that one process writes. ``append`` returns once the line is on disk.

A kill leaves at most a partial last line, which was never reported as saved. The partial line stays in the file until
the caller has checked the complete lines, so that a refused file does not change.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import BinaryIO

from lbx.base.outputs import open_or_create, sync_folder
from lbx.base.processes import lock


class JournalFile:
    """Append-only file of lines, locked until ``close`` and created if missing.

    Call ``read_lines`` and ``cut_partial_line`` before the first ``append``. Threads must not call methods
    concurrently.

    Args:
        mode: permissions of a new file, before the umask.
        limit: maximum size in bytes of an existing file.

    Raises:
        BlockingIOError: another process has opened the file.
        OSError: the file is not regular, is too large, cannot be written, or (ENOLCK) is on a file system without
            locks.
    """

    def __init__(self, path: Path, *, mode: int, limit: int) -> None:
        self.path = path
        self._file = _open_exclusive(path, mode, limit)
        try:
            sync_folder(path.parent)
        except BaseException:
            self.close()
            raise
        self._size, self._partial = os.fstat(self._file.fileno()).st_size, b""

    def read_lines(self) -> list[bytes]:
        """Return the complete lines, without their line feeds."""
        self._file.seek(0)
        lines, self._partial = split_lines(self._file.read())
        return lines

    def cut_partial_line(self, rest_file: Path | None = None) -> bool:
        """Move the partial line that ``read_lines`` found to ``rest_file``, if given. Returns whether there was one.

        Raises:
            OSError: the line cannot be moved, and is still in the journal.
        """
        if not self._partial:
            return False
        if rest_file:
            with os.fdopen(open_or_create(rest_file, os.O_WRONLY | os.O_APPEND, 0o600), "wb") as file:
                file.write(self._partial + b"\n")
                file.flush()
                os.fsync(file.fileno())
        size = self._size - len(self._partial)
        os.ftruncate(self._file.fileno(), size)
        self._size, self._partial = size, b""
        os.fsync(self._file.fileno())
        return True

    def append(self, line: bytes) -> None:
        """Append a line, given without line feed, and flush the file to disk. After an OSError nothing is appended."""
        handle, data = self._file.fileno(), line + b"\n"
        remaining = memoryview(data)
        try:
            os.ftruncate(handle, self._size)  # no line may follow a part of one
            while remaining:
                remaining = remaining[os.write(handle, remaining) :]
            os.fsync(handle)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(handle, self._size)
            raise
        self._size += len(data)

    def close(self) -> None:
        """Close the file, which unlocks it."""
        self._file.close()


def split_lines(data: bytes) -> tuple[list[bytes], bytes]:
    """Split a journal's bytes into its complete lines and the partial line at its end."""
    *lines, partial = data.split(b"\n")
    return lines, partial


def _open_exclusive(path: Path, mode: int, limit: int) -> BinaryIO:
    while True:
        file = os.fdopen(open_or_create(path, os.O_RDWR | os.O_APPEND, mode, limit=limit), "r+b", buffering=0)
        try:
            _lock(file, path)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    return file
        except BaseException:
            file.close()
            raise
        file.close()  # another process removed it in the meantime


def _lock(file: BinaryIO, path: Path) -> None:
    is_locked = lock(file.fileno())
    if is_locked is None:
        raise OSError(errno.ENOLCK, "its file system has no locks", str(path))
    if not is_locked:
        raise BlockingIOError(errno.EWOULDBLOCK, "another process has it open", str(path))
