"""Figures of reports, for the page, files and notebooks: ``FIGURES`` has the functions that draw them.

A figure is made from a report's rows (``FigureSource``): scores (leaderboard, tasks, comparison with a baseline, cost),
scores by length (curves, and heat maps of needles by length and depth), opinions of judges and raters, and the charts
of the benchmarks' authors (``benchmarks.base.layout.Chart``), drawn from the rows of their boards. Files are one SVG or
PNG, on light paper.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from itertools import groupby
from typing import Any, Protocol

from lbx.base.errors import LbxError, UsageError
from lbx.benchmarks.base.layout import Board, Chart, DotChart, HeatMap, LineChart, ModelDotChart, RadarChart
from lbx.report import svg
from lbx.report.boards import BOARDS
from lbx.report.charts import Point, ScatterPoint, Series, curve, dots, extent, heat, radar, scatter
from lbx.report.digits import short_length
from lbx.report.labels import Row


@dataclass(frozen=True, slots=True)
class Figure:
    """Chart of a report.

    Attributes:
        svg: The chart, without its title.
        caption: Sentence about the chart; equal captions of neighbouring figures are shown once.
        benchmark: Benchmark of the chart's numbers; "" for charts of several.
        is_small: Whether the chart belongs in a grid with its neighbours.
        mark: Run that all of the chart belongs to.
    """

    title: str
    svg: str
    caption: str = ""
    benchmark: str = ""
    is_small: bool = False
    mark: int | None = None


class FigureSource(Protocol):
    """Rows of reports, and the runs' names and marks."""

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a report; [] if it is empty. Raises UsageError if the report refuses the query."""

    def label(self, run_id: object) -> str:
        """Return a run's name for readers."""

    def mark(self, run_id: object) -> int | None:
        """Return the number that determines a run's colour and shape; None if the run is unknown."""

    def mark_of(self, name: str) -> int:
        """Return the mark of a run or a published model."""


def point_of_row(row: Row, scale: float = 100.0, value: str = "score", of: str = "") -> Point:
    """Return a row's value with its interval; ``of`` is the prefix of the interval's columns."""
    ends = (row.get(name) for name in (value, f"{of}low", f"{of}high"))
    number, low, high = (None if end is None else scale * end for end in ends)
    return Point(number, low, high, f"{row['n']:,} answers" if row.get("n") else "")


def group_rows(rows: Iterable[Row], *names: str) -> Iterable[tuple[Any, list[Row]]]:
    """Group neighbouring rows with equal values in the named columns, as (value or values, rows)."""
    for key, group in groupby(rows, key=lambda row: tuple(row[name] for name in names)):
        yield (key[0] if len(names) == 1 else key), list(group)


def run_series(source: FigureSource, run_id: str, points: Sequence[Point | None]) -> Series:
    """Return a run's points with its name and mark."""
    return Series(source.label(run_id), source.mark_of(run_id), points)


CHART_STYLE = files("lbx.report").joinpath("charts.css").read_text("utf-8")
"""Style sheet of charts, with the palettes of pages."""

_WIDTH, _GAP, _TITLE = 1100.0, 24.0, 24.0  # px
_PIXELS_PER_PX = 2.0
_FAMILIES = "system-ui, 'Noto Sans', 'DejaVu Sans', 'Liberation Sans', Arial, Helvetica, sans-serif"
"""Font families that a renderer without a default font tries in order."""
_PROBE = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><text y="9" font-family="{}">'
_SIZE = re.compile(r'width="([\d.]+)" height="([\d.]+)"')


def svg_file(title: str, figures: Sequence[Figure]) -> str:
    """Arrange figures with their titles in rows, and their captions below, as a self-contained SVG file."""
    places, height = _arrange(figures)
    parts = [_heading(4, 20, title, _WIDTH)]
    for figure, x, y in places:
        parts.append(_heading(x + 4, y + 14, figure.title, _size(figure)[0]))
        parts.append(figure.svg.replace("<svg ", f'<svg x="{svg.px(x)}" y="{svg.px(y + _TITLE)}" ', 1))
    captions = list(dict.fromkeys(figure.caption for figure in figures if figure.caption))
    for caption in captions:
        parts.append(svg.text(4, height, svg.shorten(caption, _WIDTH), "start"))
        height += svg.LINE + 3
    size = f'width="{svg.px(_WIDTH)}" height="{svg.px(height)}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {svg.px(_WIDTH)} {svg.px(height)}">'
        f"<title>{svg.escape_text(title)}</title><style>{light_style()}</style>"
        f'<rect {size} fill="{_palette()["--paper"]}"/>{"".join(parts)}</svg>\n'
    )


