"""LongBench's and LongBench-E's tables."""

from __future__ import annotations

from lbx.base.number_key import OVERALL, NumberKey
from lbx.benchmarks.base.paper import Paper, Place
from lbx.benchmarks.longbench.tasks import TASKS

RELATIVE, RELATIVE_E = "relative", "relative_e"
"""The relative curves of LongBench and of LongBench-E: groups of lines, of which the second is a table."""


def _place(key: NumberKey) -> Place | None:
    if key.grouping in ("category_e", "overall_e"):
        return Place("category_e", key.name, key.metric)
    if key.grouping == RELATIVE_E:
        return Place(RELATIVE_E, "", key.metric)
    if key.grouping:
        table = {"overall": "category", "language": f"category_{key.name}"}.get(key.grouping, key.grouping)
        return Place(table, "", OVERALL if key.grouping in ("overall", "language") else key.name)
    if key.name.endswith("_e"):
        return Place("tasks_e", key.name, key.metric or "all lengths")
    return Place("tasks", key.metric, key.name)


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
    _place,
    averages=(("category", ""), ("category_e", OVERALL)),
    curves={RELATIVE_E: frozenset(f"{task}_e" for task in TASKS)},
)
