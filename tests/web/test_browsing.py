"""`lbx browse` without a browser: lists, filters, an answer with all that is known of it; and in Chromium."""

from __future__ import annotations

import html
import re
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient

from lbx.base.records import sha256_text
from lbx.results import Store
from lbx.results.read.stored_answers import AnswerKey
from lbx.web.browsing import BrowsingPages, answer_link, question_link
from tests.chromium import Opened, windows
from tests.web.browsed_file import DOCUMENT, browsed_file
from tests.web.page_checks import assert_fits_and_is_accessible
from tests.web.sites import SHOWN, answered, client_of, site_of

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


def _address(run: str, sample: str, **more: str) -> str:
    return answer_link(AnswerKey(run, "longbench", "qasper", sample), more)


def _listed(client: TestClient, query: str) -> list[tuple[str, str]]:
    """(run, sample) of each row."""
    return re.findall(r'<td>([^<]*)</td><td><a [^>]*data-key="Enter">([^<]*)</a>', client.get(f"/?{query}").text)


def _count(client: TestClient, query: str) -> int:
    found = re.search(r'<span id="count">([\d,]+) answers', client.get(f"/?{query}").text)
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
        page = client.get(f"/?{wanted}&mark=failed")
        for link in re.findall(r'<a href="[^"]*(/answer\?[^"]*)"', page.text)[:4]:
            page = client.get(html.unescape(link))
            assert page.status_code == 200
            assert "Error code: 400" in page.text
            keys |= set(re.findall(r"<h1>([^<]*)</h1>", page.text))
        assert len(keys) == 4


def test_an_answer_to_a_changed_question_is_listed_and_shows_the_earlier_question(tmp_path: Path) -> None:
    path = browsed_file(tmp_path / "r.duckdb", samples=3)
    with Store(path) as store:
        store.query(
            "UPDATE generations SET error_type = 'QuestionChanged', error = 'The question has changed.' "
            "WHERE run_id = 'one' AND sample_id = 's1'"
        )
        earlier = '{"earlier": [{"question": "What was it?", "choices": {"A": "a boat"}}, "not a question"]}'
        store.query(f"UPDATE samples SET meta = json_merge_patch(meta, '{earlier}') WHERE sample_id = 's1'")
    with site_of(BrowsingPages(path).routes) as site:
        client = client_of(site)
        assert _listed(client, "mark=question%20changed") == [("one", "longbench/qasper/s1")]
        page = client.get(_address("one", "s1")).text
        assert "What was it?\nA. a boat" in page and "the question has changed since the answer" in page
        assert "What was it?" not in client.get(_address("two", "s1")).text


def test_an_answer_has_the_choices_of_its_question(client: TestClient) -> None:
    page = client.get(_address("one", "s7")).text
    assert "A. one of 7</p>" in page and "B. " in page


def test_a_loose_match_is_a_remark_on_its_score(tmp_path: Path) -> None:
    path = browsed_file(tmp_path / "r.duckdb", samples=3)
    with Store(path) as store:
        store.query("UPDATE scores SET loose = sample_id = 's2'")
    with site_of(BrowsingPages(path).routes) as site:
        client = client_of(site)
        assert "<td>loose match</td>" in client.get(_address("one", "s2")).text
        assert "loose match</td>" not in client.get(_address("one", "s0")).text


def test_filters_are_exact(client: TestClient) -> None:
    assert _count(client, "") == 240
    assert _count(client, "judges=yes") == 241 and _count(client, "judges=yes&mark=failed") == 2
    assert _count(client, "run=umpire") == _count(client, "task=judge/leval") == 1, "a judge that is asked for"
    assert _count(client, "run=two") == 120
    assert _count(client, "task=longbench/qasper") == 240
    assert _count(client, "mark=failed") == 2
    assert _count(client, "mark=prompt+cut&run=one") == 1
    assert _count(client, "mark=reasoning+unclosed") == 2
    assert _count(client, "mark=answer+at+its+limit") == 2
    assert _count(client, "mark=any") == 8
    assert _count(client, "least=50&most=50&run=one") == 30
    assert _count(client, "least=25.01&most=75&run=one") == 60
    assert _count(client, "q=ONE+SAYS+11") == 11  # 11, 110 to 119
    assert _listed(client, "q=never+stopped&run=two") == [("two", "longbench/qasper/s3")]
    first = client.get("/").text
    assert '<option value="one"' in first and '<option value="umpire"' not in first, "a judge is no model to choose"
    assert "No matching answers." in client.get("/?q=zebra").text
    assert "No matching answers." in client.get("/?run=nobody%27%3B--").text


