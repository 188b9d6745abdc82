"""Building blocks of charts as SVG text: scales with ticks, marks, lines, and labels that avoid overlaps.

A mark is the number of a run, which determines colour and shape in every chart. Texts are escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from html import escape
from itertools import pairwise
from unicodedata import east_asian_width

from lbx.base.visible import one_line

COLOURS = 8
_SIZE = 11.0  # font size of labels, px
_LONGEST = 500  # characters of a title or a tooltip
LINE = 13.0  # line height of labels, px
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
    """Upper bound of the width of a text in pixels, in common sans-serif fonts."""
    return size * sum(1.05 if east_asian_width(c) in "WF" else 0.36 if c in "iljtf.,:;|!'()[] " else 0.66 for c in text)


@lru_cache(4096)  # charts of a page have the same names
def shorten(text: str, room: float, size: float = _SIZE, head: float = 0.5) -> str:
    """Cut a text to the available width in pixels, with an ellipsis after the share ``head`` of the rest."""
    most = int(room / size * 3) + 2  # the narrowest letters
    if len(text) <= most and text_width(full_text := one_line(text), size) <= room:
        return full_text
    first, last = (one_line(text[:most]), one_line(text[-most:]))
    for count in range(most, 0, -1):
        start = math.ceil(count * head)
        short_text = f"{first[:start]}…{last[len(last) - (count - start) :]}"
        if text_width(short_text, size) <= room:
            return short_text
    return "…"


def mark_classes(mark: int) -> str:
    """CSS classes of a run's elements: one for the colour, and one by which the page can hide the run."""
    return f"c{mark % COLOURS} {run_class(mark)}"


def run_class(mark: int | None) -> str:
    """CSS class by which the page can hide a run, or "" for None."""
    return "" if mark is None else f"r{mark}"


def symbol(mark: int) -> str:
    """HTML of a run's mark for use in text, as short as possible because a page contains thousands."""
    return f'<i class="s{_shape_index(mark)} {mark_classes(mark)}"></i>'


def symbol_styles() -> str:
    """Style sheet of the shapes of ``symbol``, in a square of 12 px."""
    return "".join(f'i.s{n} {{ clip-path: path("M6 6m{shape[1:]}") }}\n' for n, shape in enumerate(_SHAPES))


def format_number(value: float | None) -> str:
    """Format a number for charts with at most three significant digits, or as an integer."""
    if not is_finite(value):
        return "-"
    amount = number(value)
    if amount and not 1e-4 <= abs(amount) < 1e6:
        return f"{amount:.2g}"
    digits = max(0, 2 - math.floor(math.log10(abs(amount)))) if amount else 0
    text = f"{amount:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# Scales

_Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Axis:
    """Scale from values to pixels.

    Attributes:
        first, last: Pixels of both ends.
        low, high: Values at both ends, or exponents of ten if ``log``.
        ticks: (pixel, text) pairs.
    """

    first: float
    last: float
    low: float
    high: float
    log: bool = False
    ticks: Sequence[tuple[float, str]] = ()

    def __call__(self, value: float | None) -> float:
        amount = number(value)
        if self.log:
            amount = math.log10(max(amount, 10.0**self.low))
        return self.first + (self.last - self.first) * (amount - self.low) / (self.high - self.low)

    def group(self, direction: str, body: str, *, has_zero: bool = False) -> str:
        """Wrap the lines and labels of ticks in a group with the data that a script needs to draw them anew."""
        data = f' data-pixels="{px(self.first)} {px(self.last)}" data-values="{self.low:.12g} {self.high:.12g}"'
        data += ' data-zero=""' if has_zero else ""
        return f'<g class="ticks {direction}"{"" if self.log else data}>{body}</g>'


