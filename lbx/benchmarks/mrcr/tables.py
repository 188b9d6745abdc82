"""OpenAI MRCR's table: number of needles by length of the conversation."""

from __future__ import annotations

import sys
from itertools import pairwise

from lbx.base.columns import Column, number_column
from lbx.base.number_key import OVERALL, NumberKey, group_number, task_number
from lbx.benchmarks.base.layout import MODE, Board, BoardPart, Boards, LineChart, Paper, TableCell

TASKS = ("2needle", "4needle", "8needle")
_STARTS = (0, *(40_000 * 2**step for step in range(7)))
LENGTHS = {
    **{f"{least // 1000}-{end // 1000}k": range(least, end) for least, end in pairwise(_STARTS)},
    f"{_STARTS[-1] // 1000}k+": range(_STARTS[-1], sys.maxsize),
}
"""{name: lengths in characters}.

The card has eight groups from 4,096 to 1,048,576 tokens of GPT-4o, each twice as long as the one before. A token of its
texts has almost five characters.
"""

_ALL = "all"


def _table_cell(key: NumberKey) -> TableCell | None:
    column = "average"
    if key.grouping:
        return TableCell("needles", _ALL, column if key.grouping == OVERALL else key.name)
    return TableCell("needles", key.name, key.metric or column)


PAPER = Paper({"needles": "OpenAI MRCR: needles by length in characters"}, _table_cell, averages=(("needles", _ALL),))


def _part(name: str, average: NumberKey, lengths: dict[str, NumberKey]) -> BoardPart:
    return BoardPart({"average": average, **lengths}, texts={"needles": name})


_COLUMNS = {name: name for name in LENGTHS}
_OVERALL = group_number(OVERALL, metric="average")

BOARDS = Boards(
    {
        "board_mrcr": Board(
            "OpenAI MRCR: by needles and length in characters (percent)",
            (MODE, number_column("average", "Average"), *(number_column(name, name, across=True) for name in LENGTHS)),
            [
                _part(_ALL, _OVERALL, {name: group_number("characters", name, metric="average") for name in LENGTHS}),
                *(
                    _part(task, task_number(task), {name: task_number(task, name) for name in LENGTHS})
                    for task in TASKS
                ),
            ],
            first=(Column("needles", "needles"),),
            ordered_by=_OVERALL,
            charts=[LineChart("OpenAI MRCR: {}, percent, by length", "Eight lengths", _COLUMNS, by="needles")],
            small_charts=True,
        )
    }
)
