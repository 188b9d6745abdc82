"""Tables and charts of the page in Chromium: under every choice of runs, in the address, on paper, and taken out."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lbx.report
from lbx.base.csv_cells import escape_formula
from lbx.report.format.render import _escape as markdown_cell
from lbx.report.format.render import escape_latex as latex_text
from lbx.report.page import html
from tests.chromium import Opened, violations
from tests.gallery_files import MODELS, Sizes
from tests.gallery_files import results_file as gallery_file
from tests.page_parts import EVIL, SPELLED, results_file, write_page
from tests.report.answer_list import chosen, state, unfold, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page

SCRIPT = Path(lbx.report.__file__).parent / "page" / "script" / "take.js"
MOST_NODES = 15_000
NODES = """() => {
    const walker = document.createTreeWalker(document, NodeFilter.SHOW_ALL);
    let count = 0;
    while (walker.nextNode()) count++;
    return count;
}"""
EMPTY = """() => [...document.querySelectorAll('main table:not(#list)')].filter(table => {
    const shown = [...table.tBodies[0].rows].some(row => getComputedStyle(row).display !== 'none');
    return !shown && table.closest('.scroll').nextElementSibling.hidden;
}).map(table => table.closest('.scroll').ariaLabel)"""


@pytest.fixture(scope="session")
def eight_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page of 8 models whose tables of tasks are longer than a page shows."""
    path = tmp_path_factory.mktemp("eight") / "r.duckdb"
    return write_page(gallery_file(path, MODELS[:8], Sizes(4, 8, 1, needle=1)))


def shown_rows(page: Page, selector: str) -> list[str]:
    return page.locator(f"{selector} tbody tr:visible").all_inner_texts()


def test_rows_are_cut_so_that_every_run_has_some() -> None:
    assert html._first_rows_of_each([0, 0, 1, 1], 4) == (range(4), "")
    assert html._first_rows_of_each([0, 0, 0, 1, 1, 1, 2], 5) == ([0, 1, 3, 4, 6], "The first 2 rows of each run, 5")
    assert html._first_rows_of_each([0, 0, 0, 0, 1], 3) == ([0, 1, 4], "The first 2 rows of each run, 3")
    assert html._first_rows_of_each([0, 0, 0], 2) == (range(2), "The first 2")
    assert html._first_rows_of_each([0, 1, 2, 3], 2) == (range(2), "The first 2")


def test_no_choice_of_runs_leaves_a_table_empty_without_a_word(opened: Opened, eight_url: str) -> None:
    page = opened(of=eight_url)
    unfold(page)
    assert "rows of each run" in page.inner_text("#task_scores")
    for only in page.locator("ul.runs .only").all():
        only.click()
        assert page.evaluate(EMPTY) == [], only.get_attribute("aria-label")
        assert shown_rows(page, "#task_scores table")
    page.get_by_role("button", name="None").click()
    assert "No rows of the chosen runs." in page.inner_text("#task_scores")
    assert page.evaluate(EMPTY) == []


def test_a_folded_section_has_no_nodes_until_it_is_opened(opened: Opened, eight_url: str) -> None:
    page = opened(of=eight_url)
    assert page.evaluate(NODES) < MOST_NODES
    assert page.locator("#leaderboard table").count() == 0
    page.locator("summary", has_text="Leaderboard").first.click()
    assert page.locator("#leaderboard table").first.is_visible()
    assert page.locator("#leaderboard td > a").count() > 3, "numbers are links"
    assert page.locator("#cost table").count() == 0
    page.get_by_role("button", name="Open all sections").click()
    wait_until(page, "!document.querySelector('.folded > noscript')")
    assert page.locator("#cost table").first.is_visible()


def test_a_section_opened_later_has_the_chosen_runs_only(opened: Opened) -> None:
    page = opened("#?runs=plain")
    assert page.inner_text("#chosen").startswith("1 of 6 runs shown.")
    unfold(page)
    hidden = page.locator("main .r0:visible").evaluate_all("all => all.map(n => n.localName)")
    assert set(hidden) <= {"i"}
    page.get_by_role("button", name="Show all").click()
    assert not page.locator("#chosen").is_visible()
    assert page.locator("main .off").count() == 0


