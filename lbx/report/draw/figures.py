"""Figures of reports, which are charts with titles and captions, for the page, files and notebooks.

A report's ``draw`` makes figures from the rows of reports (``FigureSource``), with the functions of
``lbx.report.draw.charts``. Files are one SVG or PNG, on light paper.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby
from typing import Any, Protocol

from lbx.base.errors import LbxError, UsageError
from lbx.report.draw import svg
from lbx.report.draw.charts import Point, Series, curve, extent
from lbx.report.format.digits import short_length
from lbx.report.format.labels import Row
from lbx.report.reports import REPORTS, listed_name


@dataclass(frozen=True, slots=True)
class Figure:
    """Chart of a report with title and caption.

    Attributes:
        svg: The chart without the title.
        caption: Sentence about the chart. Equal captions of neighbouring figures are shown once.
        benchmark: Benchmark of the chart's numbers, or "" for a chart over several benchmarks.
        is_small: Whether the chart is placed in a grid with neighbouring small charts.
        mark: Mark of the run if the whole chart is about one run, or None.
        is_standalone: Whether the chart contains its title, and is a whole file.
    """

    title: str
    svg: str
    caption: str = ""
    benchmark: str = ""
    is_small: bool = False
    mark: int | None = None
    is_standalone: bool = False


class FigureSource(Protocol):
    """Source of the rows of reports, and of the names and marks of runs, for ``Report.draw``."""

    @property
    def file(self) -> str:
        """Name of the results file."""

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a report, or [] if it is empty. Raises UsageError if the report refuses the query."""

    def label(self, run_id: object) -> str:
        """Return the name of a run for readers."""

    def mark(self, run_id: object) -> int | None:
        """Return the number that determines the colour and shape of a run, or None if the run is unknown."""

    def mark_of(self, name: str) -> int:
        """Return the mark of a run or a published model."""


def point_of_row(row: Row, scale: float = 100.0, value: str = "score", of: str = "") -> Point:
    """Make a point from the value and interval in a row. ``of`` is the prefix of the interval's columns."""
    ends = (row.get(name) for name in (value, f"{of}low", f"{of}high"))
    number, low, high = (None if end is None else scale * end for end in ends)
    count = row.get("n")
    return Point(number, low, high, f"{count:,} answers" if count else "", count, is_percent=scale != 1)


def group_rows(rows: Iterable[Row], *names: str) -> Iterable[tuple[Any, list[Row]]]:
    """Group neighbouring rows with equal values in the named columns, as (value or tuple of values, rows)."""
    for key, group in groupby(rows, key=lambda row: tuple(row[name] for name in names)):
        yield (key[0] if len(names) == 1 else key), list(group)


def run_series(source: FigureSource, run_id: str, points: Sequence[Point | None]) -> Series:
    """Make a series from the points of a run."""
    return Series(source.label(run_id), source.mark_of(run_id), points)


CHART_STYLE = files("lbx.report.draw").joinpath("charts.css").read_text("utf-8")
"""Style sheet of charts, which also contains the palettes of pages."""

_NARROWEST, _WIDEST, _GAP, _TITLE = 420.0, 1100.0, 24.0, 24.0  # px
_PIXELS_PER_PX = 2.0
_FAMILIES = "system-ui, 'Noto Sans', 'DejaVu Sans', 'Liberation Sans', Arial, Helvetica, sans-serif"
"""Font families that a renderer without a default font tries in order."""
_LATIN, _TRIED_OF, _MOST_TRIED, _IN_NO_FONT = 0x24F, 0x400, 30, "\U0010fffd"
"""Last letter of Latin scripts; letters in a row of which one is tried; most of them; a letter that no font has."""
_PROBE = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><text y="9" font-family="{}">'
_SIZE = re.compile(r'width="([\d.]+)" height="([\d.]+)"')


def svg_file(title: str, figures: Sequence[Figure]) -> str:
    """Arrange figures and titles in rows, and captions below, as a self-contained SVG file of the charts' width."""
    if figures[0].is_standalone:
        return _file(title, *_size(figures[0]), figures[0].svg)
    places, height = _arrange(figures)
    width = max([_NARROWEST, *(x + _size(figure)[0] for figure, x, _ in places)])
    parts = [_heading(4, 20, title, width)]
    for figure, x, y in places:
        parts.append(_heading(x + 4, y + 14, figure.title, _size(figure)[0]))
        parts.append(figure.svg.replace("<svg ", f'<svg x="{svg.px(x)}" y="{svg.px(y + _TITLE)}" ', 1))
    captions = list(dict.fromkeys(figure.caption for figure in figures if figure.caption))
    for caption in captions:
        for line in _wrap(caption, width):
            parts.append(svg.text(4, height, line, "start"))
            height += svg.LINE + 3
    return _file(title, width, height, "".join(parts))


def _file(title: str, width: float, height: float, body: str) -> str:
    size = f'width="{svg.px(width)}" height="{svg.px(height)}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {svg.px(width)} {svg.px(height)}">'
        f"<title>{svg.escape_text(title)}</title><style>{light_style()}</style>"
        f'<rect {size} fill="{_palette()["--paper"]}"/>{body}</svg>\n'
    )


