"""`lbx browse` without a browser: lists, filters, an answer with all that is known of it; and in Chromium."""

from __future__ import annotations

import html
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browsed_file import DOCUMENT, browsed_file
from chromium import Opened, overflow, violations, windows
from sites import SHOWN, answered, client_of, site_of
from starlette.testclient import TestClient

from lbx.base.records import sha256_text
from lbx.store import GenerationRow, Store
from lbx.web.browsing import BrowsingPages

if TYPE_CHECKING:
    from playwright.sync_api import Browser


class _Pages(BrowsingPages):
    """With the document that a bundle would bring."""

    def _document_text(self, key: str) -> str | None:
        return DOCUMENT if key == sha256_text(DOCUMENT) else super()._document_text(key)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return browsed_file(tmp_path_factory.mktemp("browse") / "r.duckdb", samples=120)


@pytest.fixture
def client(results: Path) -> Iterator[TestClient]:
    with site_of(_Pages(results).routes) as site:
        yield client_of(site)


def _listed(client: TestClient, query: str) -> list[str]:
    return re.findall(r'data-key="Enter">([^<]*)</a></td><td>(\w+)', client.get(f"/?{query}").text)


def _count(client: TestClient, query: str) -> int:
    found = re.search(r"<span>([\d,]+) answers", client.get(f"/?{query}").text)
    assert found
    return int(found[1].replace(",", ""))


def test_failures_of_published_predictions_are_browsed(imports: Path) -> None:
    """Their lines hold no question; each has a page of its own."""
    wanted = "task=longbench_v2/mcq"
    with site_of(BrowsingPages(imports).routes) as site:
        client = client_of(site)
        assert _count(client, wanted) == 503
        assert _count(client, f"{wanted}&mark=failed") == 191
        keys = set()
        for at in (1, 2, 100, 191):
            page = client.get(f"/answer?{wanted}&mark=failed&at={at}")
            assert page.status_code == 200
            assert "Error code: 400" in page.text
            keys |= set(re.findall(r"<h1>([^<]*)</h1>", page.text))
        assert len(keys) == 4


def test_an_answer_has_the_choices_of_its_question(client: TestClient) -> None:
    page = client.get("/answer?run=one&at=8").text
    assert "A. one of 7</p>" in page and "B. " in page


def test_filters_are_exact(client: TestClient) -> None:
    assert _count(client, "") == 241
    assert _count(client, "run=two") == 120
    assert _count(client, "task=longbench/qasper") == 240
    assert _count(client, "mark=failed") == 2
    assert _count(client, "mark=cut&run=one") == 1
    assert _count(client, "mark=reasoning+unclosed") == 2
    assert _count(client, "mark=out+of+tokens") == 2
    assert _count(client, "mark=any") == 8
    assert _count(client, "least=0.5&below=0.75&run=one") == 30
    assert _count(client, "q=ONE+SAYS+11") == 11  # 11, 110 to 119
    assert _listed(client, "q=never+stopped&run=two") == [("longbench/qasper/s3", "two")]
    first = client.get("/").text
    assert '<option value="one"' in first and '<option value="umpire"' not in first, "a judge is no model to choose"
    assert "No matching answers." in client.get("/?q=zebra").text
    assert "No matching answers." in client.get("/?run=nobody%27%3B--").text


def test_pages_follow_each_other(client: TestClient) -> None:
    first = _listed(client, "run=one")
    assert len(first) == 50
    assert first[0][0] == "longbench/qasper/s0"
    assert _listed(client, "run=one&from=101")[-1][0] == "longbench/qasper/s119"
    page = html.unescape(client.get("/?run=one&from=51").text)
    assert '/?run=one&from=1"' in page
    assert '/?run=one&from=101"' in page
    assert "answer?run=one&at=51" in page


