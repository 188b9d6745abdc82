"""L-Eval's tables: closed-ended tasks, and open-ended ones by F1 and by ROUGE."""

from __future__ import annotations

from lbx.base.number_key import OVERALL, NumberKey
from lbx.benchmarks.base.paper import Paper, Place
from lbx.benchmarks.leval.tasks import KINDS


def _place(key: NumberKey) -> Place | None:
    if key.grouping:
        table = "closed" if key.grouping == "closed" else "f1" if key.metric == "f1" else "rouge"
        return Place(table, key.metric if table == "rouge" else "", "average")
    kind = KINDS.get(key.name, "")
    if kind == "rouge":
        return Place("rouge", key.metric or "geometric mean", key.name)
    return Place("f1" if kind == "f1" else "closed", "", f"{key.name}, {key.metric}" if key.metric else key.name)


def _average_heading(key: NumberKey) -> str:
    """Its averages have all one column: the metric tells them apart, or "closed"."""
    if key.grouping == "open":
        return key.metric
    return key.grouping if key.name == OVERALL else f"{key.grouping} {key.name}"


PAPER = Paper(
    {
        "closed": "L-Eval: closed-ended tasks (exact match)",
        "f1": "L-Eval: open-ended tasks (F1)",
        "rouge": "L-Eval: open-ended tasks (ROUGE)",
    },
    _place,
    average_heading=_average_heading,
)
