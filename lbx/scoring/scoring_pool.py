"""Scoring on all cores: metrics are pure functions, so outputs can be distributed over processes."""

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
from lbx.base.interrupts import defer_signals
from lbx.base.limits import WORKERS
from lbx.base.processes import worker_pool
from lbx.base.records import Sample, Score
from lbx.base.resources import usable_cpu_count
from lbx.benchmarks.base.benchmark import Benchmark

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

FEWEST = 256
"""Number of outputs below which starting processes takes longer than scoring in this process."""

_CHUNK = 24
_PRELOADED = ["lbx.benchmarks.registry", "lbx.scoring.scoring_pool"]


class ScoringInput(NamedTuple):
    """Arguments of a call of ``Benchmark.score``."""

    sample: Sample
    output: str
    similarity: float | None = None


class ScoringPool:
    """Pool of scoring processes; a small number of outputs is scored in the current process.

    Args:
        outputs: total number of outputs.
        workers: number of processes; 0 for one per usable CPU.

    Raises:
        UsageError: ``workers`` is above the limit.
    """

    def __init__(self, outputs: int, workers: int = 0) -> None:
        if workers > WORKERS:
            raise UsageError(f"--workers must be at most {WORKERS:,}, not {workers:,}.")
        workers = min(workers or usable_cpu_count(), outputs // _CHUNK + 1)
        self._workers = workers if outputs >= FEWEST else 1
        self._executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self._workers > 1:
            self._executor = worker_pool(self._workers, preload=_PRELOADED, initializer=_initialize_worker)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=kind is None, cancel_futures=True)

    def score(self, benchmark: Benchmark, answers: Sequence[ScoringInput]) -> Iterator[list[list[Score]]]:
        """Yield the scores of all answers in order, in chunks.

        Raises:
            LbxError: a process was killed, by the system for lack of memory or by a person.
        """
        parts = [answers[start : start + _CHUNK] for start in range(0, len(answers), _CHUNK)]
        if self._executor is None:
            for part in parts:
                yield _score(benchmark, part)
            return
        try:
            # An executor that a signal interrupts while it starts its processes waits for them forever at exit.
            with defer_signals(), _no_main_module():
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
    """Keep new processes from importing the caller's main module.

    Scoring does not need it; importing it takes time, and a script without a main guard would run again.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _initialize_worker() -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of the terminal; the parent decides


def _end_with_parent() -> None:
    """Exit when the parent is killed: a worker waiting for work cannot notice, with both ends of the queue open."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _score(benchmark: Benchmark, answers: Sequence[ScoringInput]) -> list[list[Score]]:
    return [benchmark.score(answer.sample, answer.output, similarity=answer.similarity) for answer in answers]