def test_an_answer_with_all_that_is_known(client: TestClient) -> None:
    page = " ".join(html.unescape(client.get("/answer?run=one&at=1").text).split())
    for text in (
        "What is 0?", "it is 0", "one says 0", "qa_f1", "took 0", "umpire (leval): better than two, first",
        "ann (scores): 4", "bob (pairs): better than two", "4,000 tokens in the prompt", "The kettle is blue.",
    ):  # fmt: skip
        assert text in page
    assert "ann (scores): 2" not in page
    other = " ".join(html.unescape(client.get("/answer?run=two&at=1").text).split())
    assert "umpire (leval): worse than one, second" in other
    assert "bob (pairs): worse than one" in other
    assert "12 tokens of the prompt were cut" in client.get("/answer?run=one&at=3").text
    assert "PromptError: too long" in client.get("/answer?run=one&at=2").text
    assert client.get("/answer?run=one&at=121").status_code == 404
    assert "Pass --bundle" in client.get("/answer?run=one&at=1&show=prompt").text


def test_hostile_answers_are_text(client: TestClient) -> None:
    page = client.get("/answer?run=one&at=6").text
    assert "<script>owned" not in page
    assert "<b onload" not in page
    assert "\u202e" not in page
    assert SHOWN.removesuffix("\\ud800") in html.unescape(page)  # half of a pair is not stored
    assert page.count('class="block"') > 240


_WRITER = """
import sys
from pathlib import Path
from lbx.store import SessionRow, Store
from lbx.store.sessions import store_sessions
with Store(Path(sys.argv[1])) as store:
    store_sessions(store, [SessionRow("one", 9, 0, {}, done_before=200, to_ask=1_300)])
    print(1, flush=True)
    input()
"""


def test_a_file_that_is_written_is_read_as_of_a_moment(results: Path, client: TestClient, tmp_path: Path) -> None:
    path = tmp_path / "busy.duckdb"
    path.write_bytes(results.read_bytes())
    with site_of(BrowsingPages(path).routes) as site:
        client = client_of(site)
        assert _count(client, "") == 241
        with subprocess.Popen([sys.executable, "-c", _WRITER, path], stdin=-1, stdout=-1, text=True) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            assert _count(client, "") == 241
            shown = client.get("/").text, client.get("/answer?run=one").text
            assert all(f"is being written (PID {writer.pid}): data committed before" in text for text in shown)
            assert "one running, 200 of 1,500</h1>" in shown[0]
            assert "<span>one, running, 200 of 1,500</span>" in shown[1], shown[1]
            writer.communicate("\n")
        with Store(path) as store:  # nobody holds it up
            store.write(generations=[GenerationRow("one", "longbench", "qasper", "s1", 0, output="now answered")])
        assert _count(client, "mark=failed") == 1


def test_many_readers_at_once(client: TestClient) -> None:
    counts: list[int] = []
    threads = [threading.Thread(target=lambda: counts.append(_count(client, "run=one"))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [120] * 6


# In Chromium


@pytest.fixture
def opened(browser: Browser, results: Path) -> Iterator[Opened]:
    with site_of(_Pages(results).routes, ["you"]) as site, answered(site), windows(browser) as found:
        yield partial(found, site.links["you"])


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("path", ["/", "/answer?run=one&at=1", "/answer?run=one&at=6"])
def test_it_fits_and_is_accessible(opened: Opened, width: int, path: str) -> None:
    page = opened(path, width=width)
    assert overflow(page) <= 0
    assert violations(page) == []
    assert page.evaluate("typeof owned") == "undefined"


def test_by_keys(opened: Opened) -> None:
    page = opened("/?run=one")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.locator("h1", has_text="longbench/qasper/s2").wait_for()
    page.keyboard.press("Enter")
    page.locator("h1", has_text="longbench/qasper/s3").wait_for()
    page.keyboard.press("t")
    assert page.locator("#reasoning[open]", has_text="I never stopped").count() == 1
    page.keyboard.press("/")
    page.keyboard.type("KETTLE")
    page.locator(".find output", has_text="1 of 2000").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("a")
    page.locator("h1", has_text="r.duckdb").wait_for()


def test_without_a_script(opened: Opened) -> None:
    page = opened("/", scripts=False)
    page.select_option("#by-mark", "failed")
    page.click("text=show")
    assert page.locator("tbody tr").count() == 2
    page.click("tbody a")
    assert page.inner_text("h1") == "longbench/qasper/s1"
    page.click("text=list")
    assert page.locator("tbody tr").count() == 2
