"""The report ``task_scores``: every number of each task, with the marks of the answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lbx.base.columns import Column
from lbx.base.marks import MARKS
from lbx.report.draw.charts import dots, heat
from lbx.report.draw.figures import (
    MOST_RUNS,
    Figure,
    FigureSource,
    group_rows,
    point_of_row,
    run_series,
)
from lbx.report.format.labels import Row
from lbx.report.report import COVERAGE, TASK, TWIN, WHO, PagePlace, Report

_MARK_TEXTS = ", ".join(
    f"CASE WHEN g.{mark.name} > 0 THEN '{mark.label} ' || printf('%.3g%%', 100 * g.{mark.name} / g.n) END"
    for mark in MARKS
    if mark.name != "partial"
)


_SCORES_WITH_MARKS = f"""
    SELECT t.*, CASE WHEN t.headline THEN
               nullif(concat_ws('; ', {_MARK_TEXTS}, CASE WHEN g.partial > 0 THEN 'partial: ' || g.lacks END), '')
           END AS marks
    FROM task_scores t LEFT JOIN guards g USING (run_id, benchmark, task)
"""  # noqa: S608 (our own names)


def _draw_figures(source: FigureSource) -> Iterator[Figure]:
    """Draw the headline scores of tasks, by benchmark."""
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


TASK_SCORES = Report(
    name="task_scores",
    title="Scores by task (percent; official: as the benchmark's own script prints it)",
    order="benchmark, task_position, task, position, metric, RANK",
    columns=(
        *TASK,
        Column("metric", "metric"),
        *WHO,
        TWIN,
        Column("n", "scored", "count", rank=4),
        COVERAGE,
        Column("score", "score", "percent", interval=True),
        Column("official", "official", "number", rank=2),
        Column("marks", "marks", optional=True, rank=1),
    ),
    sql=_SCORES_WITH_MARKS,
    empty="No answer has been scored yet.",
    reads="coverage",
    draw=_draw_figures,
    page=PagePlace("Scores", 4, title="Scores by task", layout="figures", has_answer_links=True, figures="few runs"),
    default=2,
    next_step=1,
)
