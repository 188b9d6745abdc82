"""The pages of `lbx rate` without a browser: what is shown, what is saved, what is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from lbx.opinions.journal import Journal, journal_of
from lbx.opinions.rating_session import RatingSession
from lbx.opinions.rating_sets import PAIR, SCORE
from lbx.opinions.rating_site import RatingPages
from lbx.web import Documents, Site
from tests.opinions.rated_file import answers_file, book_of
from tests.web.sites import HOSTILE, SHOWN, client_of, site_of


@contextmanager
def opened(
    path: Path, raters: Sequence[str] = ("ann", "bob"), **options: object
) -> Iterator[tuple[Site, RatingSession]]:
    shown = {"reference_open": options.pop("reference_open", False)}
    with Journal(journal_of(path)) as journal:
        book = book_of(path, journal, raters, **options)
        texts = {item.document_key: f"Text about it. {HOSTILE}" for item in book.set.items}
        with site_of(RatingPages(book, Documents(texts.get), **shown).routes, raters) as site:  # type: ignore[arg-type]
            yield site, book


def item_of(text: str) -> int:
    found = re.search(r'action="[^"]*/item/(\d+)"', text)
    assert found, text
    return int(found[1])


def press(client: TestClient, item: int, do: str, **fields: str) -> str:
    return client.post(f"/item/{item}", data={"do": do, **fields}).text


@pytest.mark.parametrize("kind", [SCORE, PAIR])
def test_nothing_tells_whose_an_answer_is(tmp_path: Path, kind: str) -> None:
    path = answers_file(
        tmp_path / "r.duckdb", ("name-one", "name-two"), output="says {n}" if kind == SCORE else "{run}!"
    )
    with opened(path, kind=kind) as (site, book):
        client = client_of(site)
        for item in book.queue("ann"):
            text = client.get(f"/item/{item.number}").text
            own = text.replace("name-one!", "").replace("name-two!", "")  # what the answers themselves say
            assert "name-" not in own
            assert "model-" not in own
        for page in ("/", "/overview"):
            assert "name-one" not in client.get(page).text.replace("name-one!", "")


def test_what_was_asked_is_shown_in_the_place_of_a_question(tmp_path: Path) -> None:
    path = answers_file(tmp_path / "r.duckdb", question="")
    with opened(path) as (site, book):
        for item in book.set.items:
            object.__setattr__(item, "task_text", "Summarise <it>.")
        client = client_of(site)
        assert '<p class="text question brief">Summarise &lt;it&gt;.</p>' in client.get("/").text
        assert "<td>Summarise &lt;it&gt;.</td>" in client.get("/overview").text


def test_hostile_texts_are_texts(tmp_path: Path) -> None:
    path = answers_file(tmp_path / "r.duckdb", output="{run}" + HOSTILE[:-1], question="{n}" + HOSTILE[:-1])
    with opened(path, reference_open=True) as (site, _):
        text = client_of(site).get("/").text
    assert text.count(escape(SHOWN.removesuffix("\\ud800"))) == 4, "question, two answers, document"
    assert text.count("<script") == 1, "lbx's own"
    assert "owned=1</script>" not in text
    assert not set(text) & set("\0\x1b\u202e\u2066")
    assert re.search(r"<details [^>]*open", text)


def test_a_word_of_a_megabyte(tmp_path: Path) -> None:
    path = answers_file(tmp_path / "r.duckdb", output="w" * 1_000_000 + "{run}", questions=1)
    with opened(path) as (site, _):
        text = client_of(site).get("/").text
    assert text.count('<div class="block">') >= 500
    assert text.count("w" * 3_000) >= 500


def test_each_press_is_saved_and_goes_on(tmp_path: Path) -> None:
    path = answers_file(tmp_path / "r.duckdb")
    with opened(path, ("ann",)) as (site, book):
        client = client_of(site)
        first = item_of(client.get("/").text)
        item = book.item("ann", first)
        text = press(client, first, "rate-0-4")
        assert item_of(text) == first
        assert "Saved: question 1, A: 4." in text
        assert 'value="rate-0-4" data-key="4" aria-pressed="true"' in text
        assert re.search(r'class="answer current" data-scope aria-labelledby="answer-\d+-1"', text)
        text = press(client, first, "rate-1-2")
        assert item_of(text) != first, "all is rated: the next question"
        assert book.values("ann", item) == [4.0, 2.0]
        assert "1 of 9 rated" in text
        assert item_of(press(client, item_of(text), "undo")) == first
        assert book.values("ann", item) == [4.0, None]
        rows = journal_of(path).read_bytes().count(b'"ratings"')
        assert rows == 3
        for _ in range(2):
            client.get(f"/item/{first}")
        assert journal_of(path).read_bytes().count(b'"ratings"') == rows, "looking saves nothing"


def test_what_was_typed_is_saved_by_every_button(tmp_path: Path) -> None:
    with opened(answers_file(tmp_path / "r.duckdb"), ("ann",)) as (site, book):
        client = client_of(site)
        for do in ("save", "next", "skip", "back", "undo", "rate-0-3"):
            item = next(
                one for one in book.queue("ann") if not any(book.latest("ann", one)) and one.sample_id != "q003"
            )
            press(client, item.number, do, **{"comment-0": " typed ", "comment-1": ""})
            first, second = book.latest("ann", item)
            assert first is not None
            assert first.comment == "typed"
            assert second is None or do == "skip"


def test_skipping_leaves_open_and_goes_round(tmp_path: Path) -> None:
    with opened(answers_file(tmp_path / "r.duckdb"), ("ann",)) as (site, book):
        client = client_of(site)
        seen = []
        text = client.get("/").text
        while "action=" in text:
            seen.append(item_of(text))
            text = press(client, seen[-1], "skip")
        assert sorted(seen) == sorted(item.number for item in book.queue("ann"))
        assert "9 left open" in text
        assert text.count("left open</td>") == 9
        for item in book.queue("ann"):
            for place in range(len(book.values("ann", item))):
                text = press(client, item.number, f"rate-{place}-5")
        assert "All rated. Thank you." in text
        assert client.get("/", follow_redirects=True).url.path.endswith("/overview")


def test_a_rater_without_questions_is_not_thanked(tmp_path: Path) -> None:
    with opened(answers_file(tmp_path / "r.duckdb", questions=1), ("ann", "bob"), agreement=0.0, raters_per_item=1) as (
        site,
        book,
    ):
        (idle,) = (rater for rater in ("ann", "bob") if not book.queue(rater))
        text = client_of(site, idle).get("/").text
    assert "You have no questions to rate: other raters got them all." in text
    assert "Thank you" not in text and "<tbody>" not in text


def test_pairs(tmp_path: Path) -> None:
    with opened(answers_file(tmp_path / "r.duckdb"), ("ann",), kind=PAIR) as (site, book):
        client = client_of(site)
        pressed = {}
        for do in ("a", "b", "tie", "both_bad"):
            text = client.get("/").text
            pressed[do] = item_of(text)
            assert 'data-key="x"' in text
            press(client, pressed[do], f"rate-0-{do}", **{"comment-0": do})
        for do, number in pressed.items():
            text = client.get(f"/item/{number}").text
            (chosen,) = re.findall(r'value="rate-0-(\w+)" data-key="." aria-pressed="true"', text)
            assert chosen == do
            assert f'value="{do}"' in text
        assert book.progress("ann").done == 4


@pytest.mark.parametrize(
    "do", ["rate-0-0", "rate-0-6", "rate-9-3", "rate-0-3.5", "rate-0-", "rate-0-a", "drop", "rate--1-3"]
)
def test_what_no_button_says_is_refused(tmp_path: Path, do: str) -> None:
    path = answers_file(tmp_path / "r.duckdb", questions=3)
    with opened(path) as (site, book):
        client = client_of(site)
        number = item_of(client.get("/").text)
        answer = client.post(f"/item/{number}", data={"do": do})
        assert answer.status_code == 400
        assert book.values("ann", book.item("ann", number)) == [None, None]
        assert client.post("/item/999", data={"do": "rate-0-3"}).status_code == 400


def test_raters_do_not_see_each_other(tmp_path: Path) -> None:
    with opened(answers_file(tmp_path / "r.duckdb"), agreement=1.0) as (site, book):
        ann, bob = client_of(site, "ann"), client_of(site, "bob")
        number = item_of(ann.get("/").text)
        press(ann, number, "rate-0-1", **{"comment-0": "secret"})
        text = bob.get(f"/item/{number}").text
        assert "secret" not in text
        assert 'aria-pressed="true"' not in text
        assert "ann" not in re.sub(r"answer|announce", "", text)
        assert book.values("bob", book.item("bob", number)) == [None, None]


def test_the_document_is_sent_once(tmp_path: Path) -> None:
    with opened(answers_file(tmp_path / "r.duckdb"), ("ann",)) as (site, book):
        client = client_of(site)
        item = book.queue("ann")[0]
        whole = client.get(f"/item/{item.number}").text
        again = client.get(f"/item/{item.number}", headers={"lbx-document": item.document_key}).text
        assert "Text about it." in whole
        assert "Text about it." not in again
        hits = client.get(f"/documents/{item.document_key}/find", params={"q": "ABOUT"}).json()
        assert hits == {"total": 1, "places": [[0, 5, 0, 10]]}
        assert client.get("/documents/none/find?q=a").status_code == 400


def test_scales_have_keys(tmp_path: Path) -> None:
    with opened(answers_file(tmp_path / "r.duckdb", questions=1), ("ann",), scale=(1, 10)) as (site, book):
        client = client_of(site)
        text = client.get("/").text
        assert 'value="rate-0-10" data-key="0"' in text
        press(client, 0, "rate-0-10")
        assert book.values("ann", book.set.items[0])[0] == 10.0


def test_a_criterion_belongs_to_its_set(tmp_path: Path) -> None:
    path = answers_file(tmp_path / "r.duckdb", questions=1)
    shown, sets = [], []
    for options in ({}, {"criterion": "Is it kind?"}, {"kind": PAIR}):
        with opened(path, **options) as (site, book):
            shown.append(client_of(site).get("/").text)
            sets.append(book.set)
    criteria = (
        "How well is the question answered, according to the document?",
        "Is it kind?",
        "Which answer is better, ",
    )
    assert all(f'<p id="criterion">{text}' in page for text, page in zip(criteria, shown, strict=True))
    assert sets[0].set_id != sets[1].set_id
    assert "criterion" not in sets[0].rows()[1][0].meta, "sets of before keep their names"
    assert sets[1].rows()[1][0].meta["criterion"] == "Is it kind?"


def test_more_answers_than_letters(tmp_path: Path) -> None:
    path = answers_file(tmp_path / "many.duckdb", runs=[f"run{n:02d}" for n in range(30)], questions=1)
    with Journal(journal_of(path)) as journal:
        pages = RatingPages(book_of(path, journal), Documents({}.get))
        with site_of(pages.routes, ("ann",)) as site:
            shown = client_of(site).get("/item/0")
    assert shown.status_code == 200
    assert "Answer Z<" in shown.text and "Answer AA<" in shown.text and "Answer AD<" in shown.text
