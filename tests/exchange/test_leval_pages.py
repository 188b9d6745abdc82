"""L-Eval's rating pages against what the official page wrote: of our own words, and its one real rating."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.base.errors import UsageError
from lbx.opinions.rating_pages import (
    SEPARATOR,
    make_page,
    mean_ratings,
    official_files,
    page_fields,
    rated_page,
    read_pages,
)

PAGES = Path(__file__).parent / "leval_pages/human_eval"
"""Written by web_human_eval.py (cd34b05) under Flask 2.2, of eleven documents of our own words, three scores odd."""

Shared = Callable[[str], Path]


def _rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def _predictions(folder: Path, models: list[str]) -> dict[str, dict[str, str]]:
    found = {}
    for model in models:
        rows = _rows(folder / f"{model}.pred.jsonl")
        key = next(key for key in rows[0] if "_pred" in key)
        found[key] = {row["query"] + row["gt"]: row[key] for row in rows}
    return found


def _made(folder: Path, models: list[str]) -> list[dict]:
    predictions = _predictions(folder, models)
    pages = []
    for gold in _rows(folder / "claude.gpt4.ref.jsonl"):
        asked = [question + right for question, right in zip(gold["instructions"], gold["outputs"], strict=True)]
        pages.append(make_page(gold, {key: [said[one] for one in asked] for key, said in predictions.items()}))
    return pages


def test_pages_are_made_as_the_official_script_makes_them() -> None:
    keys = json.loads((PAGES / "jsons/0_example.json").read_text("utf-8"))  # in the order in which glob found files
    models = [key.removesuffix("_pred #0") for key in keys if key.endswith("_pred #0")]
    for number, page in enumerate(_made(PAGES, models)):
        assert json.dumps(page) == (PAGES / f"jsons/{number}_example.json").read_text("utf-8")


def test_the_twelve_published_pages_are_made_again(shared: Shared) -> None:
    folder = shared("data/judgements/leval/human_eval/claude.gpt4.ref.jsonl").parent
    models = ["llama2-13b-chat-4k", "vicuna-7b-2k", "turbo-16k-0613", "longchat-13b-16k-flash", "chatglm2-6b-8k"]
    for number, page in enumerate(_made(folder, models)):
        assert json.dumps(page) == (folder / f"jsons/{number}_example.json").read_text("utf-8")


def test_files_of_all_pages_to_the_byte() -> None:
    pages = read_pages(PAGES)
    assert pages.rater == "Annotator.1"
    assert pages.notes == ()
    made = official_files(pages.documents, pages.rater)
    assert set(made) == {"files_from_Annotator.1.jsonl", "results_from_Annotator.1.jsonl"}
    for name, text in made.items():
        assert text.encode() == (PAGES / name).read_bytes()


def test_what_was_typed_makes_the_saved_page() -> None:
    for number in range(11):
        example = json.loads((PAGES / f"jsons/{number}_example.json").read_text("utf-8"))
        page = read_pages(PAGES / f"jsons/{number}_evaled.json", "somebody").documents[0]
        typed = {
            (answer.key, question.number): answer.score_text
            for question in page.questions()
            for answer in question.answers
        }
        saved = rated_page(example, typed)
        if number == 6:  # where the reference was edited, too
            saved["outputs #0"] = page.fields["outputs #0"]
        assert json.dumps(saved) == page.line.raw


def test_means_are_those_that_the_page_shows() -> None:
    assert mean_ratings(read_pages(PAGES).documents) == {
        "gpt4_outputs": 2.78125,
        "claude_outputs": 2.9375,
        "brook-7b_pred": 3.125,
        "heron-chat_pred": 3.0625,
    }


def test_the_published_rating(shared: Shared) -> None:
    page = shared("data/judgements/leval/human_eval/jsons/10_evaled.json")
    found = mean_ratings(read_pages(page, "author").documents)
    assert {key: round(value, 3) for key, value in found.items()} == {
        "gpt4_outputs": 3.333,
        "claude_outputs": 3.667,
        "llama2-13b-chat-4k_pred": 4,
        "vicuna-7b-2k_pred": 4,
        "turbo-16k-0613_pred": 3.333,
        "longchat-13b-16k-flash_pred": 3.667,
        "chatglm2-6b-8k_pred": 4.333,
    }


def test_rows_of_all_are_the_pages_again() -> None:
    pages, rows = read_pages(PAGES), read_pages(PAGES / "files_from_Annotator.1.jsonl")
    assert rows.rater == "Annotator.1"
    said = {page.document: page.questions() for page in pages.documents}
    assert {row.document: row.questions() for row in rows.documents} == said


def test_a_text_that_holds_the_separator_gets_no_second_one() -> None:
    assert page_fields({"instructions": ["q"], "m_pred": [f"a{SEPARATOR}3", 4], "w": 1.0}) == {
        "w": 1.0,
        "instructions #0": "q",
        "m_pred #0": f"a{SEPARATOR}3",
        "m_pred #1": 4,
    }


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("0_evaled.json", "[]", "one JSON array"),
        ("0_evaled.json", "{}", "the key 'input' is missing"),
        ("0_evaled.json", '{"input": "d", "source": "s", "evaluation": "human"}', "no question"),
        (
            "0_evaled.json",
            '{"input": "d", "source": "s", "evaluation": "human", "instructions #0": 1}',
            "should be text",
        ),
        ("0_evaled.json", '{"input": "d"', "line 1: it is not valid JSON"),
        ("results_from_a.jsonl", "{}", "not by answer"),
        ("files_from_a.jsonl", "", "empty"),
    ],
)
def test_damaged_files_are_told(tmp_path: Path, name: str, text: str, said: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        read_pages(path, "a").documents[0].questions()


def test_ratings_without_a_name_are_refused(tmp_path: Path) -> None:
    page = PAGES / "jsons/0_evaled.json"
    with pytest.raises(UsageError, match="the rater's name"):
        read_pages(page)
    with pytest.raises(UsageError, match="contains no page"):
        read_pages(tmp_path, "a")