def _arrange(figures: Iterable[Figure]) -> tuple[list[tuple[Figure, float, float]], float]:
    """Return (figure, x, y) from left to right in rows, and the height of all rows."""
    places, x, y, tall = [], 0.0, 2 * _TITLE, 0.0
    for figure in figures:
        width, height = _size(figure)
        if x and x + width > _WIDTH:
            x, y, tall = 0.0, y + tall, 0.0
        places.append((figure, x, y))
        x, tall = x + width + _GAP, max(tall, height + _TITLE + _GAP)
    return places, y + tall + svg.LINE


def _size(figure: Figure) -> tuple[float, float]:
    match = _SIZE.search(figure.svg)
    if match is None:
        raise ValueError("A chart has no size.")
    return float(match[1]), float(match[2])


def _heading(x: float, y: float, words: str, room: float) -> str:
    name = svg.escape_text(svg.shorten(words, room + _GAP - 8, size=11.5))
    return f'<text class="title" x="{svg.px(x)}" y="{svg.px(y)}">{name}</text>'


def light_style() -> str:
    """Return the rules of charts with the light palette's colours in place of variables."""
    palette = _palette()
    rules = (line for line in CHART_STYLE.splitlines() if line.startswith(("svg", ".c")))
    style = re.sub(r"var\((--\w+)\)", lambda match: palette[match[1]], "\n".join(rules))
    return style.replace("system-ui, sans-serif", _FAMILIES)


def _palette() -> dict[str, str]:
    return dict(re.findall(r"(--\w+): ([^;]+);", CHART_STYLE.partition("}")[0]))


def render_png(drawing: str) -> bytes:
    """Render an SVG file as PNG.

    Raises:
        LbxError: The renderer is not installed, or it finds no font.
    """
    try:
        import resvg_py
    except ImportError as exc:
        raise LbxError(
            "PNG files need the renderer resvg.",
            fix="Install lbx[png], or use --format svg, which needs nothing else.",
            command="pip install 'lbx[png]'",
        ) from exc
    letter, blank = (
        resvg_py.svg_to_bytes(svg_string=f"{_PROBE.format(_FAMILIES)}{text}</text></svg>") for text in ("x", "")
    )
    if bytes(letter) == bytes(blank):
        raise LbxError(
            "No font is installed here, so that a PNG file would have no text.",
            fix="Install a font, such as the package fonts-dejavu-core of Debian, or use --format svg.",
        )
    return bytes(resvg_py.svg_to_bytes(svg_string=drawing, zoom=_PIXELS_PER_PX))


def check_figures(names: Sequence[str], figures: Sequence[Figure]) -> None:
    """Raise UsageError if reports have no figures."""
    if figures:
        return
    if not set(names) & FIGURES.keys():
        boards = {name: "board" if name.startswith("board_") else name for name in FIGURES}
        raise UsageError(
            f"The report {names[0]} has no charts.",
            fix=f"Name a report with charts: {', '.join(dict.fromkeys(boards.values()))}.",
        )
    raise UsageError(
        f"The report {names[0]} has too few rows for a chart.", fix="Use another format, or include more runs."
    )


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
    yield from _draw_curves(charts[:_MOST_CHARTS], f"{leading_note} {omitted}".strip())


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
    yield from _draw_curves(charts, leading_note)


def _draw_curves(charts: Sequence[_Curves], caption: str) -> Iterator[Figure]:
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


def judge_results(source: FigureSource) -> Iterator[Figure]:
    """Draw win rates against each opponent, and mean ratings, judge by judge."""
    rows = [row for row in source.rows("judge_results") if row["task"] is None and row["questions"] == "all"]
    rows.sort(key=lambda row: (row["judge_id"], row["run_id"]))
    yield from _matrices(source, [(row, f"{row['label_judge']}, {row['fitness']}") for row in rows])
    series_of: dict[str, list[tuple[str, Series]]] = {}
    for row in rows:
        pair = row["kind"] == "pair"
        what = f"win rate against {source.label(row['against_run_id'])}, percent" if pair else "mean rating"
        point = point_of_row(row, value="win_rate") if pair else point_of_row(row, 1.0, "rating", "rating_")
        line = f"{row['label_judge']}, {row['fitness']}"
        title = f"{row['benchmark']}: {what}"
        series_of.setdefault(title, []).append((line, run_series(source, row["run_id"], [point])))
    yield from _draw_opinions(series_of, "A line for each judged run, below its judge.")


def rating_results(source: FigureSource) -> Iterator[Figure]:
    """Draw win rates and mean ratings, set by set."""
    rows = [row for row in source.rows("rating_results") if row["task"] is None]
    yield from _matrices(source, [(row, row["set_id"]) for row in rows])
    series_of: dict[str, list[tuple[str, Series]]] = {}
    for row in rows:
        pair = row["kind"] == "pair"
        point = point_of_row(row, value="win_rate") if pair else point_of_row(row, 1.0, "mean", "mean_")
        title = f"{row['benchmark']}, {row['set_id']}: {'win rate, percent' if pair else 'mean rating'}"
        line = source.label(row["run_id"]) + (f" against {source.label(row['against_run_id'])}" if pair else "")
        series_of.setdefault(title, []).append((line, run_series(source, row["run_id"], [point])))
    yield from _draw_opinions(series_of, "A line for each rated run.")


