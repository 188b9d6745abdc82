"""Answers on the page, in Debian's Chromium: the list, an open one, side by side, keys, links of numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pytest

from tests.chromium import Opened, overflow, violations
from tests.page_parts import NAMES, SPELLED, results_file, write_page
from tests.report.answer_list import OPEN, chosen, found, rows, state, unfold

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="session")
def words_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page of three runs; "b" changes words of "a", and "c" answers in Chinese."""
    path = results_file(tmp_path_factory.mktemp("words") / "r.duckdb", ["a", "b", "c"], ["qasper"], 4, failed=(3,))
    texts = {
        "a": "the quick brown fox\njumps <b>high</b>",
        "b": "the slow brown fox\njumps <i>high</i>",
        "c": "我喜欢吃苹果",
    }
    with duckdb.connect(str(path)) as connection:
        for run, text in texts.items():
            connection.execute("UPDATE generations SET output = ? WHERE run_id = ? AND error IS NULL", [text, run])
        connection.execute("UPDATE samples SET question = 'What jumps?\nSecond line.' WHERE sample_id = 'qasper-001'")
    return write_page(path)


def test_a_row_has_the_first_lines(opened: Opened, words_url: str) -> None:
    page = opened("#?q=What+jumps", of=words_url)
    assert chosen(page, 3) == [
        ["45.0", "c", "longbench/qasper", "What jumps?", "我喜欢吃苹果", "reference 1", ""],
        ["35.0", "b", "longbench/qasper", "What jumps?", "the slow brown fox", "reference 1", ""],
        ["25.0", "a", "longbench/qasper", "What jumps?", "the quick brown fox", "reference 1", ""],
    ]


def test_any_text_is_a_text(opened: Opened) -> None:
    page = opened(width=400)
    page.select_option("[name=run]", label=SPELLED)
    assert chosen(page, 24)[0][1] == SPELLED
    page.click("#list .question a")
    answer = page.locator("#answer dt", has_text="answer").locator("xpath=following-sibling::dd[1]")
    assert answer.inner_text().startswith(SPELLED)
    page.click("text=All runs side by side")
    page.locator("#sides .side button").first.click()
    assert page.locator("#sides ins, #sides del").count() > 0
    assert page.locator("b[onload]").count() == 0
    assert overflow(page) <= 0
    page.click("text=Back to the list")
    page.select_option("[name=run]", label="long")
    chosen(page, 60)
    page.click("#list .question a")
    assert overflow(page) <= 0


def test_answers_are_filtered_by_content(opened: Opened) -> None:
    page = opened()
    assert len(chosen(page, 180)) == 50
    page.select_option("[name=run]", label="plain")
    assert {row[1] for row in chosen(page, 24)} == {"plain"}
    page.select_option("[name=task]", label="longbench/hotpotqa")
    assert {row[2] for row in chosen(page, 12)} == {"longbench/hotpotqa"}
    page.select_option("[name=mark]", label="failed")
    assert [row[0] for row in chosen(page, 1)] == ["no score"]
    page.select_option("[name=mark]", value="")
    page.fill("[name=least]", "50")
    page.fill("[name=most]", "80")
    scores = [float(row[0]) for row in rows(page)]
    assert scores and all(50 <= score <= 80 for score in scores)
    page.click("#clear")
    chosen(page, 180)
    assert not page.locator("#clear").is_visible()
    page.select_option("[name=task]", value="longbench/")
    chosen(page, 180)
    page.fill("[name=q]", "QUESTION 11")
    assert {row[3] for row in chosen(page, 11)} == {"question 11"}
    page.fill("[name=q]", "nothing says this")
    page.locator("#found", has_text="No answers match.").wait_for()


def test_headings_sort_the_answers(opened: Opened) -> None:
    page = opened("#?run=plain")
    head = page.locator("#list th button", has_text="score")
    head.click()
    scores = [row[0] for row in rows(page)]
    assert scores[-2:] == ["no score"] * 2, "unknown comes last"
    assert list(map(float, scores[:-2])) == sorted(map(float, scores[:-2]))
    head.focus()
    page.keyboard.press("Enter")
    down = [row[0] for row in rows(page)]
    assert down[-2:] == ["no score"] * 2
    assert list(map(float, down[:-2])) == sorted(map(float, down[:-2]), reverse=True)
    assert page.eval_on_selector_all("#list [aria-sort]", "all => all.map(one => one.ariaSort)") == ["descending"]
    head.click()
    assert page.locator("#list [aria-sort]").count() == 0
    page.locator("#list th button", has_text="marks").click()
    marks = [row[6] for row in rows(page) if row[6]]
    assert marks == sorted(marks) and marks


