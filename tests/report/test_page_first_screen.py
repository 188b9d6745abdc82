"""The first screen in Chromium: the card, marks in cells, and two runs compared in a sentence."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.chromium import Opened
from tests.command_line import Lbx


def test_the_sentences_replace_the_card_on_a_phone(opened: Opened) -> None:
    page = opened(width=390)
    assert not page.locator("figure.card").is_visible()
    box = page.locator("ul.card-text").bounding_box()
    assert box and box["x"] >= 0
    page = opened()
    assert page.locator("figure.card svg").is_visible()
    box = page.locator("ul.card-text").bounding_box()
    assert box and box["x"] + box["width"] < 0, "for screen readers only"


def test_two_places_make_a_sentence_and_so_do_two_lines_of_the_chart(opened: Opened) -> None:
    page = opened("#leaderboard")
    places, said = page.locator("#leaderboard td .pick"), page.locator("#leaderboard .pair").first
    assert "choose their places" in said.inner_text()
    places.nth(0).click()
    places.nth(2).click()
    sentence = said.inner_text()
    assert " minus " in sentence and "questions" in sentence
    assert places.nth(0).get_attribute("aria-pressed") == "true"
    lines = page.locator("#leaderboard figure").first.locator(".rows > .row .mark")
    lines.nth(0).click()
    assert "choose their places" in said.inner_text(), "the same run again"
    lines.nth(0).click()
    assert said.inner_text() == sentence


def test_a_blank_cell_says_why_and_sorts_last(opened: Opened) -> None:
    page = opened()
    cells = page.locator(".scores td.none")
    assert cells.count() and {"not asked", "no score"} >= {*cells.all_inner_texts()}
    head = page.locator(".scores th[data-task='longbench/lcc'] button")
    if head.is_visible():
        head.click()
        column = page.locator(".scores tbody tr td:last-child").all_inner_texts()
        assert column[0] not in ("not asked", "no score")


def test_a_page_without_intervals_is_written(url: str) -> None:
    done = Lbx()("report", Path(unquote(urlsplit(url).path)).parent / "r.duckdb", "-f", "html", "--no-interval")
    assert done.returncode == 0, done.stderr
    assert 'class="card"' in done.stdout
