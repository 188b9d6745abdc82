"""Links to a page survive a restart of lbx, though the root of its paths and its secrets are new at each start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lbx.results.read.stored_answers import AnswerKey
from lbx.web import Site, listening
from lbx.web.browsing import BrowsingPages, answer_link
from tests.chromium import Opened, windows
from tests.web.browsed_file import browsed_file
from tests.web.sites import answered

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ADDRESS = answer_link(AnswerKey("two", "longbench", "qasper", "s7"))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return browsed_file(tmp_path_factory.mktemp("links") / "r.duckdb")


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opened]:
    with windows(browser, refusals=True) as found:
        yield found


@contextmanager
def _browsing(results: Path, port: int = 0) -> Iterator[Site]:
    """`lbx browse`, started on a port."""
    with listening("127.0.0.1", port) as place, answered(Site(place, BrowsingPages(results).routes, ["you"])) as site:
        yield site


def test_a_link_survives_a_restart(opened: Opened, results: Path) -> None:
    with _browsing(results) as site:
        page = opened(site.links["you"], ADDRESS)
        old, shared = page.url, page.get_attribute("text=link", "href")
        assert shared == ADDRESS, "without a secret"
        port = site.site_socket.port
    with _browsing(results, port) as site:
        page.goto(old)
        assert "no access" in page.inner_text("h1")
        other = page.context.new_page()
        other.goto(site.links["you"])
        page.locator("h1", has_text="longbench/qasper/s7").wait_for()
        assert page.url == site.url + ADDRESS
        for tab in (page, page.context.new_page()):  # by its own memory, and by another tab's
            for address in (old, site.site_socket.url + shared):
                tab.goto(address)
                tab.locator("h1", has_text="longbench/qasper/s7").wait_for()
                assert tab.url == site.url + ADDRESS
        page.goto(f"{old.partition('/answer')[0]}/?token=old")
        page.locator("#count", has_text="24 answers").wait_for()


def test_tabs_of_earlier_starts_do_not_send_each_other_round(opened: Opened, results: Path) -> None:
    with _browsing(results) as site:
        page, port = opened(site.links["you"]), site.site_socket.port
        first = site.url
    with _browsing(results, port) as site:
        other = page.context.new_page()
        other.goto(site.links["you"])
        second = site.url
    with _browsing(results, port) as site:
        third = page.context.new_page()
        asked: list[str] = []
        third.on("request", lambda request: asked.append(request.url))
        third.goto(first + ADDRESS)
        third.wait_for_timeout(1500)
        assert "no access" in third.inner_text("h1")
        assert sum(ADDRESS in address for address in asked) <= 3, (asked, second)
        page.goto(site.links["you"])
        third.locator("h1", has_text="longbench/qasper/s7").wait_for()
        assert third.url == site.url + ADDRESS


def test_a_page_is_refused_without_a_session(opened: Opened, results: Path) -> None:
    with _browsing(results) as site:
        page = opened(site.links["you"])
        page.context.clear_cookies()
        page.goto(site.site_socket.url + ADDRESS)
        page.wait_for_url(site.url + ADDRESS)
        assert "no access" in page.inner_text("h1"), "and asked no more"
        assert page.evaluate("localStorage.length") == 0, "no root for who gets the port later"
        page.context.new_page().goto(site.links["you"])
        page.locator("h1", has_text="longbench/qasper/s7").wait_for()


KNOWN = ("//evil.example", "/short", "https://evil.example/aaaaaaaaaaaaaaaa", "/../aaaaaaaaaaaaa", "/aaaaaaaaaaaaaaaa/",
         "/aaaaaaaaaaaaaaa\\", "javascript:alert(1)", "")  # fmt: skip


@pytest.mark.parametrize("known", KNOWN)
def test_a_link_leads_nowhere_else(opened: Opened, results: Path, known: str) -> None:
    """Another program on the same port may have stored anything."""
    with _browsing(results) as site:
        page = opened(f"{site.site_socket.url}/")
        page.evaluate("known => sessionStorage.setItem('root', known)", known)
        page.goto(site.site_socket.url + ADDRESS)
        other = page.context.new_page()
        other.goto(f"{site.site_socket.url}/static/lbx.svg")
        for message in ({"root": known}, {"root": known, "isServed": True}, known, None):
            other.evaluate("message => new BroadcastChannel('root').postMessage(message)", message)
        page.wait_for_timeout(300)
        assert page.url == site.site_socket.url + ADDRESS
        assert "no access" in page.inner_text("h1")
