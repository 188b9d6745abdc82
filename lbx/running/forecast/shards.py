"""Shards of a run, with equal predicted cost. A document with all its samples belongs to one shard.

A document is assigned together with all questions about it, from any task, so that no two shards read the same text.
The shard plan is a JSON file, read by ``lbx run --shard-plan`` and ``lbx merge``:

    {"lbx_shards": 1, "bundle_digest": HEX, "runs": [NAME], "iterations": {TASK: N}, "unit": "s" or "tokens",
     "basis": "how the cost is known",
     "shards": [{"cost": X, "samples": {TASK: [[position in the data, sample id, predicted cost], ...]}}, ...]}

The default number of shards is as many as the time to load the model allows. A scheduler balances a run best with many
small shards, which it hands to whichever node is free. Each of them loads the model, so a shard must be long in
comparison.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from lbx.base.errors import UsageError
from lbx.base.inputs import LARGE, read_input
from lbx.base.outputs import write_file
from lbx.engine.prefix import DecodeCapacity
from lbx.options.sample_selection import Selection
from lbx.running.forecast.estimate import Costs, decode_capacity_of, estimate
from lbx.running.forecast.run_plan import PrefixOrder, PromptCounter, RunPlan, TaskPlan, ignore_progress
from lbx.running.jobs import JobSize, PendingSample, RunQuestions, Work, make_jobs

FORMAT = 1
_MAX_POSITION = 1 << 31
"""Limit of the position's column in the results file."""

RULE_OF_THUMB = Costs(
    token_s=1.0, attended_s=1 / 50_000, step_s=0.0, answer_s=8.0, answer_attended_s=0.0, wall_factor=1.0, answers={},
    basis="a rule of thumb",
)  # fmt: skip
"""Costs of a model of unknown speed, in tokens of a short prompt, for dense models with about 7 billion parameters.
They affect only the balance of the shards, never the set of samples.
"""
ONE_BY_ONE = DecodeCapacity(1, 0, 0, 1)
_CHARACTERS_A_TOKEN = {"en": 4.0, "zh": 1.5}


class PlannedSample(NamedTuple):
    """Sample in a shard plan: index of the task, position in the data, and id."""

    task: int
    position: int
    sample_id: str


@dataclass(frozen=True, slots=True)
class PlannedDocument:
    """Document with the samples that ask about it, and their prompts.

    Attributes:
        samples: samples on the document, in the data's order.
        prefix_orders: prompts of the samples, by job.
    """

    samples: tuple[PlannedSample, ...]
    prefix_orders: tuple[PrefixOrder, ...]


@dataclass(slots=True)
class _DocumentBuilder:
    samples: dict[PlannedSample, None] = field(default_factory=dict)
    prefix_orders: list[PrefixOrder] = field(default_factory=list)


Measure = Callable[[Sequence[PendingSample]], PrefixOrder]
"""Function that returns the order of the prompts of samples that are read together."""


def count_document_tokens(
    works: Sequence[Work], progress: Callable[[int, int], None] = ignore_progress
) -> list[PlannedDocument]:
    """Count the tokens of all prompts with the model's tokenizer, by document in the data's order.

    Raises:
        BundleError: a data file is damaged.
    """
    follow_limit = decode_capacity_of(works[0].backend, batching=works[0].settings.batching).follow_limit
    return _group_by_document(works, lambda items: _count_tokens(works, items, follow_limit), progress)


def estimate_document_tokens(
    run_questions: Sequence[RunQuestions], progress: Callable[[int, int], None] = ignore_progress
) -> list[PlannedDocument]:
    """Estimate the tokens of all prompts from characters, by document, without a tokenizer or truncation.

    Raises:
        BundleError: a data file is damaged.
    """
    index = run_questions[0].task_index
    return _group_by_document(run_questions, lambda items: _count_characters(run_questions, items, index), progress)


