"""A second hash of the same bytes, on another core.

Without a processor's SHA instructions SHA-256 runs at 0.2 to 0.4 GB/s, slower than any disk; hashlib lets other
threads run while it works, so the archive's own sum costs no time beside its files' sums.
"""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import Future, ThreadPoolExecutor

_BEGIN = 1 << 20
_SMALL = 1 << 16


def processors() -> int:
    """How many processors this process may use."""
    return max(len(os.sched_getaffinity(0)), 1)


class BackgroundSha256:
    """SHA-256 of what it is fed, at most one block behind. ``hexdigest`` ends it.

    Its thread begins with the second megabyte: most files are smaller, and are hashed before it would have started.
    Small pieces (a tar's headers) wait for the next block, because handing one over costs more than hashing it.

    Args:
        threaded: False where all processors have such work already; then it hashes at once.
    """

    def __init__(self, *, threaded: bool = True) -> None:
        self._sha256 = hashlib.sha256()
        self._threaded = threaded and processors() > 1
        self._thread: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None
        self._here = 0
        self._small = bytearray()

    def update(self, data: bytes | memoryview) -> None:
        """``data`` must not change any more."""
        if not self._threaded or self._here < _BEGIN:
            self._here += len(data)
            self._sha256.update(data)
            return
        if len(data) + len(self._small) < _SMALL:
            self._small += data
            return
        if self._last is not None:
            self._last.result()
        self._thread = self._thread or ThreadPoolExecutor(1, "sha256")
        small, self._small = self._small, bytearray()
        self._last = self._thread.submit(self._feed, small, data)

    def hexdigest(self) -> str:
        self.close()
        self._sha256.update(self._small)
        self._small = bytearray()
        return self._sha256.hexdigest()

    def close(self) -> None:
        """End the thread; for those who do not want the sum any more."""
        if self._thread is not None:
            self._thread.shutdown()

    def _feed(self, small: bytearray, data: bytes | memoryview) -> None:
        self._sha256.update(small)
        self._sha256.update(data)
