"""Charts as SVG text: curves with bands, dots with intervals, heat maps, scatter plots and radar charts.

These are pure functions of data. Each chart is self-contained (role, title and description), takes its colours from the
style sheet ``charts.css`` (``c0`` to ``c7``, ``axis``, ``grid``, ``label``), and repeats every value in a tooltip. A
run is a mark, a number that sets its colour and shape in every chart. ``lbx.report.svg`` has the building blocks.
Values that are not finite are omitted; labels that would overlap are moved, thinned out or left to the tooltip.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from lbx.report import svg
from lbx.report.digits import interval_decimals


@dataclass(frozen=True, slots=True)
class Point:
    """A value with an optional interval and a note for its tooltip."""

    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""

    @property
    def has_value(self) -> bool:
        return svg.is_finite(self.value)

    @property
    def has_interval(self) -> bool:
        return svg.is_finite(self.low) and svg.is_finite(self.high)


@dataclass(frozen=True, slots=True)
class Series:
    """Points of a run or a published model, one per tick; None if missing."""

    name: str
    mark: int
    points: Sequence[Point | None]


@dataclass(frozen=True, slots=True)
class ScatterPoint:
    """Run's position in a scatter plot; ``best``: no other run is better in both directions."""

    name: str
    mark: int
    x: Point
    y: Point
    best: bool = False


def curve(title: str, about: str, ticks: Sequence[str], lines: Sequence[Series], width: int = 360) -> str:
    """Draw values over ordered ticks: a line through all points, a band over neighbouring points with intervals.

    Args:
        lines: series with one point per tick.
    """
    height, left, right, top, bottom = 210, 44, 14, 12, 30
    scale, grid = svg.axis(_extent(p for line in lines for p in line.points), height - bottom, top)
    step = (width - left - right - 16) / max(len(ticks) - 1, 1)
    at = [left + 8 + step * i for i in range(len(ticks))] if len(ticks) > 1 else [(left + width - right) / 2]
    parts = [svg.horizontal(y, left, width - right, text) for y, text in grid]
    parts += [svg.text(x, height - bottom + 17, t, "middle") for x, t in svg.thin_labels(at, ticks)]
    for line in lines:
        known_points = [(x, p) for x, p in zip(at, line.points, strict=True) if p and p.has_value]
        body = ""
        for has_interval, neighbours in groupby(known_points, key=lambda pair: pair[1].has_interval):
            if has_interval:
                ends = [(x, scale(p.low), scale(p.high)) for x, p in neighbours]
                low, high = [(x, y) for x, y, _ in ends], [(x, y) for x, _, y in ends]
                outline = svg.path([*low, *high[::-1]])
                body += f'<path class="band" d="{outline}z"/>' if len(ends) > 1 else svg.whisker(*low[0], *high[0])
        body += svg.line(line.mark, [(x, scale(p.value)) for x, p in known_points])
        body += "".join(svg.spot(line.mark, x, scale(p.value), _tip(line.name, p)) for x, p in known_points)
        parts.append(svg.group(line.mark, body))
    return svg.chart(title, about, width, height, parts)


def dots(title: str, description: str, rows: Sequence[tuple[str, Series]], width: int = 720, zero: bool = False) -> str:
    """Draw one line per row, with its points and their intervals.

    Args:
        rows: (label, series) pairs; consecutive rows with the same label share it.
        zero: mark 0, for points that are differences.
    """
    known_rows = [(label, s) for label, s in rows if any(p and p.has_value for p in s.points)]
    labels = [label for i, (label, _) in enumerate(known_rows) if not i or known_rows[i - 1][0] != label]
    room = min(max((svg.text_width(label[:99]) for label in labels), default=0), 250)
    left, top, right = room + 20, 8, 24
    height = top + svg.LINE * len(known_rows) + 6 * len(labels) + 34
    ends = _extent(p for _, s in known_rows for p in s.points)
    scale, grid = svg.axis([*ends, 0.0] if zero else ends, left, width - right, most=7)
    parts = [svg.vertical(x, top, height - 28, text, zero and text == "0") for x, text in grid]
    y, before = float(top), None
    for label, series in known_rows:
        if label != before:
            y, before = y + 6, label
            parts.append(svg.text(left - 10, y + 10, svg.shorten(label, room), "end", label))
        for p in series.points:
            if p and p.has_value:
                body = svg.whisker(scale(p.low), y + 6, scale(p.high), y + 6) if p.has_interval else ""
                body += svg.spot(series.mark, scale(p.value), y + 6, _tip(series.name, p))
                parts.append(svg.group(series.mark, body))
        y += svg.LINE
    return svg.chart(title, description, width, height, parts)


