"""Durable writing of large files, and reading them ahead for hashing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from lbx.base.inputs import open_input

BLOCK = 1 << 20
"""Block size in bytes for reading, hashing and writing."""

_EVERY = 64 << 20
_AHEAD = 4 << 20


def read_ahead(handle: int, offset: int) -> None:
    """Ask the kernel to load the data after ``offset`` while earlier data is hashed."""
    os.posix_fadvise(handle, offset, _AHEAD, os.POSIX_FADV_WILLNEED)


class Flusher:
    """Flush a file to the disk while it is being written, so that the final fsync is short.

    ``close`` must always be called before that fsync: the kernel reports a failed write only once, and may have
    reported it to this flusher.

    Args:
        handle: the file's descriptor; must stay open until ``close`` has returned.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._thread: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None
        self._since = 0

    def wrote(self, count: int) -> None:
        """Record that ``count`` more bytes were written. Raises OSError if flushing earlier bytes failed."""
        self._since += count
        if self._since < _EVERY or (self._last is not None and not self._last.done()):
            return
        self._result()
        self._thread = self._thread or ThreadPoolExecutor(1, "flush")
        self._last = self._thread.submit(os.fdatasync, self._handle)
        self._since = 0

    def close(self) -> None:
        """Wait for a flush in progress. Raises OSError if it failed."""
        if self._thread is not None:
            self._thread.shutdown()
            self._result()

    def _result(self) -> None:
        if self._last is not None:
            self._last.result()


def read_blocks(path: Path) -> Iterator[bytes]:
    """Yield a file's bytes in blocks of 1 MiB."""
    with open_input(path) as file:
        end = BLOCK
        while True:
            read_ahead(file.fileno(), end)
            if not (block := file.read(BLOCK)):
                return
            yield block
            end += len(block)
