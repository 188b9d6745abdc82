"""Charts: what stands where, what is left out, and that colours can be told apart."""

from __future__ import annotations

import math
import re
from importlib.resources import files
from xml.etree import ElementTree

import pytest

from lbx.report import charts, svg
from lbx.report.charts import Point, ScatterPoint, Series

EVIL = "<b>\"x\" & 'y'</b>\0\x1b[31m\u202e日本語"
SHOWN = "<b>\"x\" & 'y'</b>\\x00\\x1b[31m\\u202e日本語"


def drawn(text: str) -> ElementTree.Element:
    """A chart, which has to be well-formed XML."""
    return ElementTree.fromstring(text)


def labels(chart: ElementTree.Element) -> list[str]:
    return [(node.text or "") for node in chart.iter("text")]


def tips(chart: ElementTree.Element) -> list[str]:
    return [(node.text or "") for group in chart.iter("g") for node in group.findall("title")]


def placed(chart: ElementTree.Element) -> list[tuple[float, float]]:
    """Where the marks are."""
    found = (re.fullmatch(r"translate\((\S+) (\S+)\)", n.get("transform", "")) for n in chart.iter("path"))
    return [(float(at[1]), float(at[2])) for at in found if at]


CHARTS = {
    "curve": charts.curve(EVIL, EVIL, [EVIL, "2k"], [Series(EVIL, 3, [Point(1, 0, 2, EVIL), Point(2)])]),
    "dots": charts.dots(EVIL, EVIL, [(EVIL, Series(EVIL, 1, [Point(1, 0, 2, EVIL)]))]),
    "heat": charts.heat(EVIL, EVIL, rows=[EVIL], columns=[EVIL], cells={(0, 0): Point(1, 0, 2, EVIL)}),
    "scatter": charts.scatter(EVIL, EVIL, x_name=EVIL, y_name=EVIL, points=[ScatterPoint(EVIL, 2, Point(1), Point(2))]),
    "radar": charts.radar(EVIL, EVIL, [EVIL, "b", "c"], [Series(EVIL, 0, [Point(10), Point(90), None])]),
}


@pytest.mark.parametrize("form", CHARTS)
def test_any_text_is_a_text(form: str) -> None:
    chart = drawn(CHARTS[form])
    assert chart.get("role") == "img"
    assert chart.get("aria-label") == SHOWN
    assert chart.findtext("title") == SHOWN
    assert chart.findtext("desc")
    assert {node.tag for node in chart.iter()} <= {"svg", "title", "desc", "g", "path", "text", "rect", "circle"}
    assert not [node for node in chart.iter() if "style" in node.attrib], "the page's policy forbids them"
    said = "".join(chart.itertext())
    assert not {*map(chr, range(32)), "\x7f", "\u202e"} & set(said)


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_not_drawn(value: float | None) -> None:
    point = Point(value, value, value)
    for chart in (
        charts.curve("", "", ["1", "2"], [Series("", 0, [point, Point(1.0)])]),
        charts.dots("", "", [("a", Series("", 0, [point])), ("b", Series("", 0, [Point(1.0)]))]),
        charts.heat("", "", rows=["a"], columns=["b", "c"], cells={(0, 0): point, (0, 1): Point(1.0)}),
        charts.scatter(
            "",
            "",
            x_name="",
            y_name="",
            points=[ScatterPoint("", 0, point, Point(1)), ScatterPoint("", 0, Point(1), Point(1))],
        ),
        charts.radar("", "", ["a", "b", "c"], [Series("", 0, [point, Point(1.0), None])]),
    ):
        assert "nan" not in chart
        assert "inf" not in chart
        drawn(chart)
    assert len(placed(drawn(charts.curve("", "", ["1", "2"], [Series("", 0, [point, Point(1.0)])])))) == 1


def test_nothing_at_all_is_still_a_chart() -> None:
    for chart in (
        charts.curve("t", "", [], []),
        charts.dots("t", "", []),
        charts.heat("t", "", rows=[], columns=[], cells={}),
        charts.scatter("t", "", x_name="", y_name="", points=[]),
        charts.radar("t", "", [], []),
    ):
        assert drawn(chart).findtext("title") == "t"


def test_a_curve_shows_values_and_intervals() -> None:
    line = Series("model", 2, [Point(40, 30, 50), None, Point(20, 10, 25, "9 answers")])
    chart = drawn(charts.curve("Title", "About", ["1k", "2k", "4k"], [line]))
    (first, last) = placed(chart)
    assert first[0] < last[0]
    assert first[1] < last[1], "40 stands above 20"
    assert labels(chart)[-3:] == ["1k", "2k", "4k"]
    assert tips(chart) == ["model: 40.0 [30.0, 50.0]", "model: 20.0 [10.0, 25.0], 9 answers"]
    band = next(n for n in chart.iter("path") if n.get("class") == "band")
    assert band.get("d", "").count("L") == 3
    assert {"c2", "r2"} <= set(next(chart.iter("g")).get("class", "").split())


