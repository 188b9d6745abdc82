"""Figures of reports: what they show, and the files that they are written to."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from lbx.base.errors import LbxError, UsageError
from lbx.opinions.aggregation import write_ratings
from lbx.opinions.rating_rows import RatingItemRow, RatingRow, RatingSetRow
from lbx.report.draw import figures as drawings
from lbx.report.draw import figures as files
from lbx.report.page import pieces
from lbx.report.page.source import PageSource
from lbx.report.query import ALL
from lbx.results import Store
from lbx.results.scoring.reading import add_missing_numbers
from tests.chromium import violations, watched
from tests.command_line import Lbx, fails
from tests.page_parts import EVIL, NAMES, SPELLED, results_file
from tests.report.made_answers import Answer, make

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SVG = "{http://www.w3.org/2000/svg}"
MODELS = [f"organisation/a-model-with-a-long-name-{size}b-instruct (attempt {n})" for size in (7, 70) for n in range(5)]


def figures(path: Path, name: str) -> list[drawings.Figure]:
    with Store(path, read_only=True) as store:
        return drawings.figures(PageSource(store, ALL), name)


def labels(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)", svg)


@pytest.fixture(scope="module")
def ten_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return results_file(tmp_path_factory.mktemp("figures") / "r.duckdb", MODELS, samples=60, failed=())


def test_curves_of_a_report_have_equal_axes_and_names(ten_runs: Path) -> None:
    drawn = figures(ten_runs, "length_curve")
    assert [figure.title for figure in drawn] == [f"longbench/{task}, prompt tokens" for task in ("hotpotqa", "qasper")]
    assert len({re.search(r'data-values="[^"]*"', figure.svg)[0] for figure in drawn}) == 1  # type: ignore[index]
    for figure in drawn:
        names = re.findall(r'class="label name"[^>]*>([^<]*)', figure.svg)
        assert len(names) == len(set(names)) == 8
        assert figure.caption == "The charts show the best 8 of 10 runs; the tables have all."
        assert figure.svg.count('class="band hover"') == 8


def test_needles_are_a_heat_map_for_each_run(tmp_path: Path) -> None:
    answers = [
        Answer(
            f"{task} {length} {depth}",
            {"recall": score if run == "a" else 1.0},
            run=run,
            benchmark="needle",
            task=task,
            length=length,
            meta={"depth": depth},
        )
        for run in "ab"
        for task in ("single_en", "multikey_en")
        for (length, depth), score in {(1024, 0.0): 1.0, (1024, 0.5): 0.5, (2048, 0.0): 0.25}.items()
    ]
    drawn = figures(make(tmp_path / "r.duckdb", answers), "needles")
    assert [figure.title for figure in drawn] == ["model a, needle, words", "model b, needle, words"]
    assert [figure.mark for figure in drawn] == [0, 1]
    wanted = ["depth %", "1k", "2k", "0", "100.0", "25.0", "50", "50.0"]
    assert labels(drawn[0].svg) == wanted, "depth down, length across"
    shades = [re.findall(r'fill-opacity="([\d.]+)"', figure.svg) for figure in drawn]
    assert shades == [["0.50", "0.15", "0.27"], ["0.50", "0.50", "0.50"]], "one scale from 0 to 100"


def test_win_rates_of_several_opponents_are_a_matrix(tmp_path: Path) -> None:
    path = results_file(tmp_path / "r.duckdb", ["a", "b", "c"], failed=())
    verdicts = [("a", "b", "answer"), ("a", "c", "answer"), ("a", "c", "against"), ("b", "c", "tie")]
    items = [RatingItemRow("s", n, "longbench", "qasper", f"qasper-{n:03d}", n) for n in range(len(verdicts))]
    ratings = [
        RatingRow("s", n, "ann", answer, against_run_id=against, verdict=verdict)
        for n, (answer, against, verdict) in enumerate(verdicts)
    ]
    with Store(path) as store:
        write_ratings(store, [RatingSetRow("s", "pair", "human", [], None, None)], items, ratings, replace=True)
    matrix = figures(path, "rating_results")[0]
    assert matrix.title == "longbench, s: win rate of each against each, percent"
    assert labels(matrix.svg) == ["c", "b", "a", "c", "50.0", "50.0", "b", "50.0", "0.0", "a", "50.0", "100.0"]
    assert matrix.caption == "Rows against columns."


class JudgedPairs:
    """Judge's win rates by (run, opponent)."""

    def __init__(self, win_rates: Mapping[tuple[str, str], float]) -> None:
        self.win_rates = win_rates

    def rows(self, name: str) -> list[dict[str, Any]]:
        known = {"judge_id": "j", "label_judge": "judge", "fitness": "fit", "benchmark": "leval", "kind": "pair"}
        return [
            known
            | {"run_id": a, "against_run_id": b, "win_rate": rate, "low": rate - 0.1, "high": rate + 0.2, "n": 9}
            | {"task": None, "questions": "all"}
            for (a, b), rate in self.win_rates.items()
        ]

    def label(self, run_id: object) -> str:
        return str(run_id)

    def mark(self, run_id: object) -> int | None:
        return "abc".index(str(run_id))

    def mark_of(self, name: str) -> int:
        return "abc".index(name)


