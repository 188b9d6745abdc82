"""OpenAI GraphWalks' table: operations by length of the graph."""

from __future__ import annotations

from lbx.base.columns import Column, number_column
from lbx.base.number_key import OVERALL, NumberKey, group_number, task_number
from lbx.benchmarks.base.layout import MODE, Board, BoardPart, Boards, LineChart, Paper, TableCell

OPERATIONS = ("bfs", "parents")
LEVELS = {"128k": "graphwalks_128k_and_shorter.parquet", "1m": "graphwalks_256k_to_1mil.parquet"}
"""{level in the name of a task: file}; the authors count tokens."""

TASKS = tuple(f"{operation}_{level}" for level in LEVELS for operation in OPERATIONS)
_HEADINGS = {"128k": "128k and shorter", "1m": "256k to 1M"}
_ALL = "all"


def split_task(task: str) -> tuple[str, str]:
    """Split a task into operation and level: ("bfs", "128k") for "bfs_128k"."""
    operation, _, level = task.partition("_")
    return operation, level


def _table_cell(key: NumberKey) -> TableCell | None:
    if not key.grouping:
        operation, level = split_task(key.name)
        return TableCell("operations", operation, level)
    if key.grouping == "operation":
        return TableCell("operations", key.name, "average")
    return TableCell("operations", _ALL, "average" if key.grouping == OVERALL else key.name)


PAPER = Paper({"operations": "OpenAI GraphWalks: operations by length"}, _table_cell, averages=(("operations", _ALL),))

_OVERALL = group_number(OVERALL, metric="average")


def _part(name: str, average: NumberKey, levels: dict[str, NumberKey]) -> BoardPart:
    return BoardPart({"average": average, **levels}, texts={"operation": name})


BOARDS = Boards(
    {
        "board_graphwalks": Board(
            "OpenAI GraphWalks: F1 by operation and length in tokens (percent)",
            (
                MODE,
                number_column("average", "Average"),
                *(number_column(level, _HEADINGS[level], across=True) for level in LEVELS),
            ),
            [
                _part(_ALL, _OVERALL, {level: group_number("length", level, metric="average") for level in LEVELS}),
                *(
                    _part(
                        name,
                        group_number("operation", name, metric="average"),
                        {level: task_number(f"{name}_{level}") for level in LEVELS},
                    )
                    for name in OPERATIONS
                ),
            ],
            first=(Column("operation", "operation"),),
            ordered_by=_OVERALL,
            charts=[LineChart("OpenAI GraphWalks: {}, percent, by length", "Two lengths", _HEADINGS, by="operation")],
            small_charts=True,
        )
    }
)
