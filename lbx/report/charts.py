"""Charts as SVG text, drawn here: curve with band, dots with intervals, heat map, scatter, radar.

Pure functions of data. A chart is readable by itself (role, title and description), takes its colours from the style
sheet ``page/page.css`` (``c0`` to ``c7``, ``axis``, ``grid``, ``label``), and says every value again in a tooltip. A
run is one mark, a number: it decides colour and shape wherever the run is drawn. Texts are escaped; a value that is no
finite number is left out; labels that would lie over each other are moved, thinned out or left to the tooltip.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from unicodedata import east_asian_width

from lbx.base.visible import one_line
from lbx.report.digits import decimals_beside

COLOURS = 8
_SIZE = 11.0  # of a label, px
_LONGEST = 500  # of a title or a tooltip
_LINE = 13.0  # from one label to the next
_SHAPES: Sequence[str] = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",  # circle
    "M-3.6 -3.6h7.2v7.2h-7.2z",  # square
    "M0 -4.8l4.6 8.2h-9.2z",  # triangle
    "M0 -5.2l4.6 5.2l-4.6 5.2l-4.6 -5.2z",  # diamond
    "M0 4.8l4.6 -8.2h-9.2z",  # triangle, tip down
    "M-1.5 -4.7h3v3.2h3.2v3h-3.2v3.2h-3v-3.2h-3.2v-3h3.2z",  # plus
    "M0 -5l4.8 3.5l-1.8 5.6h-6l-1.8 -5.6z",  # pentagon
    "M-5 -2.4h10v4.8h-10z",  # bar
)


@dataclass(frozen=True, slots=True)
class Point:
    """A value, its interval where it has one, and what its tooltip says beside."""

    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """What a run, or something else that has a mark, shows: a point for each tick; None where it has none."""

    name: str
    mark: int
    points: Sequence[Point | None]


@dataclass(frozen=True, slots=True)
class Place:
    """A run's place in a scatter. ``best``: nothing else is better in both directions."""

    name: str
    mark: int
    x: Point
    y: Point
    best: bool = False


def text_width(text: str, size: float = _SIZE) -> float:
    """Pixels that a text takes at most in a usual sans-serif."""
    return size * sum(1.05 if east_asian_width(c) in "WF" else 0.36 if c in "iljtf.,:;|!'()[] " else 0.66 for c in text)


def shortened(text: str, room: float, size: float = _SIZE) -> str:
    """The text, or as much of its beginning as has room, with an ellipsis."""
    most = int(room / size * 3) + 2  # the narrowest letters
    whole = one_line(text[: most + 1])
    if len(text) <= most and text_width(whole, size) <= room:
        return whole
    whole = whole[:most]
    while whole and text_width(whole + "…", size) > room:
        whole = whole[:-1]
    return whole + "…"


def mark_classes(mark: int) -> str:
    """The classes of whatever shows a run: of its colour, and of the run itself, which the page can hide."""
    return f"c{mark % COLOURS} r{mark}"


def symbol(mark: int) -> str:
    """A run's mark to stand in a text; a page has thousands, so it is as short as can be."""
    return f'<i class="s{_form(mark)} {mark_classes(mark)}"></i>'


def symbol_styles() -> str:
    """The shapes of ``symbol``, for the style sheet, in a square of 12 px."""
    return "".join(f'i.s{n} {{ clip-path: path("M6 6m{form[1:]}") }}\n' for n, form in enumerate(_SHAPES))


def curve(title: str, about: str, ticks: Sequence[str], lines: Sequence[Series], width: int = 360) -> str:
    """Values over ordered ticks, with a band for the intervals; where a point is missing the line goes on behind it.

    Args:
        lines: one point for each tick.
    """
    height, left, right, top, bottom = 210, 44, 14, 12, 30
    scale, grid = _axis(_extent(p for line in lines for p in line.points), height - bottom, top)
    step = (width - left - right - 16) / max(len(ticks) - 1, 1)
    at = [left + 8 + step * i for i in range(len(ticks))] if len(ticks) > 1 else [(left + width - right) / 2]
    parts = [_horizontal(y, left, width - right, text) for y, text in grid]
    parts += [_text(x, height - bottom + 17, t, "middle") for x, t in _thinned(at, ticks)]
    for line in lines:
        held = [(x, p) for x, p in zip(at, line.points, strict=True) if p and _finite(p.value)]
        sure = [(x, scale(p.low), scale(p.high)) for x, p in held if _finite(p.low) and _finite(p.high)]
        low, high = [(x, y) for x, y, _ in sure], [(x, y) for x, _, y in sure]
        body = f'<path class="band" d="{_path([*low, *high[::-1]])}z"/>' if len(sure) > 1 else ""
        path = _path([(x, scale(p.value)) for x, p in held])
        body += f'<path class="line dash{line.mark // COLOURS % 4}" d="{path}"/>' if len(held) > 1 else ""
        for x, p in held:
            if len(sure) == 1 and _finite(p.low) and _finite(p.high):
                body += _whisker(x, scale(p.low), x, scale(p.high))
            body += _spot(line.mark, x, scale(p.value), _tip(line.name, p))
        parts.append(_group(line.mark, body))
    return _svg(title, about, width, height, parts)


