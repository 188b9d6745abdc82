"""Formatting of a report's rows as table cells: numbers in units, scores with intervals, pivots."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lbx.base.columns import CAUTION_MARK, Column
from lbx.base.number import INTERVAL_COLUMNS
from lbx.base.units import format_size
from lbx.base.visible import one_line, visible
from lbx.benchmarks.registry import unit_of
from lbx.report.format.digits import (
    number,
    quantity,
    quantity_with_interval,
    ratio,
    why_no_interval,
    with_interval,
)
from lbx.report.format.labels import LABELS
from lbx.report.format.sheets import SHADES, Cells, Sheet
from lbx.results import Table
from lbx.results.rows import BOUND_COLUMNS, PROMPT_TOKENS

if TYPE_CHECKING:
    from lbx.report.report import Report

_FORMATTERS: Mapping[str, Callable[[Any], str]] = {
    "count": quantity,
    "number": number,
    "quantity": quantity,
    "ratio": ratio,
    "size": format_size,
    "flag": lambda value: "yes" if value else "no",
    "share": lambda value: number(100 * value),
    "p": lambda value: f"{value:.3f}" if value >= 0.001 else "<0.001",
}
_WITH_INTERVAL: Mapping[str, Callable[[float, float | None, float | None], str]] = {
    "quantity": quantity_with_interval,
    "ratio": ratio,
}
_MOST_NAMED_RUNS = 3
SCRIPTED = "scripted"
BYTES_NOTE = "Tokens of a table of answers (backend scripted) are bytes."

_LABELS = {"model": "label", **LABELS, "first": "label_first", "second": "label_second"}
_LABEL_PARTS = ("mode", "differs_in")
"""Columns that labels of runs include if needed to distinguish runs."""


def sheet(view: Report, table: Table, reasons: Sequence[str] = ()) -> Sheet:
    """Format the rows of a report as a sheet.

    Args:
        reasons: Reasons why there are no rows, in place of ``view.empty``.
    """
    if not table.rows:
        return Sheet(view.title, view.columns, [], [*reasons] or [view.empty])
    full_table, table = table, informative_rows(view, table)
    unknown = _unknown_notes(view, full_table, table)
    if not table.rows:
        return Sheet(view.title, view.columns, [], unknown)
    columns, rows = cells(view, table)
    missing_intervals = missing_interval_notes(table, [*view.columns, *(view.pivot or ())[1:]])
    notes = [*interval_notes(table), *missing_intervals, *(view.notes(table) if view.notes else ()), *unknown]
    notes += [*byte_notes(view.columns, table.dicts()), *_zero_notes(view, table)]
    if any(c.never_zero for c in view.columns) and not any(c.never_zero for c in columns):
        return Sheet(view.title, view.columns, [], notes)
    return Sheet(view.title, columns, rows, notes)


def informative_rows(view: Report, table: Table) -> Table:
    """Rows of a report without those that contain no information for readers, which only programs need."""
    if view.is_informative is None:
        return table
    rows = zip(table.dicts(), table.rows, strict=True)
    return Table(table.columns, [row for fields, row in rows if view.is_informative(fields)])


def _unknown_notes(view: Report, full_table: Table, table: Table) -> list[str]:
    """Write notes on unknown values, instead of a word in each row."""
    notes, rows = [], table.dicts()
    columns = [column for column in view.columns if column.unknown and column.name in table.columns]
    counts = {column.heading: sum(row[column.name] is None for row in rows) for column in columns}
    if nowhere := [heading for heading, count in counts.items() if count == len(rows) > 0]:
        notes.append(f"Columns left out, because no answer has a value: {', '.join(nowhere)}.")
    if any(0 < count < len(rows) for count in counts.values()):
        notes.append("-: unknown; imported answers and some backends do not report it.")
    omitted_rows = [row for row in full_table.dicts() if view.is_informative and not view.is_informative(row)]
    if omitted_rows and view.omission_notes:
        notes += view.omission_notes(omitted_rows)
    elif omitted_rows:
        who = list(dict.fromkeys(str(row.get("label") or row["model"]) for row in omitted_rows))
        more = f" and {len(who) - _MOST_NAMED_RUNS:,} more" if len(who) > _MOST_NAMED_RUNS else ""
        notes.append(
            f"Left out: {len(omitted_rows):,} rows of {', '.join(who[:_MOST_NAMED_RUNS])}{more}, without these "
            "values (imported answers never have them). JSON and csv include the rows."
        )
    return notes


def byte_notes(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Explain the unit of shown tokens of runs without a tokenizer, and name benchmarks with both units."""
    in_columns = any("token" in column.name or "longest_prompt" in column.name for column in columns)
    by_tokens = [row for row in rows if row.get("length_unit") == PROMPT_TOKENS]
    if not any(row.get("backend") == SCRIPTED for row in (rows if in_columns else by_tokens)):
        return []
    in_bytes = dict.fromkeys(row["benchmark"] for row in by_tokens if row["backend"] == SCRIPTED)
    in_tokens = {row["benchmark"] for row in by_tokens if row["backend"] not in (SCRIPTED, None)}
    mixed = ", ".join(name for name in in_bytes if name in in_tokens)
    more = f"{mixed}: at one length a table of answers has other questions than a model."
    return [BYTES_NOTE, *([more] if mixed else [])]