def _matrices(source: FigureSource, rows: Sequence[tuple[Row, str]]) -> Iterator[Figure]:
    """Draw a matrix of win rates for each judge or set with several opponents.

    A pair that was judged in one direction has its reverse as a derived value: draws count half, so that both add up to
    100.
    """
    pairs_of: dict[tuple[str, str], dict[tuple[str, str], Point]] = {}
    for row, judge in rows:
        if row["kind"] == "pair" and row["win_rate"] is not None:
            pairs = pairs_of.setdefault((row["benchmark"], judge), {})
            pairs[row["run_id"], row["against_run_id"]] = point_of_row(row, value="win_rate")
    for (benchmark, judge), pairs in pairs_of.items():
        if len({against for _, against in pairs}) < 2:
            continue
        runs = sorted({run for pair in pairs for run in pair}, key=source.mark_of)
        names = [source.label(run) for run in runs]
        derived = {(b, a): _reverse(point) for (a, b), point in pairs.items() if (b, a) not in pairs}
        cells = {(runs.index(a), runs.index(b)): point for (a, b), point in (pairs | derived).items()}
        title = f"{benchmark}, {judge}: win rate, percent"
        about = "Each row's run against each column's, the darker the higher; 50 is a tie."
        marks = [source.mark_of(run) for run in runs]
        ends = (0.0, 100.0)
        svg = heat(title, about, rows=names, columns=names, cells=cells, ends=ends, marks=marks, column_marks=marks)
        note = "Values in parentheses are 100 minus the reverse pair, which alone was judged." if derived else ""
        yield Figure(title, svg, f"Rows against columns. {note}".strip(), benchmark)


def _reverse(point: Point) -> Point:
    low, high = (None if end is None else 100 - end for end in (point.high, point.low))
    return Point(None if point.value is None else 100 - point.value, low, high, point.note, is_complement=True)


def _draw_opinions(series_of: Mapping[str, list[tuple[str, Series]]], about: str) -> Iterator[Figure]:
    for title, series in series_of.items():
        lines = [line for line in series if (point := line[1].points[0]) and point.has_value]
        if len(lines) > 1:
            yield Figure(title, dots(title, about, lines))


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


NameAndMark = Callable[[Row], tuple[str, int]]
"""Function that returns a model's name and mark in a chart."""
Picture = tuple[str, str]
"""Title and SVG."""

MOST = 8
"""Maximum number of models in a line chart, runs first. Heat maps and dots have up to ``MOST_ROWS``."""
MOST_ROWS = 40


def draw_charts(board: Board, rows: Sequence[Row], name_and_mark: NameAndMark) -> list[Picture]:
    """Draw a board's charts from its rows, best first; [] if its authors have none or there are too few rows."""
    return [picture for chart in board.charts for picture in _DRAW_FUNCTIONS[type(chart)](chart, rows, name_and_mark)]


def _parts(chart: Chart, rows: Sequence[Row]) -> dict[str, list[Row]]:
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(row[chart.by] if chart.by else "", []).append(row)
    return {value: some for value, some in parts.items() if not chart.only or value == chart.only}


def _series(chart: Chart, rows: Iterable[Row], who: NameAndMark, columns: Iterable[str]) -> list[Series]:
    names = list(columns)
    series = []
    for row in rows:
        points = [None if row[name] is None else _point(row, name, chart.scale) for name in names]
        if any(points):
            series.append(Series(*who(row), points))
    return series


def _point(row: Row, name: str, scale: float) -> Point:
    low, high = (None if end is None else scale * end for end in (row.get(f"{name}_low"), row.get(f"{name}_high")))
    return Point(scale * row[name], low, high, row["note"] or "")


