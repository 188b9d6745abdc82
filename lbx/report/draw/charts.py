"""Functions that draw charts as SVG text: curves with bands, dots with intervals, heat maps, scatter plots and radars.

These are pure functions of data. Each chart is self-contained (role, title and description), takes colours from the
style sheet ``charts.css`` (``c0`` to ``c7``, ``axis``, ``grid``, ``label``), repeats every value in a tooltip, and
names each run at the end of a line, in a row, or in a legend. A run is a mark, a number that sets colour and shape in
every chart. The building blocks are in ``lbx.report.draw.svg``. Values that are not finite are omitted. Labels that
would overlap are moved, thinned out or left to the tooltip.

A script can rescale a chart when runs are hidden. All elements of a run are in a group with the class ``rN``. A
linear axis is a group ``ticks`` with the class ``x`` or ``y``, the pixels of both ends (``data-pixels``), the values
there (``data-values``) and ``data-zero`` if the axis always includes 0. All coordinates are pairs "x y" in ``d`` or
``transform``, so that a new scale maps them linearly. Marks of the class ``key`` belong to labels. Charts in one grid
share axes. A group ``rows`` contains a label and groups ``row`` of runs, which move up when rows above are hidden.
``data-tall`` is the height of a row, and the distance from the rows above.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType

from lbx.base.visible import one_line
from lbx.report.draw import svg
from lbx.report.format.digits import PERCENT_DECIMALS, interval_decimals

_KEY = 14.0  # room of a mark before its name, px
_LONGEST_NAME = 220.0


def short_names(names: Sequence[str], room: float) -> list[str]:
    """Cut names in the middle to the available width in pixels, such that different names stay different.

    Names that differ only far from both ends are cut up to shortly before the first difference.
    """
    counts = dict.fromkeys(names, 0)
    best: dict[str, str] = {}
    for head in (0.5, 0.65, 0.35, 0.8, 0.2):
        candidates = {name: svg.shorten(name, room, head=head) for name in counts}
        if len(set(candidates.values())) > len(set(best.values())):
            best = candidates
        if len(set(best.values())) == len(counts):
            break
    repeats = Counter(best.values())
    alike = [name for name in counts if repeats[best[name]] > 1]
    prefix = _common_prefix(alike)
    for name in alike:
        best[name] = svg.shorten(f"…{name[max(len(prefix) - 2, 0) :]}", room, head=1.0)
    return [best[name] for name in names]


def _common_prefix(names: Sequence[str]) -> str:
    first, last = (min(names), max(names)) if names else ("", "")
    size = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:size]


def spread(targets: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move ascending positions apart to the given gap, by the least squares, within bounds."""
    blocks: list[tuple[float, int]] = []
    for i, target in enumerate(targets):
        mean, count = target - gap * i, 1
        while blocks and blocks[-1][0] > mean:
            other, size = blocks.pop()
            mean, count = (mean * count + other * size) / (count + size), count + size
        blocks.append((mean, count))
    flat = [mean for mean, count in blocks for _ in range(count)]
    most = high - gap * (len(flat) - 1)
    return [max(min(value, most), low) + gap * i for i, value in enumerate(flat)]


def end_label(mark: int, end: tuple[float, float], at: tuple[float, float], name: str, full_name: str) -> str:
    """Draw the name and mark of a run at ``at``, and a thin line from the end of the run's line."""
    (x, y), (label_x, label_y) = end, at
    leader = f'<path class="leader" d="{svg.path([(x + 6, y), (label_x - 7, label_y)])}"/>'
    return leader + svg.legend_mark(mark, label_x, label_y) + svg.name(label_x + 9, label_y + 4, name, full_name)


def legend(entries: Iterable[tuple[str, int]], width: float, top: float = 0.0) -> tuple[str, float]:
    """Draw a legend: names and marks in lines of the given width. Returns (SVG text, height)."""
    of_mark = dict(sorted({mark: name for name, mark in entries}.items()))
    names = list(of_mark.values())
    x, y, parts = 4.0, top + 10, []
    for mark, name, full_name in zip(
        of_mark, short_names(names, min(_LONGEST_NAME, width - 2 * _KEY)), names, strict=True
    ):
        wide = _KEY + svg.text_width(name) + 12
        if x > 4 and x + wide > width:
            x, y = 4.0, y + svg.LINE + 3
        body = svg.legend_mark(mark, x + 6, y) + svg.name(x + _KEY, y + 4, name, full_name)
        parts.append(svg.group(mark, body, "key"))
        x += wide
    return "".join(parts), (y + 12 - top if parts else 0.0)