def dots(title: str, about: str, rows: Sequence[tuple[str, Series]], width: int = 720, zero: bool = False) -> str:
    """A line for each row, its points with their intervals one below the other.

    Args:
        rows: (label, its series); rows of one label that follow each other share it.
        zero: 0 is marked: the points are differences.
    """
    held = [(label, s) for label, s in rows if any(p and _finite(p.value) for p in s.points)]
    labels = [label for i, (label, _) in enumerate(held) if not i or held[i - 1][0] != label]
    room = min(max((text_width(label[:99]) for label in labels), default=0), 250)
    left, top, right = room + 20, 8, 24
    height = top + _LINE * len(held) + 6 * len(labels) + 34
    ends = _extent(p for _, s in held for p in s.points)
    scale, grid = _axis([*ends, 0.0] if zero else ends, left, width - right, most=7)
    parts = [_vertical(x, top, height - 28, text, zero and text == "0") for x, text in grid]
    y, before = float(top), None
    for label, series in held:
        if label != before:
            y, before = y + 6, label
            parts.append(_text(left - 10, y + 10, shortened(label, room), "end", label))
        for p in series.points:
            if p and _finite(p.value):
                sure = _finite(p.low) and _finite(p.high)
                body = _whisker(scale(p.low), y + 6, scale(p.high), y + 6) if sure else ""
                body += _spot(series.mark, scale(p.value), y + 6, _tip(series.name, p))
                parts.append(_group(series.mark, body))
        y += _LINE
    return _svg(title, about, width, height, parts)


def heat(
    title: str,
    about: str,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Mapping[tuple[int, int], Point],
    ends: tuple[float, float] | None = None,
) -> str:
    """A grid of coloured cells with their numbers: the darker, the higher.

    Args:
        cells: (row, column) -> its value; a cell that is missing stays empty.
        ends: the values of the lightest and of the darkest colour; by default the lowest and highest there are.
    """
    held = {key: p for key, p in cells.items() if _finite(p.value)}
    values = _extent(Point(p.value) for p in held.values()) or [0.0]
    low, high = ends or (min(values), max(values))
    room = min(max((text_width(r[:99]) for r in rows), default=0), 220)
    wide, tall, left = 46.0, 20.0, room + 14
    upright = any(text_width(c[:99]) > wide - 4 for c in columns)
    top = 14 + (min(max(text_width(c[:99]) for c in columns), 150) if upright else 8)
    names = [(left + wide * (i + 0.5), shortened(name, 150)) for i, name in enumerate(columns)]
    parts = [_text(x, top - 6, name, "middle", turned=upright) for x, name in names]
    parts += [_text(left - 8, top + tall * (i + 0.7), shortened(r, room), "end", r) for i, r in enumerate(rows)]
    for (row, column), p in held.items():
        share = min(max((_number(p.value) - low) / (high - low), 0), 1) if high > low else 0.5
        x, y = left + wide * column, top + tall * row
        tip = _tip(f"{rows[row]}, {columns[column]}", p)
        parts.append(
            f'<g><title>{tip}</title><rect class="cell" x="{_n(x + 0.5)}" y="{_n(y + 0.5)}" width="{wide - 1}" '
            f'height="{tall - 1}" fill-opacity="{0.04 + 0.46 * share:.2f}"/>'
            f"{_text(x + wide / 2, y + 14, figure(p.value), 'middle')}</g>"
        )
    return _svg(title, about, left + wide * len(columns) + 4, top + tall * len(rows) + 4, parts)


