"""LongBench's and LongBench-E's boards: the categories by language, their radar, the curves by length."""

from __future__ import annotations

from dataclasses import replace

from lbx.base.number_key import group_number
from lbx.base.records import TaskScore
from lbx.benchmarks.base.board import (
    MODE,
    Board,
    Boards,
    Entry,
    Lines,
    Number,
    Part,
    Radar,
    Row,
    Text,
    best_of,
)
from lbx.benchmarks.longbench.groups import groups
from lbx.benchmarks.longbench.paper import RELATIVE, RELATIVE_E
from lbx.benchmarks.longbench.tasks import BUCKETS, METRICS, TASKS

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
"""Radii in the radar of a score of 0 and of the best one."""

_LANGUAGE = Text("language", "language")
_BY_LANGUAGE = [
    Part(
        {
            "average": group_number("language", code, metric="average"),
            **{name: group_number(f"category_{code}", name, metric="average") for name in CATEGORIES},
        },
        texts={"language": language},
    )
    for code, language in LANGUAGES.items()
]
_BY_CATEGORY = [
    Part({bucket: group_number(*group, metric=bucket) for bucket in BUCKETS}, texts={"category": category})
    for category, group in {"average": ("overall_e",), **{name: ("category_e", name) for name in CATEGORIES}}.items()
]
_OF_CURVES = [
    Part(
        {name: group_number(curve, metric=name) for name in (*BUCKETS, "tasks", "n", "fewest")},
        texts={"data": data},
        curve=curve,
    )
    for data, curve in {"LongBench": RELATIVE, "LongBench-E": RELATIVE_E}.items()
]
_BUCKETS = {bucket: bucket for bucket in BUCKETS}


def _radii(rows: list[Row]) -> list[Row]:
    """Scores as radii: the best of each category lies farthest out."""
    best = {category: max((row[category] or 0 for row in rows), default=0) for category in CATEGORIES}
    return [{**row, **{name: _radius(row[name], most) for name, most in best.items()}} for row in rows]


def _radius(score: float | None, best: float) -> float | None:
    if score is None:
        return None
    return _NEAREST + (_FARTHEST - _NEAREST) * score / best if best else _NEAREST


def _completed(entry: Entry) -> Entry:
    """With what a published model's figures of tasks average to, by the rule of runs."""
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
            "LongBench: averages of the categories, English and Chinese apart, code in both (percent)",
            (
                MODE,
                Number("average", "Avg"),
                *(Number(name, heading, across=True) for name, heading in CATEGORIES.items()),
            ),
            _BY_LANGUAGE,
            first=(_LANGUAGE,),
            by=best_of("average"),
        ),
        "board_longbench_radar": Board(
            "LongBench: radar (radius 40 + 60 x score / best score of the models shown)",
            (MODE, *(Number(name, heading, interval=False, across=True) for name, heading in CATEGORIES.items())),
            _BY_LANGUAGE,
            first=(_LANGUAGE,),
            by=best_of("average"),
            shown=_radii,
            charts=[
                Radar("LongBench, {}: radius 40 + 60 × score / best score in the table", "Six categories", CATEGORIES,
                      by="language"),
            ],
        ),
        "board_longbench_relative": Board(
            "LongBench: relative score by length (score there / score of the task - 1, mean over tasks, 0 at 0-4k; "
            "points)",
            (
                MODE,
                Text("data", "data"),
                Number("tasks", "tasks", "count", interval=False),
                Number("n", "answers", "count", interval=False, rank=2),
                Number("fewest", "fewest of a task at a length", "count", interval=False, rank=1),
                *(Number(name, name, "points", across=True) for name in BUCKETS),
            ),
            _OF_CURVES,
            charts=[
                Lines("{}: relative score by length, percent of the task's score, 0 at 0-4k", "Mean over the tasks",
                      _BUCKETS, by="data", scale=100),
            ],
            small_charts=True,
            note="A task counts where it has 10 answers at each length.",
            empty="No run has a task of LongBench with 10 answers at each length.",
        ),
        "board_longbench_e": Board(
            "LongBench-E: averages by length (percent; average: mean by category, then over categories)",
            (MODE, *(Number(name, name, across=True) for name in BUCKETS)),
            _BY_CATEGORY,
            first=(Text("category", "category"),),
            by=best_of(BUCKETS[-1]),
            charts=[Lines("LongBench-E: {}, percent, by length", "Three lengths", _BUCKETS, by="category")],
            small_charts=True,
        ),
    },
    completed=_completed,
)  # fmt: skip
