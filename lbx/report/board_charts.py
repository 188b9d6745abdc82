"""Charts of the benchmarks' authors (``benchmarks.base.layout.Chart``), drawn from the rows of their boards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from lbx.benchmarks.base.layout import Board, Chart, DotChart, HeatMap, LineChart, ModelDotChart, RadarChart
from lbx.report.charts import Point, Series, curve, dots, extent, heat, radar
from lbx.report.labels import Row

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