def _wrap(text: str, width: float) -> list[str]:
    """Break a text between words into lines of a width in pixels."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if svg.text_width(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(svg.shorten(word, width))
    return [line for line in lines if line]


def _arrange(figures: Iterable[Figure]) -> tuple[list[tuple[Figure, float, float]], float]:
    """Arrange figures from left to right in rows. Returns (figure, x, y) of each, and the height of all rows."""
    places, x, y, tall = [], 0.0, 2 * _TITLE, 0.0
    for figure in figures:
        width, height = _size(figure)
        if x and x + width > _WIDEST:
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
    """Style sheet of charts with the colours of the light palette in place of variables."""
    palette = _palette()
    rules = (line for line in CHART_STYLE.splitlines() if line.startswith(("svg", ".c")))
    style = re.sub(r"var\((--\w+)\)", lambda match: palette[match[1]], "\n".join(rules))
    return style.replace("system-ui, sans-serif", _FAMILIES)


def _palette() -> dict[str, str]:
    return dict(re.findall(r"(--\w+): ([^;]+);", CHART_STYLE.partition("}")[0]))


def render_png(drawing: str) -> bytes:
    """Render an SVG file as PNG.

    Raises:
        LbxError: The renderer is not installed, or finds no font.
    """
    try:
        import resvg_py
    except ImportError as exc:
        raise LbxError(
            "PNG files need the renderer resvg.",
            fix="Install lbx[png], or use --format svg, which needs nothing else.",
            command="pip install 'lbx[png]'",
        ) from exc
    if _draw_text("x") == _draw_text(""):
        raise LbxError(
            "No font is installed here, so that a PNG file would have no text.",
            fix="Install a font, such as the package fonts-dejavu-core of Debian, or use --format svg.",
        )
    return bytes(resvg_py.svg_to_bytes(svg_string=drawing, zoom=_PIXELS_PER_PX))


def _draw_text(text: str) -> bytes:
    import resvg_py

    return bytes(resvg_py.svg_to_bytes(svg_string=f"{_PROBE.format(_FAMILIES)}{svg.escape_text(text)}</text></svg>"))


def missing_letters(drawing: str) -> str:
    """Letters of a drawing that no installed font contains. PNG files show boxes there. A few per script are tried."""
    texts = re.sub(r"<style.*?</style>|<[^>]*>", "", drawing, flags=re.DOTALL)
    letters = {letter for letter in texts if ord(letter) > _LATIN}
    tried = sorted({ord(letter) // _TRIED_OF: letter for letter in sorted(letters)}.values())[:_MOST_TRIED]
    box = _draw_text(_IN_NO_FONT) if tried else b""
    return "".join(letter for letter in tried if _draw_text(letter) == box)


def require_figures(names: Sequence[str], figures: Sequence[Figure]) -> None:
    """Raise UsageError if ``figures``, drawn from the reports ``names``, is empty. The error states the cause."""
    if figures:
        return
    if not any(REPORTS[name].draw for name in names):
        drawn = (listed_name(name) for name, report in REPORTS.items() if report.draw)
        raise UsageError(
            f"The report {names[0]} has no charts.",
            fix=f"Name a report with charts: {', '.join(dict.fromkeys(drawn))}.",
        )
    raise UsageError(
        f"The report {names[0]} has too few rows for a chart.", fix="Use another format, or include more runs."
    )


MOST_LINES = 8
"""Maximum number of runs in a line chart."""


_MOST_WIDE_CHARTS = 2


@dataclass(frozen=True, slots=True)
class LengthChart:
    """Data of a line chart over lengths.

    Attributes:
        name: title that distinguishes the chart from others of the same section.
    """

    name: str
    title: str
    benchmark: str
    unit: str
    lengths: Sequence[int]
    lines: Sequence[Series]


def draw_length_charts(charts: Sequence[LengthChart], caption: str) -> Iterator[Figure]:
    """Draw line charts over lengths with equal axes, as small figures: three in a row if there are many."""
    ends = extent(line for chart in charts for line in chart.lines)
    width = 340 if len(charts) > _MOST_WIDE_CHARTS else 520
    for chart in charts:
        about = f"Up to {chart.lengths[0]:,} to {chart.lengths[-1]:,} {chart.unit}."
        svg = curve(chart.title, about, list(map(short_length, chart.lengths)), chart.lines, width=width, ends=ends)
        yield Figure(chart.name, svg, caption, chart.benchmark, is_small=True)


def lines_by_length(
    source: FigureSource, rows: Sequence[Row], leaders: Collection[tuple[str, str]]
) -> tuple[list[int], list[Series]] | None:
    """Collect the lengths and the lines of the runs in ``leaders``, or return None for fewer than two lengths."""
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


def select_leaders(source: FigureSource, rows: Sequence[Row]) -> tuple[set[tuple[str, str]], str]:
    """Select the first (benchmark, run) pairs of each leaderboard for line charts, and write a note on the others."""
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


MOST_RUNS = 8
"""Maximum number of runs in a chart with a dot for each run and task. (A heat map can show more.)"""


def figures(source: FigureSource, name: str) -> list[Figure]:
    """Draw the figures of a report, or return [] for a report without figures or with too few rows.

    Raises:
        UsageError: The report refuses the query.
    """
    draw = REPORTS[name].draw
    return list(draw(source)) if draw else []
