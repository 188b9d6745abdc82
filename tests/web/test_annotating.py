"""`lbx annotate` without a browser: what its pages show, what their forms save."""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from lbx.exchange.annotation.dataset import Dataset
from lbx.web.annotating import AnnotationPages
from tests.web.sites import HOSTILE, SHOWN, client_of, site_of

ROWS = [
    {"instructions": ["q0", "q1"], "outputs": ["a0", "a1"], "input": "one\nkettle", "source": "s", "evaluation": "f1"},
    {"instructions": [HOSTILE, "hidden \u200b sign"], "outputs": ["fine"], "input": HOSTILE, HOSTILE: HOSTILE},
    {"input": "no pair"},
]


@pytest.fixture
def dataset(tmp_path: Path) -> Iterator[Dataset]:
    path = tmp_path / "data.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS), "utf-8")
    with Dataset(path, tmp_path / "out.jsonl") as opened:
        yield opened


@pytest.fixture
def client(dataset: Dataset) -> Iterator[TestClient]:
    with site_of(AnnotationPages(dataset, new_pairs=1).routes) as site:
        yield client_of(site)


def _save(client: TestClient, number: int, pair: int, shape: int = 0, **fields: str) -> str:
    answer = client.post(f"/document/{number}/pair/{pair}", data={"shape": str(shape), **fields})
    return html.unescape(answer.text)


def test_the_list_and_its_search(client: TestClient) -> None:
    assert "3 of 3 documents" in client.get("/").text
    assert "1 of 3 documents" in client.get("/?q=KETTLE").text
    assert "No matching documents." in client.get("/?q=teapot").text
    assert "Document 4 does not exist" in client.get("/document/4").text


def test_pages_of_a_file_that_was_shortened_say_so(client: TestClient, dataset: Dataset) -> None:
    os.truncate(dataset.path, 100)
    for page in ("/?q=kettle", "/document/1", "/document/3"):
        answer = client.get(page)
        assert answer.status_code == 400 and "has changed since it was opened" in answer.text, answer.text


def test_what_a_form_sends_is_saved(client: TestClient, dataset: Dataset) -> None:
    assert "Pair 2 saved." in _save(client, 1, 1, instructions="q1", outputs="two\r\nlines")
    assert dataset.line(0).pairs()[1][1].text == "two\nlines"
    assert "No changes." in _save(client, 1, 1, instructions="q1", outputs="two\r\nlines")
    assert "New pair" in client.get("/document/1").text
    _save(client, 1, 2, instructions="n", outputs="")
    _save(client, 1, 2, instructions="new", outputs="too")
    assert [question.text for question, _ in dataset.line(0).pairs()] == ["q0", "q1", "new"]
    assert "New pair" not in client.get("/document/1").text
    assert "New pair" in client.get("/document/1?new=1").text
    assert "Pair 1 removed." in _save(client, 1, 0, do="remove")
    assert "were added or removed" in _save(client, 1, 0, instructions="late")
    assert "Undone: the removal of pair 1" in client.post("/undo", data={}).text
    assert "out.jsonl written." in client.post("/write", data={"number": "1"}).text
    assert json.loads((dataset.path.parent / "out.jsonl").read_text("utf-8").split("\n")[0])["evaluation"] == "f1"


def test_hostile_text_is_text(client: TestClient, dataset: Dataset) -> None:
    page = client.get("/document/2").text
    assert "<script>owned" not in page
    assert "<b onload" not in page
    assert SHOWN in html.unescape(page)
    assert "no page can send" in page
    assert "\u202e" not in page
    # What a field holds comes back as it is; beside it stands what nobody would see.
    assert "hidden \u200b sign</textarea>" in page
    assert "hidden \\u200b sign" in page


def test_an_untouched_form_changes_nothing(client: TestClient, dataset: Dataset) -> None:
    """As a browser sends it: every field of every page, line breaks as CRLF."""
    before = b"".join(dataset.pieces())
    for number in (1, 2, 3):
        page = client.get(f"/document/{number}").text
        for action, body in re.findall(r'action="/[^/]*(/document/[^"]*)"(.*?)</form>', page, re.DOTALL):
            found = re.findall(r'<textarea name="(\w+)"[^>]*>\n(.*?)</textarea>', body, re.DOTALL)
            fields = {name: html.unescape(text).replace("\n", "\r\n") for name, text in found}
            assert "No changes." in client.post(action, data={"shape": "0", **fields}).text
    assert b"".join(dataset.pieces()) == before


def test_to_read_only(dataset: Dataset) -> None:
    with Dataset(dataset.path) as reading, site_of(AnnotationPages(reading).routes) as site:
        client = client_of(site)
        page = client.get("/document/1").text
        assert "read-only" in page
        assert ">save<" not in page
        assert "read-only" in _save(client, 1, 0, instructions="x")
        assert "read-only" in client.post("/write", data={}).text


def test_a_long_list_is_paged(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    path.write_text("".join(f'{{"input": "{number}"}}\n' for number in range(120)))
    with Dataset(path) as dataset, site_of(AnnotationPages(dataset).routes) as site:
        client = client_of(site)
        assert "120 of 120 documents, 1 to 50" in client.get("/").text
        assert "101 to 120" in client.get("/?from=101").text
        assert "previous" in client.get("/?from=101").text
        for strange in ("9" * 20, "9" * 5000, "-1", "x"):
            assert "120 of 120 documents" in client.get(f"/?from={strange}").text, strange
