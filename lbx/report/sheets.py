"""Tables of texts, for commands that show no report, too: nothing here knows a benchmark or opens a results file."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lbx.base.columns import Column
from lbx.base.visible import one_line, visible

if TYPE_CHECKING:
    from lbx.store import Table

BLOCKS = "▁▂▃▄▅▆▇█"
"""What curves are drawn with in texts, the lowest first."""

Cells = tuple[list[Column], list[list[str]]]
"""Columns and, for each row, a text a column."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table for people.

    Attributes:
        rows: a text a column.
        notes: sentences below it; without rows they say why there are none.
        best: (row, column) of the best scores, which are bold where a format has that.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    best: frozenset[tuple[int, int]] = frozenset()


def plain_columns(table: Table) -> Cells:
    """Any query's answer as texts, without a view's formatting."""
    columns = [Column(name, one_line(name)) for name in table.columns]
    return columns, [["" if (text := plain(v)) is None else visible(str(text)) for v in row] for row in table.rows]


def plain(value: object) -> object:
    """A database value as JSON and csv can say it: numbers and text as they are, everything else as text.

    JSON has no NaN and no infinity, and most readers refuse a file with one: they are None.
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