def _zero_notes(view: Report, table: Table) -> list[str]:
    """Write notes on columns that are 0 everywhere, with the number of answers of known status."""
    headings: dict[int, list[str]] = {}
    rows = table.dicts()
    for column in view.columns:
        values = [row[column.name] for row in rows if row.get(column.name) is not None]
        if column.never_zero and values and not any(values):
            n_answers = sum(row["n"] for row in rows if row[column.name] is not None)
            headings.setdefault(n_answers, []).append(column.heading)
    return [
        f"{', '.join(names)}: none in {n_answers:,} {'answer' if n_answers == 1 else 'answers'}."
        for n_answers, names in headings.items()
    ]


def interval_notes(table: Table) -> list[str]:
    """Write notes on the intervals in the rows of a table."""
    if "low" not in table.columns:
        return []
    rows = [row for row in table.dicts() if row["low"] is not None]
    if not rows:
        return []
    notes = ["Scores are followed by 95% intervals."]
    if alone := sum(row.get("cluster_by") == "sample" for row in rows):
        portion = "" if alone == len(rows) else f" of {alone:,} of {len(rows):,} scores"
        notes.append(
            f"The documents{portion} are unknown, or there is only one: samples count as independent, and intervals "
            "may be too narrow."
        )
    return notes


def missing_interval_notes(table: Table, columns: Iterable[Column]) -> list[str]:
    """Explain each reason for a missing interval, such as "one document"."""
    reasons: dict[tuple[str, str], None] = {}
    rows = table.dicts()
    for column in columns:
        has_reason = (column.interval and column.kind not in _WITH_INTERVAL) or column.kind == "coefficient"
        for row in rows if has_reason else ():
            low, _, *why = _interval_fields(row, column)
            if row.get(column.name) is not None and low is None and (reason := why_no_interval(*why)):
                reasons[reason] = None
    return [f"{words.capitalize()}: {clause}, so there is no interval." for words, clause in reasons]


def _interval_fields(row: Mapping[str, Any], column: Column) -> list[Any]:
    """Ends, method, noun and number of clusters of an interval."""
    clusters = None if column.kind == "coefficient" else row.get("clusters")  # of an alpha: all, also without pairs
    return [*(row.get(column.interval_prefix + name) for name in BOUND_COLUMNS), clusters]


