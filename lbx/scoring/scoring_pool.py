"""Scoring on all cores: a metric is a pure function, so outputs can be dealt out to processes."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import parent_process
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from lbx.base.errors import LbxError, UsageError
from lbx.base.interrupts import uninterrupted
from lbx.base.limits import WORKERS
from lbx.base.processes import worker_pool
from lbx.base.records import Sample, Score
from lbx.base.resources import usable_cpu_count
from lbx.benchmarks.base.benchmark import Benchmark

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

FEWEST = 256
"""Outputs below which starting processes takes longer than scoring here."""

_CHUNK = 24
_PRELOADED = ["lbx.benchmarks", "lbx.scoring.scoring_pool"]


class ScoringInput(NamedTuple):
    """What one call of ``Benchmark.score`` takes."""

    sample: Sample
    output: str
    similarity: float | None = None


class ScoringPool:
    """Processes that score. Few outputs are scored in this one.

    Args:
        outputs: how many there will be in all.
        workers: number of processes; 0 means one for each CPU that this process may use.

    Raises:
        UsageError: there are to be too many processes.
    """

    def __init__(self, outputs: int, workers: int = 0) -> None:
        if workers > WORKERS:
            raise UsageError(f"--workers must be at most {WORKERS:,}, not {workers:,}.")
        workers = min(workers or usable_cpu_count(), outputs // _CHUNK + 1)
        self._workers = workers if outputs >= FEWEST else 1
        self._executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self._workers > 1:
            self._executor = worker_pool(self._workers, preload=_PRELOADED, initializer=_begin)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=kind is None, cancel_futures=True)

    def score(self, benchmark: Benchmark, answers: Sequence[ScoringInput]) -> Iterator[list[list[Score]]]:
        """The scores of all answers, in their order, some answers at a time.

        Raises:
            LbxError: a process was killed, by the system for want of memory or by a person.
        """
        parts = [answers[start : start + _CHUNK] for start in range(0, len(answers), _CHUNK)]
        if self._executor is None:
            for part in parts:
                yield _score(benchmark, part)
            return
        try:
            # An executor that a signal stops while it starts its processes waits for them for ever at exit.
            with uninterrupted(), _no_main_module():
                futures: list[Future[list[list[Score]]]] = [
                    self._executor.submit(_score, benchmark, part) for part in parts
                ]
            for future in futures:
                yield future.result()
        except BrokenProcessPool as exc:
            raise LbxError(
                f"One of the {self._workers} scoring processes was killed, perhaps because memory ran out. Tasks "
                "scored before that keep their new scores.",
                fix="Score again, with fewer processes if memory is short: lbx score RESULTS --workers 1.",
            ) from exc


@contextlib.contextmanager
def _no_main_module() -> Iterator[None]:
    """Processes that start meanwhile do not import the caller's main module.

    Scoring needs nothing of it; importing it costs time, and a script without a main guard would run again.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _begin() -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of the terminal; the parent decides


def _end_with_parent() -> None:
    """A process that waits for work never learns that its parent was killed: it holds both ends of the queue."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _score(benchmark: Benchmark, answers: Sequence[ScoringInput]) -> list[list[Score]]:
    return [benchmark.score(one.sample, one.output, similarity=one.similarity) for one in answers]
