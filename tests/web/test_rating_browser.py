"""`lbx rate` in Debian's Chromium, from the command to the tables: keys alone, kills, two raters, no scripts."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from lbx.opinions.journal import Journal, journal_of
from lbx.opinions.rating_site import RatingPages
from lbx.results import Store
from lbx.web import Documents
from tests import profiles
from tests.chromium import Opened, violations, windows
from tests.opinions.rated_file import answers_file, book_of
from tests.web.sites import HOSTILE, SHOWN, answered, site_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WIDTHS = (1400, 400)
WORDS = "the quick brown fox jumps over the lazy dog in a field of barley\n"


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opened]:
    with windows(browser, refusals=True) as found:
        yield found


@contextmanager
def pages(path: Path, text: str = "A document.", **options: object) -> Iterator[dict[str, str]]:
    """The site in this process: {rater: link}."""
    shown = {"reference_open": options.pop("reference_open", False)}
    raters = ("ann", "bob")
    with Journal(journal_of(path)) as journal:
        book = book_of(path, journal, raters, **options)
        pages = RatingPages(book, Documents(lambda key: text), **shown)  # type: ignore[arg-type]
        with site_of(pages.routes, raters) as site, answered(site):
            yield site.links


class Command:
    """`lbx rate` in a process of its own."""

    def __init__(self, path: Path, *options: str, raters: int = 1) -> None:
        lbx = Path(sys.executable).with_name("lbx")
        self.process = subprocess.Popen(
            [lbx, "rate", path, "--port", "0", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline().split() for _ in range(raters)]
        self.links = {line[0]: line[-1] for line in lines}
        self.place = lines[0][-1].partition("/?")[0]

    def end(self, number: int = signal.SIGINT) -> str:
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=60)
        return said


def rows(
    path: Path, query: str = "SELECT item, rater, run_id, revision, score FROM ratings ORDER BY ALL"
) -> list[object]:
    with Store(path, read_only=True) as store:
        return list(store.query(query).rows)


def at(page: Page) -> str:
    return page.inner_text("h1")


def settle(page: Page, progress: str) -> None:
    page.locator("#bar", has_text=progress).wait_for()


def rate_one(page: Page, keys: str = "42") -> None:
    """All answers of the question that is there, as fast as keys come: the second waits for the first."""
    for key in keys[: page.locator(".answer").count()]:
        page.keyboard.press(key)


@pytest.mark.parametrize("width", profiles.chosen(WIDTHS, WIDTHS[1:]))
def test_twenty_questions_by_keyboard_killed_in_between(opened: Opened, tmp_path: Path, width: int) -> None:
    path = answers_file(tmp_path / "r.duckdb", questions=21)
    command = Command(path)
    page = opened(command.links["rater-1"], width=width)
    assert at(page) == "Question 1 of 20"
    for done in range(1, 8):
        rate_one(page)
        settle(page, f"{done} of 20 rated")
    page.keyboard.press("5")
    page.locator("#said", has_text=re.compile("Saved: question 8, A: 5")).wait_for()
    command.end(signal.SIGKILL)
    page.keyboard.press("1")
    page.locator("#said.wrong", has_text="lbx does not respond").wait_for()
    assert rows(path) == [], "all is in the journal"

    command = Command(path)
    page = opened(command.links["rater-1"], width=width)
    settle(page, "7 of 20 rated")
    page.goto(f"{command.place}/overview")
    page.keyboard.press("Tab")
    page.locator("td", has_text="left open").locator("xpath=../td/a").focus()
    page.keyboard.press("Enter")
    page.locator("h1", has_text="Question 8 of 20").wait_for()
    assert page.locator("[aria-pressed=true]").all_inner_texts() == ["5"]
    page.keyboard.press("3")
    for done in range(9, 21):
        settle(page, f"{done - 1} of 20 rated")
        rate_one(page, "13")
    page.locator("text=All rated. Thank you.").wait_for()
    page.keyboard.press("u")
    assert command.end().count("Moved into") == 1
    assert command.process.returncode == 0
    assert not journal_of(path).exists()
    held = rows(path)
    assert len(held) == 40, "twenty questions, two answers each, each said once"
    assert {row[3] for row in held} == {0}


def test_keys_do_what_they_say(opened: Opened, tmp_path: Path) -> None:
    with pages(
        answers_file(tmp_path / "r.duckdb"), text=f"{WORDS * 300}needle {WORDS * 300}Needle\n", agreement=1.0
    ) as links:
        page = opened(links["ann"])
        current = "document.querySelector('.current h2').textContent"
        question = page.inner_text(".question")
        page.keyboard.press("j")
        assert page.evaluate(current) == "Answer B"
        page.keyboard.press("k")
        page.keyboard.press("k")
        assert page.evaluate(current) == "Answer A"
        page.keyboard.press("r")
        assert page.locator("details[open] .reference").is_visible()
        page.keyboard.press("3")
        page.keyboard.press("c")
        page.keyboard.type("fast")  # all of it before the page has come, perhaps: the letters wait, too
        page.locator("#said", has_text="A: 3").wait_for()
        page.wait_for_function("document.activeElement.value === 'fast'")
        page.keyboard.press("Escape")
        assert page.locator("details[open]").count() == 1, "what was opened stays open"
        page.keyboard.press("c")
        page.keyboard.press("Control+a")
        page.keyboard.type("jk12u ")
        page.keyboard.press("Enter")
        page.locator("#said", has_text=re.compile("^Saved.$")).wait_for()
        assert page.locator("input[name=comment-1]").input_value() == "jk12u"
        page.keyboard.press("u")
        page.locator("#said", has_text="Undone").wait_for()
        assert page.locator("input[name=comment-1]").input_value() == ""
        page.keyboard.press("u")
        page.locator("[aria-pressed=true]").wait_for(state="detached")
        page.keyboard.press("Enter")
        page.locator("h1", has_text="Question 2").wait_for()
        page.keyboard.press("p")
        page.locator("h1", has_text="Question 1").wait_for()
        assert page.inner_text(".question") == question
        page.keyboard.press("?")
        assert page.locator("dialog[open] dt").count() > 8
        page.keyboard.press("3")
        page.keyboard.press("Escape")
        assert page.locator("dialog[open]").count() == 0
        page.keyboard.press("/")
        page.keyboard.type("needle")
        page.locator(".find output", has_text="1 of 2").wait_for()
        page.keyboard.press("Escape")
        page.keyboard.press("n")
        assert page.inner_text(".find output") == "2 of 2"
        page.keyboard.press("N")
        assert page.inner_text(".find output") == "1 of 2"
        page.keyboard.press("s")
        page.locator("#said", has_text="left open").wait_for()
        page.keyboard.press("o")
        page.locator("h1", has_text="All your questions").wait_for()
        assert page.locator("td", has_text=re.compile("^rated$")).count() == 0


def test_pairs_by_keyboard(opened: Opened, tmp_path: Path) -> None:
    path = answers_file(tmp_path / "r.duckdb", questions=6)
    command = Command(path, "--kind", "pair", "--rater", "ann")
    page = opened(command.links["ann"])
    for done, key in enumerate("abtx", 1):
        page.keyboard.press(key)
        settle(page, f"{done} of 4 rated")
    command.end()
    held = rows(path, "SELECT verdict, shown_at, run_id, against_run_id FROM ratings ORDER BY created_at")
    better = [("answer", "against")[int(key == "b") ^ row[1]] for key, row in zip("ab", held, strict=False)]
    assert [row[0] for row in held] == [*better, "tie", "both_bad"]
    assert {row[2:] for row in held} == {("alpha", "beta")}


@pytest.mark.parametrize("kind", ["score", "pair"])
def test_the_criterion_stays_in_sight(opened: Opened, tmp_path: Path, kind: str) -> None:
    path = answers_file(tmp_path / "r.duckdb", output="says {run} " + WORDS * 200)
    with pages(path, kind=kind, criterion="Is it <b>true</b>?") as links:
        for width in WIDTHS:
            page = opened(links["ann"], width=width)
            page.locator(".answer").last.scroll_into_view_if_needed()
            page.locator(".choices").last.scroll_into_view_if_needed()
            box = page.locator("#criterion").bounding_box()
            assert box and 0 <= box["y"] < 300, (width, box)
            text = "Is it <b>true</b>?" + (" 1 = worst, 5 = best" if kind == "score" else "")
            assert page.inner_text("#criterion") == text
            shown = [key.inner_text() for key in page.locator("button > kbd, label > kbd, summary > kbd").all()]
            choices = list("12345c") * 2 if kind == "score" else list("abtxc")
            assert shown == ["r", *choices, "p", "u", "s", "Enter"]


def test_two_raters_at_once(opened: Opened, tmp_path: Path) -> None:
    path = answers_file(tmp_path / "r.duckdb")
    command = Command(path, "--rater", "ann", "--rater", "bob", "--agreement", "1", raters=2)
    both = {name: opened(link) for name, link in command.links.items()}
    for done in range(1, 10):
        for name, page in both.items():
            rate_one(page, {"ann": "45", "bob": "12"}[name])
        for page in both.values():
            settle(page, f"{done} of 9 rated")
    both["ann"].goto(command.links["bob"])
    assert "another person's link" in both["ann"].inner_text("h1")
    command.end()
    scores = rows(
        path, "SELECT rater, list(DISTINCT score ORDER BY score), count(*) FROM ratings GROUP BY 1 ORDER BY 1"
    )
    assert scores == [("ann", [4.0, 5.0], 18), ("bob", [1.0, 2.0], 18)]


@pytest.mark.parametrize(("width", "scheme"), profiles.crossed(WIDTHS, ["light", "dark"]))
def test_it_fits_and_is_accessible(opened: Opened, tmp_path: Path, width: int, scheme: str) -> None:
    hostile = HOSTILE[:-1]
    path = answers_file(tmp_path / "r.duckdb", output="{run} " + hostile, question="{n} " + hostile)
    with pages(path, text=WORDS * 500, reference_open=True) as links:
        page = opened(links["ann"], width=width, scheme=scheme)
        for state in ("", "4", "?", "o"):
            if state:
                page.keyboard.press("Escape")
                page.keyboard.press(state)
                page.wait_for_timeout(300)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, state
            assert violations(page) == [], state
            page.keyboard.press("Escape")
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
        assert dark == (scheme == "dark")


def test_hostile_answers_are_text(opened: Opened, tmp_path: Path) -> None:
    path = answers_file(tmp_path / "r.duckdb", output="{run} " + HOSTILE[:-1], questions=1)
    with pages(path, text=HOSTILE) as links:
        page = opened(links["ann"])
        assert page.locator(".answer .text").first.inner_text().endswith(SHOWN.removesuffix("\\ud800"))
        assert page.locator(".pane .block").inner_text() == SHOWN
        assert page.evaluate("window.owned") is None
        assert page.locator("b[onload]").count() == 0


def test_words_of_a_megabyte_are_shown(opened: Opened, tmp_path: Path) -> None:
    path = answers_file(tmp_path / "r.duckdb", output="w" * 1_000_000 + "{run}", questions=1)
    with pages(path, text="x" * 1_000_000) as links:
        page = opened(links["ann"], width=400)
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        page.keyboard.press("4")
        page.locator("#said", has_text="A: 4").wait_for()


def test_a_document_of_a_megabyte_is_searched(opened: Opened, tmp_path: Path) -> None:
    text = f"{(WORDS * 16_000)[:999_000]} Nadel im HEUHAUFEN {WORDS}"
    with pages(answers_file(tmp_path / "r.duckdb"), text=text) as links:
        page = opened(links["ann"])
        page.keyboard.press("/")
        page.keyboard.type("nadel IM heu")
        page.locator(".find output", has_text="1 of 1").wait_for()
        page.wait_for_function("CSS.highlights.get('here')")
        box = page.evaluate("[...CSS.highlights.get('here')][0].getBoundingClientRect().toJSON()")
        pane = page.evaluate("document.querySelector('.pane').getBoundingClientRect().toJSON()")
        assert pane["top"] < box["top"] < box["bottom"] < pane["bottom"], "it was brought into sight"
        page.fill("#find", "fox")
        page.locator(".find output", has_text=re.compile(r"^1 of 15\d\d\d \(the first 2000 are marked\)$")).wait_for()
        assert page.evaluate("CSS.highlights.get('found').size") == 2000
        marked = page.evaluate("[...CSS.highlights.get('found')].every(r => r.startContainer.data"
                               ".slice(r.startOffset, r.endOffset) === 'fox')")  # fmt: skip
        assert marked
        page.fill("#find", "not in there")
        page.locator(".find output", has_text="not there").wait_for()


def test_without_scripts_it_is_forms(opened: Opened, tmp_path: Path) -> None:
    path = answers_file(tmp_path / "r.duckdb", questions=3)
    command = Command(path)
    page = opened(command.links["rater-1"], scripts=False)
    assert page.locator(".scripted:visible").count() == 0
    page.fill("[name=comment-0]", "typed")
    page.click("button[value=rate-0-4]")
    assert "Saved: question 1, A: 4" in page.inner_text("#said")
    assert page.input_value("[name=comment-0]") == "typed"
    page.click("button[value=rate-1-2]")
    assert at(page) == "Question 2 of 3"
    page.click("button[value=back]")
    assert at(page) == "Question 1 of 3"
    for _ in range(2):
        page.goto(f"{command.place}/")
        for place in range(2):
            page.click(f"button[value=rate-{place}-1]")
    assert "All rated" in page.inner_text("main")
    command.end()
    assert len(rows(path)) == 6


def test_nothing_runs_that_is_not_lbxs(opened: Opened, tmp_path: Path) -> None:
    with pages(answers_file(tmp_path / "r.duckdb")) as links:
        page = opened(links["ann"])
        assert page.evaluate("document.cookie") == "", "a script cannot read the cookie"
        assert page.evaluate("document.documentElement.outerHTML").count("token") == 0
        assert "token" not in page.url


def test_a_page_from_elsewhere_cannot_rate(opened: Opened, browser: Browser, tmp_path: Path) -> None:
    """A page that somebody opens in the same browser, on another port of this machine: same-site, other origin."""
    with site_of([]) as elsewhere, answered(elsewhere), pages(answers_file(tmp_path / "r.duckdb")) as links:
        page = opened(links["ann"])
        place = links["ann"].partition("/?")[0]
        other = page.context.new_page()
        other.goto(f"{elsewhere.site_socket.url}/static/lbx.svg")
        answer = other.evaluate(
            "place => fetch(place + '/item/0', {method: 'POST', mode: 'no-cors', credentials: 'include', "
            "body: new URLSearchParams({do: 'rate-0-5'})}).then(a => a.type, e => 'refused')", place)  # fmt: skip
        assert answer in ("opaque", "refused")
        other.close()
        page.goto(f"{place}/overview")
        assert "0 of " in page.inner_text("#bar")


def test_a_tunnels_socket(tmp_path: Path) -> None:
    """--uds: the page over a Unix socket, as `ssh -L PORT:FILE` reaches it."""
    import httpx2

    path = answers_file(tmp_path / "r.duckdb", questions=2)
    command = Command(path, "--uds", str(tmp_path / "s.sock"))
    transport = httpx2.HTTPTransport(uds=str(tmp_path / "s.sock"))
    with httpx2.Client(transport=transport, base_url="http://localhost:9999", follow_redirects=True) as client:
        place, token = urlsplit(command.links["rater-1"])[2:4]
        assert "Question 1 of 2" in client.get(f"{place}?{token}").text
        assert client.get("/", headers={"host": "evil.example"}).status_code == 403
    assert "ssh -L" in command.end(signal.SIGTERM)
    assert not (tmp_path / "s.sock").exists()
