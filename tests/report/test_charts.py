"""Charts: what stands where, what is left out."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.report.draw import charts, svg
from lbx.report.draw.charts import Point, ScatterPoint, Series, short_names, spread

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
    """Where the marks of points are."""
    marks = (n for n in chart.iter("path") if n.get("class") in ("mark", "mark open"))
    found = (re.fullmatch(r"translate\((\S+) (\S+)\)", n.get("transform", "")) for n in marks)
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
    assert labels(chart)[-4:] == ["1k", "2k", "4k", "model"]
    assert tips(chart) == ["model: 40.0 [30.0, 50.0]", "model: 20.0 [10.0, 25.0], 9 answers"]
    band = next(n for n in chart.iter("path") if n.get("class") == "band")
    assert band.get("d", "").count("L") == 3
    assert next(g for g in chart.iter("g") if band in list(g)).get("class") == "c2 r2"


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


def test_intervals_of_few_answers_stand_side_by_side() -> None:
    def places(n: int) -> list[float]:
        series = [Series(name, mark, [Point(50, 20, 80, n=n)] * 3) for mark, name in enumerate("abc")]
        return [x for x, _ in placed(drawn(charts.curve("", "", list("123"), series)))]

    few, many = places(3), places(200)
    assert [few[at] - few[at - 3] for at in range(3, 9)] == pytest.approx([few[3] - few[0]] * 6) and few[3] > few[0] + 2
    assert many[:3] == many[3:6] == many[6:] and few[4] == many[4]
    assert many[0] < few[0] + 3 and few[8] < many[8] + 3, "beside the axis, and before the names"


def test_few_answers_are_a_hollow_mark_apart_from_the_line() -> None:
    """One answer of 50 percent looked like 200 answers, and surer than these, since no band was around it."""
    known, few = Point(40, 30, 50, n=200), Point(90, 20, 99, "9 answers", n=9)
    chart = drawn(charts.curve("", "", list("abcde"), [Series("m", 0, [known, known, few, known, Point(20, n=50)])]))
    at = [f"{x:g} " for x, _ in placed(chart)]
    paths = {kind: [n.get("d", "") for n in chart.iter("path") if n.get("class", "").startswith(kind)]
             for kind in ("line", "band", "whisker dash2", "mark open")}  # fmt: skip
    assert [re.findall(r"[ML](\S+ )", path) for path in paths["line"]] == [at[:2], at[3:]]
    assert len(paths["band"]) == 1 and at[2] not in paths["band"][0]
    assert [path.startswith(f"M{at[2]}") for path in paths["whisker dash2"]] == [True]
    assert len(paths["mark open"]) == 2, "that of 9 answers, and that without an interval"
    assert "m: 90.0 [20.0, 99.0], 9 answers" in " ".join(tips(chart))


def test_a_number_without_an_interval_is_an_open_mark_in_every_chart() -> None:
    bare, sure = Point(40, n=300), Point(60, 50, 70, n=300)
    for chart in (
        charts.dots("", "", [("a", Series("a", 0, [bare])), ("b", Series("b", 1, [sure]))]),
        charts.curve("", "", ["1"], [Series("a", 0, [bare]), Series("b", 1, [sure])]),
        charts.radar("", "", ["1", "2", "3"], [Series("a", 0, [bare, sure, None])]),
        charts.scatter(
            "", "", x_name="x", y_name="y", points=[ScatterPoint("a", 0, sure, bare), ScatterPoint("b", 1, bare, sure)]
        ),
    ):
        assert chart.count('class="mark open"') == chart.count('class="mark"') == 1, chart


def test_an_axis_has_round_ticks_that_hold_all_values() -> None:
    for low, high in ((0.0, 1.0), (27.4, 46.0), (-3.0, 2.5), (1e-9, 2e-9), (5.0, 5.0), (0.0, 0.0), (1e6, 9e6)):
        scale = svg.axis([low, high], 100.0, 0.0)
        grid = scale.ticks
        assert len(grid) >= 2
        assert all(0 <= scale(v) <= 100 for v in (low, high)), (low, high)
        assert len({text for _, text in grid}) == len(grid), grid


def test_figures() -> None:
    said = {0: "0", 44.91: "44.9", 100.0: "100", 1234.5: "1,234", 0.0123: "0.0123", -5.0: "-5", 2e9: "2e+09", 10: "10"}
    assert {value: svg.format_number(value) for value in said} == said
    assert svg.format_number(None) == svg.format_number(math.nan) == "-"


def test_a_difference_is_seen_beside_zero() -> None:
    chart = drawn(charts.dots("", "", [("a", Series("m", 0, [Point(4, 2, 6)]))], zero=True))
    (axis,) = (n for n in chart.iter("path") if n.get("class") == "axis")
    ((x, _),) = placed(chart)
    assert x > float(axis.get("d", "M0 0")[1:].split()[0])


def test_a_scatter_names_what_nothing_beats_first() -> None:
    places = [ScatterPoint(f"model number {i}", i, Point(10.0), Point(50.0), best=i == 7) for i in range(12)]
    chart = drawn(charts.scatter("", "", x_name="x", y_name="y", points=places))
    keys = [text for group in chart.findall("g") if "key" in group.get("class", "") for text in labels(group)]
    names = [text for text in labels(chart) if "number" in text and text not in keys]
    assert "model number 7" in names
    assert len(names) < 12, "twelve names at one place would lie over each other"
    assert sorted([*names, *keys]) == sorted(p.name for p in places), "the others are in a legend"


def test_labels_are_thinned() -> None:
    ticks = [f"a long label {i}" for i in range(40)]
    chart = drawn(charts.curve("", "", ticks, [Series("", 0, [Point(float(i)) for i in range(40)])]))
    shown = [text for text in labels(chart) if text in ticks]
    assert 1 < len(shown) < 10
    cut = svg.shorten("x" * 1_000_000, 100)
    assert cut.startswith("xxx") and cut.endswith("xxx") and "…" in cut
    assert svg.text_width(cut) <= 100


def test_bands_of_more_than_two_lines_wait_for_the_pointer() -> None:
    for count, kind in ((1, "band"), (2, "band"), (3, "band hover")):
        lines = [Series(f"m{i}", i, [Point(40 + i, 30, 50), Point(50, 40, 60)]) for i in range(count)]
        chart = drawn(charts.curve("", "", ["1", "2"], lines))
        bands = [n.get("class") for n in chart.iter("path") if "band" in n.get("class", "")]
        assert bands == [kind] * count


def test_each_line_has_its_name_at_its_end_and_no_two_names_overlap() -> None:
    lines = [Series(f"model {i}", i, [Point(10.0), Point(50 + i / 10)]) for i in range(8)]
    chart = drawn(charts.curve("", "", ["1", "2"], lines))
    names = [node for node in chart.iter("text") if node.get("class") == "label name"]
    assert sorted(node.text or "" for node in names) == [line.name for line in lines]
    heights = sorted(float(node.get("y", 0)) for node in names)
    assert all(b - a >= svg.LINE - 0.1 for a, b in pairwise(heights))
    assert heights[0] > 0 and heights[-1] < float(chart.get("height", 0))
    ends = [x for x, _ in placed(chart)]
    assert all(float(node.get("x", 0)) > max(ends) for node in names)


def test_more_lines_than_fit_have_a_legend() -> None:
    lines = [Series(f"model {i}", i, [Point(10.0), Point(50 + i)]) for i in range(30)]
    chart = drawn(charts.curve("", "", ["1", "2"], lines))
    keys = [g for g in chart.findall("g") if g.get("class", "").startswith("key ")]
    assert [labels(g) for g in keys] == [[line.name] for line in lines]
    dashes = {found[0] for n in chart.iter("path") if (found := re.search(r"line (dash\d)", n.get("class", "")))}
    assert len(dashes) == 4, "the colours repeat after eight runs"


def test_dots_have_a_legend_unless_their_rows_are_named() -> None:
    named = drawn(charts.dots("", "", [(f"m{i}", Series(f"m{i}", i, [Point(i)])) for i in range(3)]))
    assert not [g for g in named.findall("g") if "key" in g.get("class", "")]
    rows = [g for g in named.findall("g") if g.get("class") == "rows"]
    assert [labels(row) for row in rows] == [["m0"], ["m1"], ["m2"]]
    assert [[g.get("class") for g in row.findall("g")] for row in rows] == [[f"row c{i} r{i}"] for i in range(3)]
    shared = drawn(charts.dots("", "", [("task", Series(f"m{i}", i, [Point(i)])) for i in range(3)]))
    keys = [g for g in shared.findall("g") if g.get("class", "").startswith("key ")]
    assert [labels(g) for g in keys] == [["m0"], ["m1"], ["m2"]]


def test_charts_with_the_same_ends_have_the_same_axis() -> None:
    high, low = ([Series("m", 0, [Point(v), Point(v + 5)])] for v in (80.0, 10.0))
    ends = [*charts.extent(high), *charts.extent(low)]
    axes = [re.search(r'class="ticks y"[^>]*', charts.curve("", "", ["1", "2"], s, ends=ends))[0] for s in (high, low)]
    assert axes[0] == axes[1]
    assert 'data-values="0 100"' in axes[0]


def test_a_heat_map_marks_derived_values_and_the_runs_of_its_rows() -> None:
    cells = {(0, 0): Point(40, 30, 50), (1, 0): Point(60, is_complement=True)}
    chart = drawn(charts.heat("", "", rows=["a", "b"], columns=["c"], cells=cells, marks=[4, 5]))
    rows = [g for g in chart.iter("g") if g.get("class", "").startswith("row ")]
    assert [(g.get("class"), labels(g)) for g in rows] == [("row c4 r4", ["a", "40"]), ("row c5 r5", ["b", "(60)"])]


@given(st.lists(st.text("ab-", min_size=1, max_size=60), unique=True, max_size=8), st.sampled_from([90.0, 150.0]))
def test_short_names_fit(names: list[str], room: float) -> None:
    short = short_names(names, room)
    assert all(svg.text_width(name) <= room for name in short)
    assert all(cut == name for cut, name in zip(short, names, strict=True) if svg.text_width(name) <= room)


@pytest.mark.parametrize(
    "names",
    [
        ["Qwen2.5-72B-Instruct (temperature 0)", "Qwen2.5-72B-Instruct (temperature 1)"],
        ["Meta-Llama-3.1-8B-Instruct-Q4_K_M", "Meta-Llama-3.1-70B-Instruct-Q4_K_M"],
        ["a" * 40 + "1" + "b" * 40, "a" * 40 + "2" + "b" * 40],
        [f"organisation/a-long-name-of-a-model-{i}b-instruct-with-a-long-suffix" for i in range(8)],
    ],
)
def test_short_names_stay_different(names: list[str]) -> None:
    short = short_names(names, 130)
    assert len(set(short)) == len(names), short
    assert all("…" in name for name in short)


@given(st.lists(st.floats(0, 100), max_size=8).map(sorted))
def test_spread_labels_keep_their_order_and_distance(targets: list[float]) -> None:
    places = spread(targets, 10, 0, 100)
    assert all(b - a >= 10 - 1e-6 for a, b in pairwise(places))
    assert all(-1e-6 <= place <= 100 + 1e-6 for place in places)
    if all(b - a >= 10 for a, b in pairwise(targets)):
        assert places == pytest.approx(targets)


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
        assert f'{looks[13][0]} r13"' in chart
        assert f'd="M{looks[13][1]}"' in chart
