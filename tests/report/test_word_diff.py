"""The comparison of two texts by words, in Debian's Chromium, without any other script of the page."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest

from tests.page_parts import EVIL, NAMES

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def blank(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    page.add_script_tag(content=files("lbx.report.page").joinpath("script/diff.js").read_text("utf-8"))
    yield page
    page.close()


def compare(page: Page, pairs: list[tuple[str, str]], most: int = 1000) -> list[list[tuple[str, str]]]:
    """Compare pairs of texts, and check that the segments join to both."""
    script = "([pairs, most]) => pairs.map(([a, b]) => wordDiff(a, b, most).map(({kind, text}) => [kind, text]))"
    found: list[list[Any]] = page.evaluate(script, [pairs, most])
    for (a, b), segments in zip(pairs, found, strict=True):
        assert "".join(text for kind, text in segments if kind != "added") == a
        assert "".join(text for kind, text in segments if kind != "removed") == b
        kinds = [kind for kind, _ in segments]
        assert all(x != y for x, y in itertools.pairwise(kinds)), "neighbours are joined"
        assert all(text for _, text in segments)
    return [[(kind, text) for kind, text in segments] for segments in found]


@pytest.mark.parametrize(
    ("a", "b", "segments"),
    [
        ("", "", []),
        ("same", "same", [("equal", "same")]),
        ("", "new", [("added", "new")]),
        ("old", "", [("removed", "old")]),
        (
            "the quick brown fox", "the slow red fox",
            [("equal", "the "), ("removed", "quick brown"), ("added", "slow red"), ("equal", " fox")],
        ),
        ("running", "runner", [("removed", "running"), ("added", "runner")]),
        ("我喜欢吃苹果", "我喜欢吃香蕉和苹果", [("equal", "我喜欢吃"), ("added", "香蕉和"), ("equal", "苹果")]),
        ("東京です", "京都です", [("removed", "東"), ("equal", "京"), ("added", "都"), ("equal", "です")]),
        ("안녕 세계", "안녕 친구", [("equal", "안녕 "), ("removed", "세계"), ("added", "친구")]),
        ("yes, 42.", "yes, 43.", [("equal", "yes, "), ("removed", "42"), ("added", "43"), ("equal", ".")]),
        ("cafe\u0301 a", "cafe b", [("removed", "cafe\u0301 a"), ("added", "cafe b")]),
    ],
)  # fmt: skip
def test_words_and_characters(blank: Page, a: str, b: str, segments: list[tuple[str, str]]) -> None:
    assert compare(blank, [(a, b)]) == [segments]


def test_any_two_texts_are_kept_whole(blank: Page) -> None:
    chance = random.Random(3)
    letters = [*"ab \n.,日本é👩\u200d💻\u202e", EVIL, *NAMES]
    texts = ["".join(chance.choices(letters, k=chance.randrange(14))) for _ in range(1200)]
    pairs = list(zip(texts[::2], texts[1::2], strict=True))
    for most in (1000, 3, 0):
        compare(blank, pairs, most)


def test_the_work_is_limited(blank: Page) -> None:
    chance = random.Random(4)
    long = " ".join(str(chance.randrange(500)) for _ in range(20_000))
    other = " ".join(str(chance.randrange(500)) for _ in range(20_000))
    assert len(compare(blank, [(f"start {long} end", f"start {other} end")])[0]) <= 4, "too different: replaced"
    changed = long.split(" ")
    for at in range(0, 20_000, 400):
        changed[at] = "new"
    kinds = [kind for kind, _ in compare(blank, [(long, " ".join(changed))])[0]]
    assert kinds.count("removed") == kinds.count("added") == 50
