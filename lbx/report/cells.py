"""A report's rows as the texts of a table: numbers in their units, scores with their intervals, pivots."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lbx.report.shapes import Column, Report
from lbx.store import Table
from lbx.visible import one_line, visible

Cells = tuple[list[Column], list[list[str]]]
"""Columns and, for each row, a text a column."""

INTERVAL_COLUMNS = ("low", "high", "clusters", "cluster_by", "method", "se", "df", "within")
"""What rows hold of a score's interval."""

_WRITTEN: Mapping[str, Callable[[Any], str]] = {
    "count": lambda value: f"{round(value):,}",
    "percent": lambda value: f"{100 * value:.2f}",
    "points": lambda value: f"{100 * value:+.2f}",
    "number": lambda value: f"{value:g}",
}
_MOST_DECIMALS = 2
_PRECISE = 4  # of figures between 0 and 1, which LongBench Pro prints instead of percents


def cells(view: Report, table: Table) -> Cells:
    """A view's rows as texts, in the view's columns."""
    rows = table.dicts()
    shown_columns = [c for c in view.columns if not c.optional or any(row.get(c.name) is not None for row in rows)]
    if view.pivot is None:
        return shown_columns, [[_show(row, c) for c in shown_columns] for row in rows]
    across, shown = view.pivot
    values = sorted({row[across] for row in rows}, key=lambda value: (value is None, value))
    lines: dict[tuple[object, ...], dict[object, str]] = {}
    for row in rows:
        line = (None if across == "run" else row["run_id"], *(_show(row, c) for c in shown_columns))
        lines.setdefault(line, {})[row[across]] = _show(row, shown)
    columns = [
        *shown_columns,
        *(replace(shown, name=str(v), heading=_heading(v)) for v in values),
    ]
    return columns, [
        [*map(str, line[1:]), *(found.get(value, "") for value in values)] for line, found in lines.items()
    ]


def _heading(value: object) -> str:
    if value is None:
        return "unknown"
    return f"{value:,}" if isinstance(value, int) else one_line(str(value))


def without_intervals(table: Table) -> Table:
    """The rows without what they say of their scores' intervals, so that the scores stand alone wherever they go."""
    kept = [at for at, name in enumerate(table.columns) if name not in INTERVAL_COLUMNS]
    return Table([table.columns[at] for at in kept], [tuple(row[at] for at in kept) for row in table.rows])


def plain_columns(table: Table) -> Cells:
    """Any query's answer as texts, without a view's formatting."""
    columns = [Column(name, one_line(name)) for name in table.columns]
    return columns, [["" if (said := plain(v)) is None else visible(str(said)) for v in row] for row in table.rows]


def plain(value: object) -> object:
    """A database value as JSON and csv can say it: numbers and text as they are, everything else as text.

    JSON has no NaN and no infinity, and most readers refuse a file with one: they are None.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [plain(v) for v in value]
    return str(value)


def _show(row: Mapping[str, Any], column: Column) -> str:
    value = row[column.name]
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return column.missing
    if column.interval:
        scale = 100 if column.kind in ("percent", "points") else 1
        return with_interval(
            value, row.get("low"), row.get("high"), row.get("method"), scale, row.get("cluster_by") or "document"
        )
    written = _WRITTEN.get(column.kind)
    return written(value) if written else visible(str(value))


def with_interval(  # noqa: PLR0917 (as a row of a view has them)
    value: float | None,
    low: float | None,
    high: float | None,
    method: str | None,
    scale: float,
    cluster_by: str = "document",
) -> str:
    """A score and how sure it is: "44.9 ± 6.3", "1.5 [0.3, 7.9]", "12.50 (one document)", "100.00 (all alike)".

    Half the interval's width has two significant digits, but no more decimals than two (of percents); the score has as
    many. A score that nothing is known of is "-", one without an interval stands alone.

    Args:
        low: the interval's end, in the unit of ``value``; None where there is none.
        method: how the interval was made, or why there is none.
        scale: what all three are multiplied with: 100 where the unit is 0..1 and percents are shown.
        cluster_by: what ``method`` "one cluster" means one of.
    """
    if value is None or not math.isfinite(value):
        return "-"
    alone = f"{scale * value:.2f}" if scale != 1 else f"{value:g}"
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        why = {"one cluster": f"one {cluster_by}", "all alike": "all alike"}.get(method or "")
        return f"{alone} ({why})" if why else alone
    value, low, high = scale * value, scale * low, scale * high
    half = (high - low) / 2
    most = _PRECISE if scale == 1 and max(abs(value), abs(high)) <= 1 else _MOST_DECIMALS
    decimals = min(most, max(0, 1 - math.floor(math.log10(half)))) if half > 0 else most
    if f"{half:.{decimals}f}" in ("10.0", "1.00", "0.100"):  # 9.96 rounds to three digits
        decimals -= 1
    least = 10**-decimals
    if abs((high - value) - (value - low)) < least / 2:
        return f"{value:.{decimals}f} ± {max(half, least):.{decimals}f}"
    return f"{value:.{decimals}f} [{low:.{decimals}f}, {high:.{decimals}f}]"
