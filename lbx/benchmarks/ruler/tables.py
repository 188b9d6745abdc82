"""RULER's tables: models by length as in its README, tasks by length, and published figures."""

from __future__ import annotations

from collections.abc import Sequence

from lbx.base.columns import Column, number_column
from lbx.base.number_key import OVERALL, NumberKey, group_number
from lbx.benchmarks.base.layout import (
    MODE,
    Board,
    BoardEntry,
    BoardPart,
    Boards,
    LineChart,
    Paper,
    PublishedFigures,
    TableCell,
    by_group,
    first_value,
)
from lbx.benchmarks.ruler.aggregates import (
    AVERAGE,
    EFFECTIVE,
    FALLING,
    LABELS,
    RISING,
    effective_length,
    length_label,
)
from lbx.benchmarks.ruler.predictions import split_names
from lbx.benchmarks.ruler.tasks import LENGTHS

LENGTH_MEANS = {length: group_number("length", LABELS[length], metric=AVERAGE) for length in LENGTHS}
HEADINGS = {AVERAGE: "Avg", RISING: "wAvg (inc)", FALLING: "wAvg (dec)", EFFECTIVE: "effective (k)"}
_OVERALL = {metric: group_number(OVERALL, metric=metric) for metric in HEADINGS}

PUBLISHED = PublishedFigures(
    means=[(_OVERALL[AVERAGE], dict.fromkeys(LENGTH_MEANS.values(), 1))],
    lengths=LENGTH_MEANS,
)
"""lbx/benchmarks/ruler/published.csv has a column for each of these lines of the report ``paper``."""


def _table_cell(key: NumberKey) -> TableCell | None:
    if key.grouping == "length":
        return TableCell("lengths", "", key.group)
    if key.grouping == OVERALL and key.metric in HEADINGS:
        return TableCell("lengths", "", HEADINGS[key.metric])
    task = next(split_names([key.task]), None)
    if key.grouping or task is None:  # foreign files may have others
        return by_group(key)
    return TableCell("tasks", task.base, length_label(task.length))


PAPER = Paper(
    {"lengths": "RULER: mean of the 13 tasks by length", "tasks": "RULER: tasks by length"},
    _table_cell,
    averages=(("lengths", ""),),
)


def _effective(entry: BoardEntry) -> str | None:
    """Return the effective length by the entry's official averages: "<4k", "32k", ">128k" as in the README."""
    averages = {
        length: entry.figures[key]
        for length, key in LENGTH_MEANS.items()
        if key in entry.figures and key not in entry.unofficial
    }
    if not averages:
        return None
    longest = effective_length(averages)
    if longest == LENGTHS[-1]:
        return f">{LABELS[longest]}"
    return LABELS.get(longest) or f"<{LABELS[LENGTHS[0]]}"


def _claimed(entry: BoardEntry) -> object:
    return entry.describe("context") or entry.window


_COLUMNS: Sequence[Column] = (
    MODE,
    Column("claimed", "claimed", value=first_value(_claimed), optional=True, rank=2),
    Column("effective", "effective", value=first_value(_effective), optional=True),
    *(number_column(label, label, across=True) for label in LABELS.values()),
    *(number_column(metric, HEADINGS[metric]) for metric in (AVERAGE, RISING, FALLING)),
)

BOARDS = Boards(
    {
        "board_ruler": Board(
            "RULER: mean of the 13 tasks by length (percent)",
            _COLUMNS,
            [
                BoardPart(
                    {LABELS[length]: key for length, key in LENGTH_MEANS.items()}
                    | {metric: _OVERALL[metric] for metric in (AVERAGE, RISING, FALLING)}
                )
            ],
            ordered_by=_OVERALL[AVERAGE],
            charts=[
                LineChart(
                    "RULER: mean of the 13 tasks by length, percent",
                    "Six lengths",
                    {label: label for label in LABELS.values()},
                )
            ],
            note="Published models (*) answered samples of older generators (2024), which differ from a run's.",
        )
    }
)
