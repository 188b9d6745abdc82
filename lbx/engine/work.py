"""Everything a run or a plan needs, in one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lbx.backends.base import Backend
from lbx.benchmarks.base import Benchmark
from lbx.engine.settings import RunSettings
from lbx.layout import Bundle
from lbx.prompts import Prompter
from lbx.records import PLAIN, Chunk, Mode, Sample, Task


def nothing_retrieved(_benchmark: Benchmark, _sample: Sample) -> Sequence[Chunk]:
    """For runs that read whole documents."""
    return ()


@dataclass(frozen=True, slots=True)
class Work:
    """Everything a run needs, loaded and checked.

    Attributes:
        limit: ask only the first so many samples of each task; None asks all.
        mode: which of the benchmarks' ways to ask.
        chunks: a sample's retrieved chunks, in document order.
    """

    run_id: str
    bundle: Bundle
    tasks: Sequence[Task]
    benchmarks: Mapping[str, Benchmark]
    backend: Backend
    prompter: Prompter
    settings: RunSettings
    limit: int | None = None
    mode: Mode = PLAIN
    chunks: Callable[[Benchmark, Sample], Sequence[Chunk]] = nothing_retrieved

    def samples_in(self, task: Task) -> int:
        return task.samples if self.limit is None else min(self.limit, task.samples)

    def iterations_of(self, task: Task) -> int:
        """How often each of the task's samples is asked."""
        return self.settings.iterations or self.benchmarks[task.benchmark].iterations

    @property
    def total(self) -> int:
        return sum(self.samples_in(task) * self.iterations_of(task) for task in self.tasks)