def test_sentences_about_hidden_runs_are_hidden_or_grey(opened: Opened) -> None:
    page = opened()
    sentences = page.locator("p.lead, .remarks > ul > li")
    about = "all => all.filter(n => n.querySelector('i')).map(n => n.className.replace('lead', '').trim())"
    assert set(sentences.evaluate_all(about)) == {""}
    page.get_by_role("button", name="Only long").click()
    assert set(sentences.evaluate_all(about)) <= {"off", "partly", "off partly", ""}
    assert page.locator("p.lead.off, .remarks .off").count() > 0


def test_an_axis_of_percent_stays_when_runs_are_hidden(opened: Opened, eight_url: str) -> None:
    page = opened(of=eight_url)
    unfold(page)
    axes = """() => [...document.querySelectorAll('.ticks[data-values="0 100"]')].map(axis => axis.textContent)"""
    before = page.evaluate(axes)
    page.locator("ul.runs .only").first.click()
    assert before and page.evaluate(axes) == before


def test_the_address_has_order_filter_columns_and_open_sections(opened: Opened, eight_url: str) -> None:
    page = opened(of=eight_url)
    page.locator("summary", has_text="Scores by task").click()
    page.locator(".switches label", has_text="intervals").locator("input").check()
    page.locator("#task_scores table").first.get_by_role("button", name="score", exact=True).click()
    page.locator("#scores th button", has_text="run").click()
    table = page.locator("#task_scores .scroll[id]").first.get_attribute("id")
    page.locator("#task_scores .table-filter input").first.fill("QWEN")
    wait_until(page, "location.hash.includes('rows=')")
    wanted = {
        "open": ["task_scores"], "show": ["intervals"], "rows": [f"{table}:QWEN"],
        "order": [f"{table}:-score", "scores/all-scores:run"],
    }  # fmt: skip
    assert state(page) == wanted
    view = "() => [...document.querySelectorAll('#scores table, #task_scores table')].map(t => t.innerText)"
    before = page.evaluate(view)
    assert before[1].count("Qwen") > 1
    other = opened("#" + page.url.partition("#")[2], of=eight_url)
    assert other.evaluate(view) == before
    assert state(other) == wanted
    assert other.locator("#task_scores th[aria-sort=descending]").text_content().startswith("score")
    other.evaluate("location.hash = '#?'")
    wait_until(other, "!document.querySelector('#scores [aria-sort]')")
    assert not other.locator("#task_scores table").first.is_visible()
    other.go_back()
    wait_until(other, "document.querySelector('#scores [aria-sort]')")
    assert other.evaluate(view) == before, "Back"
    unknown = opened(f"#?order={table}:nothing&rows=no/table:x&open=none&show=all", of=eight_url)
    assert "order “task_scores/" in unknown.inner_text("#notice [role=status]")


def test_a_table_and_a_chart_have_addresses(opened: Opened) -> None:
    page = opened()
    unfold(page)
    ids = page.locator("main .scroll[id], main figure[id]").evaluate_all("all => all.map(node => node.id)")
    assert len(ids) == len(set(ids)) > 10
    name = next(each for each in ids if each.startswith("guards/"))
    for address in (f"#{name}", f"#?at={name}"):
        fresh = opened(address)
        wait_until(fresh, f"document.getElementById({name!r})?.getBoundingClientRect().top < 300")


def take(page: Page, within: str, item: str) -> None:
    page.locator(f"{within} button.take").first.click()
    page.get_by_role("button", name=item).click()


