"""One run's numbers on a benchmark, with the samples that they are computed from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lbx.base.number_key import ALL, OVERALL, NumberKey, group_number, task_number
from lbx.benchmarks.base.aggregates import first_overall
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.benchmarks.base.columns import Array, Bools
from lbx.scoring.scored import Tasks, number, starts_of
from lbx.statistics.estimates import Codes, Estimate, Floats, Stratum


@dataclass(frozen=True, slots=True)
class Number:
    """Number of a run; ``level`` is "benchmark", "group" or "task"."""

    level: str
    key: NumberKey
    name: str
    metric: str
    score: float
    estimate: Estimate


class Side:
    """Answers of one run to one benchmark, with numbers computed on first use."""

    def __init__(self, benchmark: Benchmark, tasks: Tasks) -> None:
        self._benchmark, self.tasks = benchmark, tasks
        self._parts: dict[frozenset[str], Side] = {}

    @cached_property
    def samples(self) -> dict[str, bytes]:
        """Samples by task, as bytes that compare equal for the same samples."""
        columns = {task: rows.column("samples") for task, rows in self.tasks.items()}
        return {task: codes[starts_of(codes)].tobytes() for task, codes in columns.items()}

    def of(self, tasks: Iterable[str]) -> Side:
        """Return the part on some tasks, or the side itself for all of its tasks."""
        key = frozenset(tasks)
        if key == self.tasks.keys():
            return self
        if key not in self._parts:
            self._parts[key] = Side(self._benchmark, {task: rows for task, rows in self.tasks.items() if task in key})
        return self._parts[key]

    def beside(self, other: Side) -> Side:
        """Return the part on the samples shared with another run."""
        both = {
            task: rows.at(np.isin(rows.column("samples"), other.tasks[task].column("samples")))
            for task, rows in self.tasks.items()
        }
        return Side(self._benchmark, {task: rows for task, rows in both.items() if rows})

    @cached_property
    def numbers(self) -> dict[tuple[str, str, str], Number]:
        """Numbers of the benchmark's average, its groups and its tasks, in this order."""
        tasks = self.tasks
        heads = {task: one for task, rows in tasks.items() if (one := number(self._benchmark.name, task, rows))}
        own = self._benchmark.catalogue.names or tuple(tasks)  # a foreign file may have others
        groups = self._benchmark.groups({task: rows for task, rows in tasks.items() if task in own}, averages_only=True)
        average = first_overall(groups, [*heads.values()])
        if average and average not in groups:
            groups.append(average)
        made = [
            Number("benchmark" if one.grouping == OVERALL else "group",
                   group_number(one.grouping, one.name, metric=one.metric), _named(one.grouping, one.name), one.metric,
                   one.score, one.estimate)
            for one in groups if one.estimate
        ]  # fmt: skip
        made.sort(key=lambda number: number.level)
        made += [
            Number("task", task_number(task), task, one.metric, one.score, one.estimate)
            for task, one in heads.items()
            if one.estimate
        ]
        return {(one.level, one.name, one.metric): one for one in made}

    @cached_property
    def marks(self) -> Marks:
        """Arrays for the comparison of single answers."""
        every = list(self.tasks.values())
        sample, iteration, output, tokens, cut = (
            np.concatenate([rows.column(name) for rows in every])
            for name in ("samples", "iteration", "output_hash", "original_tokens", "truncated")
        )
        task = np.repeat(np.arange(len(every)), [len(rows) for rows in every])
        return Marks((sample << 32) + iteration, task, output, *(np.nan_to_num(one, nan=-1) for one in (tokens, cut)))


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """Arrays with an entry for each answer.

    Attributes:
        name: Sample and iteration.
        task: Index of the task.
        output: Hash of the output.
        tokens: Tokens of the prompt before truncation; -1 if unknown.
        cut: Whether the prompt was truncated; -1 if unknown.
    """

    name: Codes
    task: Codes
    output: npt.NDArray[np.uint64]
    tokens: Floats
    cut: Floats

    def beside(self, other: Marks) -> tuple[Marks, Marks]:
        """Restrict both to their shared answers."""
        if np.array_equal(self.name, other.name):
            return self, other
        _, here, theirs = np.intersect1d(self.name, other.name, assume_unique=True, return_indices=True)
        return self.at(here), other.at(theirs)

    def at(self, places: Codes) -> Marks:
        return Marks(*(getattr(self, field.name)[places] for field in fields(self)))


def made_alike(first: Number, second: Number) -> bool:
    """Return whether the strata suffice to compute both numbers on shared samples.

    They do if both numbers are linear in strata of the same weights.
    """
    shapes = ([one.weight for one in number.estimate.strata] for number in (first, second))
    return first.estimate.linear and second.estimate.linear and next(shapes) == next(shapes)


def made_of_the_same(first: Number, second: Number) -> bool:
    """Return whether two numbers have the same rows."""
    return first.estimate.rows == second.estimate.rows


class Shared:
    """Cache of two runs' shared samples by stratum: strata of one task's rows occur in many numbers."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], tuple[Stratum, Stratum, Array, Array]] = {}

    def of(self, x: Stratum, y: Stratum) -> tuple[Stratum, Stratum]:
        """Restrict both strata to their shared samples."""
        key = (id(x.samples), id(x.clusters), id(y.samples), id(y.clusters))
        if key not in self._known:
            here, theirs = _among(x.samples, y.samples), _among(y.samples, x.samples)
            self._known[key] = (x.at(here), y.at(theirs), here, theirs)
        a, b, here, theirs = self._known[key]
        return (
            Stratum(x.weight, a.samples, a.clusters, x.values[here]),
            Stratum(y.weight, b.samples, b.clusters, y.values[theirs]),
        )


def _among(codes: Codes, others: Codes) -> Bools:
    """Return the mask of codes that occur in ``others``.

    Codes from ``coded`` can index a table, which is faster to build than numpy's sort.
    """
    held = np.zeros(max(codes.max(initial=0), others.max(initial=0)) + 1, bool)
    held[others] = True
    return np.asarray(held[codes])


def on_both(first: Number, second: Number, shared: Shared | None = None) -> tuple[Number, Number] | None:
    """Restrict two numbers to the samples counted in both, with the mean of each sample's answers.

    Returns None if a stratum has no shared sample. If every sample has the same number of answers, the scores equal the
    runs' own, which count answers.
    """
    if not made_of_the_same(first, second):
        shared = shared or Shared()
        strata = zip(first.estimate.strata, second.estimate.strata, strict=True)
        parts = [shared.of(x, y) for x, y in strata]
        if not all(len(x.values) for x, _ in parts):
            return None
        first, second = (
            _of(one, replace(one.estimate, strata=tuple(part[side] for part in parts)))
            for side, one in enumerate((first, second))
        )
    return _of(first, first.estimate.of_samples), _of(second, second.estimate.of_samples)


def _of(number: Number, estimate: Estimate) -> Number:
    return number if estimate is number.estimate else replace(number, estimate=estimate, score=_mean(estimate))


def _mean(estimate: Estimate) -> float:
    return float(sum(one.weight * (one.values.sum() / len(one.values)) for one in estimate.strata))


def _named(grouping: str, name: str) -> str:
    return grouping if name == ALL else f"{grouping} {name}"
