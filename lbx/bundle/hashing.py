"""A second hash of the same bytes, on another core.

Without a processor's SHA instructions SHA-256 runs at 0.2 GB/s, slower than any disk; hashlib lets other
threads run while it works, so the archive's own sum costs no time beside its files' sums.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor


class BackgroundSha256:
    """SHA-256 of what it is fed, at most one block behind. ``hexdigest`` ends it."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._thread = ThreadPoolExecutor(1, "sha256")
        self._last: Future[None] | None = None

    def update(self, data: bytes | memoryview) -> None:
        """``data`` must not change any more."""
        if self._last is not None:
            self._last.result()
        self._last = self._thread.submit(self._sha256.update, data)

    def hexdigest(self) -> str:
        self._thread.shutdown()
        return self._sha256.hexdigest()
