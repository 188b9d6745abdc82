"""Columns of tables, reports and benchmark boards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

CAUTION_MARK = "†"


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a table or a report: key, heading and format.

    Attributes:
        name: key in the rows.
        kind: "text", "count", "percent" (0..1 shown as 0..100), "points" (a difference of percents), "number",
            "quantity", "ratio" (about 1, four decimals), "size" (bytes), "flag" (yes or no), "share" (0..1 as percent,
            with as few digits as possible), "p" (p-value), "coefficient" (-1..1, two digits).
            ``lbx.report.format.digits`` defines the number of digits.
        value: function that computes a board column's text from the entries of a row's model: one entry, or the plain
            and the reasoning entry. None takes the text from the run.
        optional: omit the column if it is empty in all rows.
        interval: whether an interval in the columns ``low``, ``high`` and ``method`` is shown with the score.
        interval_prefix: prefix of the names of those three columns, for rows with several intervals.
        decimals: largest number of decimals of a percentage: 2 for official numbers, and for differences that matter.
        missing: text shown for NULL.
        unknown: NULL means unknown, e.g. for imported answers: a column unknown in all rows is omitted and listed in a
            note below the table.
        caution: name of a column with a caution on the value, which the cell marks with ``CAUTION_MARK``.
        never_zero: a column that is 0 or NULL in all rows is omitted and listed in a note below the table; a report of
            which all such columns are omitted has no table.
        rank: priority for dropping columns from a table that is too wide: highest first; 0 is never dropped.
        across: the column is one of a pivot's series, continued in further blocks of a table that is too wide.
    """

    name: str
    heading: str
    kind: str = "text"
    value: Callable[[Sequence[Any]], object] | None = None
    optional: bool = False
    interval: bool = False
    interval_prefix: str = ""
    decimals: int = 1
    missing: str = "-"
    unknown: bool = False
    caution: str = ""
    never_zero: bool = False
    rank: int = 0
    across: bool = False


def number_column(name: str, heading: str, kind: str = "number", *, interval: bool = True, **options: Any) -> Column:
    """Create a numeric column of a board, by default with interval columns prefixed by ``name``."""
    return Column(
        name, heading, kind, decimals=2, interval=interval, interval_prefix=f"{name}_" if interval else "", **options
    )
