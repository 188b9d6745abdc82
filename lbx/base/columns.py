"""Columns of tables, reports and benchmark boards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table or a report.

    Attributes:
        name: key in the rows.
        kind: "text", "count", "percent" (0..1 shown as 0..100), "points" (a difference of percents), "number",
            "quantity", "flag" (yes or no), "share" (0..1 as percent, with as few digits as possible), "p" (p-value),
            "coefficient" (-1..1, two digits). ``lbx.report.format.digits`` defines the number of digits.
        value: function that computes a board column's text from the entries of a row's model: one entry, or the plain
            and the reasoning entry. Without it the part of the table or the run supplies the text.
        optional: omit the column if no row has it.
        interval: a score with an optional interval in ``low``, ``high`` and ``method``, shown with the score.
        of: prefix of these three names, for rows with several intervals.
        digits_of: prefix of the interval columns that set this percent's number of digits.
        missing: text shown for NULL.
        unknown: NULL means unknown, e.g. for imported answers: a column unknown in all rows is omitted and listed in a
            note below the table.
        rank: priority for dropping columns from a table that is too wide: highest first; 0 is never dropped.
        across: the column is one of a pivot's series, continued in further blocks of a table that is too wide.
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
    """Create a numeric column of a board, by default with interval columns prefixed by ``name``."""
    return Column(name, heading, kind, interval=interval, of=f"{name}_" if interval else "", **options)
