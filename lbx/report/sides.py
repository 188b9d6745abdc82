"""A run's numbers of one benchmark, each with the samples that it is made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lbx.benchmarks.aggregates import Average
from lbx.benchmarks.base import Benchmark
from lbx.records import ScoredSample
from lbx.report.scored import Tasks, number
from lbx.statistics.estimates import Codes, Estimate, coded

_BESIDE = ("compensated", "iteration ", "bon@", "pass@")
"""Metrics of groups that stand beside the one that averages are made of."""


@dataclass(frozen=True, slots=True)
class Number:
    """One number of a run. ``level`` is "benchmark", "group" or "task"."""

    level: str
    name: str
    metric: str
    score: float
    estimate: Estimate


class Side:
    """What one run has of one benchmark, and its numbers once they are asked for."""

    def __init__(self, benchmark: Benchmark, tasks: Tasks) -> None:
        self._benchmark, self.tasks = benchmark, tasks
        self._parts: dict[frozenset[str], Side] = {}

    @cached_property
    def samples(self) -> dict[str, list[str]]:
        """{task: its samples}."""
        found = {task: [row.scored.sample.sample_id for row in rows] for task, rows in self.tasks.items()}
        return {task: list(dict.fromkeys(names)) for task, names in found.items()}

    def of(self, tasks: Iterable[str]) -> Side:
        """The part of these tasks; itself where that is everything."""
        key = frozenset(tasks)
        if key == self.tasks.keys():
            return self
        if key not in self._parts:
            self._parts[key] = Side(self._benchmark, {task: rows for task, rows in self.tasks.items() if task in key})
        return self._parts[key]

    def only(self, samples: Mapping[str, Iterable[str]]) -> Side:
        """The part on these samples; itself where that is everything."""
        if samples == self.samples:
            return self
        wanted = {task: frozenset(names) for task, names in samples.items()}
        return Side(self._benchmark, {
            task: [row for row in self.tasks[task] if row.scored.sample.sample_id in names]
            for task, names in wanted.items()
        })  # fmt: skip

    @cached_property
    def numbers(self) -> dict[tuple[str, str, str], Number]:
        """The benchmark's average, its groups, its tasks, in this order."""
        rows: dict[str, list[ScoredSample]] = {task: [row.scored for row in some] for task, some in self.tasks.items()}
        heads = {task: one for task, some in rows.items() if (one := number(self._benchmark.name, task, some))}
        own = self._benchmark.known_tasks or tuple(rows)  # a foreign file may have others
        groups = self._benchmark.groups({task: some for task, some in rows.items() if task in own})
        groups = [one for one in groups if not one.metric.startswith(_BESIDE)]
        average = Average.of([*heads.values()], whole=False)
        if average and not any(one.grouping == "overall" for one in groups):
            groups.append(average.group("overall", "all"))
        made = [
            Number("benchmark" if one.grouping == "overall" else "group", _named(one.grouping, one.name), one.metric,
                   one.score, one.estimate)
            for one in groups if one.estimate
        ]  # fmt: skip
        made.sort(key=lambda number: number.level)
        made += [
            Number("task", task, one.metric, one.score, one.estimate) for task, one in heads.items() if one.estimate
        ]
        return {(one.level, one.name, one.metric): one for one in made}

    @cached_property
    def marks(self) -> Marks:
        """What is compared of single answers."""
        rows = [(place, row) for place, some in enumerate(self.tasks.values()) for row in some]
        names = [f"{row.scored.sample.task}/{row.scored.sample.sample_id}/{row.scored.iteration}" for _, row in rows]
        columns = [
            (place, row.output_hash or 0, _known(row.original_tokens), _known(row.truncated)) for place, row in rows
        ]
        task, output, tokens, cut = (np.array(column) for column in zip(*columns, strict=True))
        return Marks(coded(names), task, output, tokens, cut)


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """Of each answer, in arrays: what it is an answer to, its task's place, its output's hash, its prompt's tokens
    before truncation, and whether that was cut; -1 where nobody knows.
    """

    name: Codes
    task: Codes
    output: npt.NDArray[np.uint64]
    tokens: Codes
    cut: Codes

    def beside(self, other: Marks) -> tuple[Marks, Marks]:
        """Both, on what both have."""
        if np.array_equal(self.name, other.name):
            return self, other
        _, here, there = np.intersect1d(self.name, other.name, assume_unique=True, return_indices=True)
        return self.at(here), other.at(there)

    def at(self, places: Codes) -> Marks:
        return Marks(*(getattr(self, field.name)[places] for field in fields(self)))


def _known(value: int | None) -> int:
    return -1 if value is None else int(value)


def made_alike(first: Number, second: Number) -> bool:
    """Whether what two numbers are on the samples of both can be told from their parts."""
    shapes = ([one.weight for one in number.estimate.strata] for number in (first, second))
    return first.estimate.linear and second.estimate.linear and next(shapes) == next(shapes)


def made_of_the_same(first: Number, second: Number) -> bool:
    """Whether two numbers have the same rows."""
    strata = zip(first.estimate.strata, second.estimate.strata, strict=True)
    return all(np.array_equal(x.samples, y.samples) for x, y in strata)


def on_both(first: Number, second: Number) -> tuple[Number, Number] | None:
    """Two numbers on the samples that both of them count; None where a part has none."""
    strata = zip(first.estimate.strata, second.estimate.strata, strict=True)
    parts = [(x.at(np.isin(x.samples, y.samples)), y.at(np.isin(y.samples, x.samples))) for x, y in strata]
    if not all(len(x.values) for x, _ in parts):
        return None
    found = []
    for one, side in ((first, 0), (second, 1)):
        estimate = replace(one.estimate, strata=tuple(part[side] for part in parts))
        found.append(replace(one, estimate=estimate, score=_mean(estimate)))
    return found[0], found[1]


def _mean(estimate: Estimate) -> float:
    return float(sum(one.weight * one.values.mean() for one in estimate.strata))


def _named(grouping: str, name: str) -> str:
    return grouping if name == "all" else f"{grouping} {name}"
