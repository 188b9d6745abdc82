"""What charts are made of, as SVG text: scales with their ticks, marks, lines, and labels that find room.

A run is one mark, a number: it decides colour and shape wherever the run is drawn. Texts are escaped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from itertools import pairwise
from unicodedata import east_asian_width

from lbx.base.visible import one_line

COLOURS = 8
_SIZE = 11.0  # of a label, px
_LONGEST = 500  # of a title or a tooltip
LINE = 13.0  # from one label to the next
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


def figure(value: float | None) -> str:
    """A number as charts show it: at most three significant digits, or its whole part."""
    if not is_finite(value):
        return "-"
    shown = number(value)
    if shown and not 1e-4 <= abs(shown) < 1e6:
        return f"{shown:.2g}"
    digits = max(0, 2 - math.floor(math.log10(abs(shown)))) if shown else 0
    text = f"{shown:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# Scales

_Scale = Callable[[float | None], float]
_Box = tuple[float, float, float, float]


def axis(
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
        return first + (last - first) * (number(value) - low) / (high - low)

    values = [low + step * i for i in range(round((high - low) / step) + 1)]
    return scale, [(scale(v), figure(0.0 if abs(v) < step / 1e6 else v)) for v in values]


def _log_axis(low: float, high: float, first: float, last: float) -> tuple[_Scale, list[tuple[float, str]]]:
    low, high = max(low, 1e-12), max(high, 1e-12)
    start, stop = math.floor(math.log10(low)), max(math.ceil(math.log10(high)), math.floor(math.log10(low)) + 1)

    def scale(value: float | None) -> float:
        return first + (last - first) * (math.log10(max(number(value), 10.0**start)) - start) / (stop - start)

    return scale, [(scale(10.0**e), figure(10.0**e)) for e in range(start, stop + 1)]


def is_finite(value: float | None) -> bool:
    """Whether there is a value, and one that can be drawn."""
    return value is not None and math.isfinite(value)


def number(value: float | None) -> float:
    """The value; 0 where there is none."""
    return 0.0 if value is None else float(value)


# Parts


def chart(title: str, about: str, width: float, height: float, parts: Iterable[str]) -> str:
    """A chart of these parts, in pixels, readable by itself: with a role, a title and a description."""
    name, words = escaped(title), escaped(about)
    return (
        f'<svg class="chart" role="img" aria-label="{name}" width="{px(width)}" height="{px(height)}" '
        f'viewBox="0 0 {px(width)} {px(height)}"><title>{name}</title><desc>{words}</desc>{"".join(parts)}</svg>'
    )


def escaped(text: str) -> str:
    """The text in one visible line, or its beginning."""
    return escape(one_line(text[:_LONGEST]))


def px(value: float) -> str:
    """Pixels, to a tenth."""
    return f"{value:.1f}".removesuffix(".0")


def path(points: Sequence[tuple[float, float]]) -> str:
    """What ``d`` of a path is for a line through the points."""
    return "M" + "L".join(f"{px(x)} {px(y)}" for x, y in points) if points else ""


def _form(mark: int) -> int:
    """Which shape: colours repeat after eight runs, and then go with other ones."""
    return (mark + mark // COLOURS) % len(_SHAPES)


def group(mark: int, body: str) -> str:
    """What shows a run, in its colour; nothing of nothing."""
    return f'<g class="{mark_classes(mark)}">{body}</g>' if body else ""


def spot(mark: int, x: float, y: float, tip: str) -> str:
    """A run's mark, with a tooltip, which is escaped already."""
    shape = f'<path class="mark" transform="translate({px(x)} {px(y)})" d="{_SHAPES[_form(mark)]}"/>'
    return f"<g><title>{tip}</title>{shape}</g>"


def line(mark: int, points: Sequence[tuple[float, float]], *, closed: bool = False) -> str:
    """A run's line; nothing where there are less than two points."""
    end = "z" if closed else ""
    return f'<path class="line dash{mark // COLOURS % 4}" d="{path(points)}{end}"/>' if len(points) > 1 else ""


def whisker(x1: float, y1: float, x2: float, y2: float) -> str:
    """An interval's line."""
    return f'<path class="whisker" d="{path([(x1, y1), (x2, y2)])}"/>'


def text(x: float, y: float, words: str, anchor: str, whole: str = "", *, turned: bool = False) -> str:
    """A label; ``whole`` is what it would say if there were room. Turned ones begin below and go upwards."""
    shown = escaped(words)
    tip = f"<title>{escaped(whole)}</title>" if whole and escaped(whole) != shown else ""
    place = f'transform="translate({px(x + 4)} {px(y)}) rotate(-90)"' if turned else f'x="{px(x)}" y="{px(y)}"'
    return f'<text class="label" {place} text-anchor="{"start" if turned else anchor}">{shown}{tip}</text>'


def horizontal(y: float, x1: float, x2: float, words: str) -> str:
    """A line of the grid with its label on the left."""
    return f'<path class="grid" d="{path([(x1, y), (x2, y)])}"/>{text(x1 - 6, y + 4, words, "end")}'


def vertical(x: float, y1: float, y2: float, words: str, strong: bool) -> str:
    """A line of the grid with its label below; a strong one is the axis."""
    rule = f'<path class="{"axis" if strong else "grid"}" d="{path([(x, y1), (x, y2)])}"/>'
    return rule + text(x, y2 + 16, words, "middle")


def thinned(at: Sequence[float], texts: Sequence[str]) -> list[tuple[float, str]]:
    """Every label, or every second, third ...: as many as have room beside each other."""
    for every in range(1, len(texts) + 1):
        held = [(x, t) for i, (x, t) in enumerate(zip(at, texts, strict=True)) if i % every == 0]
        if all(b - a >= (text_width(s) + text_width(t)) / 2 + 4 for (a, s), (b, t) in pairwise(held)):
            return held
    return []


def named(name: str, x: float, y: float, boxes: list[_Box], inside: _Box) -> str:
    """A name beside its mark, where it lies on nothing; nothing where there is no such place. Enters what it takes."""
    shown = shortened(name, 180)
    wide = text_width(shown)
    for dx, dy, anchor in ((9, 4, "start"), (-9, 4, "end"), (0, -9, "middle"), (0, 18, "middle")):
        x1 = x + dx - {"start": 0.0, "end": wide, "middle": wide / 2}[anchor]
        box = (x1, y + dy - _SIZE, x1 + wide, y + dy + 3)
        free = all(box[2] < b[0] or box[0] > b[2] or box[3] < b[1] or box[1] > b[3] for b in boxes)
        if free and box[0] > inside[0] and box[1] > inside[1] and box[2] < inside[2] and box[3] < inside[3]:
            boxes.append(box)
            return text(x + dx, y + dy, shown, anchor)
    return ""