def visible_width(names: Iterable[str], most: float) -> float:
    """Width in pixels that the longest name needs, up to ``most``."""
    return min(max((svg.text_width(one_line(name[:200])) for name in names), default=0.0), most)


FEWEST_ANSWERS = 10
"""Number of answers below which a point is not joined to others by a line."""
_MARKS, _WHISKERS = ("mark", "mark open"), ("whisker", "whisker dash2")
MOST_BANDS = 2
"""Maximum number of lines in a chart with bands that are always visible."""
_WHISKER_GAP, _WHISKER_ROOM = 5.0, 0.6
"""Distance between intervals of neighbouring lines at a tick, px, and share of the tick's room for all of them."""
_ROW_GAP = 6.0
"""Distance between rows with different labels, px."""
_TIE = 15.0
"""Distance between bars of tied rows, px."""
_WIDEST = 60.0
"""Width of the widest column's name that is not turned, px."""


@dataclass(frozen=True, slots=True)
class Point:
    """Value in a chart, with an optional interval and a note for the tooltip.

    Attributes:
        n: Number of answers, or None if it is unknown.
        is_complement: Whether the value is 100 minus another value of the chart.
        is_percent: Whether the value is shown as a percentage, with one decimal.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""
    n: int | None = None
    is_complement: bool = False
    is_percent: bool = False

    @property
    def has_value(self) -> bool:
        return svg.is_finite(self.value)

    @property
    def has_interval(self) -> bool:
        return svg.is_finite(self.low) and svg.is_finite(self.high)

    @property
    def is_of_few(self) -> bool:
        return self.n is not None and self.n < FEWEST_ANSWERS

    @property
    def is_open(self) -> bool:
        """Whether the mark is hollow, because the value is uncertain or the uncertainty is unknown."""
        return self.is_of_few or not self.has_interval


@dataclass(frozen=True, slots=True)
class Series:
    """Points of a run or a published model, one per tick, or None where a value is missing."""

    name: str
    mark: int
    points: Sequence[Point | None]


@dataclass(frozen=True, slots=True)
class ScatterPoint:
    """Position of a run in a scatter plot. It is ``best`` if no other run is better in both directions."""

    name: str
    mark: int
    x: Point
    y: Point
    best: bool = False


def curve(
    title: str,
    about: str,
    ticks: Sequence[str],
    lines: Sequence[Series],
    *,
    width: int = 520,
    ends: Sequence[float] = (),
    is_log: bool = False,
) -> str:
    """Draw a chart of values over ordered ticks: lines through points, and bands over points with intervals.

    Points of fewer than ``FEWEST_ANSWERS`` answers interrupt lines and bands, and their intervals are dashed, side by
    side. Names are at the ends of lines, or in a legend if there are too many. With more than ``MOST_BANDS`` lines, a
    band appears while the pointer is on the line.

    Args:
        lines: series with one point per tick.
        ends: values that the axis includes besides those of the lines, such as ``extent`` of other charts.
        is_log: whether the axis of values is logarithmic. Ends of intervals that are not positive are at its end.
    """
    height, left, top, bottom = 210.0, 58 if is_log else 44, 12.0, 30
    has_names = len(lines) * svg.LINE <= height - top - bottom
    room = visible_width((line.name for line in lines), 0.36 * width) if has_names else 0.0
    right = room + 40 if has_names and lines else 14.0
    key, key_height = ("", 0.0) if has_names else legend(((line.name, line.mark) for line in lines), width)
    top, height = top + key_height, height + key_height
    values = [value for value in _values(p for line in lines for p in line.points) if value > 0 or not is_log]
    scale = svg.axis([*values, *ends], height - bottom, top, log=is_log)
    shifts = _shifts(lines, (width - left - right - 16) / len(ticks) if ticks else 0.0)
    inset = 8 + max(shifts, default=0.0)
    step = (width - left - right - 2 * inset) / max(len(ticks) - 1, 1)
    at = [left + inset + step * i for i in range(len(ticks))] if len(ticks) > 1 else [(left + width - right) / 2]
    parts = [key, scale.group("y", "".join(svg.horizontal(y, left, width - right, text) for y, text in scale.ticks))]
    parts += [svg.text(x, height - bottom + 17, t, "middle") for x, t in svg.thin_labels(at, ticks)]
    band = "band" if len(lines) <= MOST_BANDS else "band hover"
    at_of = [[x + shift for x in at] for shift in shifts]
    bodies = [_line(line, xs, scale, band) for line, xs in zip(lines, at_of, strict=True)]
    if has_names:
        known = [
            [(x, scale(p.value)) for x, p in zip(xs, line.points, strict=True) if p and p.has_value]
            for line, xs in zip(lines, at_of, strict=True)
        ]
        labels = _end_labels(
            lines, [points[-1] if points else None for points in known], width - right + 22, room, scale
        )
        bodies = [body + label for body, label in zip(bodies, labels, strict=True)]
    parts += [svg.group(line.mark, body) for line, body in zip(lines, bodies, strict=True)]
    return svg.chart(title, about, width, height, parts)


def _shifts(lines: Sequence[Series], room: float) -> list[float]:
    """Distances of lines from the ticks, so that intervals of few answers do not overlap. Bands need no distance.

    Args:
        room: Width for each tick.
    """
    has_whiskers = any(p.is_of_few and p.has_interval for line in lines for p in line.points if p)
    gap = min(_WHISKER_GAP, _WHISKER_ROOM * room / len(lines)) if has_whiskers else 0.0
    return [gap * (i - (len(lines) - 1) / 2) for i in range(len(lines))]


def _line(line: Series, at: Sequence[float], scale: svg.Axis, band: str) -> str:
    known_points = [(x, p) for x, p in zip(at, line.points, strict=True) if p and p.has_value]
    body = ""
    for (has_interval, is_of_few), group in groupby(known_points, key=lambda at: (at[1].has_interval, at[1].is_of_few)):
        ends = [(x, scale(p.low), scale(p.high)) for x, p in group if has_interval]
        low, high = [(x, y) for x, y, _ in ends], [(x, y) for x, _, y in ends]
        if len(ends) > 1 and not is_of_few:
            body += f'<path class="{band}" d="{svg.path([*low, *high[::-1]])}z"/>'
        else:
            kind = _WHISKERS[is_of_few]
            body += "".join(svg.whisker(*a, *b, kind) for a, b in zip(low, high, strict=True))
    for is_of_few, group in groupby(known_points, key=lambda at: at[1].is_of_few):
        body += "" if is_of_few else svg.line(line.mark, [(x, scale(p.value)) for x, p in group])
    return body + "".join(_spot(line, p, x, scale(p.value)) for x, p in known_points)


def _spot(series: Series, point: Point, x: float, y: float) -> str:
    return svg.spot(series.mark, x, y, _tip(series.name, point), _MARKS[point.is_open])


def _end_labels(
    lines: Sequence[Series], ends: Sequence[tuple[float, float] | None], x: float, room: float, scale: svg.Axis
) -> list[str]:
    """Draw a label for each line with points, as close to the end of the line as other labels allow."""
    known = [(end[1], at) for at, end in enumerate(ends) if end]
    ordered = sorted(known)
    positions = spread([y for y, _ in ordered], svg.LINE, scale.last + 2, scale.first)
    y_of = {at: y for (_, at), y in zip(ordered, positions, strict=True)}
    names = short_names([line.name for line in lines], room)
    return [
        end_label(line.mark, end, (x, y_of[at]), names[at], line.name) if end else ""
        for at, (line, end) in enumerate(zip(lines, ends, strict=True))
    ]


def dots(
    title: str,
    description: str,
    rows: Sequence[tuple[str, Series]],
    width: int = 720,
    *,
    zero: bool = False,
    ties: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Draw a dot chart: a row per series with points and intervals, and a legend unless labels contain the names.

    Args:
        rows: (label, series) pairs. Consecutive rows with the same label share the label.
        zero: whether to mark 0, for points that are differences.
        ties: letters by label. Rows that share a letter share a grey bar on the right.
    """
    known_rows = [(label, s) for label, s in rows if any(p and p.has_value for p in s.points)]
    groups = [(label, [s for _, s in group]) for label, group in groupby(known_rows, key=lambda row: row[0])]
    room = visible_width((label for label, _ in groups), 250)
    names = dict(zip((label for label, _ in groups), short_names([label for label, _ in groups], room), strict=True))
    key, top = legend(((s.name, s.mark) for label, s in known_rows if s.name not in label), width)
    letters = sorted({*"".join(ties.values())})
    left, top, right = room + 20, top + 8, 24 + _TIE * len(letters)
    height = top + svg.LINE * len(known_rows) + _ROW_GAP * len(groups) + 34
    ends = extent(s for _, s in known_rows)
    scale = svg.axis([*ends, 0.0] if zero else ends, left, width - right, most=7)
    grid = "".join(svg.vertical(x, top, height - 28, text, zero and text == "0") for x, text in scale.ticks)
    parts, y = [key, scale.group("x", grid, has_zero=zero)], top
    for label, group in groups:
        y += _ROW_GAP
        body = svg.text(left - 10, y + 10, names[label], "end", label)
        for series in group:
            points = [p for p in series.points if p and p.has_value]
            bars = [(width - right + 16 + _TIE * at, letter) for at, letter in enumerate(letters)]
            drawn = "".join(_tie(x, y, letter) for x, letter in bars if letter in ties.get(label, ""))
            drawn += "".join(_dot(series, p, scale, y + 6) for p in points)
            body += svg.group(series.mark, drawn, "row")
            y += svg.LINE
        parts.append(svg.rows(body, svg.LINE, _ROW_GAP))
    return svg.chart(title, description, width, height, parts)


