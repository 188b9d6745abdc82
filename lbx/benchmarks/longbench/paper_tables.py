"""LongBench's and LongBench-E's averages, paper tables, leaderboards and curves by length.

The score of a category is the mean of its tasks' scores, and an overall score is the mean of the categories' scores, so
that a category of two tasks weighs as much as a category of four. There are three tables: English, Chinese (both with
the two code tasks) and all tasks together. For LongBench-E there are the same tables per bucket of length.

eval.py prints none of these averages. They are means of the numbers that it prints with two decimals, and are rounded
to one decimal, as in the tables. ``official`` is None as long as a task or a category is missing.

The curves are the score by length as the authors first showed it (README of July 2023), of plain LongBench and of E.

A task scores x at a length and y at all lengths: its relative score there is x / y - 1, and the mean of that over tasks
is moved to 0 at 0-4k. So a point is the mean of (x - x at 0-4k) / y. The authors' scripts and figures do not show how
their numbers were rounded: these are computed from the scores themselves, and rounded for display.

A task counts if there are ``MIN_ANSWERS`` answers to it at each length. All tasks weigh the same, and in some tasks of
plain LongBench only one document is shorter than 4,000 words, so a single answer would move the mean by tens of points.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import numpy as np

from lbx.base.columns import Column, number_column
from lbx.base.number import OVERALL, Number, NumberKey, group_number
from lbx.benchmarks.base.aggregates import Average, ScoredRows, question_means
from lbx.benchmarks.base.paper_tables import (
    MODE,
    Board,
    BoardEntry,
    BoardPart,
    BoardRow,
    Boards,
    LengthCurve,
    LineChart,
    Paper,
    RadarChart,
    TableCell,
    best_of,
)
from lbx.benchmarks.longbench.tasks import BUCKETS, METRICS, TASKS, rules_of
from lbx.statistics.estimates import Codes, Estimate, Floats, Interval, Stratum, interval

RELATIVE, RELATIVE_E = "relative", "relative_e"
"""Groupings of the relative curves of LongBench and of LongBench-E. Only the second is also a paper table."""
_CATEGORIES = tuple(dict.fromkeys(kind.category for kind in TASKS.values()))

TaskNumbers = Mapping[str, Mapping[str, Number]]
"""{task: {metric: number}}."""

_EARLY = frozenset({"samsum", "multi_news"})
"""Tasks that are missing in the early release, which included nq."""


def groups(numbers: TaskNumbers) -> list[Number]:
    """Average the tasks by "category", "category_en", "category_zh", "language" and "overall", and those of E."""
    plain = {task: results for task, results in numbers.items() if not task.endswith("_e")}
    in_e = {task: results for task, results in numbers.items() if task.endswith("_e")}
    return [*_plain(plain), *_e(in_e)]


def _plain(numbers: TaskNumbers) -> Iterator[Number]:
    heads = {task: results[METRICS[rules_of(task).metric][0]] for task, results in numbers.items()}
    release = [task for task in TASKS if (task not in _EARLY if "nq" in heads else task != "nq")]
    tables = {"": _categories(heads, release)}
    for language in ("en", "zh"):
        if any(rules_of(task).language == language for task in heads):
            members = [task for task in release if rules_of(task).language in (language, "code")]
            tables[f"_{language}"] = _categories(heads, members)
    for suffix, table in tables.items():
        for category, average in table.items():
            yield average.to_group_number(f"category{suffix}", category)
    for language in ("en", "zh"):
        if overall := _overall(tables.get(f"_{language}", {})):
            yield overall.to_group_number("language", language)
    if overall := _overall(tables[""]):
        yield overall.to_group_number("overall", "all")


def _e(numbers: TaskNumbers) -> Iterator[Number]:
    tables: dict[str, dict[str, Average]] = {}
    for bucket in BUCKETS:
        names = {task: f"{METRICS[rules_of(task).metric][0]}/{bucket}" for task in numbers}
        heads = {task: numbers[task][name] for task, name in names.items() if name in numbers[task]}
        tables[bucket] = _categories(heads, [f"{task}_e" for task, kind in TASKS.items() if kind.in_e])
    for category in _CATEGORIES:
        for bucket, table in tables.items():
            if category in table:
                yield table[category].to_group_number("category_e", category, bucket)
    for bucket, table in tables.items():
        if overall := _overall(table):
            yield overall.to_group_number("overall_e", "all", bucket)


def _categories(heads: Mapping[str, Number], tasks: Collection[str]) -> dict[str, Average]:
    averages = {}
    for category in _CATEGORIES:
        members = [task for task in tasks if rules_of(task).category == category]
        average = Average.of([heads[task] for task in members if task in heads], complete=heads.keys() >= set(members))
        if average:
            averages[category] = average
    return averages


def _overall(table: Mapping[str, Average]) -> Average | None:
    return Average.of(list(table.values()), complete=len(table) == len(_CATEGORIES))


MIN_ANSWERS = 10
"""Number of answers at each length that a task needs to count in a curve."""


def curves(tasks: Mapping[str, ScoredRows]) -> dict[str, LengthCurve]:
    """Curves by length of LongBench and of E, as far as any task has enough answers at each length."""
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
    """Linearise a task's point in the answers: each may change the mean at a length and the mean over all lengths."""
    every, first, at_place = scores.mean(), scores[places == 0].mean(), scores[places == at].mean()
    point = (at_place - first) / every
    moved = np.where(places == at, (scores - at_place) / (places == at).sum(), 0.0)
    moved -= np.where(places == 0, (scores - first) / (places == 0).sum(), 0.0)
    values = point + len(scores) * moved / every - point * (scores - every) / every
    return Stratum(1.0, rows.column("samples"), rows.column("clusters"), values)


