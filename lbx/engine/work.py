"""Everything a run or a plan needs, in one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lbx.backends.base import Backend
from lbx.benchmarks.base import Benchmark
from lbx.engine.settings import RunSettings
from lbx.layout import Bundle
from lbx.prompts import Prompter
from lbx.records import Task


@dataclass(frozen=True, slots=True)
class Work:
    """Everything a run needs, loaded and checked.

    Attributes:
        limit: ask only the first so many samples of each task; None asks all.
    """

    run_id: str
    bundle: Bundle
    tasks: Sequence[Task]
    benchmarks: Mapping[str, Benchmark]
    backend: Backend
    prompter: Prompter
    settings: RunSettings
    limit: int | None = None

    def samples_in(self, task: Task) -> int:
        return task.samples if self.limit is None else min(self.limit, task.samples)

    @property
    def total(self) -> int:
        return sum(self.samples_in(task) for task in self.tasks) * self.settings.iterations
