"""L-Eval's tables: closed-ended tasks, and open-ended ones by F1 and by ROUGE."""

from __future__ import annotations

from lbx.benchmarks.base.paper import OVERALL, Line, Paper, Place
from lbx.benchmarks.leval.tasks import KINDS


def _place(line: Line) -> Place | None:
    if line.group:
        table = "closed" if line.group == "closed" else "f1" if line.metric == "f1" else "rouge"
        return Place(table, line.metric if table == "rouge" else "", "average")
    kind = KINDS.get(line.name, "")
    if kind == "rouge":
        return Place("rouge", line.metric or "geometric mean", line.name)
    return Place("f1" if kind == "f1" else "closed", "", f"{line.name}, {line.metric}" if line.metric else line.name)


def _average_heading(line: Line) -> str:
    """Its averages have all one column: the metric tells them apart, or "closed"."""
    if line.group == "open":
        return line.metric
    return line.group if line.name == OVERALL else f"{line.group} {line.name}"


PAPER = Paper(
    {
        "closed": "L-Eval: closed-ended tasks (exact match)",
        "f1": "L-Eval: open-ended tasks (F1)",
        "rouge": "L-Eval: open-ended tasks (ROUGE)",
    },
    _place,
    average_heading=_average_heading,
)
