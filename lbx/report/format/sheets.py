"""Sheets, which are tables of texts. They are independent of benchmarks and results files, for other commands."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lbx.base.columns import Column
from lbx.base.visible import one_line, visible

if TYPE_CHECKING:
    from lbx.results import Table

SHADES = "·░▒▓█"
"""Characters before the numbers in columns of the kind "shade", from the lowest to the highest."""

Cells = tuple[list[Column], list[list[str]]]
"""Columns, and rows with a text for each column."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """Table of texts for readers.

    Attributes:
        rows: Rows with a text for each column.
        notes: Sentences below the table, or the reason why it contains no rows.
        best: (row, column) of the best scores, which are bold in formats that support it.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    best: frozenset[tuple[int, int]] = frozenset()


def plain_columns(table: Table) -> Cells:
    """Convert the result of a query to cells, without the formatting of a report."""
    columns = [Column(name, one_line(name)) for name in table.columns]
    return columns, [["" if (text := plain(v)) is None else visible(str(text)) for v in row] for row in table.rows]


def plain(value: object) -> object:
    """Convert a database value for JSON and CSV: numbers and text are unchanged, other values become text.

    NaN and infinity become None, because JSON does not allow them and most readers reject a file with them.
    """
    if type(value) in _PLAIN or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return value if _PLAIN.issuperset(map(type, value)) else [plain(v) for v in value]
    return str(value)


_PLAIN = frozenset({str, int, bool})
