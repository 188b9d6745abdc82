"""Column of a table, of a report and of a benchmark's board alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table or a report.

    Attributes:
        name: in the rows.
        heading: in the table.
        kind: "text", "count", "percent" (0..1 shown as 0..100), "points" (a difference of percents), "number",
            "quantity", "flag" (yes or no), "share" (0..1 as percent, of as few digits as it needs), "p" (of a test),
            "coefficient" (-1..1, two digits); ``lbx.report.digits`` has the rule of their digits.
        value: text of a board's column, from the entries of a row's model: one entry, or the plain and the reasoning
            one. Without it the part of the table or the run gives the text.
        optional: left out of a table if no row has it.
        interval: a score whose row may have ``low``, ``high`` and ``method`` of its interval, shown with the score.
        of: prefix of these three names, for rows with several intervals.
        digits_of: prefix of the interval columns that set this percent's number of digits.
        missing: shown in place of NULL.
        unknown: NULL means unknown, as for imported answers: a column unknown in all rows is left out, and a note
            below the table lists it.
        rank: order in which columns are left out of a table that is too wide: the highest first, 0 stays.
        across: one of several alike, as a pivot makes them: continued below each other in a table that is too wide.
    """

    name: str
    heading: str
    kind: str = "text"
    value: Callable[[Sequence[Any]], object] | None = None
    optional: bool = False
    interval: bool = False
    of: str = ""
    digits_of: str | None = None
    missing: str = "-"
    unknown: bool = False
    rank: int = 0
    across: bool = False


def number_column(name: str, heading: str, kind: str = "number", *, interval: bool = True, **options: Any) -> Column:
    """A board's column of numbers, which the parts of the table name; with intervals of its own."""
    return Column(name, heading, kind, interval=interval, of=f"{name}_" if interval else "", **options)
