"""What is published of LongBench Pro. Other files have a number a row, in 0..1 as its report has it:

benchmark,model,mode,dimension,value,score
"""

from __future__ import annotations

from lbx.benchmarks.base.published import PublishedFigures, Row
from lbx.benchmarks.longbench_pro.groups import CATEGORIES

_OVERALL = "overall: average"
_LINES = {
    "overall": _OVERALL,
    "token_length": "length {}: average",
    "contextual_requirement": "requirement {}: average",
    "difficulty": "difficulty {}: average",
    "primary_task": "primary_task {}: average",
    "language": "language {}: average",
    "best_of": "overall: bon@{}",
    "pass_at": "overall: pass@{}",
}


def _figures(row: Row) -> list[tuple[str, str, str]]:
    line = _LINES.get(row["dimension"])
    return [(f"{row['model']} ({row['mode']})", line.format(row["value"]), row["score"])] if line else []


PUBLISHED = PublishedFigures(
    columns=("mode", "dimension", "value", "score"),
    figures=_figures,
    means=tuple(
        (_OVERALL, {f"{name} {group}: average": 0 for group in CATEGORIES[name]})
        for name in ("length", "requirement", "difficulty", "language")
    ),
)