def test_a_table_is_taken_as_it_is_shown(opened: Opened, tmp_path: Path) -> None:
    page = opened()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("summary", has_text="Scores by task").click()
    page.locator("#task_scores table").first.get_by_role("button", name="score", exact=True).click()
    page.get_by_role("button", name="Only plain").click()
    rows = page.locator("#task_scores tbody").first.locator("tr:visible")
    cells = [row.locator("td").all_inner_texts() for row in rows.all()]
    with page.expect_download() as download:
        take(page, "#task_scores .tools", "Save as CSV")
    download.value.save_as(tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as file:
        _, *lines = csv.reader(file)
    assert [line[: len(row)] for line, row in zip(lines, cells, strict=True)] == cells
    assert len(lines) > 1 and all("plain" in row for row in cells)
    take(page, "#task_scores .tools", "Copy as Markdown")
    page.locator("#take", has_text="Copied").wait_for()
    text = page.evaluate("navigator.clipboard.readText()")
    assert text.count("| plain |") == len(cells)
    page.keyboard.press("Escape")
    take(page, "#task_scores .tools", "Copy as LaTeX")
    page.locator("#take", has_text="Copied").wait_for()
    assert "\\toprule" in page.evaluate("navigator.clipboard.readText()")
    page.keyboard.press("Escape")
    take(page, "#task_scores .tools", "Copy link")
    page.locator("#take", has_text="Copied").wait_for()
    link = page.evaluate("navigator.clipboard.readText()")
    assert "runs=plain" in link and "at=task_scores/" in link
    assert violations(page) == []
    fresh = opened("#" + link.partition("#")[2])
    assert fresh.locator("#task_scores table").first.is_visible()


def test_a_chart_is_taken_as_a_picture(opened: Opened, eight_url: str, tmp_path: Path) -> None:
    page = opened(of=eight_url)
    page.locator("summary", has_text="Leaderboard").first.click()
    page.locator("#leaderboard figure").first.hover()
    with page.expect_download() as download:
        take(page, "#leaderboard figure", "Save as PNG")
    download.value.save_as(tmp_path / "chart.png")
    data = (tmp_path / "chart.png").read_bytes()
    assert data.startswith(b"\x89PNG") and len(data) > 5_000


TEXTS = [
    "=1+1", "+1.5", "-3", "-3.1 [-4, 2]", "@x", " =1", "\uff1d1", "1e5", "plain", "a|b", "*a*", "# x", "_a_ b",
    "snake_case_name", "<b>x", "[a](b)", "a`b`c", "$1 and $2", "~~x~~", "&amp;", "https://x.y", "a--b---c", "5 % & {x}",
    "[1]", "~^\\", "“q” – ’s …", "a,,b", "±1×2", SPELLED,
]  # fmt: skip


def test_taken_texts_are_escaped_as_in_files() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    code = """
        const { script, texts } = JSON.parse(require("fs").readFileSync(0, "utf-8"));
        const page = { element: () => ({}), $: () => ({ append() {} }), setUps: [] };
        const end = "; texts => texts.map(text => [spreadsheetCell(text), markdownCell(text), latexText(text)])";
        console.log(JSON.stringify(require("vm").runInNewContext(script + end, page)(texts)));
    """
    given = json.dumps({"script": SCRIPT.read_text("utf-8"), "texts": TEXTS})
    done = subprocess.run([node, "-e", code], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        [
            escape_formula(text),
            markdown_cell(text),
            re.sub(r"\\foreignletters\{(.*?)\}\{.*?\}", r"\1", latex_text(text)),
        ]
        for text in TEXTS
    ]


def test_on_paper_heads_are_texts_and_narrow_tables_have_columns(opened: Opened, tmp_path: Path) -> None:
    page = opened(of=write_page(results_file(tmp_path / "r.duckdb", ["a", "b"], [f"t{n}" for n in range(20)], 2)))
    page.emulate_media(media="print")
    wait_until(page, "!document.querySelector('main thead:not(#list thead) button *, .folded > noscript')")
    heads = page.locator("#task_scores thead").first
    assert "score" in heads.inner_text()
    assert heads.evaluate("head => [...head.querySelectorAll('button')].every(one => !one.textContent)")
    assert page.locator(".scroll[data-columns='aside']").count() > 0
    columns = page.locator("#task_scores .scroll[id]").evaluate_all("all => all.map(each => +each.dataset.columns)")
    assert min(columns) > 1
    page.emulate_media(media="screen")
    wait_until(page, "document.querySelector('#scores thead button').textContent")
    page.locator("#scores th button", has_text="run").click()
    assert page.locator("#scores th[aria-sort]").count() == 1


def test_equal_columns_are_in_the_caption_and_the_verdict_is_third(opened: Opened, eight_url: str) -> None:
    page = opened(of=eight_url)
    unfold(page)
    for heads in page.locator("#comparison thead tr").all():
        assert heads.locator("th").nth(2).inner_text() == "verdict"
    assert page.locator("caption .same").count() > 0


def test_hostile_names_stay_texts_in_opened_sections(opened: Opened) -> None:
    page = opened()
    unfold(page)
    chosen(page, 180)
    assert SPELLED[:20] in page.inner_text("#leaderboard")
    assert page.locator("main b[onload], main .folded script").count() == 0
    assert EVIL not in page.content()
