"""All models on one question: scores, marks, differences word by word; names with any character."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lbx.base.records import Sample
from lbx.results import GenerationRow, RunRow, SampleRow, ScoreRow, Store
from lbx.results.read.stored_answers import AnswerKey
from lbx.web.browsing import BrowsingPages, answer_link, question_link
from tests.chromium import Opened, windows
from tests.web.sites import HOSTILE, answered, client_of, site_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TEXTS = {
    "a/b?c#d&e": "The lamp was out for an hour.",
    "港口": "The lamp was dark for an hour.",
    "plus + <b>": "The lamp was out for an hour.",
    "zero": HOSTILE[:-1],
}
SAMPLE = "1/2?x=3#4&5+港 %41"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("question") / "r.duckdb"
    with Store(path) as store:
        store.write(samples=[SampleRow(Sample("longbench", "qasper", SAMPLE, "d", "Why?", ("no lamp",)), 0)])
        for place, (run, text) in enumerate(TEXTS.items()):
            store.begin_run(RunRow(run, run, "hf", "1", {"longbench": 1}, "ab" * 32, {"n": place}, {}, "1"))
            rows = [GenerationRow(run, "longbench", "qasper", SAMPLE, n, text) for n in range(1 + (run == "zero"))]
            score = ScoreRow(run, "longbench", "qasper", SAMPLE, 0, "f1", 1, place / 4, None, True)
            store.write(generations=rows, scores=[score])
            store.finish_run(run, "done")
    return path


@pytest.fixture
def opened(browser: Browser, results: Path) -> Iterator[Opened]:
    with site_of(BrowsingPages(results).routes, ["you"]) as site, answered(site), windows(browser) as found:
        yield partial(found, site.links["you"])


def _key(run: str = "", iteration: int = 0) -> AnswerKey:
    return AnswerKey(run, "longbench", "qasper", SAMPLE, iteration)


def test_names_with_any_character_are_links(results: Path) -> None:
    with site_of(BrowsingPages(results).routes) as site:
        client = client_of(site)
        for run, text in TEXTS.items():
            listed = re.findall(r'<a href="[^"]*(/answer\?[^"]*)"', client.get("/", params={"run": run}).text)
            page = client.get(html.unescape(listed[0]))
            assert html.escape(text[:20]) in page.text
            assert f"<h1>{html.escape(f'longbench/qasper/{SAMPLE}')}</h1>" in page.text
            assert client.get(answer_link(_key(run))).status_code == 200


def test_the_best_answer_is_first(results: Path) -> None:
    with site_of(BrowsingPages(results).routes) as site:
        page = client_of(site).get(question_link(_key())).text
    sections = re.findall(r'<section class="answer"[^>]*data-row="([^"]*)"', html.unescape(page))
    assert sections == ["0.zero", "0.plus + <b>", "0.港口", "0.a/b?c#d&e", "1.zero"], (
        "an answer without a score is last"
    )
    assert "5 answers" in page, "an answer without a score is last"
    assert "no score" in page and "75.0" in page


def test_differences_are_marked(opened: Opened) -> None:
    page = opened(question_link(_key()))
    assert page.locator(".answers ins, .answers del").count() == 0
    page.select_option("#against", label="a/b?c#d&e")
    page.locator(".base").wait_for()
    assert "against=0.a" in page.url, "the choice is in the address"
    other = page.locator('[data-row="0.港口"]')
    assert (other.locator("del").inner_text(), other.locator("ins").inner_text()) == ("out", "dark")
    assert "Equal to that answer." in page.locator('[data-row="0.plus + <b>"]').inner_text()
    assert page.evaluate("typeof owned") == "undefined"
    page.reload()
    assert page.locator(".answers ins").count() >= 2
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/answer?**")
    page.locator("#work > .score b", has_text="50.0").wait_for()
    page.keyboard.press("m")
    page.wait_for_url("**/question?**")
    page.locator("#count", has_text="5 answers").wait_for()
    page.go_back()
    page.wait_for_url("**/answer?**")
    page.locator("#work > .score b", has_text="50.0").wait_for()


def test_texts_that_are_too_long_are_not_compared(opened: Opened) -> None:
    page = opened(question_link(_key(), {"against": "0.zero"}))
    page.evaluate("document.querySelector('[data-row=\"0.港口\"] .output').textContent = 'x '.repeat(40000); compare()")
    assert "Too long to compare" in page.locator('[data-row="0.港口"]').inner_text()


def test_without_a_script(opened: Opened) -> None:
    page = opened(question_link(_key(), {"against": "0.zero"}), scripts=False)
    assert page.locator(".answer").count() == 5
    assert not page.locator("#compare").is_visible()
