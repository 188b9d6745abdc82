"""The report ``length_curve``: score of each task by length."""

from __future__ import annotations

from collections.abc import Iterator

from lbx.base.columns import Column
from lbx.report.draw.figures import (
    Figure,
    FigureSource,
    LengthChart,
    draw_length_charts,
    group_rows,
    lines_by_length,
    select_leaders,
)
from lbx.report.report import COVERAGE, TASK, WHO, PagePlace, Report

_MOST_CHARTS = 60


def _draw_figures(source: FigureSource) -> Iterator[Figure]:
    """Draw a line chart for each task, with the best runs of the leaderboard if there are many."""
    rows = source.rows("length_curve")
    leaders, leading_note = select_leaders(source, rows)
    charts = [
        LengthChart(
            f"{benchmark}/{task}, {unit}", f"{benchmark}/{task}: score by length, percent", benchmark, unit, *lines
        )
        for (benchmark, task, unit), group in group_rows(rows, "benchmark", "task", "length_unit")
        if (lines := lines_by_length(source, group, leaders))
    ]
    omitted = f"{len(charts) - _MOST_CHARTS} more tasks are in the tables." if len(charts) > _MOST_CHARTS else ""
    yield from draw_length_charts(charts[:_MOST_CHARTS], f"{leading_note} {omitted}".strip())


LENGTH_CURVE = Report(
    name="length_curve",
    title="Score by length (percent; each column covers lengths up to its heading)",
    order="benchmark, task, length_unit DESC, RANK, length_up_to",
    columns=(*TASK, Column("length_unit", "unit", rank=2), *WHO, COVERAGE),
    pivot=("length_up_to", Column("score", "score", "percent", interval=True)),
    empty="No answer has been scored yet.",
    reads="numbers",
    draw=_draw_figures,
    page=PagePlace("Length", 10, title="Score by length, task by task"),
    default=4,
    next_step=6,
)