def _group_by_document(
    run_questions: Sequence[RunQuestions],
    measure: Measure,
    progress: Callable[[int, int], None],
) -> list[PlannedDocument]:
    index = run_questions[0].task_index
    total = sum(run_questions[0].samples_in(task) for task in run_questions[0].tasks) * len(run_questions)
    shards_of: dict[str, _DocumentBuilder] = {}
    counted = 0
    for job in make_jobs(run_questions, [set() for _ in run_questions], JobSize()):
        parts: dict[str, list[PendingSample]] = {}
        for item in job:
            parts.setdefault(run_questions[item.run].document_key(item.sample), []).append(item)
        for name, items in parts.items():
            growing = shards_of.setdefault(name, _DocumentBuilder())
            for item in items:
                sample = item.sample
                planned = PlannedSample(index[sample.benchmark, sample.task], item.position, sample.sample_id)
                growing.samples[planned] = None
            growing.prefix_orders.append(measure(items))
            counted += len(items)
            progress(counted, total)
    return [PlannedDocument(tuple(builder.samples), tuple(builder.prefix_orders)) for builder in shards_of.values()]


def _count_tokens(works: Sequence[Work], items: Sequence[PendingSample], follow_limit: int) -> PrefixOrder:
    counter = PromptCounter(works, follow_limit)
    for item in items:
        counter.add(item)
    counter.end_job()
    return counter.prefix_orders[0]


def _count_characters(
    run_questions: Sequence[RunQuestions], items: Sequence[PendingSample], index: Mapping[tuple[str, str], int]
) -> PrefixOrder:
    rows: list[tuple[int, int, int, int]] = []
    for item in items:
        questions, sample = run_questions[item.run], item.sample
        benchmark, mode = questions.benchmarks[sample.benchmark], questions.settings.mode(0)
        first = benchmark.prompt(questions.bundle, sample, mode, ())
        per_token = _CHARACTERS_A_TOKEN.get(sample.language, 4.0)
        task = index[sample.benchmark, sample.task]
        for prompt in (first, *benchmark.later_prompts(questions.bundle, sample, mode)):
            length = max(1, round(len(prompt.text) / per_token))
            shared = round(len(prompt.before + prompt.document) / per_token) if rows else 0
            budget = questions.settings.max_new_tokens or prompt.max_new_tokens
            most = budget + (questions.settings.thinking_tokens or 0)
            rows.append((task, length, min(shared, length), most))
            rows += [(task, length, length, most)] * (len(item.iterations) - 1)
    columns = np.array(rows, np.int64).reshape(-1, 4).T
    return PrefixOrder(*columns)


# Costs


def cost_of(
    documents: Iterable[PlannedDocument], tasks: Sequence[str], costs: Costs, capacity: DecodeCapacity
) -> float:
    """Predict the cost of processing documents one after the other, in the given order."""
    prefix_orders = [order for document in documents for order in document.prefix_orders]
    return estimate(RunPlan([[TaskPlan(name) for name in tasks]], prefix_orders), costs, capacity).total_s


def assign_items(costs: Sequence[float], shards: int) -> list[list[int]]:
    """Assign items to shards, the most expensive item first, each to the shard with the lowest cost so far.

    Returns:
        Indices of each shard's items, ascending; the most expensive shard first, because schedulers start an array in
        order, and what starts last should be short. The costs of two shards differ at most by the most expensive item.
        With at least as many items as shards, no shard is empty.
    """
    parts: list[list[int]] = [[] for _ in range(shards)]
    heap = [(0.0, 0, shard) for shard in range(shards)]
    for index in sorted(range(len(costs)), key=lambda item: (-costs[item], item)):
        load, count, shard = heapq.heappop(heap)
        parts[shard].append(index)
        heapq.heappush(heap, (load + costs[index], count + 1, shard))
    loads = {shard: load for load, _, shard in heap}
    return [sorted(parts[shard]) for shard in sorted(loads, key=lambda shard: (-loads[shard], shard))]


# The shard plan


