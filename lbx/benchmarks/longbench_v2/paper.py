"""LongBench v2's tables."""

from __future__ import annotations

from lbx.benchmarks.base.paper import Line, Paper, Place


def _place(line: Line) -> Place | None:
    if not line.group:
        return None  # the groups say the same
    return Place("domain" if line.group == "domain" else "overall", line.metric, line.name)


PAPER = Paper(
    {"overall": "LongBench v2: difficulty and length", "domain": "LongBench v2: domains"},
    _place,
    averages=(("overall", "accuracy"),),
)