def _select_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the first ``MOST`` rows, runs before published models, in the order of the board."""
    published = [row["run_id"] is None and row.get("reasoning_run_id") is None for row in rows]
    places = sorted(range(len(rows)), key=published.__getitem__)[:MOST]
    return [rows[place] for place in sorted(places)]


def _draw_columns(chart: Chart, rows: Sequence[Row], who: NameAndMark) -> list[Picture]:
    """Draw charts with the columns as axes or ticks, and a shape or line per model."""
    labels = list(chart.columns.values())
    shapes_of = {
        value: shapes
        for value, some in _parts(chart, rows).items()
        if (shapes := _series(chart, _select_rows(some), who, chart.columns))
    }
    ends = extent(shape for shapes in shapes_of.values() for shape in shapes)
    pictures = []
    for value, shapes in shapes_of.items():
        title, models = chart.title.format(value), "model" if len(shapes) == 1 else "models"
        about = f"{chart.about}, of {len(shapes)} {models}; the numbers are in the table."
        is_radar = isinstance(chart, RadarChart)
        svg = radar(title, about, labels, shapes) if is_radar else curve(title, about, labels, shapes, ends=ends)
        pictures.append((title, svg))
    return pictures


def _draw_dots(chart: Chart, rows: Sequence[Row], who: NameAndMark) -> list[Picture]:
    top_rows = rows[:MOST]
    lines = [(group, series) for group in chart.columns for series in _series(chart, top_rows, who, [group])]
    about = f"{len(top_rows)} models {chart.about}; the numbers are in the table."
    return [(chart.title, dots(chart.title, about, lines))] if lines else []


def _draw_model_dots(chart: Chart, rows: Sequence[Row], who: NameAndMark) -> list[Picture]:
    lines = []
    for row in rows[:MOST_ROWS]:
        name, mark = who(row)
        for column, words in chart.columns.items():
            if row[column] is not None:
                label = f"{name}, {words}" if words else name
                lines.append((label, Series(label, mark, [Point(row[column], note=row["note"] or "")])))
    about = f"{len(rows)} models, {chart.about}."
    return [(chart.title, dots(chart.title, about, lines))] if lines else []


def _draw_heat(chart: Chart, rows: Sequence[Row], who: NameAndMark) -> list[Picture]:
    if not chart.by:
        some = rows[:MOST_ROWS]
        models = [who(row) for row in some]
        return _draw_map(chart, chart.title, "models", models, list(enumerate(some)))
    names = list(dict.fromkeys(row[chart.by] for row in rows if row[chart.by] != chart.only))
    heats = []
    for group in dict.fromkeys(who(row) for row in rows[:MOST]):
        indexed_rows = [
            (names.index(row[chart.by]), row) for row in rows if row[chart.by] in names and who(row) == group
        ]
        labels = [(name, None) for name in names]
        heats += _draw_map(chart, chart.title.format(group[0]), chart.about, labels, indexed_rows)
    return heats


def _draw_map(
    chart: Chart, title: str, what: str, names: Sequence[tuple[str, int | None]], rows: Sequence[tuple[int, Row]]
) -> list[Picture]:
    cells = {
        (at, column): Point(chart.scale * row[name], note=row["note"] or "")
        for at, row in rows
        for column, name in enumerate(chart.columns)
        if row[name] is not None
    }
    about = f"{len(names)} {what} by {len(chart.columns)} lengths, the darker the higher; the numbers are in the cells."
    if not cells:
        return []
    columns, marks, ends = list(chart.columns.values()), [mark for _, mark in names], (0, 100) if chart.by else None
    labels = [name for name, _ in names]
    return [(title, heat(title, about, rows=labels, columns=columns, cells=cells, ends=ends, marks=marks))]


_DRAW_FUNCTIONS: Mapping[type[Chart], Callable[[Chart, Sequence[Row], NameAndMark], list[Picture]]] = {
    RadarChart: _draw_columns,
    LineChart: _draw_columns,
    DotChart: _draw_dots,
    ModelDotChart: _draw_model_dots,
    HeatMap: _draw_heat,
}


def board_mark(source: FigureSource, row: Row) -> int:
    """Return the mark of a board's row: a run's, or a published model's."""
    mark = source.mark(row["run_id"] or row.get("reasoning_run_id"))
    return source.mark_of(row["model"]) if mark is None else mark


def board(source: FigureSource, name: str) -> list[Figure]:
    """Draw the charts of a board."""
    data = BOARDS[name]
    pictures = draw_charts(data.board, source.rows(name), lambda row: (str(row["label"]), board_mark(source, row)))
    return [Figure(*picture, benchmark=data.benchmark, is_small=data.board.small_charts) for picture in pictures]


FIGURES: Mapping[str, Callable[[FigureSource], Iterable[Figure]]] = {
    "leaderboard": leaderboard,
    "task_scores": tasks,
    "comparison": comparison,
    "length_curve": length_curves,
    "effective_context": effective_context,
    "needles": needles,
    "cost": cost,
    "judge_results": judge_results,
    "rating_results": rating_results,
    **{name: partial(board, name=name) for name, entry in BOARDS.items() if entry.board.charts},
}
"""Functions that draw the figures of reports."""


def figures(source: FigureSource, name: str) -> list[Figure]:
    """Draw the figures of a report; [] if it has none, or too few rows.

    Raises:
        UsageError: The report refuses the query.
    """
    return list(FIGURES[name](source)) if name in FIGURES else []
