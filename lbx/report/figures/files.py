"""Figures of reports as one SVG or PNG file, on light paper."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from lbx.base.errors import LbxError, UsageError
from lbx.report import svg
from lbx.report.figures.base import Figure
from lbx.report.figures.drawing import CHART_STYLE, FIGURES

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