def test_a_pair_that_was_judged_in_one_direction_has_its_reverse_in_parentheses() -> None:
    matrix = drawings.figures(JudgedPairs({("a", "b"): 0.7, ("a", "c"): 0.4}), "judge_results")[0]
    assert labels(matrix.svg) == ["a", "b", "c", "a", "70.0", "40.0", "b", "(30.0)", "c", "(60.0)"]
    assert "<title>b, a: 30.0 [10.0, 40.0], 9 answers</title>" in matrix.svg
    assert matrix.caption.startswith("Rows against columns. Values in parentheses are 100 minus the reverse pair")
    titles = [f.title for f in drawings.figures(JudgedPairs({("a", "b"): 0.7, ("c", "b"): 0.4}), "judge_results")]
    assert titles == ["leval: win rate against b, percent"], "one opponent needs no matrix"


def test_reports_with_and_without_charts(ten_runs: Path) -> None:
    with pytest.raises(
        UsageError, match=r"paper has no charts.*Name a report with charts: card, leaderboard, .*, board"
    ):
        drawings.require_figures(["paper"], figures(ten_runs, "paper"))
    with pytest.raises(UsageError, match="needles has too few rows"):
        drawings.require_figures(["needles"], figures(ten_runs, "needles"))


def test_a_file_is_complete(ten_runs: Path, tmp_path: Path) -> None:
    drawn = figures(ten_runs, "length_curve")
    tree = ElementTree.fromstring(drawings.svg_file("The title", drawn))
    style = tree.findtext(f"{SVG}style") or ""
    assert "var(" not in style and "#1e4dd3" in style
    texts = ["".join(node.itertext()) for node in tree.iter(f"{SVG}text")]
    assert {"The title", *(figure.title for figure in drawn), drawn[0].caption} <= {*texts}
    boxes = [[float(node.get(name, 0)) for name in ("x", "y", "width", "height")] for node in tree.findall(f"{SVG}svg")]
    assert len(boxes) == len(drawn)
    assert all(x + w <= float(tree.get("width", 0)) and y + h < float(tree.get("height", 0)) for x, y, w, h in boxes)


def test_a_file_is_as_wide_as_its_charts(ten_runs: Path) -> None:
    """A column of dots of 720 pixels had 380 empty ones beside it."""
    drawn = figures(ten_runs, "leaderboard")
    tree = ElementTree.fromstring(drawings.svg_file("The title", drawn))
    assert float(tree.get("width", 0)) == max(float(node.get("width", 0)) for node in tree.findall(f"{SVG}svg")) < 800


def test_a_task_is_drawn_once_in_tokens_where_these_are_known_of_all_runs(tmp_path: Path) -> None:
    rows = [
        Answer(f"{length} {n}", {"f1": 0.5}, run=run, task=task, length=length,
               values={"original_tokens": 2 * length} if tokens else {})
        for run in "ab"
        for task, tokens in (("qasper", True), ("musique", run == "a"), ("hotpotqa", False))
        for length in (1000, 3000)
        for n in range(12)
    ]  # fmt: skip
    path = make(tmp_path / "r.duckdb", rows)
    with Store(path) as store:
        add_missing_numbers(store)
    titles = [figure.title for figure in figures(path, "length_curve")]
    assert titles == ["longbench/hotpotqa, words", "longbench/musique, words", "longbench/qasper, prompt tokens"]
    with Store(path, read_only=True) as store:
        assert len(store.query("SELECT DISTINCT task, length_unit FROM length_curve").rows) == 5