def test_answers_against_a_baseline(opened: Opened) -> None:
    page = opened()
    page.select_option("[name=baseline]", label="plain")
    page.select_option("[name=run]", label=NAMES[0])
    page.select_option("[name=changed]", value="worse")
    listed = rows(page)
    assert listed
    assert all("−" in row[0] for row in listed)
    page.click("#list .question a")
    baseline = page.locator("#answer dt", has_text="baseline").inner_text()
    assert float(baseline.split()[1].strip(":")) > float(listed[0][0].split()[0])
    page.select_option("[name=changed]", value="better")
    page.locator("#found", has_text="No answers match.").wait_for()
    page.select_option("[name=baseline]", label="none")
    chosen(page, 24)
    assert page.locator("[name=changed]").is_disabled()


def test_changed_words_are_marked(opened: Opened, words_url: str) -> None:
    page = opened("#?baseline=a&answer=b/longbench/qasper/qasper-001/0", of=words_url)
    changes = "[...document.querySelectorAll('#answer ins, #answer del')].map(x => [x.localName, x.textContent])"
    assert page.evaluate(changes) == [
        ["del", "quick"], ["ins", "slow"], ["del", "b"], ["ins", "i"], ["del", "b"], ["ins", "i"],
    ]  # fmt: skip
    page.keyboard.press("d")
    assert page.evaluate(changes) == []
    assert state(page)["diff"] == ["off"]
    page.locator("#answer button", has_text="Show the changed words").click()
    assert len(page.evaluate(changes)) == 6
    assert page.evaluate("document.activeElement.value") == "diff", "the focus stays"


def test_the_score_comes_first_and_the_document_has_a_command(opened: Opened, words_url: str) -> None:
    page = opened("#?answer=a/longbench/qasper/qasper-001/0", of=words_url)
    text = page.inner_text("#answer")
    assert text.startswith("25.0")
    assert "lbx show r.duckdb longbench/qasper/qasper-001 --run=a --full" in text
    assert "lbx browse r.duckdb" in text
    assert "What jumps?\nSecond line." in text
    assert page.get_attribute("#answer .permalink", "href") == "#?answer=a/longbench/qasper/qasper-001/0"


def test_a_link_with_an_unknown_name_and_a_filter_that_hides_its_answer_has_a_notice(
    opened: Opened, words_url: str
) -> None:
    page = opened("#?task=nope&q=zzz&answer=a/longbench/qasper/qasper-001/0", of=words_url)
    page.locator("#answer").wait_for()
    assert page.get_by_text("task “nope”").is_visible()