def _table_cell(key: NumberKey) -> TableCell | None:
    if key.grouping in ("category_e", "overall_e"):
        return TableCell("category_e", key.name, key.metric)
    if key.grouping == RELATIVE_E:
        return TableCell(RELATIVE_E, "", key.metric)
    if key.grouping:
        table = {"overall": "category", "language": f"category_{key.name}"}.get(key.grouping, key.grouping)
        return TableCell(table, "", OVERALL if key.grouping in ("overall", "language") else key.name)
    if key.name.endswith("_e"):
        return TableCell("tasks_e", key.name, key.metric or "all lengths")
    return TableCell("tasks", key.metric, key.name)


PAPER = Paper(
    {
        "category": "LongBench: all languages, by category",
        "category_en": "LongBench: English and code, by category",
        "category_zh": "LongBench: Chinese and code, by category",
        "category_e": "LongBench-E: categories by length in words",
        RELATIVE_E: "LongBench-E: relative to all lengths (percent; 0 at 0-4k)",
        "tasks": "LongBench: tasks",
        "tasks_e": "LongBench-E: tasks by length in words",
    },
    _table_cell,
    averages=(("category", ""), ("category_e", OVERALL)),
    curves={RELATIVE_E: frozenset(f"{task}_e" for task in TASKS)},
)


LANGUAGES = {"en": "English", "zh": "Chinese"}
CATEGORIES = {
    "single-document QA": "Single-Doc QA",
    "multi-document QA": "Multi-Doc QA",
    "summarization": "Summary",
    "few-shot learning": "Few-shot",
    "code completion": "Code",
    "synthetic": "Synthetic",
}
"""{name in lbx: heading}, in the order of the authors' tables."""

_NEAREST, _FARTHEST = 40.0, 100.0
"""Radii of a score of 0 and of the best score in the radar."""

_LANGUAGE = Column("language", "language")
_LANGUAGE_PARTS = [
    BoardPart(
        {
            "average": group_number("language", code, metric="average"),
            **{name: group_number(f"category_{code}", name, metric="average") for name in CATEGORIES},
        },
        texts={"language": language},
    )
    for code, language in LANGUAGES.items()
]
_CATEGORY_PARTS = [
    BoardPart({bucket: group_number(*group, metric=bucket) for bucket in BUCKETS}, texts={"category": category})
    for category, group in {"average": ("overall_e",), **{name: ("category_e", name) for name in CATEGORIES}}.items()
]
_CURVE_PARTS = [
    BoardPart(
        {name: group_number(curve, metric=name) for name in (*BUCKETS, "tasks", "n", "fewest")},
        texts={"data": data},
        curve=curve,
    )
    for data, curve in {"LongBench": RELATIVE, "LongBench-E": RELATIVE_E}.items()
]
_BUCKETS = {bucket: bucket for bucket in BUCKETS}


