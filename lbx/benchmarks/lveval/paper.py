"""LV-Eval's table."""

from __future__ import annotations

from lbx.base.number_key import NumberKey
from lbx.benchmarks.base.paper import Paper, Place
from lbx.benchmarks.lveval.tasks import split_task


def _place(key: NumberKey) -> Place | None:
    if key.grouping == "length":
        return Place("levels", "average", key.name)
    return Place("levels", key.name, "average") if key.grouping else Place("levels", *split_task(key.name))


PAPER = Paper({"levels": "LV-Eval: datasets by length level"}, _place, averages=(("levels", "average"),))
