"""Report pages in Debian's Chromium, for all tests of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import duckdb
import pytest

from tests.chromium import Opened, chromium, watched
from tests.page_parts import EVIL, NAMES, results_file, write_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")  # a second Playwright in one process fails while the first is open
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page of five runs with odd names and hostile answers, and of 240 answers."""
    folder = tmp_path_factory.mktemp("browser")
    path = results_file(folder / "r.duckdb", [*NAMES, EVIL], output=f"{EVIL} ")
    results_file(path, ["long"], output="a word of " + "m" * 3000, tasks=["lcc"], samples=60)
    return write_page(path)


@pytest.fixture(scope="session")
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
    return write_page(path)


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
                page.wait_for_selector("#browse:not([hidden]), #sides:not([hidden])")
            return page

        yield open_page
    assert said == []
    # A chart saved as PNG is drawn from a picture in the page's memory.
    assert {address.partition("#")[0] for address in asked if not address.startswith("blob:")} <= of_page
