"""Progress of long tasks, and parallel work on many files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait
from threading import Lock
from typing import TypeVar

from lbx.base.resources import usable_cpu_count

Progress = Callable[[str, str, int, int], None]
"""Called as ``progress(stage, item, done_bytes, total_bytes)``.

``stage`` is "read", "fetch", "pack", "sums", "verify", "unpack" or "base"; ``item`` is the current file. The bytes
count the whole stage. ``done_bytes`` can decrease if a download has to be restarted.
"""


def silent(stage: str, item: str, done_bytes: int, total_bytes: int) -> None:
    """Ignore progress."""


class ByteMeter:
    """Progress of a stage over files of ``total`` bytes together."""

    def __init__(self, progress: Progress, stage: str, total: int) -> None:
        self._progress = progress
        self._stage = stage
        self._total = total
        self._finished_bytes = 0

    def at(self, item: str, here: int) -> None:
        """Report that ``here`` bytes of the current file are done."""
        self._progress(self._stage, item, self._finished_bytes + here, self._total)

    def finish(self, item: str, size: int) -> None:
        """Report that all ``size`` bytes of the current file are done."""
        self.at(item, size)
        self._finished_bytes += size


_LITTLE = 8 << 20

T = TypeVar("T")
R = TypeVar("R")


class Tally:
    """Thread-safe progress of a stage of ``total`` bytes."""

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
        """Whether an item of ``size`` bytes exceeds a processor's share, so that other processors will be idle."""
        return size * usable_cpu_count() > self.total


def in_parallel(work: Callable[[T], R], items: Sequence[T], tally: Tally) -> list[R]:
    """Apply ``work`` to each item in threads and return the results in order.

    If a call fails, the others are cancelled and its exception is raised.

    Args:
        tally: progress that ``work`` must add to, by which it is cancelled.
    """
    threads = min(usable_cpu_count(), 4, len(items))
    if threads <= 1 or tally.total < _LITTLE:  # starting threads would take longer
        return [work(item) for item in items]
    pool = ThreadPoolExecutor(threads, "hash")
    futures = [pool.submit(work, item) for item in items]
    try:
        wait(futures, return_when=FIRST_EXCEPTION)
    finally:  # cancels also on Ctrl-C, which must not wait for a file of forty gigabytes
        tally.is_cancelled = not all(future.done() for future in futures)
        pool.shutdown(cancel_futures=True)
    errors = [future.exception() for future in futures if not future.cancelled()]
    for error in errors:
        if error is not None and not isinstance(error, CancelledError):
            raise error
    return [future.result() for future in futures]
