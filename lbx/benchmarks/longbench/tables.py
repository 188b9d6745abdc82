"""LongBench's and LongBench-E's tables: tasks and categories by language, the radar, curves by length."""

from __future__ import annotations

from dataclasses import replace

from lbx.base.columns import Column, number_column
from lbx.base.number_key import OVERALL, NumberKey, group_number
from lbx.base.records import TaskScore
from lbx.benchmarks.base.layout import (
    MODE,
    Board,
    BoardEntry,
    BoardPart,
    BoardRow,
    Boards,
    LineChart,
    Paper,
    RadarChart,
    TableCell,
    best_of,
)
from lbx.benchmarks.longbench.groups import RELATIVE, RELATIVE_E, groups
from lbx.benchmarks.longbench.tasks import BUCKETS, METRICS, TASKS


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
"""Names in lbx and headings, in the order of the authors' tables."""

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
    """Return scores as radii: the best of each category is outermost."""
    best = {category: max((row[category] or 0 for row in rows), default=0) for category in CATEGORIES}
    return [{**row, **{name: _radius(row[name], most) for name, most in best.items()}} for row in rows]


def _radius(score: float | None, best: float) -> float | None:
    if score is None:
        return None
    return _NEAREST + (_FARTHEST - _NEAREST) * score / best if best else _NEAREST


def _complete_entry(entry: BoardEntry) -> BoardEntry:
    """Add the averages of a published model's task figures, computed as for runs."""
    if entry.run_id:
        return entry
    official = {key.task: value for key, value in entry.figures.items() if key.task in TASKS and not key.metric}
    heads = {task: METRICS[TASKS[task].metric][0] for task in official}
    numbers = {task: {head: TaskScore(head, 0, official[task] / 100, official[task])} for task, head in heads.items()}
    averages = {
        group_number(group.grouping, group.name, metric=group.metric): group.official
        for group in groups(numbers)
        if group.official is not None
    }
    return replace(entry, figures={**averages, **entry.figures})


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
            first=(_LANGUAGE,),
            by=best_of("average"),
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
            first=(_LANGUAGE,),
            by=best_of("average"),
            postprocess_rows=_radii,
            charts=[
                RadarChart(
                    "LongBench, {}: radius 40 + 60 × score / best score in the table",
                    "Six categories",
                    CATEGORIES,
                    by="language",
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
                      _BUCKETS, by="data", scale=100),
            ],
            small_charts=True,
            note="Only tasks with 10 answers at each length count.",
            empty="No run has 10 answers at each length for any LongBench task.",
        ),
        "board_longbench_e": Board(
            "LongBench-E: averages by length (percent; average: mean by category, then over categories)",
            (MODE, *(number_column(name, name, across=True) for name in BUCKETS)),
            _CATEGORY_PARTS,
            first=(Column("category", "category"),),
            by=best_of(BUCKETS[-1]),
            charts=[LineChart("LongBench-E: {}, percent, by length", "Three lengths", _BUCKETS, by="category")],
            small_charts=True,
        ),
    },
    complete_entry=_complete_entry,
)  # fmt: skip