def cells(view: Report, table: Table) -> Cells:
    """Format the rows of a report as cells, in the order of the report's columns."""
    rows = table.dicts()
    present = [c for c in view.columns if c.name in table.columns]  # --no-interval omits some
    label_parts = _LABEL_PARTS if "label" in table.columns and any(c.name == "model" for c in present) else ()
    present = [c for c in present if c.name not in label_parts]
    columns = [
        c
        for c in present
        if (not (c.optional or c.unknown) or any(row[c.name] is not None for row in rows))
        and (not c.never_zero or any(row[c.name] for row in rows))
    ]
    if view.pivot is None:
        return columns, [[cell_text(row, c) for c in columns] for row in rows]
    value_column = view.pivot[1]
    values, lines = _pivot_rows(view, rows)
    table_columns = [*columns, *(replace(value_column, name=str(v), heading=_heading(v), across=True) for v in values)]
    return table_columns, [
        [
            *(cell_text(next(iter(line.values())), c) for c in columns),
            *(cell_text(line[value], value_column) if value in line else "" for value in values),
        ]
        for line in lines
    ]


def _pivot_rows(
    view: Report, rows: Sequence[Mapping[str, Any]]
) -> tuple[list[Any], list[dict[Any, Mapping[str, Any]]]]:
    """Pivot rows. Returns the pivot values in order, unknown last, and for each line {pivot value: row}.

    The unknown value gets a column if any line contains a number for it.
    """
    assert view.pivot is not None
    across, value_column = view.pivot
    keys = [column.name for column in view.columns]
    lines: dict[tuple[Any, ...], dict[Any, Mapping[str, Any]]] = {}
    for row in rows:
        line = (None if across == "run" else row["run_id"], *(row.get(name) for name in keys))
        lines.setdefault(line, {})[row[across]] = row
    present_values = {row[across] for row in rows if row[across] is not None or row.get(value_column.name) is not None}
    values = sorted(present_values, key=lambda value: (value is None, value))
    return values, list(lines.values())


def shade(score: float | None) -> str:
    """Format a score in 0..1 as percent for a column of the kind "shade", "-" if it is unknown."""
    if score is None or not math.isfinite(score):
        return "-"
    level = min(len(SHADES) - 1, max(0, int(len(SHADES) * score)))
    return f"{SHADES[level]} {100 * score:3.0f}"


def _heading(value: object) -> str:
    if value is None:
        return "unknown"
    return f"{value:,}" if isinstance(value, int) else one_line(str(value))


def without_intervals(view: Report, table: Table) -> Table:
    """Remove the columns of intervals from the rows of a report."""
    bounds = (c.interval_prefix + name for c in view.columns if c.interval for name in BOUND_COLUMNS)
    interval_names = {*INTERVAL_COLUMNS, *bounds}
    remaining = [at for at, name in enumerate(table.columns) if name not in interval_names]
    return Table([table.columns[at] for at in remaining], [tuple(row[at] for at in remaining) for row in table.rows])


def _coefficient(value: float, low: float | None, high: float | None, *why: Any) -> str:
    if low is not None and high is not None:
        return f"{value:.2f} [{low:.2f}, {high:.2f}]"
    reason = why_no_interval(*why)
    return f"{value:.2f} ({reason[0]})" if reason else f"{value:.2f}"


def cell_text(row: Mapping[str, Any], column: Column) -> str:
    """Format the value of a column in a row."""
    value = row[column.name] if (label := row.get(_LABELS.get(column.name, ""))) is None else label
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return column.missing
    if column.kind == "coefficient":
        return _coefficient(value, *_interval_fields(row, column))
    if column.interval:
        scale = 100 if column.kind in ("percent", "points") else 1
        low, high, method, cluster_by, clusters = _interval_fields(row, column)
        if plain := _WITH_INTERVAL.get(column.kind):
            return plain(value, low, high)
        most = 4 if scale == 1 and unit_of(row.get("benchmark")) == 1 else 2
        return with_interval(value, low, high, method, scale, cluster_by, clusters, most=most, decimals=column.decimals)
    if column.kind in ("percent", "points"):
        return f"{100 * value:{'+' if column.kind == 'points' else ''}.{column.decimals}f}"
    formatter = _FORMATTERS.get(column.kind)
    text = formatter(value) if formatter else visible(str(value))
    return f"{text}{CAUTION_MARK}" if column.caution and row.get(column.caution) else text
