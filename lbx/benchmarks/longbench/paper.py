"""LongBench's and LongBench-E's tables."""

from __future__ import annotations

from lbx.benchmarks.base.paper import OVERALL, Line, Paper, Place
from lbx.benchmarks.longbench.tasks import TASKS

RELATIVE, RELATIVE_E = "relative", "relative_e"
"""The relative curves of LongBench and of LongBench-E: groups of lines, of which the second is a table."""


def _place(line: Line) -> Place | None:
    if line.group in ("category_e", "overall_e"):
        return Place("category_e", line.name, line.metric)
    if line.group == RELATIVE_E:
        return Place(RELATIVE_E, "", line.metric)
    if line.group:
        table = {"overall": "category", "language": f"category_{line.name}"}.get(line.group, line.group)
        return Place(table, "", OVERALL if line.group in ("overall", "language") else line.name)
    if line.name.endswith("_e"):
        return Place("tasks_e", line.name, line.metric or "all lengths")
    return Place("tasks", line.metric, line.name)


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