def heat(
    title: str,
    about: str,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Mapping[tuple[int, int], Point],
    ends: tuple[float, float] | None = None,
) -> str:
    """Draw a grid of coloured cells with their numbers; higher values are darker.

    Args:
        cells: values by (row, column); missing cells stay empty.
        ends: values of the lightest and the darkest colour, by default the lowest and highest value.
    """
    known_cells = {key: p for key, p in cells.items() if p.has_value}
    values = _extent(Point(p.value) for p in known_cells.values()) or [0.0]
    low, high = ends or (min(values), max(values))
    room = min(max((svg.text_width(r[:99]) for r in rows), default=0), 220)
    wide, tall, left = 46.0, 20.0, room + 14
    upright = any(svg.text_width(c[:99]) > wide - 4 for c in columns)
    top = 14 + (min(max(svg.text_width(c[:99]) for c in columns), 150) if upright else 8)
    names = [(left + wide * (i + 0.5), svg.shorten(name, 150)) for i, name in enumerate(columns)]
    parts = [svg.text(x, top - 6, name, "middle", is_vertical=upright) for x, name in names]
    parts += [svg.text(left - 8, top + tall * (i + 0.7), svg.shorten(r, room), "end", r) for i, r in enumerate(rows)]
    for (row, column), p in known_cells.items():
        share = min(max((svg.number(p.value) - low) / (high - low), 0), 1) if high > low else 0.5
        x, y = left + wide * column, top + tall * row
        tip = _tip(f"{rows[row]}, {columns[column]}", p)
        parts.append(
            f'<g><title>{tip}</title><rect class="cell" x="{svg.px(x + 0.5)}" y="{svg.px(y + 0.5)}" width="{wide - 1}" '
            f'height="{tall - 1}" fill-opacity="{0.04 + 0.46 * share:.2f}"/>'
            f"{svg.text(x + wide / 2, y + 14, svg.figure(p.value), 'middle')}</g>"
        )
    return svg.chart(title, about, left + wide * len(columns) + 4, top + tall * len(rows) + 4, parts)


def scatter(title: str, about: str, *, x_name: str, y_name: str, points: Sequence[ScatterPoint]) -> str:
    """Draw labelled runs and a line through the best ones.

    x is logarithmic if its values span more than 1:20.
    """
    known_points = [p for p in points if p.x.has_value and p.y.has_value]
    width, height, left, right, top, bottom = 720, 380, 52, 20, 24, 46
    values = [svg.number(p.x.value) for p in known_points]
    log = bool(values) and min(values) > 0 and max(values) > 20 * min(values)
    x_scale, x_grid = svg.axis(_extent(p.x for p in known_points), left, width - right, most=7, log=log)
    y_scale, y_grid = svg.axis(_extent(p.y for p in known_points), height - bottom, top)
    parts = [svg.horizontal(y, left, width - right, text) for y, text in y_grid]
    parts += [
        svg.text(x, height - bottom + 17, t, "middle")
        for x, t in svg.thin_labels(*map(list, zip(*x_grid, strict=True)))
    ]
    parts += [svg.text((left + width - right) / 2, height - 8, x_name, "middle"), svg.text(4, 12, y_name, "start")]
    best = sorted((x_scale(p.x.value), y_scale(p.y.value)) for p in known_points if p.best)
    parts.append(f'<path class="front" d="{svg.path(best)}"/>' if len(best) > 1 else "")
    boxes = [(x - 6, y - 6, x + 6, y + 6) for x, y in ((x_scale(p.x.value), y_scale(p.y.value)) for p in known_points)]
    for p in sorted(known_points, key=lambda p: not p.best):
        x, y = x_scale(p.x.value), y_scale(p.y.value)
        body = svg.whisker(x, y_scale(p.y.low), x, y_scale(p.y.high)) if p.y.has_interval else ""
        body += svg.whisker(x_scale(p.x.low), y, x_scale(p.x.high), y) if p.x.has_interval else ""
        body += svg.spot(
            p.mark, x, y, svg.escape_text(f"{p.name[:99]}: {y_name} {_point_text(p.y)}, {x_name} {_point_text(p.x)}")
        )
        parts.append(
            svg.group(p.mark, body + svg.draw_name(p.name, x, y, boxes, (left, top, width - 4, height - bottom)))
        )
    return svg.chart(title, about, width, height, parts)


def radar(title: str, about: str, axes: Sequence[str], shapes: Sequence[Series], most: float = 100.0) -> str:
    """Draw a polygon per run over three or more axes, with ``most`` at the rim."""
    width, height, radius = 460, 340, 115.0
    x0, y0 = width / 2, height / 2
    turns = [2 * math.pi * i / len(axes) - math.pi / 2 for i in range(len(axes))]

    def at(turn: float, share: float) -> tuple[float, float]:
        return x0 + radius * share * math.cos(turn), y0 + radius * share * math.sin(turn)

    parts = [f'<path class="grid" d="{svg.path([at(t, ring / 4) for t in turns])}z"/>' for ring in (1, 2, 3, 4)]
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
        body += "".join(
            svg.spot(shape.mark, x, y, _tip(shape.name, p)) for (x, y), (_, p) in zip(ends, known_points, strict=True)
        )
        parts.append(svg.group(shape.mark, body))
    return svg.chart(title, about, width, height, parts)


def _extent(points: Iterable[Point | None]) -> list[float]:
    return [svg.number(v) for p in points if p for v in (p.value, p.low, p.high) if svg.is_finite(v)]


def _tip(name: str, point: Point) -> str:
    return svg.escape_text(f"{name}: {_point_text(point)}{point.note and f', {point.note}'}")


def _point_text(point: Point) -> str:
    if not (point.has_value and point.has_interval):
        return svg.figure(point.value)
    value, low, high = map(svg.number, (point.value, point.low, point.high))
    return "{:.{d}f} [{:.{d}f}, {:.{d}f}]".format(value, low, high, d=interval_decimals((high - low) / 2))
