"""The report ``needles``: score of needle tasks by document length and needle depth.

In text it is a shaded grid of depths and lengths for each run and task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from lbx.base.columns import Column
from lbx.base.number import Number
from lbx.base.records import ScoredSample
from lbx.benchmarks.base.aggregates import average
from lbx.report.draw.charts import heat
from lbx.report.draw.figures import (
    Figure,
    FigureSource,
    point_of_row,
)
from lbx.report.format.digits import short_length
from lbx.report.format.labels import Row
from lbx.report.format.sheets import Sheet
from lbx.report.format.table_cells import shade
from lbx.report.query import ReportQuery
from lbx.report.ranks import by_benchmark_and_rank
from lbx.report.report import TWIN, WHO, PagePlace, Report
from lbx.results import Store, Table
from lbx.results.scoring.score_columns import (
    INTERVAL_COLUMNS,
    RUN_COLUMNS,
    RowsByTask,
    as_table,
    find_benchmark,
    headline_of,
    read_scores,
    runs_by_id,
    score_interval_columns,
)
from lbx.statistics.estimates import interval

COLUMNS = (
    *RUN_COLUMNS,
    "benchmark",
    "task",
    "tasks",
    "length_unit",
    "length",
    "depth",
    "n",
    "score",
    *INTERVAL_COLUMNS,
)

Cell = tuple[str, int, float]
"""Cell of the grid: (length unit, length, depth)."""


def table(store: Store, query: ReportQuery) -> Table:
    """Build the rows of the report: one for each length and depth of each task, and of the mean of the tasks.

    It includes every benchmark whose samples state the depth of a needle in ``meta`` (``depth``, 0 to 1).
    """
    benchmark_rows = store.query(
        "SELECT DISTINCT benchmark FROM samples WHERE json_exists(meta, '$.depth') ORDER BY ALL"
    ).rows
    benchmarks = [benchmark for (benchmark,) in benchmark_rows]
    answers = by_benchmark_and_rank(store, read_scores(store, query.runs, benchmarks)) if benchmarks else {}
    names = runs_by_id(store) if benchmarks else {}
    return as_table(COLUMNS, [
        names[run] | {"benchmark": benchmark} | line
        for (run, benchmark), tasks in answers.items()
        for line in _lines(benchmark, tasks)
    ])  # fmt: skip


def _lines(benchmark: str, tasks: RowsByTask) -> Iterator[dict[str, Any]]:
    cells: dict[str, dict[Cell, list[ScoredSample]]] = {}
    for task, rows in tasks.items():
        for row in rows:
            sample = row.sample
            depth = sample.meta.get("depth") if isinstance(sample.meta, dict) else None
            if isinstance(depth, int | float) and not isinstance(depth, bool):
                cell = (sample.length_unit, sample.length, float(depth))
                cells.setdefault(task, {}).setdefault(cell, []).append(row)
    lines = {
        task: {
            cell: score for cell, rows in sorted(cells_of_task.items()) if (score := headline_of(benchmark, task, rows))
        }
        for task, cells_of_task in cells.items()
    }
    for task, scores in lines.items():
        for cell, score in scores.items():
            yield {"task": task, **_numbers(benchmark, cell, [score])}
    # Words of one language and characters of another do not share an axis.
    for unit in dict.fromkeys(cell[0] for scores in lines.values() for cell in scores):
        alike = [scores for scores in lines.values() if any(cell[0] == unit for cell in scores)]
        if len(alike) > 1:
            for cell in sorted(set.intersection(*map(set, alike))):
                yield {"tasks": len(alike), **_numbers(benchmark, cell, [scores[cell] for scores in alike])}


def _numbers(benchmark: str, cell: Cell, parts: list[Number]) -> dict[str, Any]:
    unit, length, depth = cell
    line: dict[str, Any] = {"length_unit": unit, "length": length, "depth": depth}
    estimate = average([part.estimate for part in parts])
    if estimate is None:
        return line
    score_interval = interval(estimate)
    return line | {
        "n": score_interval.n,
        "score": score_interval.value,
        **score_interval_columns(score_interval, find_benchmark(benchmark), clustered=estimate.clustered),
    }


def sheets(table: Table) -> list[Sheet]:
    """Make a grid for the mean over the tasks of each run, and for each task, with a column for each length."""
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
        [f"{100 * depth:.4g}", *(shade(scores.get((depth, length))) for length in lengths)]
        for depth in sorted({row["depth"] for row in rows})
    ]
    return Sheet(title, columns, cells)


def _interval_notes(table: Table) -> list[str]:
    intervals = [(row["low"], row["high"]) for row in table.dicts() if row.get("low") is not None]
    if not intervals:
        return []
    low, high = max(intervals, key=lambda ends: ends[1] - ends[0])
    widest = f"{100 * low:.0f} to {100 * high:.0f}"
    return [f"The widest 95% interval is {widest} percent. --format markdown and csv have all intervals."]


def _draw_figures(source: FigureSource) -> Iterator[Figure]:
    """Draw a heat map for each run and unit of length, of the mean of all tasks or of the only task."""
    rows = [row for row in source.rows("needles") if row["score"] is not None]
    means = {_needle_key(row) for row in rows if row["task"] is None}
    maps: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row["task"] is None or _needle_key(row) not in means:
            maps.setdefault(_needle_key(row), []).append(row)
    for (run, benchmark, unit), cells in sorted(
        maps.items(), key=lambda item: (item[0][1:], source.mark_of(item[0][0]))
    ):
        what = f"mean of {cells[0]['tasks']} tasks" if cells[0]["task"] is None else cells[0]["task"]
        title = f"{source.label(run)}, {benchmark}, {unit}"
        about = f"{what}: percent of needles found, by length across and depth in percent of the document down."
        yield Figure(title, needle_map(title, about, cells), "", benchmark, is_small=True, mark=source.mark(run))


def _needle_key(row: Row) -> tuple[str, str, str]:
    return row["run_id"], row["benchmark"], row["length_unit"]


def needle_map(title: str, about: str, rows: Sequence[Row]) -> str:
    """Draw a heat map of the scores of a run by length and depth, on a scale from 0 to 100."""
    lengths, depths = (sorted({row[name] for row in rows}) for name in ("length", "depth"))
    cells = {(depths.index(row["depth"]), lengths.index(row["length"])): point_of_row(row) for row in rows}
    columns, names = list(map(short_length, lengths)), [f"{100 * depth:.3g}" for depth in depths]
    return heat(title, about, rows=names, columns=columns, cells=cells, ends=(0, 100), corner="depth %")


NEEDLES = Report(
    name="needles",
    title="Needles found, by length and depth (percent; one length per column)",
    columns=(
        *WHO,
        TWIN,
        *(Column("benchmark", "benchmark"), Column("task", "task", missing="mean of tasks")),
        Column("length_unit", "unit", rank=3),
        Column("depth", "depth %", "share"),
    ),
    pivot=("length", Column("score", "score", "percent", interval=True)),
    empty="No needle task has been run yet. Run one with --tasks needle.",
    rows=table,
    make_sheets=lambda table, _, in_text: sheets(table) if in_text else [],
    draw=_draw_figures,
    page=PagePlace("Length", 12, title="Needles by length and depth"),
)
