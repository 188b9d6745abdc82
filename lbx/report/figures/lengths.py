"""Figures of scores by length: curves, and heat maps of needles by length and depth."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from lbx.report.charts import Series, curve, extent, heat
from lbx.report.digits import short_length
from lbx.report.figures.base import Figure, FigureSource, group_rows, point_of_row, run_series
from lbx.report.labels import Row

MOST_LINES = 8
"""Maximum number of runs in a readable chart of lines."""
_MOST_CHARTS = 60


@dataclass(frozen=True, slots=True)
class _Curves:
    """Lines of a chart over lengths.

    Attributes:
        name: Title of the chart among its neighbours, which have the same section.
    """

    name: str
    title: str
    benchmark: str
    unit: str
    lengths: Sequence[int]
    lines: Sequence[Series]


def length_curves(source: FigureSource) -> Iterator[Figure]:
    """Draw a chart for each task, with the best runs of the leaderboard if there are many."""
    rows = source.rows("length_curve")
    leaders, leading_note = _select_leaders(source, rows)
    charts = [
        _Curves(f"{benchmark}/{task}, {unit}", f"{benchmark}/{task}: score by length, percent", benchmark, unit, *lines)
        for (benchmark, task, unit), group in group_rows(rows, "benchmark", "task", "length_unit")
        if (lines := _lines(source, group, leaders))
    ]
    omitted = f"{len(charts) - _MOST_CHARTS} more tasks are in the tables." if len(charts) > _MOST_CHARTS else ""
    yield from _draw(charts[:_MOST_CHARTS], f"{leading_note} {omitted}".strip())


def effective_context(source: FigureSource) -> Iterator[Figure]:
    """Draw a chart for each benchmark, of the mean over the tasks that have all lengths."""
    rows = [row | {"run_id": row["run_id"] or row["model"]} for row in source.rows("effective_context")]
    leaders, leading_note = _select_leaders(source, rows)
    charts = []
    for benchmark, unit in sorted({(row["benchmark"], row["length_unit"]) for row in rows}):
        group = [row for row in rows if (row["benchmark"], row["length_unit"]) == (benchmark, unit)]
        if lines := _lines(source, group, leaders):
            title = f"{benchmark}: tasks that have every length, percent"
            about = f"{unit}; each run on its own tasks, named below"
            charts.append(_Curves(f"{benchmark}, {unit}", title, benchmark, about, *lines))
    yield from _draw(charts, leading_note)


def _draw(charts: Sequence[_Curves], caption: str) -> Iterator[Figure]:
    """Draw charts with equal axes."""
    ends = extent(line for chart in charts for line in chart.lines)
    for chart in charts:
        about = f"Up to {chart.lengths[0]:,} to {chart.lengths[-1]:,} {chart.unit}."
        svg = curve(chart.title, about, list(map(short_length, chart.lengths)), chart.lines, ends=ends)
        yield Figure(chart.name, svg, caption, chart.benchmark, is_small=True)


def _lines(
    source: FigureSource, rows: Sequence[Row], leaders: Collection[tuple[str, str]]
) -> tuple[list[int], list[Series]] | None:
    """Return the lengths and the lines of the runs in ``leaders``; None for fewer than two lengths."""
    lengths = sorted({row["length_up_to"] for row in rows if row["length_up_to"] is not None})
    lines = [
        _line(source, run, lengths, group)
        for run, group in group_rows(rows, "run_id")
        if (group[0]["benchmark"], run) in leaders
    ]
    return (lengths, sorted(lines, key=lambda line: line.mark)) if len(lengths) > 1 and lines else None


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


def needles(source: FigureSource) -> Iterator[Figure]:
    """Draw a heat map for each run and unit of length: of the mean of all tasks, or of the only task."""
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
    """Draw a run's scores by length and depth, on a scale from 0 to 100."""
    lengths, depths = (sorted({row[name] for row in rows}) for name in ("length", "depth"))
    cells = {(depths.index(row["depth"]), lengths.index(row["length"])): point_of_row(row) for row in rows}
    columns, names = list(map(short_length, lengths)), [f"{100 * depth:.3g}" for depth in depths]
    return heat(title, about, rows=names, columns=columns, cells=cells, ends=(0, 100), corner="depth %")
