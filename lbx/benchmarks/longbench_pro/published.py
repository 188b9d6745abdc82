"""What is published of LongBench Pro. Other files have a number a row, in 0..1 as its report has it:

benchmark,model,mode,dimension,value,score
"""

from __future__ import annotations

from lbx.base.number_key import OVERALL, NumberKey, group_number
from lbx.benchmarks.base.published import PublishedFigures, Row
from lbx.benchmarks.longbench_pro.groups import CATEGORIES, OVERALL_AVERAGE

_GROUPINGS = {
    "token_length": "length",
    "contextual_requirement": "requirement",
    **{name: name for name in ("difficulty", "primary_task", "language")},
}
_TRIES = {"best_of": "bon", "pass_at": "pass"}


def _number(dimension: str, value: str) -> NumberKey | None:
    if dimension == "overall":
        return OVERALL_AVERAGE
    if dimension in _TRIES:
        return group_number(OVERALL, metric=f"{_TRIES[dimension]}@{value}")
    return group_number(_GROUPINGS[dimension], value, metric="average") if dimension in _GROUPINGS else None


def _figures(row: Row) -> list[tuple[str, NumberKey, str]]:
    key = _number(row["dimension"], row["value"])
    return [(f"{row['model']} ({row['mode']})", key, row["score"])] if key else []


PUBLISHED = PublishedFigures(
    columns=("mode", "dimension", "value", "score"),
    figures=_figures,
    means=tuple(
        (OVERALL_AVERAGE, {group_number(name, group, metric="average"): 0 for group in CATEGORIES[name]})
        for name in ("length", "requirement", "difficulty", "language")
    ),
)