def _tie(x: float, y: float, letter: str) -> str:
    """Draw the part of a grey bar in a row, which reaches to the parts in the rows above and below."""
    size = f'width="{svg.px(_TIE - 3)}" height="{svg.px(svg.LINE + _ROW_GAP)}"'
    bar = f'<rect class="tie" x="{svg.px(x)}" y="{svg.px(y + 6 - (svg.LINE + _ROW_GAP) / 2)}" {size}/>'
    return bar + svg.text(x + (_TIE - 3) / 2, y + 10, letter, "middle")


def _dot(series: Series, point: Point, scale: svg.Axis, y: float) -> str:
    low, high = scale(point.low), scale(point.high)
    body = svg.whisker(low, y, high, y, _WHISKERS[point.is_of_few]) if point.has_interval else ""
    return body + _spot(series, point, scale(point.value), y)


def heat(
    title: str,
    about: str,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Mapping[tuple[int, int], Point],
    ends: tuple[float, float] | None = None,
    marks: Sequence[int | None] = (),
    column_marks: Sequence[int] = (),
    corner: str = "",
    hatches: Collection[tuple[int, int]] = (),
    edges: Mapping[int, int] | None = None,
    endings: Sequence[str] = (),
) -> str:
    """Draw a heat map: a grid of coloured cells with numbers, darker for higher values.

    Args:
        cells: values by (row, column). Missing cells stay empty.
        ends: values of the lightest and the darkest colour. The default is the lowest and the highest value.
        marks: marks of the rows' runs.
        column_marks: marks of the columns' runs.
        corner: name of the vertical axis.
        hatches: (row, column) of hatched cells.
        edges: {row: column with a thick line on the right}.
        endings: texts after the rows.
    """
    known_cells = {key: p for key, p in cells.items() if p.has_value}
    values = [svg.number(p.value) for p in known_cells.values()] or [0.0]
    low, high = ends or (min(values), max(values))
    room, widest = visible_width([*rows, corner], 220), visible_width(columns, 150)
    upright = widest > _WIDEST
    wide, tall, left = 46.0 if upright else max(46.0, widest + 6), 20.0, room + 14
    top = 14 + (widest if upright else 8)
    attributes = [f' class="{svg.run_class(mark)}"' for mark in column_marks] or [""] * len(columns)
    right = left + wide * len(columns)
    parts = [svg.text(left - 8, top - 6, corner, "end")] if corner else []
    for at, (name, attribute) in enumerate(zip(short_names(columns, 150), attributes, strict=True)):
        words = svg.text(left + wide * (at + 0.5), top - 6, name, "middle", columns[at], is_vertical=upright)
        parts.append(f"<g{attribute}>{words}</g>" if attribute else words)
    for at, (row, name) in enumerate(zip(rows, short_names(rows, room), strict=True)):
        body = svg.text(left - 8, top + tall * (at + 0.7), name, "end", row)
        for (_, column), p in sorted((cell for cell in known_cells.items() if cell[0][0] == at), key=lambda c: c[0]):
            share = min(max((svg.number(p.value) - low) / (high - low), 0), 1) if high > low else 0.5
            box = (left + wide * column, top + tall * at, wide, tall)
            body += _cell(box, p, share, _tip(f"{row}, {columns[column]}", p), attributes[column])
            body += svg.hatch(*box) if (at, column) in hatches else ""
        if edges and at in edges:
            x, y = left + wide * (edges[at] + 1), top + tall * at
            body += f'<path class="edge" d="{svg.path([(x, y), (x, y + tall)])}"/>'
        if endings:
            body += svg.text(right + 10, top + tall * (at + 0.7), endings[at], "start")
        mark = marks[at] if marks else None
        parts.append(body if mark is None else svg.rows(svg.group(mark, body, "row"), tall))
    room = max(map(svg.text_width, endings)) + 10 if endings else 0.0
    return svg.chart(title, about, right + room + 4, top + tall * len(rows) + 4, parts)


