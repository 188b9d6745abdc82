"""Pages during a run: they refresh by themselves, show the progress, and notice that the run was killed."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient

from lbx.results import GenerationRow, Store
from lbx.results.read.stored_answers import AnswerKey
from lbx.web.browsing import BrowsingPages, answer_link
from tests.chromium import Opened, windows
from tests.web.browsed_file import browsed_file
from tests.web.page_checks import assert_fits_and_is_accessible
from tests.web.sites import answered, client_of, site_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_WRITER = """
import sys
from pathlib import Path
from lbx.results import GenerationRow, RunRow, SessionRow, Store
from lbx.results.file.sessions import store_sessions
with Store(Path(sys.argv[1])) as store:
    store.begin_run(RunRow("three", "three", "hf", "1", {"longbench": 1}, "ab" * 32, {"n": 3}, {}, "1"))
    store_sessions(store, [SessionRow("three", 1, 0, {}, done_before=0, to_ask=10)])
    print("begun", flush=True)
    for number, line in enumerate(sys.stdin):
        error = {"error": line.strip(), "error_type": "PromptError"} if "<" in line else {"output": line.strip()}
        store.write(generations=[GenerationRow("three", "longbench", "qasper", f"s{number}", 0, **error)])
        print(number, flush=True)
    store.finish_run("three", "done")
    store_sessions(store, [SessionRow("three", 1, 0, {}, done_before=0, to_ask=10, status="done")])