def scatter(title: str, about: str, *, x_name: str, y_name: str, places: Sequence[Place]) -> str:
    """Places with their names; a line joins those that nothing beats. x is logarithmic where it spans over 1:20."""
    held = [p for p in places if _finite(p.x.value) and _finite(p.y.value)]
    width, height, left, right, top, bottom = 720, 380, 52, 20, 24, 46
    values = [_number(p.x.value) for p in held]
    log = bool(values) and min(values) > 0 and max(values) > 20 * min(values)
    x_scale, x_grid = _axis(_extent(p.x for p in held), left, width - right, most=7, log=log)
    y_scale, y_grid = _axis(_extent(p.y for p in held), height - bottom, top)
    parts = [_horizontal(y, left, width - right, text) for y, text in y_grid]
    parts += [_text(x, height - bottom + 17, t, "middle") for x, t in _thinned(*map(list, zip(*x_grid, strict=True)))]
    parts += [_text((left + width - right) / 2, height - 8, x_name, "middle"), _text(4, 12, y_name, "start")]
    best = sorted((x_scale(p.x.value), y_scale(p.y.value)) for p in held if p.best)
    parts.append(f'<path class="front" d="{_path(best)}"/>' if len(best) > 1 else "")
    boxes = [(x - 6, y - 6, x + 6, y + 6) for x, y in ((x_scale(p.x.value), y_scale(p.y.value)) for p in held)]
    for p in sorted(held, key=lambda p: not p.best):
        x, y = x_scale(p.x.value), y_scale(p.y.value)
        body = _whisker(x, y_scale(p.y.low), x, y_scale(p.y.high)) if _finite(p.y.low) and _finite(p.y.high) else ""
        body += _whisker(x_scale(p.x.low), y, x_scale(p.x.high), y) if _finite(p.x.low) and _finite(p.x.high) else ""
        body += _spot(p.mark, x, y, _escaped(f"{p.name[:99]}: {y_name} {_said(p.y)}, {x_name} {_said(p.x)}"))
        parts.append(_group(p.mark, body + _named(p.name, x, y, boxes, (left, top, width - 4, height - bottom))))
    return _svg(title, about, width, height, parts)


def radar(title: str, about: str, axes: Sequence[str], shapes: Sequence[Series], most: float = 100.0) -> str:
    """A polygon for each of a few runs over three axes or more; ``most`` is at the rim."""
    width, height, radius = 460, 340, 115.0
    x0, y0 = width / 2, height / 2
    turns = [2 * math.pi * i / len(axes) - math.pi / 2 for i in range(len(axes))]

    def at(turn: float, share: float) -> tuple[float, float]:
        return x0 + radius * share * math.cos(turn), y0 + radius * share * math.sin(turn)

    parts = [f'<path class="grid" d="{_path([at(t, ring / 4) for t in turns])}z"/>' for ring in (1, 2, 3, 4)]
    parts += [f'<path class="grid" d="{_path([(x0, y0), at(t, 1)])}"/>' for t in turns]
    for name, turn in zip(axes, turns, strict=True):
        x, y = at(turn, 1.1)
        anchor = "middle" if abs(x - x0) < 8 else "start" if x > x0 else "end"
        room = width / 2 if anchor == "middle" else (width - x if x > x0 else x) - 4
        parts.append(_text(x, y + 4 + 4 * math.sin(turn), shortened(name, room), anchor, name))
    for shape in shapes:
        held = [(t, p) for t, p in zip(turns, shape.points, strict=True) if p and _finite(p.value)]
        ends = [at(t, min(max(_number(p.value) / most, 0), 1)) for t, p in held]
        body = f'<path class="line dash{shape.mark // COLOURS % 4}" d="{_path(ends)}z"/>' if len(ends) > 1 else ""
        body += "".join(_spot(shape.mark, x, y, _tip(shape.name, p)) for (x, y), (_, p) in zip(ends, held, strict=True))
        parts.append(_group(shape.mark, body))
    return _svg(title, about, width, height, parts)


def figure(value: float | None) -> str:
    """A number as charts show it: at most three significant digits, or its whole part."""
    if not _finite(value):
        return "-"
    number = _number(value)
    if number and not 1e-4 <= abs(number) < 1e6:
        return f"{number:.2g}"
    digits = max(0, 2 - math.floor(math.log10(abs(number)))) if number else 0
    text = f"{number:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# Scales

_Scale = Callable[[float | None], float]
_Box = tuple[float, float, float, float]


def _axis(
    ends: Sequence[float], first: float, last: float, most: int = 5, log: bool = False
) -> tuple[_Scale, list[tuple[float, str]]]:
    """Where values lie between two pixels, and the ticks there with their texts."""
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    if log:
        return _log_axis(low, high, first, last)
    if high == low:
        low, high = low - (abs(low) / 10 or 0.5), high + (abs(high) / 10 or 0.5)
    rough = (high - low) / most
    base = 10.0 ** math.floor(math.log10(rough))
    step = next(base * f for f in (1, 2, 2.5, 5, 10) if base * f >= rough * 0.999)
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step

    def scale(value: float | None) -> float:
        return first + (last - first) * (_number(value) - low) / (high - low)

    values = [low + step * i for i in range(round((high - low) / step) + 1)]
    return scale, [(scale(v), figure(0.0 if abs(v) < step / 1e6 else v)) for v in values]


def _log_axis(low: float, high: float, first: float, last: float) -> tuple[_Scale, list[tuple[float, str]]]:
    low, high = max(low, 1e-12), max(high, 1e-12)
    start, stop = math.floor(math.log10(low)), max(math.ceil(math.log10(high)), math.floor(math.log10(low)) + 1)

    def scale(value: float | None) -> float:
        return first + (last - first) * (math.log10(max(_number(value), 10.0**start)) - start) / (stop - start)

    return scale, [(scale(10.0**e), figure(10.0**e)) for e in range(start, stop + 1)]


