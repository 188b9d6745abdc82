"""The site of the documents in Debian's Chromium, opened from a disk: search, contents, access, phones, paper."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.chromium import Opened, chromium, overflow, violations, watched
from tests.test_docs import script

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("site")
    script("build").build(folder)
    return folder


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opened]:
    """Opens pages; at the end no page had an error, or asked for anything but files."""
    with watched(browser) as (open_window, said, asked):

        def open_page(path: Path, **options: object) -> Page:
            page = open_window(**options)
            page.goto(path.as_uri())
            return page

        yield open_page
    assert said == []
    assert {urlsplit(address).scheme for address in asked} == {"file"}


def test_search_leads_to_a_section_by_keys_alone(opened: Opened, site: Path) -> None:
    page = opened(site / "docs" / "clusters.html")
    page.keyboard.press("/")
    page.keyboard.type("Effective context")
    page.locator("#found li").first.wait_for()
    assert page.locator("#found mark", has_text=re.compile("^effective$", re.IGNORECASE)).count() > 0
    assert re.search(r"\d+ sections?", page.inner_text("#found [role=status]"))
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.type") == "search"
    page.keyboard.press("Escape")
    assert page.locator("#found").is_hidden()
    page.fill("#search input", "slurm array")
    page.keyboard.press("ArrowDown")
    target = page.evaluate("document.activeElement.href")
    page.keyboard.press("Enter")
    page.wait_for_url(target)
    assert "slurm" in page.inner_text("main").lower()


def test_a_heading_comes_before_texts_that_mention_it(opened: Opened, site: Path) -> None:
    page = opened(site / "index.html")
    page.fill("#search input", "the report page")
    page.locator("#found li").first.wait_for()
    assert page.locator("#found strong").first.inner_text() == "The report page"
    page.fill("#search input", "no-such-word-anywhere")
    page.locator("#found [role=status]", has_text="No section has all these words.").wait_for()


def test_the_index_has_every_section_as_text(site: Path) -> None:
    sections = json.loads((site / "search.js").read_text("utf-8").partition(" = ")[2].rstrip(";\n"))
    for section in sections:
        file, _, anchor = section["place"].partition("#")
        text = (site / file).read_text("utf-8")
        assert not anchor or f'id="{anchor}"' in text, section["place"]
    by_place = {section["place"]: section["text"] for section in sections}
    assert "lbx report results.duckdb --format html" in by_place["docs/report-page.html"], "commands are found"
    assert "generated:" not in json.dumps(sections), "comments are no text"


def test_each_page_lists_its_sections(opened: Opened, site: Path) -> None:
    page = opened(site / "docs" / "results.html")
    listed = page.locator(".contents a").all_inner_texts()
    assert listed == page.locator("main :is(h2, h3)").all_inner_texts()
    page.locator(".contents a").nth(3).click()
    page.wait_for_function("document.querySelectorAll('.contents [aria-current]').length === 1")
    assert page.locator(".contents [aria-current]").inner_text() in listed[3:5]
    assert page.locator(".pages").bounding_box()["y"] < 200, "the list of pages stays in sight"  # type: ignore[index]


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (390, "dark")])
def test_pages_are_accessible(opened: Opened, site: Path, width: int, scheme: str) -> None:
    for name in ("index.html", "docs/results.html"):
        page = opened(site / name, width=width, scheme=scheme)
        assert violations(page) == [], name
    page.fill("#search input", "report")
    page.locator("#found li").first.wait_for()
    assert overflow(page) <= 0
    assert violations(page) == []


@pytest.mark.parametrize("width", [900, 390])
def test_pages_fit(opened: Opened, site: Path, width: int) -> None:
    page = opened(site / "index.html", width=width)
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri())
        assert overflow(page) <= 0, path.name


def test_without_scripts_only_search_is_missing(opened: Opened, site: Path) -> None:
    page = opened(site / "docs" / "results.html", scripts=False)
    assert page.locator("#search").is_hidden()
    assert page.locator(".contents a").first.is_visible()
    page.click(".pages a:has-text('Overview')")
    assert urlsplit(page.url).path.endswith("/index.html")


def test_paper_has_only_the_text(opened: Opened, site: Path) -> None:
    page = opened(site / "docs" / "results.html")
    page.emulate_media(media="print")
    for hidden in ("header", ".pages", ".contents"):
        assert page.locator(hidden).is_hidden(), hidden
    assert page.locator("main h1").is_visible()