def test_a_file_of_hostile_names_is_text(tmp_path: Path) -> None:
    path = results_file(tmp_path / "r.duckdb", [*NAMES, EVIL])
    for name in ("leaderboard", "task_scores", "length_curve", "comparison"):
        tree = ElementTree.fromstring(drawings.svg_file(EVIL, figures(path, name)))
        tags = {node.tag.removeprefix(SVG) for node in tree.iter()}
        assert tags <= {"svg", "title", "desc", "style", "g", "path", "text", "rect"}
        assert tree.findtext(f"{SVG}title") == SPELLED


def test_a_command_writes_charts(ten_runs: Path, tmp_path: Path) -> None:
    output = tmp_path / "curves.svg"
    lbx = Lbx()
    lbx.ok("report", ten_runs, "length_curve", "--format", "svg", "-o", output)
    assert ElementTree.parse(output).getroot().tag == f"{SVG}svg"
    fails(lbx("report", ten_runs, "--format", "svg", "-o", output), 2, "charts of one report", "Name it")
    fails(lbx("report", ten_runs, "length_curve", "--format", "png"), 2, "-o FILE.png")
    for name in ("svg", "png"):
        output = tmp_path / "none" / f"card.{name}"
        fails(lbx("report", ten_runs, "card", "--format", name, "-o", output), 2, "does not exist", "mkdir -p")


def test_png_needs_its_renderer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(LbxError, match=r"Install lbx\[png\], or use --format svg"):
        drawings.render_png("<svg/>")


def test_letters_without_a_font_are_named() -> None:
    pytest.importorskip("resvg_py", reason="the renderer is in lbx[dev]")
    assert drawings.missing_letters("<svg><style>通</style><text>Llama … − é</text></svg>") == ""
    assert drawings.missing_letters("<svg><text>Llama \U0010fffd 3</text></svg>") == "\U0010fffd"


