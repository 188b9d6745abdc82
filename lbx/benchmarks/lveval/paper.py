"""LV-Eval's table."""

from __future__ import annotations

from lbx.benchmarks.base.paper import Line, Paper, Place
from lbx.benchmarks.lveval.tasks import split_task


def _place(line: Line) -> Place | None:
    if line.group == "length":
        return Place("levels", "average", line.name)
    return Place("levels", line.name, "average") if line.group else Place("levels", *split_task(line.name))


PAPER = Paper({"levels": "LV-Eval: datasets by length level"}, _place, averages=(("levels", "average"),))