def test_heads_sort(client: TestClient) -> None:
    page = html.unescape(client.get("/?run=one").text)
    for name, first in (("score", "-score"), ("run", "run"), ("question", "question"), ("marks", "-marks")):
        assert f'id="sort-{name}" href="{client.base_url.path}?run=one&sort={first}"' in page
    assert "aria-sort" not in page
    page = html.unescape(client.get("/?run=one&sort=-score").text)
    assert page.count("aria-sort") == 1 and 'aria-sort="descending"><a data-swap id="sort-score"' in page
    assert '/?run=one&sort=score"' in page, "the same head reverses the order"
    assert 'name="sort" value="-score"' in page, "filters keep the order"
    assert _listed(client, "run=one&sort=-score")[:2] == [("one", f"longbench/qasper/s{n}") for n in (3, 7)]
    assert _listed(client, "sort=-score&from=240") != [], "answers without a score are at the end"
    assert _listed(client, "sort=-run&judges=yes")[0][0].startswith("umpire")
    assert _listed(client, "run=two&sort=question")[0][1] == "longbench/qasper/s0"
    assert _listed(client, "run=two&sort=-tokens")[0][1] == "longbench/qasper/s119"
    first = _listed(client, "sort=sample&judges=yes&from=2")[:2]
    assert first == [(run, "longbench/qasper/s0") for run in ("one", "two")]
    assert _listed(client, "sort=nothing") == _listed(client, "")


def test_an_answer_is_found_in_its_list(client: TestClient) -> None:
    more = {"list-run": "one", "list-sort": "-score"}
    page = html.unescape(client.get(_address("one", "s7", **more)).text)
    assert "2 of 120" in page
    assert _address("one", "s3", **more) in page and _address("one", "s11", **more) in page
    assert f'href="{client.base_url.path}?run=one&sort=-score"' in page
    assert "from=51" in html.unescape(client.get(_address("one", "s60")).text), "back to the page of the list"
    outside = client.get(_address("one", "s7", **{"list-mark": "failed"}))
    assert outside.status_code == 200 and "not in this list" in outside.text


@pytest.mark.parametrize("address", [_address("one", "s999"), _address("gone", "s0"), "/answer", "/answer?at=1",
                                     "/question?benchmark=longbench&task=qasper&sample=%00", "/question"])  # fmt: skip
def test_what_a_link_names_may_be_missing(client: TestClient, address: str) -> None:
    page = client.get(address)
    assert page.status_code == 404
    assert "does not contain this answer" in page.text and "list of answers" in page.text
    assert ("all models on this question" in page.text) == ("gone" in address)


def test_pages_follow_each_other(client: TestClient) -> None:
    first = _listed(client, "run=one")
    assert len(first) == 50
    assert first[0][1] == "longbench/qasper/s0"
    assert _listed(client, "run=one&from=101")[-1][1] == "longbench/qasper/s119"
    page = html.unescape(client.get("/?run=one&from=51").text)
    assert '/?run=one&from=1"' in page
    assert '/?run=one&from=101"' in page
    assert f"{_address('one', 's50')}&list-run=one" in page


def test_an_answer_with_all_that_is_known(client: TestClient) -> None:
    page = " ".join(html.unescape(client.get(_address("one", "s0")).text).split())
    for text in (
        '<b>0.0</b> <span class="quiet">qa_f1</span>',
        "What is 0?", "it is 0", "one says 0", "qa_f1", "took 0", "umpire (judge: leval): better than two, first",
        "ann (scores): 4", "bob (pairs): better than two", "4,000 tokens in the prompt", "The kettle is blue.",
    ):  # fmt: skip
        assert text in page
    assert "ann (scores): 2" not in page
    other = " ".join(html.unescape(client.get(_address("two", "s0")).text).split())
    assert "umpire (judge: leval): worse than one, second" in other
    assert "bob (pairs): worse than one" in other
    assert "12 tokens of the prompt were cut" in client.get(_address("one", "s2")).text
    assert "PromptError: too long" in client.get(_address("one", "s1")).text
    assert "Pass --bundle" in client.get(_address("one", "s0", show="prompt")).text


def test_hostile_answers_are_text(client: TestClient) -> None:
    page = client.get(_address("one", "s5")).text
    assert "<script>owned" not in page
    assert "<b onload" not in page
    assert "\u202e" not in page
    assert SHOWN.removesuffix("\\ud800") in html.unescape(page)  # half of a pair is not stored
    assert page.count('class="block"') > 240


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
    with site_of(_Pages(results).routes, ["you"]) as site, answered(site), windows(browser, refusals=True) as found:
        yield partial(found, site.links["you"])


PAGES = {
    "list": "/?sort=-score",
    "answer": _address("one", "s0"),
    "long answer": _address("one", "s5"),
    "missing": _address("one", "s999"),
    "question": question_link(AnswerKey("", "longbench", "qasper", "s5"), {"against": "0.one"}),
    "progress": "/progress",
}


@pytest.mark.parametrize("path", PAGES.values(), ids=PAGES)
def test_it_fits_and_is_accessible(opened: Opened, path: str) -> None:
    assert_fits_and_is_accessible(opened(path))


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
