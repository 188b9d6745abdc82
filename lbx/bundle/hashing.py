"""A second hash of the same bytes, on another core.

Without a processor's SHA instructions SHA-256 runs at 0.2 to 0.4 GB/s, slower than any disk; hashlib lets other
threads run while it works, so the archive's own sum costs no time beside its files' sums.
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
    """How far SHA-256 had come at points of what it was fed, so that a piece read again can be held against them.

    A file that others can write may change between two readings; what this proves is what was hashed.

    Args:
        limit: bytes behind which nothing is noted any more. A point takes about half a kilobyte.
    """

    def __init__(self, limit: int = sys.maxsize) -> None:
        self._limit = limit
        self._points = [0]
        self._states = [hashlib.sha256()]

    def note(self, size: int, state: hashlib._Hash) -> None:
        """``size`` more bytes have been fed, which brought it to ``state``."""
        if self._points[-1] < self._limit and size:
            self._points.append(self._points[-1] + size)
            self._states.append(state.copy())

    def piece(self, offset: int) -> tuple[int, int]:
        """Begin and end of the piece that holds ``offset``; (offset, offset) where none does."""
        number = bisect_right(self._points, offset)
        return (self._points[number - 1], self._points[number]) if number < len(self._points) else (offset, offset)

    def proves(self, begin: int, data: bytes) -> bool:
        """Whether ``data`` is the whole piece that begins at ``begin``."""
        number = bisect_right(self._points, begin)
        if number >= len(self._points) or self._points[number] - begin != len(data):
            return False
        state = self._states[number - 1].copy()
        state.update(data)
        return state.digest() == self._states[number].digest()


class BackgroundSha256:
    """SHA-256 of what it is fed, at most one block behind. ``hexdigest`` ends it.

    Its thread begins with the second megabyte: most files are smaller, and are hashed before it would have started.
    Small pieces (a tar's headers) wait for the next block, because handing one over costs more than hashing it.

    Args:
        threaded: False where all processors have such work already; then it hashes at once.
        checkpoints: are told after each piece.
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
        """``data`` must not change any more."""
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
        """End the thread; for those who do not want the sum any more."""
        if self._thread is not None:
            self._thread.shutdown()

    def _feed(self, data: bytes | memoryview, small: bytes | bytearray = b"") -> None:
        self._sha256.update(small)
        self._sha256.update(data)
        if self._checkpoints is not None:
            self._checkpoints.note(len(small) + len(data), self._sha256)