def _cell(box: tuple[float, float, float, float], point: Point, share: float, tip: str, attributes: str) -> str:
    x, y, wide, tall = box
    words = f"({_value_text(point)})" if point.is_complement else _value_text(point)
    size = f'width="{svg.px(wide - 1)}" height="{svg.px(tall - 1)}"'
    return (
        f'<g{attributes}><title>{tip}</title><rect class="cell" x="{svg.px(x + 0.5)}" y="{svg.px(y + 0.5)}" {size} '
        f'fill-opacity="{0.04 + 0.46 * share:.2f}"/>'
        f"{svg.text(x + wide / 2, y + 14, words, 'middle')}</g>"
    )


def scatter(title: str, about: str, *, x_name: str, y_name: str, points: Sequence[ScatterPoint]) -> str:
    """Draw a scatter plot of labelled runs and a line through the best ones.

    The axis of x is logarithmic if the values span more than 1:20.
    """
    known_points = [p for p in points if p.x.has_value and p.y.has_value]
    width, height, left, right, top, bottom = 720, 380, 52, 20, 24, 46
    values = [svg.number(p.x.value) for p in known_points]
    log = bool(values) and min(values) > 0 and max(values) > 20 * min(values)
    x_axis = svg.axis(_values(p.x for p in known_points), left, width - right, most=7, log=log)
    y_axis = svg.axis(_values(p.y for p in known_points), height - bottom, top)
    x_labels = svg.thin_labels([x for x, _ in x_axis.ticks], [t for _, t in x_axis.ticks])
    parts = [
        y_axis.group("y", "".join(svg.horizontal(y, left, width - right, text) for y, text in y_axis.ticks)),
        *(svg.text(x, height - bottom + 17, t, "middle") for x, t in x_labels),
        svg.text((left + width - right) / 2, height - 8, x_name, "middle"),
        svg.text(4, 12, y_name, "start"),
    ]
    best = sorted((x_axis(p.x.value), y_axis(p.y.value)) for p in known_points if p.best)
    parts.append(f'<path class="front" d="{svg.path(best)}"/>' if len(best) > 1 else "")
    boxes = [(x - 6, y - 6, x + 6, y + 6) for x, y in ((x_axis(p.x.value), y_axis(p.y.value)) for p in known_points)]
    names = dict(zip((p.name for p in known_points), short_names([p.name for p in known_points], 180), strict=True))
    unnamed = []
    for p in sorted(known_points, key=lambda p: not p.best):
        x, y = x_axis(p.x.value), y_axis(p.y.value)
        body = svg.whisker(x, y_axis(p.y.low), x, y_axis(p.y.high)) if p.y.has_interval else ""
        body += svg.whisker(x_axis(p.x.low), y, x_axis(p.x.high), y) if p.x.has_interval else ""
        tip = f"{p.name[:99]}: {y_name} {_point_text(p.y)}, {x_name} {_point_text(p.x)}"
        body += svg.spot(p.mark, x, y, svg.escape_text(tip), _MARKS[p.y.is_open])
        label = svg.draw_name(names[p.name], p.name, (x, y), boxes, (left, top, width - 4, height - bottom))
        unnamed += [] if label else [(p.name, p.mark)]
        parts.append(svg.group(p.mark, body + label))
    key, key_height = legend(unnamed, width, height)
    return svg.chart(title, about, width, height + key_height, [*parts, key])


