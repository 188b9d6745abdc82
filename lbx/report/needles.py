"""The report ``needles``: how often needles are found, by document length and needle depth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lbx.base.records import ScoredSample, TaskScore
from lbx.benchmarks.base.aggregates import average
from lbx.report.report_types import ReportQuery
from lbx.scoring.score_columns import (
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
from lbx.store import Store, Table

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
"""Length unit, length and depth."""


def table(store: Store, query: ReportQuery) -> Table:
    """Return a row for each length and depth: of each task, then of the mean of the tasks that have all of these.

    Includes every benchmark whose samples have a needle's depth in ``meta`` (``depth``, 0 to 1).
    """
    benchmark_rows = store.query(
        "SELECT DISTINCT benchmark FROM samples WHERE json_exists(meta, '$.depth') ORDER BY ALL"
    ).rows
    names, benchmarks = runs_by_id(store) if benchmark_rows else {}, [benchmark for (benchmark,) in benchmark_rows]
    return as_table(COLUMNS, [
        names[run] | {"benchmark": benchmark} | line
        for (run, benchmark), tasks in (read_scores(store, query.runs, benchmarks) if benchmark_rows else {}).items()
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


def _numbers(benchmark: str, cell: Cell, parts: list[TaskScore]) -> dict[str, Any]:
    unit, length, depth = cell
    line: dict[str, Any] = {"length_unit": unit, "length": length, "depth": depth}
    estimate = average([part.estimate for part in parts])
    if estimate is None:
        return line
    sure = interval(estimate)
    return line | {
        "n": sure.n,
        "score": sure.value,
        **score_interval_columns(sure, find_benchmark(benchmark), clustered=estimate.clustered),
    }
