"""Building blocks of charts as SVG text: scales with ticks, marks, lines, and labels that avoid overlaps.

Each run has a number, its mark, which determines its colour and shape in every chart. Texts are escaped.
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
    """Return an upper bound of a text's width in pixels in common sans-serif fonts."""
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
    """Return the CSS classes of a run's elements: its colour, and a class by which the page can hide the run."""
    return f"c{mark % COLOURS} {run_class(mark)}"


def run_class(mark: int | None) -> str:
    """Return the CSS class by which the page can hide the run; "" for None."""
    return "" if mark is None else f"r{mark}"


def symbol(mark: int) -> str:
    """Return a run's mark for use in text; a page has thousands, so the markup is as short as possible."""
    return f'<i class="s{_form(mark)} {mark_classes(mark)}"></i>'


def symbol_styles() -> str:
    """Return the style sheet of the shapes of ``symbol``, in a square of 12 px."""
    return "".join(f'i.s{n} {{ clip-path: path("M6 6m{form[1:]}") }}\n' for n, form in enumerate(_SHAPES))


def figure(value: float | None) -> str:
    """Format a number for charts: at most three significant digits, or its whole part."""
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
        low, high: Values at the pixels ``first`` and ``last``; exponents of ten if ``log``.
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
        """Wrap the ticks' lines and labels with the data that a script needs to draw them anew."""
        data = f' data-pixels="{px(self.first)} {px(self.last)}" data-values="{self.low:.12g} {self.high:.12g}"'
        data += ' data-zero=""' if has_zero else ""
        return f'<g class="ticks {direction}"{"" if self.log else data}>{body}</g>'


def axis(ends: Sequence[float], first: float, last: float, most: int = 5, log: bool = False) -> Axis:
    """Return a scale with round ticks for values between the smallest and the largest of ``ends``."""
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    if log:
        low, high = (math.log10(max(end, 1e-12)) for end in (low, high))
        start = math.floor(low)
        scale = Axis(first, last, start, max(math.ceil(high), start + 1), log=True)
        return replace(scale, ticks=[(scale(10.0**e), figure(10.0**e)) for e in range(start, int(scale.high) + 1)])
    if high == low:
        low, high = low - (abs(low) / 10 or 0.5), high + (abs(high) / 10 or 0.5)
    rough = (high - low) / most
    base = 10.0 ** math.floor(math.log10(rough))
    step = next(base * f for f in (1, 2, 2.5, 5, 10) if base * f >= rough * 0.999)
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    scale = Axis(first, last, low, high)
    values = [low + step * i for i in range(round((high - low) / step) + 1)]
    return replace(scale, ticks=[(scale(v), figure(0.0 if abs(v) < step / 1e6 else v)) for v in values])


def is_finite(value: float | None) -> bool:
    """Return whether a value is known and finite."""
    return value is not None and math.isfinite(value)


def number(value: float | None) -> float:
    """Return the value, or 0 for None."""
    return 0.0 if value is None else float(value)


# Parts


def chart(title: str, about: str, width: float, height: float, parts: Iterable[str]) -> str:
    """Assemble a chart with a role, a title and a description for screen readers; sizes in pixels."""
    name, words = escape_text(title), escape_text(about)
    return (
        f'<svg class="chart" role="img" aria-label="{name}" width="{px(width)}" height="{px(height)}" '
        f'viewBox="0 0 {px(width)} {px(height)}"><title>{name}</title><desc>{words}</desc>{"".join(parts)}</svg>'
    )


def escape_text(text: str) -> str:
    """Escape a text as one visible line, cut to ``_LONGEST`` characters."""
    return escape(one_line(text[:_LONGEST]))


def px(value: float) -> str:
    """Format pixels to a tenth."""
    return f"{value:.1f}".removesuffix(".0")


def path(points: Sequence[tuple[float, float]]) -> str:
    """Return the attribute ``d`` of a path through the points."""
    return "M" + "L".join(f"{px(x)} {px(y)}" for x, y in points) if points else ""


