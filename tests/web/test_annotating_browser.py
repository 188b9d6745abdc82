"""`lbx annotate` in a real browser: typed, saved, undone, by keys alone and without a script."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lbx.exchange.annotation.dataset import Dataset
from lbx.web.annotating import AnnotationPages
from tests import profiles
from tests.chromium import Opened, overflow, violations, windows
from tests.web.sites import HOSTILE, answered, site_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WORDS = "word " * 200_000
ROWS = [
    {"instructions": ["q0", "q1"], "outputs": ["a0", "a1"], "input": "a kettle\n" * 3000, "evaluation": "f1"},
    {"instructions": [HOSTILE, "ok"], "outputs": ["m" * 1_000_000], "input": f"{HOSTILE}\n{WORDS}", HOSTILE: HOSTILE},
    {"input": "no pair"},
]


@pytest.fixture
def dataset(tmp_path: Path) -> Iterator[Dataset]:
    path = tmp_path / "data.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS), "utf-8")
    with Dataset(path, tmp_path / "out.jsonl") as opened:
        yield opened


@pytest.fixture
def opened(browser: Browser, dataset: Dataset) -> Iterator[Opened]:
    with (
        site_of(AnnotationPages(dataset, new_pairs=1).routes, ["you"]) as site,
        answered(site),
        windows(browser) as found,
    ):
        yield partial(found, site.links["you"])


def _said(page: Page, text: str) -> None:
    page.locator("#said", has_text=text).wait_for()


@pytest.mark.parametrize("width", profiles.chosen([1400, 400], [400]))
@pytest.mark.parametrize("path", ["/", "/document/1", "/document/2", "/document/3?new=1"])
def test_it_fits_and_is_accessible(opened: Opened, width: int, path: str) -> None:
    page = opened(path, width=width)
    assert overflow(page) <= 0
    assert violations(page) == []
    assert page.locator("b[onload]").count() == 0
    assert page.evaluate("typeof owned") == "undefined"


def test_what_is_typed_is_saved_without_a_button(opened: Opened, dataset: Dataset) -> None:
    page = opened("/document/1")
    page.keyboard.press("j")
    page.keyboard.press("r")
    page.keyboard.press("Control+A")
    page.keyboard.type("by keys\nalone")
    _said(page, "Pair 2 saved.")
    assert dataset.line(0).pairs()[1][1].text == "by keys\nalone"
    assert page.evaluate("document.activeElement.name") == "outputs"
    page.keyboard.press("Escape")
    page.keyboard.press("u")
    _said(page, "Undone")
    assert not dataset.changed_count
    page.keyboard.press("x")  # the pair in focus is the first again
    _said(page, "Pair 1 removed.")
    page.keyboard.press("u")
    _said(page, "Undone: the removal")
    page.keyboard.press("Enter")
    page.locator("h1", has_text="Document 2 of 3").wait_for()
    page.keyboard.press("Enter")
    page.locator("h1", has_text="Document 3 of 3").wait_for()
    page.keyboard.press("e")
    page.keyboard.type("a new question")
    page.keyboard.press("Tab")
    page.keyboard.type("and its answer")
    _said(page, "Pair 1 saved.")
    page.keyboard.press("Escape")
    page.keyboard.press("w")
    _said(page, "written")
    last = json.loads((dataset.path.parent / "out.jsonl").read_text("utf-8").splitlines()[-1])
    assert last == {"input": "no pair", "instructions": ["a new question"], "outputs": ["and its answer"]}


def test_leaving_at_once_loses_nothing(opened: Opened, dataset: Dataset) -> None:
    page = opened("/document/1")
    page.fill("#instructions-1-0", "typed, and gone on")
    page.click("text=next")
    page.locator("h1", has_text="Document 2 of 3").wait_for()
    assert dataset.line(0).pairs()[0][0].text == "typed, and gone on"


def test_a_field_gives_back_what_it_was_given(opened: Opened, dataset: Dataset) -> None:
    odd = "\n\u200bzero\u202eturned\u2066 </textarea> é\té"
    dataset.add(2, odd, "x")
    page = opened("/document/3")
    assert page.input_value("#instructions-3-0") == odd
    page.fill("#outputs-3-0", "y")
    _said(page, "Pair 1 saved.")
    assert [(one.text, two.text) for one, two in dataset.line(2).pairs()] == [(odd, "y")]


def test_the_document_is_searched(opened: Opened) -> None:
    page = opened("/document/1")
    page.keyboard.press("/")
    page.keyboard.type("KETTLE")
    page.locator(".find output", has_text="1 of 3000").wait_for()


def test_without_a_script(opened: Opened, dataset: Dataset) -> None:
    page = opened("/document/1", scripts=False)
    page.fill("#outputs-1-0", "plain")
    page.click("form[action$='/pair/0'] button[value=save]")
    assert page.inner_text("#said") == "Pair 1 saved."
    page.click("text=undo")
    assert page.inner_text("#said").startswith("Undone")
    assert not dataset.changed_count
    page.click("text=write out.jsonl")
    assert page.inner_text("#said") == "out.jsonl written."
    page.goto(page.url.partition("/document")[0] + "/?q=kettle")
    assert page.locator("tbody tr").count() == 1


def test_a_server_that_is_gone_is_told(browser: Browser, dataset: Dataset) -> None:
    with site_of(AnnotationPages(dataset).routes, ["you"]) as site:
        with answered(site):
            page = browser.new_page()
            page.goto(site.links["you"])
            page.goto(f"{site.url}/document/1")
        page.fill("#outputs-1-0", "lost?")
        page.locator("#said.wrong", has_text="Not saved: lbx does not respond").wait_for()
        assert page.input_value("#outputs-1-0") == "lost?"
        page.close()