"""
Writer = subprocess.Popen[str]


@contextmanager
def _run(path: Path) -> Iterator[Writer]:
    """A run that answers with each line that it is sent; a line with "<" is an error."""
    with subprocess.Popen([sys.executable, "-c", _WRITER, path], stdin=-1, stdout=-1, text=True) as writer:
        assert writer.stdout and writer.stdout.readline() == "begun\n"
        try:
            yield writer
        finally:
            writer.kill()


def _send(writer: Writer, line: str) -> None:
    assert writer.stdin and writer.stdout
    print(line, file=writer.stdin, flush=True)
    assert writer.stdout.readline()


def _end(writer: Writer) -> None:
    assert writer.stdin
    writer.stdin.close()
    assert writer.wait() == 0


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return browsed_file(tmp_path / "r.duckdb", samples=60)


@pytest.fixture
def opened(browser: Browser, results: Path) -> Iterator[Opened]:
    with site_of(BrowsingPages(results).routes, ["you"]) as site, answered(site), windows(browser) as found:
        yield partial(found, site.links["you"])


def _version(client: TestClient) -> str:
    return str(client.get("/state").json()["version"])


def _progress(client: TestClient) -> dict[str, str]:
    """{run: its row in words}."""
    page = client.get("/progress").text
    rows = re.findall(r'<tr data-scope data-row="([^"]*)">(.*?)</tr>', page)
    return {run: " | ".join(re.sub("<[^>]*>", "", cell).strip() for cell in row.split("</td>")) for run, row in rows}


def test_a_file_that_is_written_is_read_as_of_a_moment(results: Path) -> None:
    with site_of(BrowsingPages(results).routes) as site:
        client = client_of(site)
        before = _version(client)
        assert before == _version(client)
        assert 'id="live"' in client.get("/").text and "hidden>live" in client.get("/").text
        with _run(results) as writer:
            address = answer_link(AnswerKey("one", "longbench", "qasper", "s0"))
            shown = client.get("/").text, client.get(address).text
            assert all(f"is being written (PID {writer.pid}): data committed before" in text for text in shown)
            assert all("hidden>live" not in text for text in shown)
            assert "three running, 0 of 10</h1>" in shown[0]
            assert before != _version(client) == _version(client)
            _send(writer, "first")
            assert before != _version(client)
            assert ">three</a>" not in shown[0] and "first" in client.get("/?run=three").text
            _end(writer)
        assert "hidden>live" in client.get("/").text
        with Store(results) as store:  # nobody holds it up
            store.write(generations=[GenerationRow("one", "longbench", "qasper", "s1", 0, output="now answered")])
        assert '<span id="count">1 answers' in client.get("/?mark=failed&run=two").text


def test_progress_of_a_run(results: Path) -> None:
    with site_of(BrowsingPages(results).routes) as site:
        client = client_of(site)
        assert _progress(client)["one"].startswith("one | done | 60 |  |  | 1 |")
        with _run(results) as writer:
            assert _progress(client)["three"].startswith("three | running | 0 of 10, 0% |  |  | 0 |")
            for line in ("a", "b", "<script>owned=1</script>"):
                _send(writer, line)
            page = html.unescape(client.get("/progress").text)
            row = _progress(client)["three"]
            assert re.match(r"three \| running \| 3 of 10, 30% \| [\d.,e+]+ per minute \| \S+.* \| 1 \|", row), row
            assert "PromptError: &lt;script&gt;owned=1" in row
            assert '<progress max="10" value="3"' in page
            assert "/?run=three&mark=failed" in page and "sample=s2&list-run=three&list-mark=failed" in page
            assert next(iter(_progress(client))) == "three", "running runs are first"
            version = _version(client)
            writer.kill()
            writer.wait()
            assert _version(client) != version, "pages notice that the file does not grow any more"
        assert _progress(client)["three"].startswith("three | killed | 3 of 10, 30% |  |  | 1 |")
        with _run(results) as writer:
            assert " | running | " in _progress(client)["three"]
            _end(writer)
        assert _progress(client)["three"].startswith("three | done | ")


def test_lists_refresh_and_keep_their_state(opened: Opened, results: Path) -> None:
    with _run(results) as writer:
        page = opened("/?sort=-sample&run=three")
        page.locator("#count", has_text="0 answers").wait_for()
        _send(writer, "first answer")
        page.locator("td", has_text="first answer").wait_for()
        assert page.url.endswith("sort=-sample&run=three")
        page.goto(page.url.partition("?")[0] + "?from=51")
        row = page.locator("tbody tr").nth(30)
        row.locator("a").focus()
        page.evaluate("scrollTo(0, 700)")
        row.evaluate("row => { row.isOld = true }")
        sample, top = row.locator("a").inner_text(), row.evaluate("row => row.getBoundingClientRect().top")
        _send(writer, "second answer")
        page.locator("td", has_text="second answer").wait_for()
        focused = page.locator("tr:has(:focus)")  # and the rows in sight do not move
        assert focused.evaluate("row => row.isOld") and focused.locator("a").inner_text() == sample
        assert abs(focused.evaluate("row => row.getBoundingClientRect().top") - top) < 2, (
            "the rows in sight do not move"
        )
        assert page.locator("[role=status]", has_text="Updated: 122 answers").count() == 1
        assert_fits_and_is_accessible(page)


def test_an_answer_refreshes_and_keeps_its_state(opened: Opened, results: Path) -> None:
    with _run(results) as writer:
        page = opened(answer_link(AnswerKey("one", "longbench", "qasper", "s3")))
        page.keyboard.press("t")
        page.locator("#reasoning[open]").wait_for()
        page.locator("text=4 of 120").wait_for()
        _send(writer, "answer")
        page.locator("text=4 of 121").wait_for()
        assert page.locator("#reasoning[open]").count() == 1
        page.keyboard.press("l")
        assert page.get_attribute("#live", "aria-pressed") == "false"
        _send(writer, "answer")
        page.wait_for_timeout(3000)
        assert page.locator("text=4 of 121").count() == 1, "refreshing is stopped"
        page.keyboard.press("l")
        page.locator("text=4 of 122").wait_for()


def test_progress_refreshes_until_the_run_ends(opened: Opened, results: Path) -> None:
    with _run(results) as writer:
        page = opened("/progress")
        page.locator("td", has_text="0 of 10").wait_for()
        assert_fits_and_is_accessible(page)
        _send(writer, "answer")
        page.locator("td", has_text="1 of 10").wait_for()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
        page.wait_for_timeout(4500)
        assert set(asked) == {"state"}, "the file is not opened while it does not change"
        _end(writer)
        page.locator("#live", has_not_text="x").wait_for(state="hidden")
        assert page.locator("[data-row=three] td", has_text="done").count() == 1
        asked.clear()
        page.wait_for_timeout(3000)
        assert asked == [], "no run goes on"


def test_a_killed_run_is_noticed(opened: Opened, results: Path) -> None:
    with _run(results) as writer:
        page = opened("/progress")
        page.locator("[data-row=three] td", has_text="running").wait_for()
        writer.kill()
        page.locator("[data-row=three] td", has_text="killed").wait_for()
        assert page.locator("#live").is_hidden()
