"""Who asks a run's questions: this process, or several others (``lbx.running.workers.pool.Crew``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, Self, TypeVar

from lbx.planning.jobs import Job, PendingSample
from lbx.planning.work import Prepare, Work
from lbx.running.answering import answer_job
from lbx.store import GenerationRow, RunRow

T = TypeVar("T")


class Executor(Protocol):
    """A loaded model, or several copies of it."""

    @property
    def rows(self) -> Sequence[RunRow]:
        """The rows of the runs that are made together."""
        ...

    @property
    def process_ids(self) -> Sequence[int]:
        """Of the processes that hold the model, this one not counted."""
        ...

    def call(self, function: Callable[[Sequence[Work]], T]) -> T:
        """What a function of the works returns. It may be called in another process, so it travels by its name."""
        ...

    def ask(
        self, jobs: Iterator[Job], computed: Callable[[int], None]
    ) -> Iterator[tuple[PendingSample, GenerationRow]]:
        """Ask jobs; yields each answer with what was asked, as answers end.

        Args:
            computed: told how many more tokens, of prompts and answers, went through the model.

        Raises:
            LbxError: nothing more can be asked.
        """
        ...

    def close(self) -> None:
        """Free the model's memory."""
        ...


class LocalExecutor:
    """Asks in this process. Use it as a context manager.

    Args:
        prepare: called at once; what it raises is passed on.
    """

    def __init__(self, prepare: Prepare) -> None:
        prepared = prepare()
        self._works = [one.work for one in prepared]
        self.rows = tuple(one.row for one in prepared)
        self.process_ids: Sequence[int] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, function: Callable[[Sequence[Work]], T]) -> T:
        return function(self._works)

    def ask(
        self, jobs: Iterator[Job], computed: Callable[[int], None]
    ) -> Iterator[tuple[PendingSample, GenerationRow]]:
        for job in jobs:
            for index, row in answer_job(self._works, job, computed=computed):
                yield job[index], row

    def close(self) -> None:
        self._works[0].backend.close()