@dataclass(frozen=True, slots=True)
class Shard:
    """Shard of a run: samples, with their predicted cost.

    Attributes:
        cost: predicted cost in the plan's unit.
        samples: {task: {position: (sample id, its share of its document's cost)}}.
    """

    cost: float
    samples: Mapping[str, Mapping[int, tuple[str, float]]]

    @property
    def selection(self) -> Selection:
        return Selection({task: frozenset(positions) for task, positions in self.samples.items()})

    @property
    def size(self) -> int:
        return sum(map(len, self.samples.values()))


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """Shard plan: all shards of a run.

    Attributes:
        runs: names of the runs that are executed together.
        iterations: {task: number of times each sample is asked}.
        unit: unit of costs: "s", or "tokens" if the model's speed is unknown.
        basis: origin of the costs.
    """

    bundle_digest: str
    runs: tuple[str, ...]
    iterations: Mapping[str, int]
    unit: str
    basis: str
    shards: tuple[Shard, ...]

    def answer_count(self, shard: int) -> int:
        """Number of answers of a shard."""
        samples = self.shards[shard].samples
        return len(self.runs) * sum(self.iterations[task] * len(positions) for task, positions in samples.items())

    def check(self, bundle_digest: str, tasks: Sequence[str]) -> None:
        """Raise UsageError if the plan was made for another bundle or other tasks."""
        if bundle_digest != self.bundle_digest:
            raise UsageError("The shard plan belongs to another bundle.", fix="Create a new plan with `lbx submit`.")
        if set(tasks) != set(self.iterations):
            raise UsageError(
                f"The shard plan belongs to other tasks: {', '.join(sorted(set(tasks) ^ set(self.iterations)))} "
                "are only in the plan or only in this run.",
                fix="Pass the same --tasks, or create a new plan with `lbx submit`.",
            )

    def to_json(self) -> dict[str, Any]:
        return {
            "lbx_shards": FORMAT,
            "bundle_digest": self.bundle_digest,
            "runs": list(self.runs),
            "iterations": dict(self.iterations),
            "unit": self.unit,
            "basis": self.basis,
            "shards": [
                {
                    "cost": shard.cost,
                    "samples": {
                        task: [[position, *sample_cost] for position, sample_cost in positions.items()]
                        for task, positions in shard.samples.items()
                    },
                }
                for shard in self.shards
            ],
        }

    def write(self, path: Path) -> None:
        write_file(path, json.dumps(self.to_json(), ensure_ascii=False))


def make_shards(
    documents: Sequence[PlannedDocument],
    costs: Sequence[float],
    tasks: Sequence[str],
    shards: int,
    *,
    processes: int = 1,
) -> tuple[Shard, ...]:
    """Distribute documents among at most ``shards`` shards, at most one per document.

    Args:
        tasks: names of the tasks, by the index in ``PlannedSample``.
        processes: number of processes that share a shard's documents. A document is read by a single process, so the
            most expensive document takes the same time with any number.
    """
    result = []
    for part in assign_items(costs, min(shards, len(documents))):
        samples: dict[str, dict[int, tuple[str, float]]] = {}
        for document in part:
            planned_samples = documents[document].samples
            for planned in planned_samples:
                share = costs[document] / len(planned_samples)
                samples.setdefault(tasks[planned.task], {})[planned.position] = (planned.sample_id, share)
        sort_tasks = {task: dict(sorted(samples[task].items())) for task in tasks if task in samples}
        dear = [costs[document] for document in part]
        result.append(Shard(max(sum(dear) / processes, *dear), sort_tasks))
    return tuple(result)


_NEW_PLAN = "Create a new plan with `lbx submit`."


