"""The page in Debian's Chromium, from a file: what it asks for, what fits, what a keyboard does, what is accessible."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.chromium import Opened, violations
from tests.report.answer_list import unfold

if TYPE_CHECKING:
    from playwright.sync_api import Browser

WIDTHS = (1400, 400)
SCHEMES = ("light", "dark")
CROSSED = pytest.mark.long("CI has each width and each scheme, though not each pair of them")


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        pytest.param(scheme, width, marks=[CROSSED] if (scheme, width) not in (("light", 1400), ("dark", 400)) else [])
        for scheme in SCHEMES
        for width in WIDTHS
    ],
)
def test_it_fits_and_is_accessible(opened: Opened, width: int, scheme: str) -> None:
    page = opened(width=width, scheme=scheme)
    unfold(page)
    page.click("#list .question a")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == (scheme == "dark")
    assert violations(page) == []


def test_labels_never_overlap(opened: Opened) -> None:
    page = opened()
    unfold(page)
    overlapping = page.evaluate("""() => [...document.querySelectorAll('svg.chart')].flatMap(chart => {
        const boxes = [...chart.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
        return boxes.flatMap(([a, x], i) => boxes.slice(i + 1).filter(([b, y]) =>
            x.left < y.right - 1 && y.left < x.right - 1 && x.top < y.bottom - 2 && y.top < x.bottom - 2)
            .map(([b]) => [chart.getAttribute('aria-label'), a, b]));
    })""")
    assert overlapping == []
    assert page.locator("svg.chart").count() > 4


def test_headings_sort_by_content(opened: Opened) -> None:
    page = opened()
    unfold(page)
    read = """([table, column]) => [...table.tBodies[0].rows].map(row => row.cells[column].textContent)"""
    table = page.locator("#task_scores table").first.element_handle()
    column = page.evaluate("t => [...t.tHead.rows[0].cells].findIndex(c => c.textContent === 'score')", table)
    button = page.locator("#task_scores table").first.locator("th button").nth(column)
    button.focus()
    page.keyboard.press("Enter")
    down = [float(text.split()[0]) for text in page.evaluate(read, [table, column])]
    assert down == sorted(down, reverse=True)
    page.keyboard.press("Enter")
    up = [float(text.split()[0]) for text in page.evaluate(read, [table, column])]
    assert up == sorted(down) != down
    assert page.evaluate("(t) => [...t.querySelectorAll('[aria-sort]')].map(h => h.ariaSort)", table) == ["ascending"]
    page.locator("#task_scores table").first.locator("th button").nth(0).click()
    names = page.evaluate(read, [table, 0])
    assert names == sorted(names)


def test_a_field_filters_a_table(opened: Opened) -> None:
    page = opened()
    unfold(page)
    field = page.locator(".table-filter input").first
    shown = "all => all.filter(row => !row.hidden).map(row => row.textContent)"
    rows = page.locator(".tools:has(.table-filter) + .scroll").first.locator("tbody tr")
    before = rows.evaluate_all(shown)
    field.fill("HOTPOTQA")
    after = rows.evaluate_all(shown)
    assert after == [text for text in before if "hotpotqa" in text]
    assert 0 < len(after) < len(before)


def test_of_a_long_table_the_first_rows_are_drawn(opened: Opened, long_url: str) -> None:
    page = opened(of=long_url)
    unfold(page)
    drawn = page.locator("#task_scores tbody tr:visible")
    more = page.locator("#task_scores button.pager")
    assert drawn.count() == 100
    assert more.text_content() == "Show 20 more rows"
    page.locator("#task_scores th button", has_text="task").click()
    tasks = re.findall("hotpotqa|lcc|qasper", " ".join(drawn.all_text_contents()))
    assert tasks == ["hotpotqa"] * 40 + ["lcc"] * 40 + ["qasper"] * 20
    page.locator("ul.runs input").first.click()
    assert (drawn.count(), more.text_content()) == (100, "Show 17 more rows")
    page.fill("#task_scores input", "LCC")
    assert drawn.count() == 39
    assert not more.is_visible()
    page.fill("#task_scores input", "")
    page.emulate_media(media="print")
    assert drawn.count() == 117
    assert not more.is_visible()
    page.emulate_media(media="screen")
    more.focus()
    page.keyboard.press("Enter")
    assert drawn.count() == 117
    assert not more.is_visible()
    without = opened(of=long_url, scripts=False)
    unfold(without)
    assert without.locator("#task_scores tbody tr:visible").count() == 120


def test_every_control_is_reached_by_keyboard(opened: Opened) -> None:
    page = opened()
    wanted = page.evaluate("""() => {
        const all = [...document.querySelectorAll('a[href], button, input, select, summary, [tabindex]')];
        return all.filter(one => !one.disabled && one.checkVisibility()).length;
    }""")
    page.evaluate("window.seen = new Set(); addEventListener('focusin', e => seen.add(e.target))")
    for _ in range(wanted + 5):
        page.keyboard.press("Tab")
    assert page.evaluate("seen.size") >= wanted


def test_without_scripts_the_report_stands(opened: Opened) -> None:
    page = opened(scripts=False)
    unfold(page)
    assert page.locator("svg.chart:visible").count() > 4
    assert page.locator("table:visible").count() > 4
    assert page.locator("#controls:visible").count() == 0
    assert "needs JavaScript" in page.inner_text("#answers")


def test_on_paper_it_is_black_on_white_and_whole(opened: Opened, tmp_path: Path) -> None:
    page = opened(scheme="dark", width=1030)
    page.emulate_media(media="print")
    looks: dict[str, Any] = page.evaluate("""() => ({
        paper: getComputedStyle(document.body).backgroundColor,
        ink: getComputedStyle(document.body).color,
        cut: [...document.querySelectorAll('table')].filter(t => t.getBoundingClientRect().right > innerWidth + 1)
            .map(t => t.caption.textContent),
        controls: [...document.querySelectorAll('ul.runs, #controls, .pager')].some(one => one.checkVisibility()),
    })""")
    assert looks == {"paper": "rgb(255, 255, 255)", "ink": "rgb(0, 0, 0)", "cut": [], "controls": False}
    page.pdf(path=tmp_path / "report.pdf", prefer_css_page_size=True)
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")


def test_the_policy_refuses_what_is_not_ours(opened: Opened, browser: Browser, url: str) -> None:
    """The same page with a script and a picture smuggled in: neither runs nor is fetched."""
    smuggled = (
        Path(url.removeprefix("file://"))
        .read_text("utf-8")
        .replace(
            '<main id="main">',
            '<main id="main"><script>window.owned = 1</script><img src="http://127.0.0.1:9/x.png" alt="">',
        )
    )
    path = Path(url.removeprefix("file://")).with_name("smuggled.html")
    path.write_text(smuggled, "utf-8")
    page = browser.new_page()
    refused = []
    page.on("console", lambda message: refused.append(message.text))
    page.goto(path.as_uri())
    page.wait_for_selector("#list tr[data-row]")
    assert page.evaluate("window.owned") is None
    assert len([text for text in refused if "Content Security Policy" in text]) >= 2
    page.close()
