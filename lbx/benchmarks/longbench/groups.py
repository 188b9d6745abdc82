"""LongBench's averages over tasks, as the authors' tables have them.

A category's figure is the mean of its tasks' figures; an overall figure is the mean of the categories', so that a
category of two tasks weighs as much as one of four. The tables are three: English, Chinese (both with the two code
tasks) and all tasks together. LongBench-E has the same per bucket of length.

eval.py prints none of these. They are made of the numbers that it prints, with two decimals, and have one decimal, as
in the tables; ``official`` is None as long as a task or a category is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from lbx.base.records import GroupScore, TaskScore
from lbx.benchmarks.base.aggregates import Average
from lbx.benchmarks.longbench.tasks import BUCKETS, METRICS, TASKS, kind_of

CATEGORIES = tuple(dict.fromkeys(kind.category for kind in TASKS.values()))

Numbers = Mapping[str, Mapping[str, TaskScore]]
"""Task -> metric -> its number."""

_EARLY = frozenset({"samsum", "multi_news"})
"""What the release with nq did not have."""


def groups(numbers: Numbers) -> list[GroupScore]:
    """Every group that has a task: "category", "category_en", "category_zh", "language", "overall", then E's."""
    plain = {task: results for task, results in numbers.items() if not task.endswith("_e")}
    in_e = {task: results for task, results in numbers.items() if task.endswith("_e")}
    return [*_plain(plain), *_e(in_e)]


def _plain(numbers: Numbers) -> Iterator[GroupScore]:
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


def _e(numbers: Numbers) -> Iterator[GroupScore]:
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
    groups_found = {}
    for category in CATEGORIES:
        members = [task for task in tasks if kind_of(task).category == category]
        average = Average.of([heads[task] for task in members if task in heads], whole=heads.keys() >= set(members))
        if average:
            groups_found[category] = average
    return groups_found


def _overall(table: Mapping[str, Average]) -> Average | None:
    return Average.of(list(table.values()), whole=len(table) == len(CATEGORIES))
