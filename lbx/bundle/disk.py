"""Processing of large files: durable writing, reading ahead, SHA-256 in the background, progress, threads.

A background thread hashes the same bytes twice in parallel. Without a processor's SHA instructions SHA-256 runs at 0.2
to 0.4 GB/s, slower than any disk. Since hashlib releases the GIL, the archive's checksum takes no time in addition to
its files' checksums.
"""

from __future__ import annotations

import hashlib
import os
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, Future, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Lock
from typing import TypeVar

from lbx.base.inputs import open_input
from lbx.base.processes import defer_signals
from lbx.base.resources import usable_cpu_count

BLOCK = 1 << 20
"""Block size in bytes for reading, hashing and writing."""

_EVERY = 64 << 20
_AHEAD = 4 << 20


def read_ahead(handle: int, offset: int) -> None:
    """Ask the kernel to load the data after ``offset`` while earlier data is hashed."""
    os.posix_fadvise(handle, offset, _AHEAD, os.POSIX_FADV_WILLNEED)


class Flusher:
    """Flusher that syncs a file to the disk while it is being written, so that the final fsync is short.

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
        """Count written bytes, and sync them from time to time. Raises OSError if an earlier sync failed."""
        self._since += count
        if self._since < _EVERY or (self._last is not None and not self._last.done()):
            return
        self._result()
        self._thread = self._thread or ThreadPoolExecutor(1, "flush")
        self._last = self._thread.submit(os.fdatasync, self._handle)
        self._since = 0

    def close(self) -> None:
        """Wait for a sync in progress. Raises OSError if the sync failed."""
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


Progress = Callable[[str, str, int, int], None]
"""Callback for progress: ``progress(stage, item, done_bytes, total_bytes)``.

