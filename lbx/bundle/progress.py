"""How long work reports on itself."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, str, int, int], None]
"""Called as ``progress(stage, item, done_bytes, total_bytes)``.

``stage`` is "read", "fetch", "pack", "sums", "verify", "unpack" or "base"; ``item`` is the file at hand; the bytes are
those of the whole stage. ``done_bytes`` can go back when a download has to begin again.
"""


def silent(stage: str, item: str, done_bytes: int, total_bytes: int) -> None:
    """Progress that nobody watches."""


class ByteMeter:
    """The progress of one stage over many files.

    Args:
        total: bytes of all files of the stage.
    """

    def __init__(self, progress: Progress, stage: str, total: int) -> None:
        self._progress = progress
        self._stage = stage
        self._total = total
        self._before = 0

    def at(self, item: str, here: int) -> None:
        """``here`` bytes of the current file are done."""
        self._progress(self._stage, item, self._before + here, self._total)

    def finish(self, item: str, size: int) -> None:
        """The current file is done, all its ``size`` bytes."""
        self.at(item, size)
        self._before += size
