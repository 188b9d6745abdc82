"""A run's numbers of one benchmark, each with the samples that it is made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from lbx.benchmarks.aggregates import Average
from lbx.benchmarks.base import Benchmark
from lbx.records import ScoredSample
from lbx.report.scored import Tasks
from lbx.statistics.estimates import Estimate

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

    @cached_property
    def samples(self) -> dict[str, list[str]]:
        """{task: its samples}."""
        found = {task: [row.scored.sample.sample_id for row in rows] for task, rows in self.tasks.items()}
        return {task: list(dict.fromkeys(names)) for task, names in found.items()}

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
        heads = {task: found[0] for task, some in rows.items() if (found := self._benchmark.aggregate(task, some))}
        groups = [one for one in self._benchmark.groups(rows) if not one.metric.startswith(_BESIDE)]
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
    def outputs(self) -> dict[tuple[str, str, int], int | None]:
        """{(task, sample, iteration): its output's hash}."""
        return {
            (task, row.scored.sample.sample_id, row.scored.iteration): row.output_hash
            for task, rows in self.tasks.items()
            for row in rows
        }


def made_of_the_same(first: Number, second: Number) -> bool:
    """Whether two numbers count the same samples."""
    strata = zip(first.estimate.strata, second.estimate.strata, strict=False)
    return all(x.samples == y.samples or {*x.samples} == {*y.samples} for x, y in strata)


def on_both(first: Number, second: Number) -> tuple[Number, Number]:
    """Two numbers on the samples that both of them count."""
    strata = zip(first.estimate.strata, second.estimate.strata, strict=False)
    parts = [(x.only(y.samples), y.only(x.samples)) for x, y in strata]
    found = []
    for number, side in ((first, 0), (second, 1)):
        estimate = Estimate(tuple(part[side] for part in parts), number.estimate.clustered)
        found.append(replace(number, estimate=estimate, score=estimate.design.mean(estimate.values)))
    return found[0], found[1]


def _named(grouping: str, name: str) -> str:
    return grouping if name == "all" else f"{grouping} {name}"