def _radii(rows: list[BoardRow]) -> list[BoardRow]:
    """Convert the scores of rows to radii, the best of each category outermost."""
    best = {category: max((row[category] or 0 for row in rows), default=0) for category in CATEGORIES}
    return [{**row, **{name: _radius(row[name], most) for name, most in best.items()}} for row in rows]


def _radius(score: float | None, best: float) -> float | None:
    if score is None:
        return None
    return _NEAREST + (_FARTHEST - _NEAREST) * score / best if best else _NEAREST


def _complete_entry(entry: BoardEntry) -> BoardEntry:
    """Add the averages of a published model's task scores, computed as for runs."""
    if entry.run_id:
        return entry
    official = {key.task: value for key, value in entry.numbers.items() if key.task in TASKS and not key.metric}
    heads = {task: METRICS[TASKS[task].metric][0] for task in official}
    numbers = {
        task: {head: Number(metric=head, n=0, score=official[task] / 100, official=official[task])}
        for task, head in heads.items()
    }
    averages = {
        group_number(group.grouping, group.name, metric=group.metric): group.official
        for group in groups(numbers)
        if group.official is not None
    }
    return replace(entry, numbers={**averages, **entry.numbers})


BOARDS = Boards(
    {
        "board_longbench": Board(
            "LongBench: averages of the categories for English and Chinese, each with code (percent)",
            (
                MODE,
                number_column("average", "Avg"),
                *(number_column(name, heading, across=True) for name, heading in CATEGORIES.items()),
            ),
            _LANGUAGE_PARTS,
            leading_columns=(_LANGUAGE,),
            rank_by=best_of("average"),
        ),
        "board_longbench_radar": Board(
            "LongBench: radar (radius 40 + 60 x score / best score of the models shown)",
            (
                MODE,
                *(
                    number_column(name, heading, interval=False, across=True) for name, heading in CATEGORIES.items()
                ),
            ),
            _LANGUAGE_PARTS,
            leading_columns=(_LANGUAGE,),
            rank_by=best_of("average"),
            postprocess_rows=_radii,
            charts=[
                RadarChart(
                    "LongBench, {}: radius 40 + 60 × score / best score in the table",
                    "Six categories",
                    CATEGORIES,
                    split_by="language",
                ),
            ],
        ),
        "board_longbench_relative": Board(
            "LongBench: relative score by length (score there / score of the task - 1, mean over tasks, 0 at 0-4k; "
            "points)",
            (
                MODE,
                Column("data", "data"),
                number_column("tasks", "tasks", "count", interval=False),
                number_column("n", "answers", "count", interval=False, rank=2),
                number_column("fewest", "fewest answers of a task at a length", "count", interval=False, rank=1),
                *(number_column(name, name, "points", across=True) for name in BUCKETS),
            ),
            _CURVE_PARTS,
            charts=[
                LineChart("{}: relative score by length, percent of the task's score, 0 at 0-4k", "Mean over the tasks",
                      _BUCKETS, split_by="data", scale=100),
            ],
            small_charts=True,
            note="Only tasks with 10 answers at each length count.",
            empty="No run has 10 answers at each length for any LongBench task.",
        ),
        "board_longbench_e": Board(
            "LongBench-E: averages by length (percent; average: mean by category, then over categories)",
            (MODE, *(number_column(name, name, across=True) for name in BUCKETS)),
            _CATEGORY_PARTS,
            leading_columns=(Column("category", "category"),),
            rank_by=best_of(BUCKETS[-1]),
            charts=[LineChart("LongBench-E: {}, percent, by length", "Three lengths", _BUCKETS, split_by="category")],
            small_charts=True,
        ),
    },
    complete_entry=_complete_entry,
)  # fmt: skip
