"""The page in Debian's Chromium, from a file: what it asks for, what fits, what a keyboard does, what is accessible."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from chromium import Opened, chromium, violations, watched
from page_parts import EVIL, NAMES, SPELLED, results_file

from lbx.report import page as report_page
from lbx.store import Store

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WIDTHS = (1400, 400)
SCHEMES = ("light", "dark")
CROSSED = pytest.mark.long("CI has each width and each scheme, though not each pair of them")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page of five runs with odd names and hostile answers, and of 240 answers."""
    folder = tmp_path_factory.mktemp("browser")
    path = results_file(folder / "r.duckdb", [*NAMES, EVIL], output=f"{EVIL} ")
    results_file(path, ["long"], output="a word of " + "m" * 3000, tasks=["lcc"], samples=60)
    return written(path)


@pytest.fixture(scope="module")
def long_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page with a table of 120 rows: 40 runs of three tasks."""
    path = results_file(
        tmp_path_factory.mktemp("long") / "r.duckdb", ["run"], ["qasper", "hotpotqa", "lcc"], 2, failed=()
    )
    with duckdb.connect(str(path)) as connection:
        for table in ("runs", "generations", "scores", "numbers"):
            connection.execute(
                f"INSERT INTO {table} SELECT t.* REPLACE (run_id || copy AS run_id) FROM {table} t, range(39) r(copy)"
            )
    return written(path)


def written(path: Path) -> str:
    """Where the page of a results file lies, beside it."""
    with Store(path, read_only=True) as store:
        path.with_suffix(".html").write_text("".join(report_page.pieces(store)), "utf-8")
    return path.with_suffix(".html").as_uri()


@pytest.fixture
def opened(browser: Browser, url: str) -> Iterator[Opened]:
    """The page in a window of its own. At the end: it asked for nothing, and nothing was said in the console."""
    of_page: set[str] = set()
    with watched(browser) as (open_window, said, asked):

        def open_page(hash_: str = "", *, of: str = url, scripts: bool = True, **options: object) -> Page:
            page = open_window(scripts=scripts, **options)
            of_page.add(of)
            page.goto(of + hash_)
            if scripts:
                page.wait_for_selector("#list details")
            return page

        yield open_page
    assert said == []
    assert {address.partition("#")[0] for address in asked} <= of_page


def found(page: Page) -> str:
    return page.inner_text("#found")


def summaries(page: Page) -> list[list[str]]:
    """Score, run, task, id and marks of the answers that are listed."""
    return page.eval_on_selector_all(
        "#list summary", "all => all.map(one => [...one.children].map(c => c.textContent))"
    )


def chosen(page: Page, count: int) -> list[list[str]]:
    """The list, once so many answers are in it."""
    page.locator("#found", has_text=re.compile(f"of {count:,} answers$")).wait_for()
    return summaries(page)


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
    page.click("#list summary")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == (scheme == "dark")
    assert violations(page) == []


def test_labels_never_overlap(opened: Opened) -> None:
    page = opened()
    overlapping = page.evaluate("""() => [...document.querySelectorAll('svg.chart')].flatMap(chart => {
        const boxes = [...chart.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
        return boxes.flatMap(([a, x], i) => boxes.slice(i + 1).filter(([b, y]) =>
            x.left < y.right - 1 && y.left < x.right - 1 && x.top < y.bottom - 2 && y.top < x.bottom - 2)
            .map(([b]) => [chart.getAttribute('aria-label'), a, b]));
    })""")
    assert overlapping == []
    assert page.locator("svg.chart").count() > 4


def test_any_text_is_a_text(opened: Opened) -> None:
    page = opened(width=400)
    page.select_option("[name=run]", label=SPELLED)
    first = chosen(page, 24)[0]
    assert first[1] == SPELLED
    page.click("#list summary")
    assert page.inner_text("#list dd:nth-of-type(3)").startswith(SPELLED)
    assert page.locator("b[onload]").count() == 0
    page.select_option("[name=run]", label="long")
    chosen(page, 60)
    page.click("#list summary")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_headings_sort_by_content(opened: Opened) -> None:
    page = opened()
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
    field = page.locator(".table-filter input").first
    shown = "all => all.filter(row => !row.hidden).map(row => row.textContent)"
    rows = page.locator(".table-filter + .scroll").first.locator("tbody tr")
    before = rows.evaluate_all(shown)
    field.fill("HOTPOTQA")
    after = rows.evaluate_all(shown)
    assert after == [text for text in before if "hotpotqa" in text]
    assert 0 < len(after) < len(before)


def test_of_a_long_table_the_first_rows_are_drawn(opened: Opened, long_url: str) -> None:
    page = opened(of=long_url)
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
    assert opened(of=long_url, scripts=False).locator("#task_scores tbody tr:visible").count() == 120


def test_a_box_hides_a_run_everywhere(opened: Opened) -> None:
    page = opened()
    assert page.locator("main svg .r0:visible").count() > 3
    page.locator("ul.runs input").first.focus()
    page.keyboard.press("Space")
    assert page.locator("main .r0:visible").count() == 0
    assert page.locator("main svg .r1:visible").count() > 3


def test_answers_are_filtered_by_content(opened: Opened) -> None:
    page = opened()
    everything = chosen(page, 180)
    assert len(everything) == 50
    page.select_option("[name=run]", label="plain")
    rows = chosen(page, 24)
    assert {row[1] for row in rows} == {"plain"}
    page.select_option("[name=task]", label="longbench/hotpotqa")
    rows = chosen(page, 12)
    assert {row[2] for row in rows} == {"longbench/hotpotqa"}
    page.select_option("[name=mark]", label="failed")
    assert [row[0] for row in chosen(page, 1)] == ["no score"]
    page.select_option("[name=mark]", value="")
    page.fill("[name=least]", "50")
    page.fill("[name=most]", "80")
    rows = summaries_after(page)
    assert rows
    assert all(50 <= float(row[0]) <= 80 for row in rows)
    page.select_option("[name=order]", value="highest")
    scores = [float(row[0]) for row in summaries_after(page)]
    assert scores == sorted(scores, reverse=True)
    page.evaluate("document.getElementById('controls').reset()")
    page.fill("[name=text]", "QUESTION 11")
    assert {row[3] for row in chosen(page, 11)} == {"qasper-011", "hotpotqa-011", "lcc-011"}
    page.fill("[name=text]", "nothing says this")
    page.locator("#found", has_text="No answers match.").wait_for()


def summaries_after(page: Page) -> list[list[str]]:
    """The list, once the filter has waited for more letters."""
    page.locator("#list[aria-busy=false]").wait_for(state="attached")
    return summaries(page)


def test_answers_against_a_baseline(opened: Opened) -> None:
    page = opened()
    page.select_option("[name=baseline]", label="plain")
    page.select_option("[name=run]", label=NAMES[0])
    page.select_option("[name=changed]", value="worse")
    rows = summaries_after(page)
    assert rows
    page.click("#list summary")
    other = page.locator("#list dt", has_text="baseline").inner_text()  # waits: an answer is filled when it has opened
    assert float(other.removeprefix("baseline, ")) > float(rows[0][0])
    page.select_option("[name=changed]", value="better")
    page.locator("#found", has_text="No answers match.").wait_for()


def test_keys_go_through_the_answers(opened: Opened) -> None:
    page = opened()
    opens = "[...document.querySelectorAll('#list details')].map((d, i) => d.open ? i : -1).filter(i => i >= 0)"
    page.keyboard.press("j")
    assert page.evaluate(opens) == [0]
    page.keyboard.press("j")
    assert page.evaluate(opens) == [1]
    page.keyboard.press("k")
    assert page.evaluate(opens) == [0]
    page.keyboard.press("k")
    assert page.evaluate(opens) == [0], "there is none before the first"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "text"
    page.keyboard.type("jk/")
    assert page.input_value("[name=text]") == "jk/", "letters are letters in a field"
    page.fill("[name=text]", "")
    assert len(summaries_after(page)) == 50
    page.locator("#list summary").last.focus()
    page.keyboard.press("j")
    assert found(page).startswith("51 to 100")
    assert page.evaluate(opens) == [0]
    page.keyboard.press("k")
    assert found(page).startswith("1 to 50")
    assert page.evaluate(opens) == [49]


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


def test_a_link_leads_to_an_answer(opened: Opened) -> None:
    page = opened("#plain/longbench/hotpotqa/hotpotqa-007/0")
    assert page.locator("#list details[open]").count() == 1
    assert page.inner_text("#list details[open] summary").split()[1:] == ["plain", "longbench/hotpotqa", "hotpotqa-007"]
    link = page.get_attribute("#list details[open] a.permalink", "href")
    assert link == "#plain/longbench/hotpotqa/hotpotqa-007/0"
    odd = opened("#%E6%97%A5%E6%9C%AC%E8%AA%9E%E3%81%AE%E3%83%A2%E3%83%87%E3%83%AB/longbench/qasper/qasper-002/0")
    assert "日本語のモデル" in odd.inner_text("#list details[open] summary")
    none = opened("#plain/longbench/qasper/none/0")
    assert "has no answer" in found(none)
    opened("#%E6%97/broken/link/to/0")


def test_without_scripts_the_report_stands(opened: Opened) -> None:
    page = opened(scripts=False)
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
        controls: [...document.querySelectorAll('nav, #controls, .pager')].some(one => one.checkVisibility()),
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
    page.wait_for_selector("#list details")
    assert page.evaluate("window.owned") is None
    assert len([text for text in refused if "Content Security Policy" in text]) >= 2
    page.close()