def test_a_band_leaves_out_points_without_an_interval() -> None:
    known, unknown = Point(40, 30, 50), Point(20)
    line = Series("model", 0, [known, known, unknown, known, unknown, known, known])
    chart = drawn(charts.curve("", "", list("abcdefg"), [line]))
    at = [x for x, _ in placed(chart)]
    bands = [n.get("d", "") for n in chart.iter("path") if n.get("class") == "band"]
    edges = [[float(x) for x in re.findall(r"[ML](\S+) ", band)] for band in bands]
    assert [(min(x), max(x)) for x in edges] == [(at[0], at[1]), (at[5], at[6])]
    whiskers = [n.get("d", "") for n in chart.iter("path") if n.get("class") == "whisker"]
    assert len(whiskers) == 1 and whiskers[0].startswith(f"M{at[3]:g} ")


def test_an_axis_has_round_ticks_that_hold_all_values() -> None:
    for low, high in ((0.0, 1.0), (27.4, 46.0), (-3.0, 2.5), (1e-9, 2e-9), (5.0, 5.0), (0.0, 0.0), (1e6, 9e6)):
        scale, grid = svg.axis([low, high], 100.0, 0.0)
        assert len(grid) >= 2
        assert all(0 <= scale(v) <= 100 for v in (low, high)), (low, high)
        assert len({text for _, text in grid}) == len(grid), grid


def test_figures() -> None:
    said = {0: "0", 44.91: "44.9", 100.0: "100", 1234.5: "1,234", 0.0123: "0.0123", -5.0: "-5", 2e9: "2e+09", 10: "10"}
    assert {value: svg.figure(value) for value in said} == said
    assert svg.figure(None) == svg.figure(math.nan) == "-"


def test_a_difference_is_seen_beside_zero() -> None:
    chart = drawn(charts.dots("", "", [("a", Series("m", 0, [Point(4, 2, 6)]))], zero=True))
    (axis,) = (n for n in chart.iter("path") if n.get("class") == "axis")
    ((x, _),) = placed(chart)
    assert x > float(axis.get("d", "M0 0")[1:].split()[0])


def test_a_scatter_names_what_nothing_beats_first() -> None:
    places = [ScatterPoint(f"model number {i}", i, Point(10.0), Point(50.0), best=i == 7) for i in range(12)]
    names = [
        text
        for text in labels(drawn(charts.scatter("", "", x_name="x", y_name="y", points=places)))
        if "number" in text
    ]
    assert "model number 7" in names
    assert len(names) < 12, "twelve names at one place would lie over each other"


def test_labels_are_thinned() -> None:
    ticks = [f"a long label {i}" for i in range(40)]
    chart = drawn(charts.curve("", "", ticks, [Series("", 0, [Point(float(i)) for i in range(40)])]))
    shown = [text for text in labels(chart) if text in ticks]
    assert 1 < len(shown) < 10
    cut = svg.shorten("x" * 1_000_000, 100)
    assert cut.endswith("…")
    assert svg.text_width(cut) <= 100


def test_a_run_looks_the_same_everywhere_and_like_no_other() -> None:
    shapes = dict(re.findall(r'i\.(s.) { clip-path: path\("M6 6m(.*?)"\)', svg.symbol_styles()))
    looks = {
        mark: (svg.mark_classes(mark).split()[0], shapes[re.search('"(s.) ', svg.symbol(mark))[1]])
        for mark in range(64)
    }
    assert len(set(looks.values())) == 64
    for chart in (
        charts.curve("", "", ["a"], [Series("", 13, [Point(1)])]),
        charts.dots("", "", [("", Series("", 13, [Point(1)]))]),
        charts.radar("", "", ["a", "b", "c"], [Series("", 13, [Point(1)] * 3)]),
    ):
        assert f'class="{looks[13][0]} r13"' in chart
        assert f'd="M{looks[13][1]}"' in chart


def palettes() -> dict[str, dict[str, str]]:
    """The colours of the style sheet: light, dark, print."""
    style = files("lbx.report").joinpath("charts.css").read_text("utf-8")
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
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
}


def lab(rgb: list[float]) -> list[float]:
    """CIE L*a*b*, D65."""
    r, g, b = (min(max(v, 0), 1) for v in rgb)
    xyz = (
        (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089,
    )
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in xyz)
    return [116 * y - 16, 500 * (x - y), 200 * (y - z)]


@pytest.mark.parametrize("eyes", SEEN)
@pytest.mark.parametrize("kind", ["light", "dark", "print"])
def test_the_colours_can_be_told_apart(kind: str, eyes: str) -> None:
    """Colours that come close for some eyes still have shapes of their own; none may be the same."""
    palette = palettes()[kind]
    seen = []
    for mark in range(svg.COLOURS):
        rgb = linear(palette[f"c{mark}"])
        seen.append(lab([sum(m * v for m, v in zip(row, rgb, strict=True)) for row in SEEN[eyes]]))
    for a in range(svg.COLOURS):
        for b in range(a):
            assert math.dist(seen[a], seen[b]) > 15, (a, b, math.dist(seen[a], seen[b]))