def _form(mark: int) -> int:
    """Return the index of a run's shape: colours repeat after eight runs, then with other shapes."""
    return (mark + mark // COLOURS) % len(_SHAPES)


def group(mark: int, body: str, kind: str = "") -> str:
    """Wrap a run's elements in a group with its colour; "" if there are none."""
    return f'<g class="{" ".join(filter(None, (kind, mark_classes(mark))))}">{body}</g>' if body else ""


def rows(body: str, height: float, gap: float = 0.0) -> str:
    """Wrap a label and the groups ``row`` of its runs with their sizes in pixels."""
    return f'<g class="rows" data-tall="{px(height)} {px(gap)}">{body}</g>'


def _shape(mark: int, x: float, y: float, kind: str) -> str:
    return f'<path class="{kind}" transform="translate({px(x)} {px(y)})" d="{_SHAPES[_form(mark)]}"/>'


def key(mark: int, x: float, y: float) -> str:
    """Draw a run's mark for a legend."""
    return _shape(mark, x, y, "mark key")


def name(x: float, y: float, words: str, full_text: str = "", anchor: str = "") -> str:
    """Draw a run's name, with the full text as its tooltip if it was cut."""
    tip = f"<title>{escape_text(full_text)}</title>" if full_text and full_text != words else ""
    side = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text class="label name" x="{px(x)}" y="{px(y)}"{side}>{escape_text(words)}{tip}</text>'


def spot(mark: int, x: float, y: float, tip: str) -> str:
    """Draw a run's mark with a tooltip; ``tip`` must be escaped."""
    return f"<g><title>{tip}</title>{_shape(mark, x, y, 'mark')}</g>"


def line(mark: int, points: Sequence[tuple[float, float]], *, closed: bool = False) -> str:
    """Draw a run's line; "" for fewer than two points."""
    end = "z" if closed else ""
    return f'<path class="line dash{mark // COLOURS % 4}" d="{path(points)}{end}"/>' if len(points) > 1 else ""


def whisker(x1: float, y1: float, x2: float, y2: float) -> str:
    """Draw the line of an interval."""
    return f'<path class="whisker" d="{path([(x1, y1), (x2, y2)])}"/>'


def text(x: float, y: float, words: str, anchor: str, full_text: str = "", *, is_vertical: bool = False) -> str:
    """Draw a label, with the full text ``full_text`` as its tooltip. Turned labels run upwards from their position."""
    label = escape_text(words)
    tip = f"<title>{escape_text(full_text)}</title>" if full_text and escape_text(full_text) != label else ""
    position = f'transform="translate({px(x + 4)} {px(y)}) rotate(-90)"' if is_vertical else f'x="{px(x)}" y="{px(y)}"'
    return f'<text class="label" {position} text-anchor="{"start" if is_vertical else anchor}">{label}{tip}</text>'


def horizontal(y: float, x1: float, x2: float, words: str) -> str:
    """Draw a horizontal grid line with its label on the left."""
    return f'<path class="grid" d="{path([(x1, y), (x2, y)])}"/>{text(x1 - 6, y + 4, words, "end")}'


def vertical(x: float, y1: float, y2: float, words: str, strong: bool) -> str:
    """Draw a vertical grid line with its label below; a strong line is the axis."""
    rule = f'<path class="{"axis" if strong else "grid"}" d="{path([(x, y1), (x, y2)])}"/>'
    return rule + text(x, y2 + 16, words, "middle")


def thin_labels(at: Sequence[float], texts: Sequence[str]) -> list[tuple[float, str]]:
    """Keep every n-th label, with the smallest n for which labels do not overlap."""
    for every in range(1, len(texts) + 1):
        remaining = [(x, t) for i, (x, t) in enumerate(zip(at, texts, strict=True)) if i % every == 0]
        if all(b - a >= (text_width(s) + text_width(t)) / 2 + 4 for (a, s), (b, t) in pairwise(remaining)):
            return remaining
    return []


def draw_name(label: str, full_name: str, at: tuple[float, float], boxes: list[_Box], inside: _Box) -> str:
    """Draw a name next to its mark, clear of ``boxes``, and add its box to them; "" if no position is free."""
    x, y = at
    wide = text_width(label)
    for dx, dy, anchor in ((9, 4, "start"), (-9, 4, "end"), (0, -9, "middle"), (0, 18, "middle")):
        x1 = x + dx - {"start": 0.0, "end": wide, "middle": wide / 2}[anchor]
        box = (x1, y + dy - _SIZE, x1 + wide, y + dy + 3)
        free = all(box[2] < b[0] or box[0] > b[2] or box[3] < b[1] or box[1] > b[3] for b in boxes)
        if free and box[0] > inside[0] and box[1] > inside[1] and box[2] < inside[2] and box[3] < inside[3]:
            boxes.append(box)
            return name(x + dx, y + dy, label, full_name, anchor)
    return ""
