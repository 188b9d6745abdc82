"""SHA-256 in a background thread, to hash the same bytes twice in parallel.

Without a processor's SHA instructions SHA-256 runs at 0.2 to 0.4 GB/s, slower than any disk. Since hashlib releases the
GIL, the archive's checksum takes no time in addition to its files' checksums.
"""

from __future__ import annotations

import hashlib
import sys
from bisect import bisect_right
from concurrent.futures import Future, ThreadPoolExecutor

from lbx.base.resources import usable_cpu_count

_BEGIN = 1 << 20
_SMALL = 1 << 16


class Checkpoints:
    """SHA-256 states at several positions of a file, to verify pieces of it when they are read again.

    A file that others can write to may change between two reads; a verified piece equals the bytes that were hashed.

    Args:
        limit: position in bytes after which no further checkpoints are stored. Each takes about half a kilobyte.
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

    def piece(self, offset: int) -> tuple[int, int]:
        """Return begin and end of the piece that contains ``offset``; (offset, offset) if it is after the last."""
        number = bisect_right(self._points, offset)
        return (self._points[number - 1], self._points[number]) if number < len(self._points) else (offset, offset)

    def proves(self, begin: int, data: bytes) -> bool:
        """Whether the known hashes prove that ``data`` is the complete piece that begins at ``begin``."""
        number = bisect_right(self._points, begin)
        if number >= len(self._points) or self._points[number] - begin != len(data):
            return False
        state = self._states[number - 1].copy()
        state.update(data)
        return state.digest() == self._states[number].digest()


class BackgroundSha256:
    """SHA-256 computed in a background thread, with a lag of at most one block. ``hexdigest`` ends the thread.

    The thread starts with the second megabyte: most files are smaller, and are hashed faster than a thread starts.
    Small pieces (a tar's headers) are buffered until the next block, because passing them on costs more than hashing.

    Args:
        threaded: False hashes synchronously, for when all processors are already hashing.
        checkpoints: updated after each piece.
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
        """Hash further data, which the caller must not modify afterwards."""
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
        """End the thread, also if the digest is no longer needed."""
        if self._thread is not None:
            self._thread.shutdown()

    def _feed(self, data: bytes | memoryview, small: bytes | bytearray = b"") -> None:
        self._sha256.update(small)
        self._sha256.update(data)
        if self._checkpoints is not None:
            self._checkpoints.note(len(small) + len(data), self._sha256)
