"""LongBench's averages over tasks, as in the authors' tables.

A category's figure is the mean of its tasks' figures; an overall figure is the mean of the categories', so that a
category of two tasks weighs as much as a category of four. The tables are three: English, Chinese (both with the two
code tasks) and all tasks together. LongBench-E has the same per bucket of length.

eval.py prints none of these. They are means of the numbers that it prints, with two decimals, and have one decimal, as
in the tables; ``official`` is None as long as a task or a category is missing.

LongBench's score by length in its authors' first form (the README of July 2023), of plain LongBench and of E.

A task scores x at a length and y at all lengths: its relative score there is x / y - 1, and the mean of that over tasks
is moved to 0 at 0-4k. So a point is the mean of (x - x at 0-4k) / y. The authors' scripts and figures do not show how
their numbers were rounded: these are computed from the scores themselves, and rounded for display.

A task counts if it has ``MIN_ANSWERS`` answers at each length: every task counts alike, and plain LongBench has tasks
with one text below 4,000 words, and a single such answer would move the mean by tens of points.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from lbx.base.records import GroupScore, TaskScore
from lbx.benchmarks.base.aggregates import Average, question_means
from lbx.benchmarks.base.columns import ScoredRows
from lbx.benchmarks.base.layout import LengthCurve
from lbx.benchmarks.longbench.tasks import BUCKETS, METRICS, TASKS, kind_of
from lbx.statistics.estimates import Codes, Estimate, Floats, Interval, Stratum, interval

RELATIVE, RELATIVE_E = "relative", "relative_e"
"""Groupings of the relative curves of LongBench and of LongBench-E; the second has a table."""
CATEGORIES = tuple(dict.fromkeys(kind.category for kind in TASKS.values()))

TaskNumbers = Mapping[str, Mapping[str, TaskScore]]
"""{task: {metric: number}}."""

_EARLY = frozenset({"samsum", "multi_news"})
"""Tasks that are missing in the early release, which had nq."""


def groups(numbers: TaskNumbers) -> list[GroupScore]:
    """Return every group that has a task: "category", "category_en", "category_zh", "language", "overall", then E's."""
    plain = {task: results for task, results in numbers.items() if not task.endswith("_e")}
    in_e = {task: results for task, results in numbers.items() if task.endswith("_e")}
    return [*_plain(plain), *_e(in_e)]


def _plain(numbers: TaskNumbers) -> Iterator[GroupScore]:
    heads = {task: results[METRICS[kind_of(task).metric][0]] for task, results in numbers.items()}
    release = [task for task in TASKS if (task not in _EARLY if "nq" in heads else task != "nq")]
    tables = {"": _categories(heads, release)}
    for language in ("en", "zh"):
        if any(kind_of(task).language == language for task in heads):
            members = [task for task in release if kind_of(task).language in (language, "code")]
            tables[f"_{language}"] = _categories(heads, members)
    for suffix, table in tables.items():
        for category, average in table.items():
            yield average.group(f"category{suffix}", category)
    for language in ("en", "zh"):
        if overall := _overall(tables.get(f"_{language}", {})):
            yield overall.group("language", language)
    if overall := _overall(tables[""]):
        yield overall.group("overall", "all")


def _e(numbers: TaskNumbers) -> Iterator[GroupScore]:
    tables: dict[str, dict[str, Average]] = {}
    for bucket in BUCKETS:
        names = {task: f"{METRICS[kind_of(task).metric][0]}/{bucket}" for task in numbers}
        heads = {task: numbers[task][name] for task, name in names.items() if name in numbers[task]}
        tables[bucket] = _categories(heads, [f"{task}_e" for task, kind in TASKS.items() if kind.in_e])
    for category in CATEGORIES:
        for bucket, table in tables.items():
            if category in table:
                yield table[category].group("category_e", category, bucket)
    for bucket, table in tables.items():
        if overall := _overall(table):
            yield overall.group("overall_e", "all", bucket)


def _categories(heads: Mapping[str, TaskScore], tasks: Collection[str]) -> dict[str, Average]:
    averages = {}
    for category in CATEGORIES:
        members = [task for task in tasks if kind_of(task).category == category]
        average = Average.of([heads[task] for task in members if task in heads], complete=heads.keys() >= set(members))
        if average:
            averages[category] = average
    return averages


def _overall(table: Mapping[str, Average]) -> Average | None:
    return Average.of(list(table.values()), complete=len(table) == len(CATEGORIES))


MIN_ANSWERS = 10
"""Number of answers that a task needs at each length."""


def curves(tasks: Mapping[str, ScoredRows]) -> dict[str, LengthCurve]:
    """Return LongBench's and E's curves; a curve needs a task with enough answers at each length."""
    longbench_tasks = {name: rows for name, rows in tasks.items() if name.removesuffix("_e") in TASKS}
    parts = {
        RELATIVE: {name: rows for name, rows in longbench_tasks.items() if not name.endswith("_e")},
        RELATIVE_E: {name: rows for name, rows in longbench_tasks.items() if name.endswith("_e")},
    }
    return {group: curve for group, rows in parts.items() if (curve := _curve(rows))}


def _curve(tasks: Mapping[str, ScoredRows]) -> LengthCurve | None:
    lengths, scores = {}, {}
    for name, rows in tasks.items():
        known = rows.take(rows.column("length") > 0)
        lengths[name], scores[name] = question_means(known, known.column("score").astype(float))
    placed = {name: np.searchsorted((4_000, 8_000), rows.column("length"), "right") for name, rows in lengths.items()}
    counts = {name: np.bincount(places, minlength=len(BUCKETS)) for name, places in placed.items()}
    counted_tasks = [name for name in tasks if counts[name].min() >= MIN_ANSWERS and scores[name].mean() > 0]
    if not counted_tasks:
        return None
    points = {BUCKETS[0]: Interval(0.0, None, None, None, None, 0, 0, "by definition")}
    for at, bucket in enumerate(BUCKETS[1:], 1):
        parts = [
            Estimate((_stratum(lengths[name], scores[name], placed[name], at),), linear=False) for name in counted_tasks
        ]
        points[bucket] = interval(Estimate.average(parts), bounded=False)
    return LengthCurve(
        tuple(counted_tasks),
        sum(int(counts[name].sum()) for name in counted_tasks),
        min(int(counts[name].min()) for name in counted_tasks),
        points,
        all(bool(lengths[name].column("clustered").all()) for name in counted_tasks),
    )


def _stratum(rows: ScoredRows, scores: Floats, places: Codes, at: int) -> Stratum:
    """Linearise a task's point in its answers: each may change the mean of its length and the mean of all."""
    every, first, at_place = scores.mean(), scores[places == 0].mean(), scores[places == at].mean()
    point = (at_place - first) / every
    moved = np.where(places == at, (scores - at_place) / (places == at).sum(), 0.0)
    moved -= np.where(places == 0, (scores - first) / (places == 0).sum(), 0.0)
    values = point + len(scores) * moved / every - point * (scores - every) / every
    return Stratum(1.0, rows.column("samples"), rows.column("clusters"), values)
