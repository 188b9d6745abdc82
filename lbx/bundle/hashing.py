"""A second hash of the same bytes, on another core.

Without a processor's SHA instructions SHA-256 runs at 0.2 GB/s, slower than any disk; hashlib lets other
threads run while it works, so the archive's own sum costs no time beside its files' sums.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor

_SMALL = 1 << 20


class BackgroundSha256:
    """SHA-256 of what it is fed, at most one block behind. ``hexdigest`` ends it.

    Its thread begins with the second megabyte: most files are smaller, and are hashed before it would have started.
    """

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._thread: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None
        self._here = 0

    def update(self, data: bytes | memoryview) -> None:
        """``data`` must not change any more."""
        if self._last is not None:
            self._last.result()
        if self._here < _SMALL:
            self._here += len(data)
            self._sha256.update(data)
            return
        self._thread = self._thread or ThreadPoolExecutor(1, "sha256")
        self._last = self._thread.submit(self._sha256.update, data)

    def hexdigest(self) -> str:
        self.close()
        return self._sha256.hexdigest()

    def close(self) -> None:
        """End the thread; for those who do not want the sum any more."""
        if self._thread is not None:
            self._thread.shutdown()
