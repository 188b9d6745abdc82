"""The report ``length_curve``: score of each task by length.

Lengths are prompt tokens if they are known of all runs of a task, or else in the benchmark's unit. The view
``length_curve`` has both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lbx.base.columns import Column
from lbx.report.draw.charts import FEWEST_ANSWERS
from lbx.report.draw.figures import (
    Figure,
    FigureSource,
    LengthChart,
    draw_length_charts,
    group_rows,
    lines_by_length,
    select_leaders,
)
from lbx.report.format.digits import short_length
from lbx.report.format.labels import Row
from lbx.report.format.sheets import Sheet
from lbx.report.format.table_cells import byte_notes, shade
from lbx.report.report import COVERAGE, TASK, WHO, PagePlace, Report
from lbx.results import Table
from lbx.results.rows import PROMPT_TOKENS

_MOST_CHARTS = 60
_ROWS = f"""
    SELECT * FROM length_curve SEMI JOIN (
        SELECT benchmark, task, length_unit FROM length_curve GROUP BY benchmark, task, length_unit
        QUALIFY row_number() OVER (
            PARTITION BY benchmark, task
            ORDER BY count(DISTINCT run_id) DESC, length_unit = '{PROMPT_TOKENS}' DESC, length_unit
        ) = 1
    ) USING (benchmark, task, length_unit)
"""  # noqa: S608 (our own names)


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


def _sheets(table: Table, in_text: bool) -> list[Sheet]:
    """Make a shaded sheet for each benchmark and unit, for text."""
    groups: dict[tuple[str, str], dict[tuple[str, str], dict[int | None, Row]]] = {}
    for row in table.dicts() if in_text else ():
        lines = groups.setdefault((row["benchmark"], row["length_unit"]), {})
        lines.setdefault((row["task"], row["run_id"]), {})[row["length_up_to"]] = row
    made = []
    for (benchmark, unit), lines in groups.items():
        lengths = sorted({length for cells in lines.values() for length in cells}, key=lambda at: (at is None, at))
        columns = [
            Column("task", "task"),
            Column("model", "model"),
            *(
                Column(str(length), "unknown" if length is None else short_length(length), "shade", across=True)
                for length in lengths
            ),
        ]
        body = [
            [task, str(next(iter(cells.values()))["label"]), *(_cell(cells.get(length)) for length in lengths)]
            for (task, _), cells in lines.items()
        ]
        made.append(Sheet(f"Score by length: {benchmark} (percent, by {unit})", columns, body))
    notes = [f"f: fewer than {FEWEST_ANSWERS} answers. --format markdown and csv have the intervals."]
    return [*made[:-1], replace(made[-1], notes=[*notes, *byte_notes((), table.dicts())])] if made else []


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    text = shade(row["score"])
    return f"f{text[1:]}" if row["n"] < FEWEST_ANSWERS and row["score"] is not None else text


LENGTH_CURVE = Report(
    name="length_curve",
    title="Score by length (percent; each column covers lengths up to its heading)",
    sql=_ROWS,
    order="benchmark, task, length_unit DESC, RANK, length_up_to",
    columns=(*TASK, Column("length_unit", "unit", rank=2), *WHO, COVERAGE),
    pivot=("length_up_to", Column("score", "score", "percent", interval=True)),
    empty="No answer has been scored yet.",
    reads="numbers",
    make_sheets=lambda table, _, in_text: _sheets(table, in_text),
    draw=_draw_figures,
    page=PagePlace("Length", 10, title="Score by length, task by task"),
    default=4,
    next_step=6,
)
