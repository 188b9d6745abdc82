"""Line charts as SVG text, both axes logarithmic: a straight line is a power, a flat one a constant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 520, 360, 60, 40, 130, 50
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#000000")


@dataclass(frozen=True)
class Line:
    """Points (x, y), both above 0, in the order of x. Lines of one colour belong together; "" has no label."""

    label: str
    colour: int
    dashed: bool
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Panel:
    title: str
    x_label: str
    lines: Sequence[Line]


@dataclass(frozen=True)
class _Axis:
    """A logarithmic axis: values from low to high lie on pixels from start to end."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        if self.high == self.low:
            return (self.start + self.end) / 2
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)


def svg(panels: Sequence[Panel], caption: str) -> str:
    """Panels two in a row, with a caption underneath."""
    rows = -(-len(panels) // 2)
    width, height = 2 * WIDTH, rows * HEIGHT + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        f'font-size="12"><rect width="{width}" height="{height}" fill="white"/>'
    ]
    for number, panel in enumerate(panels):
        parts.append(f'<g transform="translate({number % 2 * WIDTH},{number // 2 * HEIGHT})">')
        parts += _panel(panel)
        parts.append("</g>")
    parts.append(f'<text x="{LEFT}" y="{height - 10}">{escape(caption)}</text></svg>\n')
    return "\n".join(parts)


def decades(low: float, high: float) -> list[float]:
    """Powers of ten that hold low and high between the first and the last; at least two."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def _panel(panel: Panel) -> list[str]:
    xs = sorted({x for line in panel.lines for x, _ in line.points})
    ticks = decades(*(pick(y for line in panel.lines for _, y in line.points) for pick in (min, max)))
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    x_axis, y_axis = _Axis(xs[0], xs[-1], LEFT, right), _Axis(ticks[0], ticks[-1], bottom, TOP)
    parts = [
        f'<text x="{LEFT}" y="{TOP - 15}" font-weight="bold">{escape(panel.title)}</text>',
        f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(panel.x_label)}</text>',
    ]
    for x in xs:
        parts.append(f'<text x="{x_axis(x):.1f}" y="{bottom + 18}" text-anchor="middle">{x:g}</text>')
    for tick in ticks:
        y = y_axis(tick)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for line in panel.lines:
        colour = COLOURS[line.colour % len(COLOURS)]
        points = " ".join(f"{x_axis(x):.1f},{y_axis(y):.1f}" for x, y in line.points)
        dashes = ' stroke-dasharray="5 4"' if line.dashed else ""
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
    labelled = [line for line in panel.lines if line.label]
    for number, line in enumerate(labelled):
        colour = COLOURS[line.colour % len(COLOURS)]
        parts.append(f'<text x="{right + 10}" y="{TOP + 16 * number}" fill="{colour}">{escape(line.label)}</text>')
    return parts
