"""What a run is in for, before its first sample: tokens, memory, time. It is found out where the model is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

from lbx.base.records import SampleKey
from lbx.forecast.calibration import calibrate, room_of
from lbx.forecast.estimate import Costs, TimeEstimate, estimate
from lbx.forecast.memory_use import Free, MemoryFit, fit_of
from lbx.forecast.run_plan import RunPlan, TaskPlan, make_plan, nothing_told
from lbx.inference.model import NO_LIMIT
from lbx.spec.jobs import JobSize, Work, not_shared


@dataclass(frozen=True, slots=True)
class Outlook:
    """A plan, and what it takes.

    Attributes:
        runs: as of ``RunPlan``.
        time: None where nothing is known of how fast the model is.
        counting_s: how long counting took.
        in_characters: there is no tokenizer, and what counts as a token is a character.
        not_shared: why prompts share nothing that is computed, a clause; None: they do.
        model, backend: their names.
        dtype: what it is computed in, where the backend leaves a choice.
    """

    runs: Sequence[Sequence[TaskPlan]]
    memory: MemoryFit
    time: TimeEstimate | None
    counting_s: float
    in_characters: bool = False
    not_shared: str | None = None
    model: str = ""
    backend: str = ""
    dtype: str | None = None

    @property
    def tasks(self) -> list[TaskPlan]:
        return RunPlan(self.runs).tasks

    @property
    def total(self) -> TaskPlan:
        return RunPlan(self.runs).total

    def to_json(self) -> dict[str, Any]:
        return {
            "tasks": [task.to_json() for task in self.tasks],
            "total": self.total.to_json(),
            "memory": self.memory.to_json(),
            "time": None if self.time is None else self.time.to_json(),
            "counting_s": self.counting_s,
            "in_characters": self.in_characters,
            "not_shared": self.not_shared,
            "model": self.model,
            "backend": self.backend,
            "dtype": self.dtype,
        }


def look_ahead(
    works: Sequence[Work],
    *,
    free: Free,
    done: Sequence[AbstractSet[SampleKey]] | None = None,
    workers: int = 0,
    known: Costs | None = None,
    measure: bool = True,
    progress: Callable[[int, int], None] = nothing_told,
    measuring: Callable[[int, int], None] = nothing_told,
) -> Outlook:
    """Count a run's tokens and estimate its time. A ``functools.partial`` of this can be called in a worker process.

    Args:
        works: of the runs that are made together.
        free: memory, before the model was loaded.
        done: of each run, what is answered already.
        workers: processes that share the work; 0 means this one.
        known: costs from earlier sessions. Costs are measured if there are none, or if they do not cover this plan.
        measure: False measures no costs.
        progress, measuring: told how many samples are counted, and how far the measuring is.

    Raises:
        BundleError: a data file is damaged.
        BackendError: the model failed while it was measured.
    """
    work = works[0]
    total = sum(one.total for one in works)
    batching = work.settings.batching
    computing = measure or known is not None  # else nothing is asked of the model that has it compute
    room = room_of(work.backend, batching=batching) if computing else None
    follow_limit = room.follow_limit if room else NO_LIMIT
    plan = make_plan(works, done, JobSize.for_workers(workers, total), progress, follow_limit=follow_limit)
    costs = known
    if measure and not (known and known.covers(plan.total)):
        measured = calibrate(work.backend, plan, batching=batching, told=measuring)
        if measured is not None:
            costs = replace(measured, answers={**measured.answers, **known.answers}) if known else measured
    info = work.backend.info
    time = None
    if costs is not None and room is not None and plan.total.samples:
        # Sessions include tokenizing and are of all workers; a calibration is of the model in one process.
        other_s, processes = (0.0, 1) if costs is known else (plan.seconds, max(1, workers))
        time = estimate(plan, costs, room, other_s, processes=processes)
    return Outlook(
        plan.runs,
        fit_of(info, free, workers=workers, cells=room.copied_cells if room else 0),
        time,
        plan.seconds,
        in_characters=not info.counts_tokens,
        not_shared=not_shared(work.backend, batching=batching) if computing else None,
        model=info.model,
        backend=info.name,
        dtype=info.settings.get("dtype"),
    )