def read_shards(path: Path) -> ShardPlan:
    """Read a shard plan. Raises UsageError if the file is missing or not a shard plan."""
    try:
        data = json.loads(read_input(path, LARGE))
    except OSError as exc:
        raise UsageError(
            f"The shard plan {path} cannot be read: {exc.strerror or exc}.", fix="`lbx submit -o DIR` writes one."
        ) from exc
    except (ValueError, RecursionError) as exc:
        raise UsageError(f"{path} is not a shard plan: invalid JSON ({exc}).", fix=_NEW_PLAN) from exc
    if not isinstance(data, dict) or data.get("lbx_shards") != FORMAT:
        raise UsageError(
            f"{path} is not a shard plan of this version of lbx.", fix="`lbx submit -o DIR` writes one as shards.json."
        )
    try:
        shards = tuple(
            Shard(
                float(shard["cost"]),
                {
                    str(task): {int(position): (str(name), float(cost)) for position, name, cost in rows}
                    for task, rows in shard["samples"].items()
                },
            )
            for shard in data["shards"]
        )
        iterations = {str(task): int(times) for task, times in data["iterations"].items()}
        plan = ShardPlan(
            str(data["bundle_digest"]), tuple(map(str, data["runs"])), iterations, data["unit"], data["basis"], shards
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as exc:
        raise UsageError(f"{path} is a damaged shard plan: {type(exc).__name__}: {exc}.", fix=_NEW_PLAN) from exc
    positions = [position for shard in shards for samples in shard.samples.values() for position in samples]
    if not all(0 <= position < _MAX_POSITION for position in positions):
        raise UsageError(
            f"{path} is a damaged shard plan: positions of samples must be 0 to {_MAX_POSITION - 1}.", fix=_NEW_PLAN
        )
    if unknown := {task for shard in shards for task in shard.samples} - set(iterations):
        raise UsageError(
            f"{path} is a damaged shard plan: no iterations of {', '.join(sorted(unknown))}.", fix=_NEW_PLAN
        )
    return plan


LOAD_SHARE = 0.05
"""Maximum share of a shard's time that is spent loading the model."""
START_S = 10.0
"""Seconds that a scheduler and lbx take to start a shard; a model that loads faster makes shards no shorter."""
MOST_SHARDS = 1000
"""Slurm's default MaxArraySize is 1001."""
SHARDS_PER_NODE, NODES = 4, 16
"""Defaults for runs of unknown duration, and for an unknown number of nodes."""
_BYTES_A_SECOND = 1e9
_UNKNOWN_LOAD_S = 60.0


@dataclass(frozen=True, slots=True)
class LoadTime:
    """Seconds to load a model, and how they are known.

    Attributes:
        basis: origin of the duration, to follow it in a sentence: "measured here".
    """

    load_s: float
    basis: str

    @classmethod
    def from_size(cls, weights_bytes: int | None) -> Self:
        """Estimate the time to load a model from the size of the weights, if known."""
        if weights_bytes is None:
            return cls(_UNKNOWN_LOAD_S, "assumed, as neither its duration nor the size of the weights is known")
        return cls(weights_bytes / _BYTES_A_SECOND, "estimated from the size of the weights at 1 GB/s")


def choose_count(
    costs: Sequence[float], load: LoadTime | None, *, processes: int = 1, at_once: int = 0
) -> tuple[int, str]:
    """Choose the number of shards, with a sentence on the reason.

    Args:
        costs: predicted seconds of each document.
        load: None if the costs are not in seconds.
        processes: number of processes that share a shard's documents.
        at_once: number of shards that run in parallel, or 0 if unknown.
    """
    if load is None:
        count = SHARDS_PER_NODE * (at_once or NODES)
        nodes = f"of the {at_once} that run at once" if at_once else f"of {NODES} nodes (--at-once gives their number)"
        reason = f"{SHARDS_PER_NODE} for each {nodes}, because the time to load the model and to answer is unknown here"
    else:
        count = _count_of_long_shards(costs, max(load.load_s, START_S) / LOAD_SHARE * (1 - LOAD_SHARE) * processes)
        time = f"{load.load_s:,.1f} s, {load.basis}"
        if load.load_s < START_S:
            reason = f"with more, starting a shard ({START_S:g} s; the model loads in {time})"
        else:
            reason = f"with more, loading the model ({time})"
        reason += f" would take over {LOAD_SHARE:.0%} of a shard"
    if count >= MOST_SHARDS:
        count, reason = MOST_SHARDS, "the most that the default configuration of Slurm accepts in an array"
    if count >= len(costs):
        count, reason = len(costs), "one for each document"
    return count, f"{count:,} shard{'s' * (count != 1)}: {reason}. --shards N sets another number."


def _count_of_long_shards(costs: Sequence[float], shortest: float) -> int:
    """Maximum number of shards that cost at least ``shortest``, or 1 if the run costs less."""
    short = [cost for cost in costs if cost < shortest]
    count = min(MOST_SHARDS, len(costs) - len(short) + int(sum(short) / shortest))
    while count > 1:
        if all(sum(costs[item] for item in part) >= shortest for part in assign_items(costs, count)):
            return count
        count -= max(1, count // 50)
    return 1