def _extent(points: Iterable[Point | None]) -> list[float]:
    """Every finite number of the points."""
    return [_number(v) for p in points if p for v in (p.value, p.low, p.high) if _finite(v)]


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _number(value: float | None) -> float:
    return 0.0 if value is None else float(value)


# Parts


def _svg(title: str, about: str, width: float, height: float, parts: Iterable[str]) -> str:
    name, words = _escaped(title), _escaped(about)
    return (
        f'<svg class="chart" role="img" aria-label="{name}" width="{_n(width)}" height="{_n(height)}" '
        f'viewBox="0 0 {_n(width)} {_n(height)}"><title>{name}</title><desc>{words}</desc>{"".join(parts)}</svg>'
    )


def _escaped(text: str) -> str:
    return escape(one_line(text[:_LONGEST]))


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in points) if points else ""


def _form(mark: int) -> int:
    """Which shape: colours repeat after eight runs, and then go with other ones."""
    return (mark + mark // COLOURS) % len(_SHAPES)


def _group(mark: int, body: str) -> str:
    return f'<g class="{mark_classes(mark)}">{body}</g>' if body else ""


def _spot(mark: int, x: float, y: float, tip: str) -> str:
    shape = f'<path class="mark" transform="translate({_n(x)} {_n(y)})" d="{_SHAPES[_form(mark)]}"/>'
    return f"<g><title>{tip}</title>{shape}</g>"


def _tip(name: str, point: Point) -> str:
    return _escaped(f"{name[:_LONGEST]}: {_said(point)}{point.note and f', {point.note}'}")


def _said(point: Point) -> str:
    value, low, high = point.value, point.low, point.high
    if value is None or low is None or high is None or not (_finite(value) and _finite(low) and _finite(high)):
        return figure(value)
    decimals = decimals_beside((high - low) / 2)
    return "{:.{d}f} [{:.{d}f}, {:.{d}f}]".format(value, low, high, d=decimals)


def _whisker(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path class="whisker" d="{_path([(x1, y1), (x2, y2)])}"/>'


def _text(x: float, y: float, text: str, anchor: str, whole: str = "", *, turned: bool = False) -> str:
    """A label; ``whole`` is what it would say if there were room. Turned ones begin below and go upwards."""
    shown = _escaped(text)
    tip = f"<title>{_escaped(whole)}</title>" if whole and _escaped(whole) != shown else ""
    place = f'transform="translate({_n(x + 4)} {_n(y)}) rotate(-90)"' if turned else f'x="{_n(x)}" y="{_n(y)}"'
    return f'<text class="label" {place} text-anchor="{"start" if turned else anchor}">{shown}{tip}</text>'


def _horizontal(y: float, x1: float, x2: float, text: str) -> str:
    return f'<path class="grid" d="{_path([(x1, y), (x2, y)])}"/>{_text(x1 - 6, y + 4, text, "end")}'


def _vertical(x: float, y1: float, y2: float, text: str, strong: bool) -> str:
    line = f'<path class="{"axis" if strong else "grid"}" d="{_path([(x, y1), (x, y2)])}"/>'
    return line + _text(x, y2 + 16, text, "middle")


def _thinned(at: Sequence[float], texts: Sequence[str]) -> list[tuple[float, str]]:
    """Every label, or every second, third ...: as many as have room beside each other."""
    for every in range(1, len(texts) + 1):
        held = [(x, t) for i, (x, t) in enumerate(zip(at, texts, strict=True)) if i % every == 0]
        if all(b - a >= (text_width(s) + text_width(t)) / 2 + 4 for (a, s), (b, t) in pairwise(held)):
            return held
    return []


def _named(name: str, x: float, y: float, boxes: list[_Box], inside: _Box) -> str:
    """A name beside its mark, where it lies on nothing; nothing where there is no such place. Enters what it takes."""
    shown = shortened(name, 180)
    wide = text_width(shown)
    for dx, dy, anchor in ((9, 4, "start"), (-9, 4, "end"), (0, -9, "middle"), (0, 18, "middle")):
        x1 = x + dx - {"start": 0.0, "end": wide, "middle": wide / 2}[anchor]
        box = (x1, y + dy - _SIZE, x1 + wide, y + dy + 3)
        free = all(box[2] < b[0] or box[0] > b[2] or box[3] < b[1] or box[1] > b[3] for b in boxes)
        if free and box[0] > inside[0] and box[1] > inside[1] and box[2] < inside[2] and box[3] < inside[3]:
            boxes.append(box)
            return _text(x + dx, y + dy, shown, anchor)
    return ""
