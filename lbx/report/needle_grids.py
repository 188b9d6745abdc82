"""The report ``needles`` as text: a shaded grid of depths and lengths for each run and task."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lbx.base.columns import Column
from lbx.report.digits import short_length
from lbx.report.sheets import SHADES, Sheet
from lbx.store import Table


def sheets(table: Table) -> list[Sheet]:
    """Return a grid for each run's mean over its tasks, and for each of the tasks, with a column for each length."""
    groups: dict[tuple[Any, ...], dict[Any, list[dict[str, Any]]]] = {}
    for row in table.dicts():
        group = groups.setdefault((row["run_id"], row["benchmark"], row["length_unit"]), {})
        group.setdefault(row["task"], []).append(row)
    grids = [
        _grid(tasks[task]) for tasks in groups.values() for task in sorted(tasks, key=lambda task: task is not None)
    ]
    return [*grids[:-1], replace(grids[-1], notes=_interval_notes(table))]


def _grid(rows: list[dict[str, Any]]) -> Sheet:
    first = rows[0]
    task = f"mean of {first['tasks']} tasks" if first["task"] is None else first["task"]
    title = (
        f"{first['label']}, {first['benchmark']}, {task}: needles found (percent) by depth and {first['length_unit']}"
    )
    lengths = sorted({row["length"] for row in rows})
    scores = {(row["depth"], row["length"]): row["score"] for row in rows if row.get("score") is not None}
    columns = [
        Column("depth", "depth %", "share"),
        *(Column(str(length), short_length(length), "shade", across=True) for length in lengths),
    ]
    cells = [
        [f"{100 * depth:.4g}", *(_cell(scores.get((depth, length))) for length in lengths)]
        for depth in sorted({row["depth"] for row in rows})
    ]
    return Sheet(title, columns, cells)


def _cell(score: float | None) -> str:
    if score is None:
        return "-"
    level = min(len(SHADES) - 1, max(0, int(len(SHADES) * score)))
    return f"{SHADES[level]} {100 * score:3.0f}"


def _interval_notes(table: Table) -> list[str]:
    intervals = [(row["low"], row["high"]) for row in table.dicts() if row.get("low") is not None]
    if not intervals:
        return []
    low, high = max(intervals, key=lambda ends: ends[1] - ends[0])
    widest = f"{100 * low:.0f} to {100 * high:.0f}"
    return [f"The widest 95% interval is {widest} percent. --format markdown and csv have all intervals."]
