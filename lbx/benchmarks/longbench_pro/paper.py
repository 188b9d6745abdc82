"""LongBench Pro's tables."""

from __future__ import annotations

from lbx.base.number_key import OVERALL, NumberKey
from lbx.benchmarks.base.paper import Paper, Place, by_group


def _place(key: NumberKey) -> Place | None:
    return Place(OVERALL, "", key.metric) if key.grouping == OVERALL else by_group(key)


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
