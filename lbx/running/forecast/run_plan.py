"""Plan of a run: token counts of the prompts, from token ids only, before any model computes.

Prompts are counted in the same jobs as in a run (``lbx.running.jobs``). The memory therefore contains token ids
of only one job at a time, and the count of shared tokens matches the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lbx.base.errors import PromptError
from lbx.base.phases import phases
from lbx.base.records import Request, SampleKey
from lbx.engine.model import NO_LIMIT
from lbx.engine.prefix import pack_tokens, plan_prefixes
from lbx.running.jobs import JobSize, PendingSample, Work, make_jobs

IntArray = NDArray[np.int64]

_COUNTED = ("samples", "prompts", "prompt_tokens", "distinct_tokens", "new_tokens", "truncated", "refused", "longest")
_TRIALS = 2
_TRIAL_TOKENS = 16_384
"""Maximum number of tokens of a prompt that is kept for a calibration."""


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """Token counts of a task's prompts, by the model's tokenizer.

    Attributes:
        samples: number of answers to ask for, including all iterations, without refused ones.
        prompts: number of prompts for these answers. Of an answer in several steps, those count that no output changes.
        prompt_tokens: sum over all prompts, without sharing.
        distinct_tokens: tokens of the prompts' prefix tree, the minimum that must be computed. Tokens that tasks share
            count for the task whose prompt comes first in the tree's order.
        new_tokens: maximum number of generated tokens.
        truncated: number of answers with a truncated prompt.
        refused: number of answers with a prompt that does not fit and may not be truncated.
        longest: tokens of the longest prompt after truncation.
    """

    task: str
    samples: int = 0
    prompts: int = 0
    prompt_tokens: int = 0
    distinct_tokens: int = 0
    new_tokens: int = 0
    truncated: int = 0
    refused: int = 0
    longest: int = 0

    @property
    def prompts_per_answer(self) -> int:
        return max(1, self.prompts // self.samples) if self.samples else 1

    @property
    def shared_factor(self) -> float:
        """Number of prompt tokens per distinct token."""
        return self.prompt_tokens / self.distinct_tokens if self.distinct_tokens else 1.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"shared_factor": self.shared_factor}


@dataclass(frozen=True, slots=True)
class PrefixOrder:
    """Prompts of one job, in the order that shares the longest prefixes, as arrays with one number per prompt.

    Attributes:
        task: index into ``RunPlan.tasks``.
        length: number of tokens of the prompt.
        reused_tokens: number of first tokens that are reused from the previous prompt.
        answer_limit: token limit of the answer, including reasoning.
    """

    task: IntArray
    length: IntArray
    reused_tokens: IntArray
    answer_limit: IntArray


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Plan of a whole run: token counts, and the order of the prompts.

    Attributes:
        runs: tasks of each of the runs that are executed together.
        trials: shortest prompts of each task, for a calibration; long prompts are excluded.
        seconds: time spent counting, nearly all of it for tokenizing. The run tokenizes again.
    """

    runs: Sequence[Sequence[TaskPlan]]
    prefix_orders: Sequence[PrefixOrder] = ()
    trials: Sequence[Request] = ()
    seconds: float = 0.0

    @property
    def tasks(self) -> list[TaskPlan]:
        """Counts of each task, summed over all runs."""
        return [sum_plans(of_runs[0].task, of_runs) for of_runs in zip(*self.runs, strict=True)]

    @property
    def total(self) -> TaskPlan:
        return sum_plans("total", self.tasks)


def sum_plans(name: str, plans: Sequence[TaskPlan]) -> TaskPlan:
    sums = {column: sum(getattr(plan, column) for plan in plans) for column in _COUNTED[:-1]}
    return TaskPlan(name, **sums, longest=max((plan.longest for plan in plans), default=0))


def ignore_progress(_count: int, _total: int) -> None:
    """Empty progress callback."""


