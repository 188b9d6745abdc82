"""Figures of scores by length."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from lbx.report.charts import Series, curve
from lbx.report.figures.base import Figure, FigureSource, group_rows, point_of_row, run_series
from lbx.report.labels import Row

MOST_LINES = 8
"""Maximum number of runs in a readable chart of lines."""
_MOST_CHARTS = 60


def length_curves(source: FigureSource) -> Iterator[Figure]:
    """Draw a chart for each task, with the best runs of the leaderboard if there are many."""
    rows = source.rows("length_curve")
    leaders, leading_note = _select_leaders(source, rows)
    figures = []
    for (benchmark, task, unit), group in group_rows(rows, "benchmark", "task", "length_unit"):
        title = f"{benchmark}/{task}: score by length, percent"
        if chart := _length_chart(source, group, leaders, title, unit):
            figures.append((f"{benchmark}/{task}, {unit}", chart, benchmark))
    omitted = f"{len(figures) - _MOST_CHARTS} more tasks are in the tables." if len(figures) > _MOST_CHARTS else ""
    caption = f"{leading_note} {omitted}".strip()
    for title, chart, benchmark in figures[:_MOST_CHARTS]:
        yield Figure(title, chart, caption, benchmark, is_small=True)


def effective_context(source: FigureSource) -> Iterator[Figure]:
    """Draw a chart for each benchmark, of the mean over the tasks that have all lengths."""
    rows = [row | {"run_id": row["run_id"] or row["model"]} for row in source.rows("effective_context")]
    leaders, leading_note = _select_leaders(source, rows)
    for benchmark, unit in sorted({(row["benchmark"], row["length_unit"]) for row in rows}):
        group = [row for row in rows if (row["benchmark"], row["length_unit"]) == (benchmark, unit)]
        title = f"{benchmark}: tasks that have every length, percent"
        if chart := _length_chart(source, group, leaders, title, f"{unit}; each run on its own tasks, named below"):
            yield Figure(f"{benchmark}, {unit}", chart, leading_note, benchmark, is_small=True)


def _length_chart(
    source: FigureSource, rows: Sequence[Row], leaders: Collection[tuple[str, str]], title: str, unit: str
) -> str:
    """Draw the lines of the runs in ``leaders``; "" for fewer than two lengths."""
    lengths = sorted({row["length_up_to"] for row in rows if row["length_up_to"] is not None})
    lines = [
        _line(source, run, lengths, group)
        for run, group in group_rows(rows, "run_id")
        if (group[0]["benchmark"], run) in leaders
    ]
    if len(lengths) < 2 or not lines:
        return ""
    return curve(title, f"Up to {lengths[0]:,} to {lengths[-1]:,} {unit}.", list(map(short_length, lengths)), lines)


def _line(source: FigureSource, run: str, lengths: Sequence[int], rows: Sequence[Row]) -> Series:
    points = {row["length_up_to"]: point_of_row(row) for row in rows}
    return run_series(source, run, [points.get(length) for length in lengths])


def _select_leaders(source: FigureSource, rows: Sequence[Row]) -> tuple[set[tuple[str, str]], str]:
    """Return the first (benchmark, run) pairs of each leaderboard, for line charts, and a note about omitted runs."""
    ranks = {(row["benchmark"], row["run_id"]): at for at, row in enumerate(source.rows("leaderboard"))}
    runs: dict[str, list[tuple[str, str]]] = {}
    for pair in dict.fromkeys((row["benchmark"], row["run_id"]) for row in rows):
        runs.setdefault(pair[0], []).append(pair)
    leaders = {
        pair
        for pairs in runs.values()
        for pair in sorted(pairs, key=lambda pair: ranks.get(pair, len(ranks)))[:MOST_LINES]
    }
    most = max(map(len, runs.values()), default=0)
    note = f"The charts show the best {MOST_LINES} of {most} runs; the tables have all." if most > MOST_LINES else ""
    return leaders, note


def short_length(length: int) -> str:
    """Format a length as a tick: 512, 4k, 1M."""
    for size, letter in ((1 << 20, "M"), (1 << 10, "k")):
        if length >= size and length % size == 0:
            return f"{length // size}{letter}"
    return f"{length:,}"
