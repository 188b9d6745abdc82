"""The state of a page in its address, in Debian's Chromium: links, reload, Back, the choice of runs."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

import lbx.report
from tests.chromium import Opened
from tests.page_parts import EVIL, NAMES, SPELLED, results_file, write_page
from tests.report.answer_list import OPEN, chosen, found, rows, state, unfold

if TYPE_CHECKING:
    from playwright.sync_api import Page

SCRIPTS = Path(lbx.report.__file__).parent / "page" / "script"

VIEW = """() => ({
    list: [...document.querySelectorAll('#browse:not([hidden]) tr[data-row]')].map(row => row.textContent),
    answer: document.getElementById('answer')?.textContent,
    sides: document.getElementById('sides').textContent,
    sort: [...document.querySelectorAll('#browse:not([hidden]) [aria-sort]')].map(head => head.outerHTML),
    filters: [...new FormData(document.getElementById('controls'))],
    runs: [...document.querySelectorAll('ul.runs input')].map(box => box.checked),
    hidden: document.querySelectorAll('main section .off').length,
})"""


@pytest.mark.parametrize(
    "address",
    [
        "#?runs=plain&runs=long",
        "#?runs=",
        f"#?baseline=plain&run={quote(NAMES[0])}&task=longbench/qasper&changed=worse&sort=-score",
        "#?least=20&most=60&mark=no%20mark&q=question",
        "#?page=3",
        "#?sort=output&page=2",
        f"#?answer={quote(quote(NAMES[1], safe=''))}/longbench/qasper/qasper-002/0",
        "#?baseline=plain&question=longbench/qasper/qasper-002&diff=off",
    ],
)
def test_a_reload_gives_the_same_view(opened: Opened, address: str) -> None:
    page = opened(address)
    before, of_address = page.evaluate(VIEW), state(page)
    assert not page.locator("#notice").is_visible()
    assert page.evaluate("location.hash = '#?'; document.title")
    chosen(page, 180)
    page.go_back()
    page.locator("#list[aria-busy=false]").wait_for(state="attached")
    assert page.evaluate(VIEW) == before, "Back"
    page.reload()
    page.wait_for_selector("#browse:not([hidden]), #sides:not([hidden])")
    assert page.evaluate(VIEW) == before
    assert state(page) == of_address


def test_filters_write_the_address(opened: Opened) -> None:
    page = opened()
    page.select_option("[name=run]", label=NAMES[0])
    page.fill("[name=q]", "question 1 & <b>=+%")
    page.locator("#found", has_text="No answers match.").wait_for()
    assert state(page) == {"run": [NAMES[0]], "q": ["question 1 & <b>=+%"]}
    other = opened("#" + page.url.partition("#")[2])
    assert other.input_value("[name=q]") == "question 1 & <b>=+%"
    page.click("#clear")
    chosen(page, 180)
    page.click("#next")
    assert state(page) == {"page": ["2"]}
    page.click("#before")
    assert state(page) == {}
    assert page.evaluate("history.length") == other.evaluate("history.length"), "filters add no steps to go back"


def test_the_address_of_a_section_lists_the_answers(opened: Opened) -> None:
    for section in ("answers", "guards"):
        chosen(opened(f"#{section}"), 180)


def test_the_link_of_an_answer_keeps_runs_and_baseline(opened: Opened) -> None:
    page = opened("#?baseline=plain&runs=plain&runs=long&q=question")
    page.locator("#list .question a").first.click()
    link = page.locator("#answer a.permalink").get_attribute("href")
    other = opened(link)
    assert state(other)["baseline"] == ["plain"] and state(other)["runs"] == ["plain", "long"]
    assert other.locator("#answer").is_visible() and "q" not in state(other)


def test_back_closes_an_answer(opened: Opened) -> None:
    page = opened("#?run=plain")
    chosen(page, 24)
    page.locator("#list .question a").nth(2).click()
    page.keyboard.press("j")
    assert page.evaluate(OPEN) == [4]
    page.go_back()
    page.locator("#answer").wait_for(state="detached")
    assert state(page) == {"run": ["plain"]}
    page.go_forward()
    page.locator("#answer").wait_for()
    assert page.evaluate(OPEN) == [4]
    page.click("text=All runs side by side")
    page.go_back()
    page.locator("#answer").wait_for()
    page.evaluate("location.hash = '#answers'")
    page.wait_for_timeout(50)
    assert page.evaluate(OPEN) == [4], "a section leaves the state"


def test_a_link_leads_to_an_answer(opened: Opened) -> None:
    page = opened("#?answer=plain/longbench/hotpotqa/hotpotqa-007/0")
    assert page.evaluate(OPEN) != []
    assert "longbench/hotpotqa/hotpotqa-007" in page.inner_text("#answer .answer-head")
    page.locator("#answer").scroll_into_view_if_needed()
    hidden = opened("#?runs=long&run=long&answer=plain/longbench/hotpotqa/hotpotqa-007/0")
    assert "hotpotqa-007" in hidden.inner_text("#answer .answer-head"), "filters that exclude it are cleared"
    assert "runs" not in state(hidden)
    evil = opened(f"#?answer={quote(quote(SPELLED, safe=''))}/longbench/qasper/qasper-002/0")
    assert SPELLED in evil.locator("#answer .answer-head").text_content()


def test_names_that_the_page_lacks_are_told(opened: Opened) -> None:
    page = opened(f"#?runs=plain&runs=gone&task=longbench/none&mark=odd&{quote(EVIL[:25])}=1&constructor=2")
    notice = page.inner_text("#notice [role=status]")
    assert "run “gone”, task “longbench/none”, mark “odd” and 2 more" in notice
    assert {row[1] for row in rows(page)} == {"plain"}
    assert page.locator("b[onload]").count() == 0
    page.get_by_role("button", name="Close").first.click()
    assert not page.locator("#notice").is_visible()
    answer = opened("#?answer=plain/longbench/qasper/none/0")
    assert "answer “plain/longbench/qasper/none/0”" in answer.inner_text("#notice")
    assert len(chosen(answer, 180)) == 50
    twice = opened("#?run=plain&run=long&changed=worse")
    assert "several values of “run”" in twice.inner_text("#notice")
    assert len(chosen(twice, 180)) == 50
    for broken in ("#?answer=%E6%97/broken", "#?question=&answer=/&sort=-&page=x&least=-1", "#?%", "#?runs"):
        opened(broken)


ADDRESSES = {
    "one name in many settings": ("#?" + "&".join(f"a{at}=1" for at in range(100_000)), "too long"),
    "one setting many times": ("#?" + "run=a&" * 100_000, "too long"),
    "runs that the page lacks": ("#?" + "runs=a&" * 100_000, "too long"),
    "a long text": ("#?q=" + "a" * 700_000, "too long"),
    "as many as are read": ("#?" + "&".join(f"a{at}=1" for at in range(6_000)), "setting “a0”, setting “a1”, "),
    "as many runs as are read": ("#?" + "runs=a&" * 9_000, "run “a”, run “a”, run “a” and 8997 more"),
    "a setting of every object": ("#?__proto__=1&constructor=2&__proto__=3", "“__proto__”, setting “constructor”"),
}
GUARD_MS = 60_000
"""Where each setting is looked for among all others, 100,000 of them take minutes."""


@pytest.mark.parametrize("case", ADDRESSES)
def test_an_address_of_any_length_is_read_once(case: str) -> None:
    """By the page's own script, in Node, which needs no browser."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    address, words = ADDRESSES[case]
    code = """
        const { hash, script, guard } = JSON.parse(require("fs").readFileSync(0, "utf-8"));
        const part = { firstChild: {}, prepend() {} }, location = { hash };
        const page = { location, URLSearchParams, $: () => part, element: () => part, button: () => part };
        const end = "choices.runs = { noun: 'run', has: () => false }; restore(); [state, $().firstChild.textContent]";
        const [state, told] = require("vm").runInNewContext(script + end, page, { timeout: guard });
        console.log(JSON.stringify([Object.keys(state), told]));
    """
    given = json.dumps({"hash": address, "script": (SCRIPTS / "state.js").read_text("utf-8"), "guard": GUARD_MS})
    done = subprocess.run([node, "-e", code], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kept, told = json.loads(done.stdout)
    assert kept == []
    assert words in told


def test_a_page_with_an_address_of_100_000_settings_is_shown(opened: Opened) -> None:
    page = opened(ADDRESSES["one name in many settings"][0])
    assert "The address of this page is too long" in page.inner_text("#notice [role=status]")
    assert len(chosen(page, 180)) == 50


def shown_runs(page: Page) -> set[str]:
    return {row[1] for row in rows(page)}


def test_runs_are_hidden_in_tables_charts_and_answers(opened: Opened) -> None:
    page = opened()
    unfold(page)
    sections = state(page)["open"]
    assert page.locator("main svg .r0:visible").count() > 3
    assert page.locator("main section tr.r0:visible").count() > 3
    page.evaluate("window.told = []; document.addEventListener('runschange', e => told.push(e.detail.hidden))")
    first = page.locator("ul.runs input").first
    label = page.locator("ul.runs li label").first.inner_text().strip()
    first.focus()
    page.keyboard.press("Space")
    assert page.locator("main section .r0:visible:not(i)").count() == 0
    assert page.locator("main svg .r1:visible").count() > 3
    assert label not in shown_runs(page)
    assert page.evaluate("told") == [[0]]
    assert len(state(page)["runs"]) == 5
    page.get_by_role("button", name="None").click()
    assert page.locator("#no-runs").is_visible()
    assert found(page) == "No answers match."
    assert state(page) == {"runs": [""], "open": sections}
    page.get_by_role("button", name="Only plain").click()
    assert shown_runs(page) == {"plain"}
    assert not page.locator("#no-runs").is_visible()
    page.get_by_role("button", name="All runs").click()
    chosen(page, 180)
    assert state(page) == {"open": sections}
    assert page.locator("main section .off").count() == 0


def test_the_first_table_is_shaded_again(opened: Opened, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = results_file(tmp_path_factory.mktemp("shades") / "r.duckdb", ["a", "b", "c"], ["qasper", "lcc"], 5)
    results_file(path, ["alone"], ["own"], 4, benchmark="other")
    page = opened(of=write_page(path))
    shades = """() => [...document.querySelectorAll('#scores tbody tr:not(.off)')].map(row =>
        (/h\\d/.exec(row.querySelector('td.average').className) ?? [''])[0])"""
    heads = page.locator("#scores thead th:visible")
    before, all_heads = page.evaluate(shades), heads.count()
    assert (before[0], before[2:]) == ("h9", ["h0", ""])
    page.locator("ul.runs li", has_text="c").locator("input").first.uncheck()
    assert page.evaluate(shades) == ["h9", "h5", ""], "ten points are half of the shades"
    page.locator("ul.runs li", has_text="alone").locator("input").uncheck()
    assert heads.count() < all_heads, "no column of a benchmark without a run"
    page.get_by_role("button", name="All runs").click()
    assert (len(page.evaluate(shades)), heads.count()) == (4, all_heads)


def test_many_runs_have_a_field_that_finds_them(opened: Opened, long_url: str) -> None:
    page = opened(of=long_url)
    items = page.locator("ul.runs li:visible")
    label = items.nth(3).locator("label").inner_text().strip()
    page.get_by_label("Find a run").fill(label.upper())
    assert 0 < items.count() < 40, label
    page.get_by_label("Find a run").fill("")
    assert items.count() == 40


def test_a_page_of_one_report_has_runs_in_its_address(opened: Opened, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = results_file(tmp_path_factory.mktemp("one") / "r.duckdb", ["a", "b"], ["qasper"], 3, failed=(0, 1, 2))
    page = opened("#?runs=b", of=write_page(path))
    assert page.locator("ul.runs input").first.is_checked() is False