``stage`` is "read", "fetch", "pack", "sums", "verify", "unpack" or "base"; ``item`` is the current file. The bytes
count the whole stage. ``done_bytes`` can decrease if a download has to be restarted.
"""


def silent(stage: str, item: str, done_bytes: int, total_bytes: int) -> None:
    """Empty progress callback."""


class ByteMeter:
    """Progress of a stage that processes files of ``total`` bytes one after the other."""

    def __init__(self, progress: Progress, stage: str, total: int) -> None:
        self._progress = progress
        self._stage = stage
        self._total = total
        self._finished_bytes = 0

    def report(self, item: str, count: int) -> None:
        """Report that ``count`` bytes of the current file are done."""
        self._progress(self._stage, item, self._finished_bytes + count, self._total)

    def finish(self, item: str, size: int) -> None:
        """Report that all ``size`` bytes of the current file are done."""
        self.report(item, size)
        self._finished_bytes += size


_LITTLE = 8 << 20

T = TypeVar("T")
R = TypeVar("R")


class Tally:
    """Progress of a stage of ``total`` bytes, which several threads may add to."""

    def __init__(self, progress: Progress, stage: str, total: int) -> None:
        self._progress, self._stage, self.total = progress, stage, total
        self._done_bytes = 0
        self._lock = Lock()
        self.is_cancelled = False

    def add(self, item: str, count: int) -> None:
        """Report that ``count`` more bytes of ``item`` are done. Raises CancelledError if the stage was cancelled."""
        with self._lock:
            if self.is_cancelled:
                raise CancelledError
            self._done_bytes += count
            self._progress(self._stage, item, self._done_bytes, self.total)

    def outweighs(self, size: int) -> bool:
        """Whether an item of ``size`` bytes takes longer than all other items on the other processors."""
        return size * usable_cpu_count() > self.total


def map_in_threads(work: Callable[[T], R], items: Sequence[T], tally: Tally) -> list[R]:
    """Apply ``work`` to each item in threads, and return the results in order.

    If a call fails, the other calls are cancelled and the exception is raised.

    Args:
        tally: progress that ``work`` must add to; cancelling it ends ``work``.
    """
    threads = min(usable_cpu_count(), 4, len(items))
    if threads <= 1 or tally.total < _LITTLE:  # starting threads would take longer
        return [work(item) for item in items]
    pool = ThreadPoolExecutor(threads, "hash")
    futures: list[Future[R]] = []
    try:
        with defer_signals():
            futures += [pool.submit(work, item) for item in items]
        wait(futures, return_when=FIRST_EXCEPTION)
    finally:  # cancels also on Ctrl-C, which must not wait for a file of forty gigabytes
        tally.is_cancelled = not all(future.done() for future in futures)
        pool.shutdown(cancel_futures=True)
    errors = [future.exception() for future in futures if not future.cancelled()]
    for error in errors:
        if error is not None and not isinstance(error, CancelledError):
            raise error
    return [future.result() for future in futures]


_BEGIN = 1 << 20
_SMALL = 1 << 16


class Checkpoints:
    """SHA-256 states at several positions of a file, to verify spans between them when they are read again.

    A file that others can write to may change between two reads. A verified span equals the bytes that were hashed.

    Args:
        limit: position in bytes after which no checkpoints are stored. A checkpoint takes about half a kilobyte.
    """

    def __init__(self, limit: int = sys.maxsize) -> None:
        self._limit = limit
        self._points = [0]
        self._states = [hashlib.sha256()]

    def note(self, size: int, state: hashlib._Hash) -> None:
        """Store ``state`` as the checkpoint after ``size`` more bytes."""
        if self._points[-1] < self._limit and size:
            self._points.append(self._points[-1] + size)
            self._states.append(state.copy())

    def span_around(self, offset: int) -> tuple[int, int]:
        """Return begin and end of the span around ``offset``, or (offset, offset) after the last checkpoint."""
        number = bisect_right(self._points, offset)
        return (self._points[number - 1], self._points[number]) if number < len(self._points) else (offset, offset)

    def proves(self, begin: int, data: bytes) -> bool:
        """Whether the stored states prove that ``data`` is the complete span that begins at ``begin``."""
        number = bisect_right(self._points, begin)
        if number >= len(self._points) or self._points[number] - begin != len(data):
            return False
        state = self._states[number - 1].copy()
        state.update(data)
        return state.digest() == self._states[number].digest()


class BackgroundSha256:
    """SHA-256 computed in a background thread, with a lag of at most one block. ``hexdigest`` ends the thread.

    The thread starts with the second megabyte: most files are smaller, and are hashed faster than a thread starts.
    Short data (a tar's headers) is buffered until the next block, because passing it on costs more than hashing it.

    Args:
        threaded: False hashes synchronously, for when all processors are already hashing.
        checkpoints: updated after each block.
    """

    def __init__(self, *, threaded: bool = True, checkpoints: Checkpoints | None = None) -> None:
        self._sha256 = hashlib.sha256()
        self._checkpoints = checkpoints
        self._threaded = threaded and usable_cpu_count() > 1
        self._thread: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None
        self._here = 0
        self._small = bytearray()

    def update(self, data: bytes | memoryview) -> None:
        """Hash further data, which the caller must not modify later."""
        if not self._threaded or self._here < _BEGIN:
            self._here += len(data)
            self._feed(data)
            return
        if len(data) + len(self._small) < _SMALL:
            self._small += data
            return
        if self._last is not None:
            self._last.result()
        self._thread = self._thread or ThreadPoolExecutor(1, "sha256")
        small, self._small = self._small, bytearray()
        self._last = self._thread.submit(self._feed, data, small)

    def hexdigest(self) -> str:
        self.close()
        self._feed(b"", self._small)
        self._small = bytearray()
        return self._sha256.hexdigest()

    def close(self) -> None:
        """End the thread. Must be called even if the digest is no longer needed."""
        if self._thread is not None:
            self._thread.shutdown()

    def _feed(self, data: bytes | memoryview, small: bytes | bytearray = b"") -> None:
        self._sha256.update(small)
        self._sha256.update(data)
        if self._checkpoints is not None:
            self._checkpoints.note(len(small) + len(data), self._sha256)
