"""The report ``truncation_effect``: scores on prompts read whole, and on prompts that were cut.

Cut prompts are the longer ones, so their difference is not due to truncation only. Two runs are compared on the samples
that both read whole, which truncation does not affect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np

from lbx.base.number_key import task_number
from lbx.base.records import TaskScore
from lbx.benchmarks.base.aggregates import average
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.benchmarks.base.columns import Array, ScoredRows
from lbx.report.pairs import run_named
from lbx.report.shapes import ReportQuery
from lbx.report.sides import Number, on_both
from lbx.scoring.scored import SURE, WHO, Tasks, as_table, known, named, number, scored, told
from lbx.statistics.differences import difference
from lbx.statistics.estimates import Estimate, Stratum, interval
from lbx.store import Store, Table

WHOLE, CUT, LOST, UNKNOWN = "read whole", "cut", "cut, only reference lost", "unknown"
LESS = "whole less cut, unpaired"
BOTH, PAIRED = "read whole by both", "second less first, paired"
COLUMNS = (*WHO, "benchmark", "task", "tasks", "prompts", "against", "n", "score", *SURE, "p")

_PARTS: Mapping[str, Callable[[ScoredRows], Array]] = {
    WHOLE: lambda rows: rows.column("truncated") == 0,
    CUT: lambda rows: rows.column("truncated") == 1,
    LOST: lambda rows: rows.column("reference_cut") == 1,
    UNKNOWN: lambda rows: np.isnan(rows.column("truncated")),
}

Line = dict[str, Any]


def table(store: Store, query: ReportQuery) -> Table:
    """Return the rows of every run, then of each pair of the selected runs, or of a baseline and the others.

    Raises:
        UsageError: The baseline does not exist.
    """
    first = run_named(store, query.baseline) if query.baseline else ""
    names, samples = named(store), scored(store, {*query.runs, first} if first and query.runs else query.runs)
    lines: list[Line] = []
    for (run, benchmark), tasks in samples.items():
        lines += [names[run] | {"benchmark": benchmark} | line for line in _of_run(benchmark, tasks)]
    others = dict.fromkeys([*query.runs] or [run for run, _ in samples])
    pairs = [(first, run) for run in others if run != first] if first else combinations(query.runs, 2)
    for one, other in pairs:
        for benchmark in [name for run, name in samples if run == one and (other, name) in samples]:
            for run, line in _of_pair((one, other), benchmark, samples[one, benchmark], samples[other, benchmark]):
                lines.append(names[run] | {"benchmark": benchmark} | line)
    return as_table(COLUMNS, lines)


def _of_run(benchmark: str, tasks: Tasks) -> Iterator[Line]:
    family = known(benchmark)
    both: list[dict[str, TaskScore]] = []
    for task, rows in tasks.items():
        parts: dict[str, TaskScore] = {}
        for part, belongs in _PARTS.items():
            if one := number(benchmark, task, rows.at(belongs(rows))):
                parts[part] = one
                yield {"task": task, "prompts": part, **_numbers(family, one.estimate)}
        if WHOLE in parts and CUT in parts:
            both.append(parts)
            yield {"task": task, "prompts": LESS, **_less(family, parts[WHOLE].estimate, parts[CUT].estimate)}
    if len(both) > 1:
        whole, cut = (average([parts[part].estimate for parts in both]) for part in (WHOLE, CUT))
        for part, estimate in ((WHOLE, whole), (CUT, cut)):
            yield {"tasks": len(both), "prompts": part, **_numbers(family, estimate)}
        yield {"tasks": len(both), "prompts": LESS, **_less(family, whole, cut)}


def _of_pair(runs: tuple[str, str], benchmark: str, first: Tasks, second: Tasks) -> Iterator[tuple[str, Line]]:
    """Yield (run, line) for each task with samples that both read whole, and for the mean of these tasks."""
    family = known(benchmark)
    pairs: dict[str, tuple[Number, Number]] = {}
    for task in [task for task in first if task in second]:
        whole = [rows.at(_PARTS[WHOLE](rows)) for rows in (first[task], second[task])]
        made = [
            number(benchmark, task, rows.at(np.isin(rows.column("samples"), other.column("samples"))))
            for rows, other in (whole, whole[::-1])
        ]
        sides = [
            Number("task", task_number(task), task, one.metric, one.score, one.estimate)
            for one in made
            if one and one.estimate
        ]
        if len(sides) == 2 and (pair := on_both(sides[0], sides[1])):
            pairs[task] = pair
    compared: list[tuple[Line, list[Estimate]]] = [
        ({"task": task}, [one.estimate for one in pair]) for task, pair in pairs.items()
    ]
    if len(pairs) > 1:
        averages = [Estimate.average([pair[side].estimate for pair in pairs.values()]) for side in (0, 1)]
        compared.append(({"tasks": len(pairs)}, averages))
    for line, (one, other) in compared:
        yield runs[0], {**line, "prompts": BOTH, "against": runs[1], **_numbers(family, one)}
        yield runs[1], {**line, "prompts": BOTH, "against": runs[0], **_numbers(family, other)}
        estimate = difference(one, other)
        sure = told(estimate.interval, family, clustered=one.clustered and other.clustered)
        numbers = {"n": estimate.interval.n, "score": estimate.interval.value, "p": estimate.p}
        yield runs[1], {**line, "prompts": PAIRED, "against": runs[0], **numbers, **sure}


def _numbers(family: Benchmark | None, estimate: Estimate | None, *, bounded: bool = True) -> Line:
    if estimate is None:
        return {}
    bound = interval(estimate, bounded=bounded)
    return {"n": bound.n, "score": bound.value, **told(bound, family, clustered=estimate.clustered)}


def _less(family: Benchmark | None, whole: Estimate | None, cut: Estimate | None) -> Line:
    """Return the difference of two numbers on different samples."""
    if whole is None or cut is None:
        return {}
    turned = tuple(Stratum(-one.weight, one.samples, one.clusters, one.values) for one in cut.strata)
    return _numbers(family, Estimate(whole.strata + turned, whole.clustered and cut.clustered), bounded=False)