def radar(title: str, about: str, axes: Sequence[str], shapes: Sequence[Series], most: float = 100.0) -> str:
    """Draw a radar chart: a polygon per run over three or more axes, with ``most`` at the rim."""
    width, radius = 460, 115.0
    key, key_height = legend(((shape.name, shape.mark) for shape in shapes), width)
    height = 330 + key_height
    x0, y0 = width / 2, key_height + 165
    turns = [2 * math.pi * i / len(axes) - math.pi / 2 for i in range(len(axes))]

    def at(turn: float, share: float) -> tuple[float, float]:
        return x0 + radius * share * math.cos(turn), y0 + radius * share * math.sin(turn)

    parts = [key]
    parts += [f'<path class="grid" d="{svg.path([at(t, ring / 4) for t in turns])}z"/>' for ring in (1, 2, 3, 4)]
    parts += [f'<path class="grid" d="{svg.path([(x0, y0), at(t, 1)])}"/>' for t in turns]
    for name, turn in zip(axes, turns, strict=True):
        x, y = at(turn, 1.1)
        anchor = "middle" if abs(x - x0) < 8 else "start" if x > x0 else "end"
        room = width / 2 if anchor == "middle" else (width - x if x > x0 else x) - 4
        parts.append(svg.text(x, y + 4 + 4 * math.sin(turn), svg.shorten(name, room), anchor, name))
    for shape in shapes:
        known_points = [(t, p) for t, p in zip(turns, shape.points, strict=True) if p and p.has_value]
        ends = [at(t, min(max(svg.number(p.value) / most, 0), 1)) for t, p in known_points]
        body = svg.line(shape.mark, ends, closed=True)
        body += "".join(_spot(shape, p, x, y) for (x, y), (_, p) in zip(ends, known_points, strict=True))
        parts.append(svg.group(shape.mark, body))
    return svg.chart(title, about, width, height, parts)


def extent(lines: Iterable[Series]) -> list[float]:
    """Smallest and largest value of the points and intervals of some series, or [] without values."""
    values = _values(p for line in lines for p in line.points)
    return [min(values), max(values)] if values else []


def _values(points: Iterable[Point | None]) -> list[float]:
    return [svg.number(v) for p in points if p for v in (p.value, p.low, p.high) if svg.is_finite(v)]


def _tip(name: str, point: Point) -> str:
    return svg.escape_text(f"{name}: {_point_text(point)}{point.note and f', {point.note}'}")


def _value_text(point: Point) -> str:
    is_percent = point.is_percent and point.has_value
    return f"{point.value:.{PERCENT_DECIMALS}f}" if is_percent else svg.format_number(point.value)


def _point_text(point: Point) -> str:
    if not (point.has_value and point.has_interval):
        return _value_text(point)
    value, low, high = map(svg.number, (point.value, point.low, point.high))
    decimals = PERCENT_DECIMALS if point.is_percent else interval_decimals((high - low) / 2)
    return f"{value:.{decimals}f} [{low:.{decimals}f}, {high:.{decimals}f}]"