def test_a_link_is_copied(opened: Opened, words_url: str) -> None:
    page = opened("#?answer=a/longbench/qasper/qasper-001/0", of=words_url)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("text=Copy link")
    page.locator("#answer button", has_text="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == f"{words_url}#?answer=a/longbench/qasper/qasper-001/0"


def test_a_question_with_all_runs_next_to_each_other(opened: Opened, words_url: str) -> None:
    page = opened("#?answer=a/longbench/qasper/qasper-001/0", of=words_url)
    page.click("text=All runs side by side")
    assert state(page) == {"question": ["longbench/qasper/qasper-001"]}
    sides = page.locator("#sides .side")
    assert [text.split("\n")[0] for text in sides.all_inner_texts()] == ["c", "b", "a"]
    tops = sides.evaluate_all("all => all.map(one => one.getBoundingClientRect().top)")
    assert len(set(tops)) == 1
    assert "What jumps?" in page.inner_text("#sides dl")
    page.get_by_role("button", name="Compare with this: a").click()
    assert state(page)["baseline"] == ["a"]
    assert page.evaluate("document.activeElement.ariaPressed") == "true", "the focus stays"
    assert sides.nth(0).inner_text().startswith("a\n"), "the others are compared with the first"
    assert sides.nth(2).locator("del").all_inner_texts() == ["quick", "b", "b"]
    assert "+10.0" in sides.nth(2).inner_text()
    page.keyboard.press("d")
    assert page.locator("#sides del").count() == 0
    page.keyboard.press("j")
    assert state(page)["question"] == ["longbench/qasper/qasper-002"]
    page.keyboard.press("k")
    page.keyboard.press("k")
    page.keyboard.press("k")
    assert state(page)["question"] == ["longbench/qasper/qasper-000"], "the first one"
    page.locator("ul.runs input").nth(2).uncheck()
    assert sides.count() == 2
    page.keyboard.press("Escape")
    assert page.locator("#list").is_visible()
    assert violations(page) == []


def test_keys_go_through_the_answers(opened: Opened) -> None:
    page = opened()
    page.keyboard.press("j")
    assert page.evaluate(OPEN) == [1]
    page.keyboard.press("j")
    assert page.evaluate(OPEN) == [2]
    page.keyboard.press("k")
    page.keyboard.press("k")
    assert page.evaluate(OPEN) == [1], "there is none before the first"
    page.keyboard.press("Escape")
    assert page.evaluate(OPEN) == []
    assert page.evaluate("document.activeElement.closest('tr').rowIndex") == 1
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"
    page.keyboard.type("jk/d?")
    assert page.input_value("[name=q]") == "jk/d?", "letters are letters in a field"
    page.fill("[name=q]", "")
    assert len(chosen(page, 180)) == 50
    page.keyboard.press("Escape")
    page.locator("#list .question a").last.focus()
    page.keyboard.press("j")
    assert found(page).startswith("51 to 100")
    assert page.evaluate(OPEN) == [1]
    page.keyboard.press("k")
    assert found(page).startswith("1 to 50")
    page.keyboard.press("Enter")
    assert page.evaluate(OPEN) == [], "Enter closes the answer in focus"


def test_the_keys_have_a_list(opened: Opened) -> None:
    page = opened()
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    assert "next answer" in dialog.inner_text()
    assert violations(page) == []
    page.keyboard.press("j")
    assert page.evaluate(OPEN) == [], "keys wait for the list to close"
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    page.click("#show-keys")
    dialog.get_by_role("button", name="Close").click()
    assert not dialog.is_visible()


def test_numbers_are_links_to_their_answers(opened: Opened) -> None:
    page = opened()
    unfold(page)
    row = page.locator("#task_scores tr", has_text="plain").filter(has_text="hotpotqa")
    link = row.locator("a").first
    address = link.get_attribute("href")
    assert address == "#?run=plain&task=longbench/hotpotqa&sort=score"
    link.click()
    listed = chosen(page, 12)
    assert {(row[1], row[2]) for row in listed} == {("plain", "longbench/hotpotqa")}
    scores = [float(row[0]) for row in listed[:-1]]
    assert scores == sorted(scores), "lowest first"
    assert page.evaluate("document.getElementById('answers').getBoundingClientRect().top") < 600
    assert chosen(opened(address), 12) == listed, "in another tab"
    page.go_back()
    chosen(page, 180)
    average = page.locator("#scores tr", has_text="plain").locator("td.average > a").first
    assert average.get_attribute("href") == "#?run=plain&task=longbench/&sort=score"
    average.focus()
    page.keyboard.press("Enter")
    assert {row[1] for row in chosen(page, 24)} == {"plain"}
    failed = page.locator("#failures td > a").first.get_attribute("href")
    assert failed.endswith("&task=longbench/&mark=failed")
    assert {row[0] for row in rows(opened(failed))} == {"no score"}
    guards = page.eval_on_selector_all("#guards td > a", "all => all.map(one => one.getAttribute('href'))")
    assert any(address.endswith("&mark=failed") for address in guards)


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (400, "dark")])
def test_every_view_is_accessible(opened: Opened, words_url: str, width: int, scheme: str) -> None:
    for address in (
        "#?baseline=a&answer=b/longbench/qasper/qasper-001/0",
        "#?baseline=a&question=longbench/qasper/qasper-001",
        "#?runs=&run=nobody",
        "#?q=none",
    ):
        page: Page = opened(address, of=words_url, width=width, scheme=scheme)
        assert overflow(page) <= 0, address
        assert violations(page) == [], address