def axis(ends: Sequence[float], first: float, last: float, most: int = 5, log: bool = False) -> Axis:
    """Make a scale with round ticks for values between the smallest and the largest of ``ends``."""
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    if log:
        low, high = (math.log10(max(end, 1e-12)) for end in (low, high))
        start = math.floor(low)
        scale = Axis(first, last, start, max(math.ceil(high), start + 1), log=True)
        return replace(
            scale, ticks=[(scale(10.0**e), format_number(10.0**e)) for e in range(start, int(scale.high) + 1)]
        )
    if high == low:
        low, high = low - (abs(low) / 10 or 0.5), high + (abs(high) / 10 or 0.5)
    rough = (high - low) / most
    base = 10.0 ** math.floor(math.log10(rough))
    step = next(base * f for f in (1, 2, 2.5, 5, 10) if base * f >= rough * 0.999)
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    scale = Axis(first, last, low, high)
    values = [low + step * i for i in range(round((high - low) / step) + 1)]
    return replace(scale, ticks=[(scale(v), format_number(0.0 if abs(v) < step / 1e6 else v)) for v in values])


def is_finite(value: float | None) -> bool:
    """Whether a value is known and finite."""
    return value is not None and math.isfinite(value)


def number(value: float | None) -> float:
    """Value as a float, or 0 for None."""
    return 0.0 if value is None else float(value)


# Parts


def chart(title: str, about: str, width: float, height: float, parts: Iterable[str]) -> str:
    """Assemble the SVG of a chart with role, title and description for screen readers. Sizes are in pixels."""
    name, words = escape_text(title), escape_text(about)
    return (
        f'<svg class="chart" role="img" aria-label="{name}" width="{px(width)}" height="{px(height)}" '
        f'viewBox="0 0 {px(width)} {px(height)}"><title>{name}</title><desc>{words}</desc>{"".join(parts)}</svg>'
    )


def escape_text(text: str) -> str:
    """Escape a text for SVG as one visible line, cut to ``_LONGEST`` characters."""
    return escape(one_line(text[:_LONGEST]))


def px(value: float) -> str:
    """Format a length in pixels to a tenth."""
    return f"{value:.1f}".removesuffix(".0")


def path(points: Sequence[tuple[float, float]]) -> str:
    """Attribute ``d`` of a path through points."""
    return "M" + "L".join(f"{px(x)} {px(y)}" for x, y in points) if points else ""


