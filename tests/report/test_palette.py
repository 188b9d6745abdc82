"""The palettes of pages and charts: colours that any eyes can tell apart, and that stand out from the paper."""

from __future__ import annotations

import math
import re
from itertools import combinations

import pytest

from lbx.report.draw import svg
from lbx.report.draw.figures import CHART_STYLE


def palettes() -> dict[str, dict[str, str]]:
    """The colours of the style sheet: light, dark, print."""
    blocks = re.findall(r":root \{(.*?)\}", CHART_STYLE, re.DOTALL)
    return dict(zip(("light", "dark", "print"), (dict(re.findall(r"--(\w+): (#\w+)", b)) for b in blocks), strict=True))


def linear(colour: str) -> list[float]:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * c for c in colour[1:])
    values = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    return [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]


def contrast(a: str, b: str) -> float:
    high, low = sorted((0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (linear(a), linear(b))), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("kind", ["light", "dark", "print"])
def test_colours_stand_out_from_the_paper(kind: str) -> None:
    palette = palettes()[kind]
    for name in ("ink", "quiet", "accent"):
        assert contrast(palette[name], palette["paper"]) >= 4.5, name
    for mark in range(svg.COLOURS):
        assert contrast(palette[f"c{mark}"], palette["paper"]) >= 3, mark


# Machado, Oliveira, Fernandes 2009: full deficiency, on linear RGB.
SEEN = {
    "all cones": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
LEAST = 0.08
"""Smallest distance of two colours in OKLab, where black and white are 1 apart."""


def oklab(rgb: list[float]) -> list[float]:
    """OKLab of linear RGB (Ottosson 2020)."""
    lms = [
        math.cbrt(sum(m * min(max(v, 0), 1) for m, v in zip(row, rgb, strict=True)))
        for row in (
            (0.4122214708, 0.5363325363, 0.0514459929),
            (0.2119034982, 0.6806995451, 0.1073969566),
            (0.0883024619, 0.2817188376, 0.6299787005),
        )
    ]
    return [
        sum(m * v for m, v in zip(row, lms, strict=True))
        for row in (
            (0.2104542553, 0.7936177850, -0.0040720468),
            (1.9779984951, -2.4285922050, 0.4505937099),
            (0.0259040371, 0.7827717662, -0.8086757660),
        )
    ]


def test_distances_are_those_of_oklab() -> None:
    assert oklab([1, 1, 1]) == pytest.approx([1, 0, 0], abs=1e-4)
    assert oklab(linear("#ff0000")) == pytest.approx([0.62796, 0.22486, 0.12585], abs=1e-4)
    assert contrast("#fff", "#000") == pytest.approx(21)


@pytest.mark.parametrize("eyes", SEEN)
@pytest.mark.parametrize("kind", ["light", "dark", "print"])
def test_the_colours_can_be_told_apart(kind: str, eyes: str) -> None:
    palette = palettes()[kind]
    seen = []
    for mark in range(svg.COLOURS):
        rgb = linear(palette[f"c{mark}"])
        seen.append(oklab([sum(m * v for m, v in zip(row, rgb, strict=True)) for row in SEEN[eyes]]))  # type: ignore[attr-defined]
    for a, b in combinations(range(svg.COLOURS), 2):
        assert math.dist(seen[a], seen[b]) >= LEAST, (a, b, math.dist(seen[a], seen[b]))