@phases.measure("count tokens")
def make_plan(
    works: Sequence[Work],
    finished_keys: Sequence[AbstractSet[SampleKey]] | None = None,
    size: JobSize | None = None,
    progress: Callable[[int, int], None] = ignore_progress,
    *,
    follow_limit: int = NO_LIMIT,
) -> RunPlan:
    """Count the prompts that ``lbx run`` would make.

    Args:
        works: works of the runs that are executed together.
        finished_keys: answered samples of each run, which are skipped.
        progress: receives the number of counted samples and their total.
        follow_limit: see ``lbx.engine.prefix.plan_prefixes``.

    Raises:
        BundleError: a data file is damaged.
    """
    start = time.perf_counter()
    counting = PromptCounter(works, follow_limit)
    samples = sum(works[0].samples_in(task) for task in works[0].tasks) * len(works)
    counted = 0
    keys_to_skip = finished_keys or [set() for _ in works]
    for job in make_jobs(works, keys_to_skip, size or JobSize()):
        for item in job:
            counting.add(item)
            counted += 1
            progress(counted, samples)
        counting.end_job()
    return counting.plan(time.perf_counter() - start)


class _CountedPrompt(NamedTuple):
    ids: bytes
    run: int
    task: int
    most: int


class PromptCounter:
    """Counter of prompts by task, which keeps the prompts of the current job."""

    def __init__(self, works: Sequence[Work], follow_limit: int) -> None:
        self._works, self._follow_limit = works, follow_limit
        self._index = works[0].task_index
        self._counts = [[dict.fromkeys(_COUNTED, 0) for _ in self._index] for _ in works]
        self._prompts: list[_CountedPrompt] = []
        self.prefix_orders: list[PrefixOrder] = []
        self._trials: list[list[Request]] = [[] for _ in self._index]

    def add(self, item: PendingSample) -> None:
        """Count the prompts of a sample, once for each iteration."""
        work, sample, times = self._works[item.run], item.sample, len(item.iterations)
        index = self._index[sample.benchmark, sample.task]
        count = self._counts[item.run][index]
        try:
            requests = [work.request(sample.key, prompt) for prompt in work.planned_prompts(sample)]
        except PromptError:
            count["refused"] += times
            return
        count["samples"] += times
        count["truncated"] += any(request.truncated for request in requests) * times
        for request in requests:
            length, most = len(request.token_ids), request.max_new_tokens + request.thinking_tokens
            count["prompts"] += times
            count["prompt_tokens"] += length * times
            count["new_tokens"] += most * times
            count["longest"] = max(count["longest"], length)
            if length:
                self._prompts += [_CountedPrompt(pack_tokens(request.token_ids), item.run, index, most)] * times
            if 0 < length <= _TRIAL_TOKENS:
                best = [*self._trials[index], request]
                self._trials[index] = sorted(best, key=lambda candidate: len(candidate.token_ids))[:_TRIALS]

    def end_job(self) -> None:
        """Plan the shared prefixes of the current job, then discard its prompts."""
        prompts, self._prompts = self._prompts, []
        branches = plan_prefixes([prompt.ids for prompt in prompts], self._follow_limit).branches
        ordered = [prompts[branch.index] for branch in branches]
        for ordered_prompt, branch in zip(ordered, branches, strict=True):
            self._counts[ordered_prompt.run][ordered_prompt.task]["distinct_tokens"] += (
                branch.length - branch.shared_with_previous
            )
        columns = (
            [ordered_prompt.task for ordered_prompt in ordered],
            [branch.length for branch in branches],
            [branch.reused_tokens for branch in branches],
            [ordered_prompt.most for ordered_prompt in ordered],
        )
        self.prefix_orders.append(PrefixOrder(*(np.array(column, np.int64) for column in columns)))

    def plan(self, seconds: float) -> RunPlan:
        tasks = self._works[0].tasks
        runs = [
            [TaskPlan(task.full_name, **count) for task, count in zip(tasks, counts, strict=True)]
            for counts in self._counts
        ]
        return RunPlan(runs, self.prefix_orders, [request for trials in self._trials for request in trials], seconds)