def test_png_has_text(ten_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("resvg_py", reason="the renderer is in lbx[dev]")
    drawn = figures(ten_runs, "leaderboard")
    images = [drawings.render_png(drawings.svg_file(title, drawn)) for title in ("模型 نموذج", "")]
    assert all(image.startswith(b"\x89PNG") for image in images)
    assert images[0] != images[1]
    monkeypatch.setattr(files, "_FAMILIES", "no such font")
    with pytest.raises(LbxError, match="No font"):
        drawings.render_png("<svg/>")


# In Chromium


@pytest.fixture
def opened(browser: Browser, ten_runs: Path) -> Iterator[Page]:
    """The page of the curves. At the end: it asked for nothing else, and nothing was said in the console."""
    with Store(ten_runs, read_only=True) as store:
        path = ten_runs.with_suffix(".html")
        path.write_text("".join(pieces(store, names=["length_curve", "leaderboard", "task_scores"])), "utf-8")
    with watched(browser) as (open_window, said, asked):
        page = open_window()
        page.goto(path.as_uri())
        yield page
    assert said == []
    assert {address.partition("#")[0] for address in asked} <= {path.as_uri()} | {
        address for address in asked if address.startswith("blob:")
    }


OVERLAPS = """() => [...document.querySelectorAll('svg.chart')].flatMap(chart => {
    const texts = [...chart.querySelectorAll('text')].filter(text => text.getBoundingClientRect().width);
    const boxes = texts.map(text => [text.textContent, text.getBoundingClientRect()]);
    return boxes.flatMap(([a, x], i) => boxes.slice(i + 1).filter(([b, y]) =>
        x.left < y.right - 1 && y.left < x.right - 1 && x.top < y.bottom - 2 && y.top < x.bottom - 2)
        .map(([b]) => [chart.getAttribute('aria-label'), a, b]));
})"""
OUTSIDE = """() => [...document.querySelectorAll('svg.chart')].flatMap(chart => {
    const frame = chart.getBoundingClientRect();
    return [...chart.querySelectorAll('text')].filter(text => text.getBoundingClientRect().width).filter(text => {
        const box = text.getBoundingClientRect();
        return box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1;
    }).map(text => text.textContent);
})"""


def test_names_of_ten_runs_neither_overlap_nor_leave_their_charts(opened: Page) -> None:
    assert opened.locator("svg.chart").count() == 4
    assert opened.evaluate(OVERLAPS) == []
    assert opened.evaluate(OUTSIDE) == []


def test_a_band_appears_under_the_pointer(opened: Page) -> None:
    bands = opened.locator("#length_curve svg").first.locator(".band")
    visible = "all => all.filter(band => getComputedStyle(band).visibility === 'visible').length"
    assert bands.evaluate_all(visible) == 0
    opened.locator("#length_curve svg").first.locator("g.r2 > .name").hover()
    assert bands.evaluate_all(visible) == 1
    opened.evaluate("""() => {
        for (let mark = 2; mark < 10; mark++)
            for (const node of document.querySelectorAll('main .r' + mark)) node.classList.add('off');
        document.dispatchEvent(new CustomEvent('runschange'));
    }""")
    shown = opened.locator("#length_curve svg").first.locator("g:not(.off) > .band")
    assert shown.evaluate_all(visible) == 2, "bands of two runs are visible"


def test_axes_fit_the_visible_runs(opened: Page) -> None:
    axis = "svg => svg.querySelector('.ticks').textContent"
    before = opened.locator("#length_curve svg").first.evaluate(axis)
    place = "svg => svg.querySelector('g.r1 .mark').getAttribute('transform')"
    first = opened.locator("#length_curve svg").first.evaluate(place)
    opened.evaluate("""() => {
        for (const node of document.querySelectorAll('main .r0, main .r2')) node.classList.add('off');
        document.dispatchEvent(new CustomEvent('runschange'));
    }""")
    axes = opened.locator("#length_curve svg").evaluate_all(f"all => all.map({axis})")
    assert axes[0] == axes[1]
    assert opened.evaluate(OVERLAPS) == []
    opened.evaluate("""() => {
        for (const node of document.querySelectorAll('main .off')) node.classList.remove('off');
        document.dispatchEvent(new CustomEvent('runschange'));
    }""")
    svg = opened.locator("#length_curve svg").first
    assert svg.evaluate(axis) == before
    assert [float(x) for x in re.findall(r"[\d.]+", svg.evaluate(place))] == pytest.approx(
        [float(x) for x in re.findall(r"[\d.]+", first)], abs=0.2
    )


def test_ticks_of_large_numbers_keep_their_digits(opened: Page) -> None:
    texts = opened.evaluate("""() => {
        for (const axis of document.querySelectorAll('#length_curve .ticks')) axis.dataset.values = '10000 10010';
        for (const node of document.querySelectorAll('main .r0')) node.classList.add('off');
        document.dispatchEvent(new CustomEvent('runschange'));
        return [...document.querySelectorAll('#length_curve .ticks text')].map(text => text.textContent);
    }""")
    assert texts and all(re.fullmatch(r"10,0\d\d", text) for text in texts)
    assert "10,002" in texts


def test_rows_move_up_in_place_of_hidden_runs(opened: Page) -> None:
    chart = opened.locator("#leaderboard svg").first
    height = chart.bounding_box()["height"]  # type: ignore[index]
    labels = "svg.querySelectorAll('.rows:not([hidden]) > .label')"
    tops = f"svg => [...{labels}].map(row => row.getBoundingClientRect().top)"
    before = chart.evaluate(tops)
    opened.evaluate("""() => {
        for (const node of document.querySelectorAll('main .r0, main .r3')) node.classList.add('off');
        document.dispatchEvent(new CustomEvent('runschange'));
    }""")
    after = chart.evaluate(tops)
    assert len(before) == 10 and len(after) == 8
    assert [b - a for a, b in pairwise(after)] == pytest.approx([before[1] - before[0]] * 7, abs=0.1)
    assert chart.bounding_box()["height"] < height - 30  # type: ignore[index]
    assert opened.evaluate(OVERLAPS) == []
    assert opened.evaluate(OUTSIDE) == []


def test_a_saved_chart_opens_alone(opened: Page, browser: Browser, tmp_path: Path) -> None:
    figure = opened.locator("#length_curve figure").first
    figure.hover()
    with opened.expect_download() as download:
        figure.locator("button.take").click()
        opened.get_by_role("button", name="Save as SVG").click()
    assert download.value.suggested_filename == "longbench-hotpotqa-prompt-tokens.svg"
    download.value.save_as(tmp_path / "saved.svg")
    with watched(browser) as (open_window, said, asked):
        page = open_window()
        page.goto((tmp_path / "saved.svg").as_uri())
        texts = page.evaluate("[...document.querySelectorAll('text')].map(text => text.textContent)")
        assert texts[0] == "longbench/hotpotqa, prompt tokens"
        assert len([text for text in texts if text.startswith("organ")]) == 8
        colour = "getComputedStyle(document.querySelector('.line')).stroke"
        assert page.evaluate(colour) == "rgb(30, 77, 211)", "the blue of light paper"
        top = page.evaluate("document.querySelector('.title').getBoundingClientRect().top")
        assert top >= 0
        assert said == [] and len(asked) == 1


def test_charts_are_accessible(opened: Page) -> None:
    assert violations(opened) == []
