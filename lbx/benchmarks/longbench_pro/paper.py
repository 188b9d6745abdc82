"""LongBench Pro's tables."""

from __future__ import annotations

from lbx.benchmarks.base.paper import OVERALL, Line, Paper, Place, by_group


def _place(line: Line) -> Place | None:
    return Place(OVERALL, "", line.metric) if line.group == OVERALL else by_group(line)


PAPER = Paper(
    {
        OVERALL: "LongBench Pro: overall, iterations, best of n, pass@n",
        "length": "LongBench Pro: sample length in tokens",
        "requirement": "LongBench Pro: contextual requirement",
        "difficulty": "LongBench Pro: difficulty",
        "primary_task": "LongBench Pro: primary tasks",
        "language": "LongBench Pro: language",
        "tasks": "LongBench Pro: secondary tasks",
    },
    _place,
    averages=((OVERALL, ""),),
)
