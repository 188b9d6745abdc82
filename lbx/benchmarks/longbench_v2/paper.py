"""LongBench v2's tables."""

from __future__ import annotations

from lbx.base.number_key import NumberKey
from lbx.benchmarks.base.paper import Paper, Place


def _place(key: NumberKey) -> Place | None:
    if not key.grouping:
        return None  # the groups say the same
    return Place("domain" if key.grouping == "domain" else "overall", key.metric, key.name)


PAPER = Paper(
    {"overall": "LongBench v2: difficulty and length", "domain": "LongBench v2: domains"},
    _place,
    averages=(("overall", "accuracy"),),
)
