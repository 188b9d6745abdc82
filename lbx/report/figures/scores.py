"""Figures of scores: leaderboard, tasks, comparison with a baseline, and cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lbx.report.charts import Point, ScatterPoint, dots, heat, scatter
from lbx.report.figures.base import Figure, FigureSource, group_rows, point_of_row, run_series
from lbx.report.labels import Row

MOST_RUNS = 8
"""Maximum number of runs in a chart with a dot for each run and task; a heat map can show more."""
_MOST_ROWS = 60


def leaderboard(source: FigureSource) -> Iterator[Figure]:
    """Draw a line for each run, by benchmark."""
    for benchmark, group in group_rows(source.rows("leaderboard"), "benchmark"):
        rows = [row for row in group if row["score"] is not None][:_MOST_ROWS]
        lines = [(source.label(r["run_id"]), run_series(source, r["run_id"], [point_of_row(r)])) for r in rows]
        title = f"{benchmark}: score, percent"
        best = ", ".join(f"{source.label(row['run_id'])} {100 * row['score']:.1f}" for row in rows[:3])
        if len(lines) > 1:
            svg = dots(title, f"A line for each run, best first: {best}", lines)
            yield Figure(title, svg, benchmark=benchmark)


def tasks(source: FigureSource) -> Iterator[Figure]:
    """Draw the official scores of tasks, by benchmark."""
    for benchmark, group in group_rows(source.rows("task_scores"), "benchmark"):
        rows = [row for row in group if row["headline"] and row["score"] is not None]
        title = f"{benchmark}: score by task, percent"
        if len(rows) > 1:
            yield Figure(title, _task_chart(source, rows, title), benchmark=benchmark)


def _task_chart(source: FigureSource, rows: Sequence[Row], title: str) -> str:
    runs = sorted(dict.fromkeys(row["run_id"] for row in rows), key=source.mark_of)
    names = list(dict.fromkeys(row["task"] for row in rows))
    if len(runs) <= MOST_RUNS:
        lines = [(row["task"], run_series(source, row["run_id"], [point_of_row(row)])) for row in rows]
        return dots(title, f"{len(names)} tasks, {len(runs)} runs; the numbers are in the table below.", lines)
    cells = {(runs.index(row["run_id"]), names.index(row["task"])): point_of_row(row) for row in rows}
    about = f"{len(runs)} runs by {len(names)} tasks, the darker the higher; the numbers are in the cells."
    labels, marks = [source.label(run) for run in runs], [source.mark_of(run) for run in runs]
    return heat(title, about, rows=labels, columns=names, cells=cells, marks=marks)


def comparison(source: FigureSource) -> Iterator[Figure]:
    """Draw differences from each baseline, by benchmark."""
    rows = sorted(source.rows("comparison"), key=lambda row: (row["run_a"], row["benchmark"]))
    for (run_a, benchmark), group in group_rows(rows, "run_a", "benchmark"):
        others = list(dict.fromkeys(row["run_b"] for row in group))
        if len(others) > MOST_RUNS:  # of each the first line, which is the benchmark's average
            first = {row["run_b"]: row for row in reversed(group)}
            lines = [(source.label(run), run_series(source, run, [_difference(first[run])])) for run in others]
        else:
            task_rows = sorted(group, key=lambda row: list(dict.fromkeys(r["task"] for r in group)).index(row["task"]))
            lines = [(row["task"], run_series(source, row["run_b"], [_difference(row)])) for row in task_rows]
        title = f"{benchmark}: points more than {source.label(run_a)}"
        about = f"{len(others)} runs; right of 0 is better. The numbers are in the table below."
        yield Figure(title, dots(title, about, lines, zero=True), benchmark=benchmark)


def _difference(row: Row) -> Point:
    return replace(point_of_row(row, value="difference"), note=str(row.get("verdict") or ""))


def cost(source: FigureSource) -> Iterator[Figure]:
    """Draw score against time per answer, by benchmark."""
    rows = [row for row in source.rows("cost") if row["task"] is None]
    for benchmark in dict.fromkeys(row["benchmark"] for row in rows):
        points = [
            ScatterPoint(
                source.label(row["run_id"]),
                mark,
                Point(row["seconds_per_answer"]),
                point_of_row(row),
                row["unbeaten"] is True,
            )
            for row in rows
            if row["benchmark"] == benchmark and None not in (row["score"], row["seconds_per_answer"])
            if (mark := source.mark(row["run_id"])) is not None
        ]
        if len(points) > 1:
            title = f"{benchmark}: score against cost"
            about = f"{len(points)} runs; the line joins the unbeaten ones. The numbers are in the table below."
            plot = scatter(title, about, x_name="seconds per answer", y_name="score, percent", points=points)
            yield Figure(title, plot, benchmark=benchmark)