def _shape_index(mark: int) -> int:
    """Index of a run's shape. Colours repeat after eight runs, then with other shapes."""
    return (mark + mark // COLOURS) % len(_SHAPES)


def group(mark: int, body: str, kind: str = "") -> str:
    """Wrap the elements of a run in a group with the run's colour, or return "" without elements."""
    return f'<g class="{" ".join(filter(None, (kind, mark_classes(mark))))}">{body}</g>' if body else ""


def rows(body: str, height: float, gap: float = 0.0) -> str:
    """Wrap a label and groups ``row`` of runs in a group ``rows`` with height and gap in pixels."""
    return f'<g class="rows" data-tall="{px(height)} {px(gap)}">{body}</g>'


def _shape(mark: int, x: float, y: float, kind: str) -> str:
    return f'<path class="{kind}" transform="translate({px(x)} {px(y)})" d="{_SHAPES[_shape_index(mark)]}"/>'


def legend_mark(mark: int, x: float, y: float) -> str:
    """Draw the mark of a run for a legend."""
    return _shape(mark, x, y, "mark key")


def name(x: float, y: float, words: str, full_text: str = "", anchor: str = "") -> str:
    """Draw the name of a run, with the full text as tooltip if the name was cut."""
    tip = f"<title>{escape_text(full_text)}</title>" if full_text and full_text != words else ""
    side = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text class="label name" x="{px(x)}" y="{px(y)}"{side}>{escape_text(words)}{tip}</text>'


def spot(mark: int, x: float, y: float, tip: str, kind: str = "mark") -> str:
    """Draw the mark of a run with a tooltip, hollow if ``kind`` is "mark open". ``tip`` must be escaped."""
    return f"<g><title>{tip}</title>{_shape(mark, x, y, kind)}</g>"


def line(mark: int, points: Sequence[tuple[float, float]], *, closed: bool = False) -> str:
    """Draw the line of a run, or return "" for fewer than two points."""
    end = "z" if closed else ""
    return f'<path class="line dash{mark // COLOURS % 4}" d="{path(points)}{end}"/>' if len(points) > 1 else ""


def whisker(x1: float, y1: float, x2: float, y2: float, kind: str = "whisker") -> str:
    """Draw the line of an interval, dashed if ``kind`` is "whisker dash2"."""
    return f'<path class="{kind}" d="{path([(x1, y1), (x2, y2)])}"/>'


def hatch(x: float, y: float, width: float, height: float) -> str:
    """Draw diagonal strokes in a box."""
    strokes = (path([(x + at, y + height - 1), (x + at + 8, y + 1)]) for at in range(2, int(width) - 8, 8))
    return f'<path class="hatch" d="{"".join(strokes)}"/>'


def text(x: float, y: float, words: str, anchor: str, full_text: str = "", *, is_vertical: bool = False) -> str:
    """Draw a label, with ``full_text`` as tooltip if it differs. Vertical labels run upwards from (x, y)."""
    label = escape_text(words)
    tip = f"<title>{escape_text(full_text)}</title>" if full_text and escape_text(full_text) != label else ""
    position = f'transform="translate({px(x + 4)} {px(y)}) rotate(-90)"' if is_vertical else f'x="{px(x)}" y="{px(y)}"'
    return f'<text class="label" {position} text-anchor="{"start" if is_vertical else anchor}">{label}{tip}</text>'


def horizontal(y: float, x1: float, x2: float, words: str) -> str:
    """Draw a horizontal grid line with a label on the left."""
    return f'<path class="grid" d="{path([(x1, y), (x2, y)])}"/>{text(x1 - 6, y + 4, words, "end")}'


def vertical(x: float, y1: float, y2: float, words: str, strong: bool) -> str:
    """Draw a vertical grid line, or an axis if ``strong``, with a label below."""
    rule = f'<path class="{"axis" if strong else "grid"}" d="{path([(x, y1), (x, y2)])}"/>'
    return rule + text(x, y2 + 16, words, "middle")


def thin_labels(at: Sequence[float], texts: Sequence[str]) -> list[tuple[float, str]]:
    """Select every n-th label, with the smallest n for which labels do not overlap, as (position, text)."""
    for every in range(1, len(texts) + 1):
        remaining = [(x, t) for i, (x, t) in enumerate(zip(at, texts, strict=True)) if i % every == 0]
        if all(b - a >= (text_width(s) + text_width(t)) / 2 + 4 for (a, s), (b, t) in pairwise(remaining)):
            return remaining
    return []


def draw_name(
    label: str, full_name: str, mark_position: tuple[float, float], occupied_boxes: list[_Box], bounds: _Box
) -> str:
    """Draw a name next to a mark, clear of ``occupied_boxes`` boxes, and add the name's box to these.

    Returns "" if no position within ``bounds`` is free.
    """
    x, y = mark_position
    wide = text_width(label)
    for dx, dy, anchor in ((9, 4, "start"), (-9, 4, "end"), (0, -9, "middle"), (0, 18, "middle")):
        x1 = x + dx - {"start": 0.0, "end": wide, "middle": wide / 2}[anchor]
        box = (x1, y + dy - _SIZE, x1 + wide, y + dy + 3)
        free = all(box[2] < b[0] or box[0] > b[2] or box[3] < b[1] or box[1] > b[3] for b in occupied_boxes)
        if free and box[0] > bounds[0] and box[1] > bounds[1] and box[2] < bounds[2] and box[3] < bounds[3]:
            occupied_boxes.append(box)
            return name(x + dx, y + dy, label, full_name, anchor)
    return ""
