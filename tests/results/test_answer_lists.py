"""Sorted lists of answers: their order, and the place of an answer in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lbx.results import Store
from lbx.results.read.stored_answers import (
    SORTS,
    AnswerFilter,
    AnswerKey,
    AnswerOrder,
    answer_of,
    answers_to,
    find_answer_position,
    list_page,
)
from tests.web.browsed_file import browsed_file


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return browsed_file(tmp_path_factory.mktemp("lists") / "r.duckdb")


@pytest.mark.parametrize("name", ["", *SORTS])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("choice", [AnswerFilter(), AnswerFilter(runs=["one"], text="says", at_least=25)])
def test_places_agree_with_the_list(results: Path, choice: AnswerFilter, name: str, descending: bool) -> None:
    order = AnswerOrder(name, descending, ["umpire", "two", "one"])
    with Store(results, read_only=True) as store:
        rows = list_page(store, choice, order, 100).dicts()
        parts = [row for at in range(0, 30, 7) for row in list_page(store, choice, order, 7, skip=at).dicts()]
        keys = [AnswerKey(*(row[name] for name in AnswerKey._fields)) for row in rows]
        places = [find_answer_position(store, choice, order, key) for key in keys]
        missing = find_answer_position(store, choice, order, AnswerKey("one", "longbench", "qasper", "gone"))
    assert len(rows) == len(set(keys)) > 5 and parts == rows and missing is None
    for at, place in enumerate(places):
        assert place is not None
        assert (place.number, place.total) == (at + 1, len(keys))
        assert place.previous == (keys[at - 1] if at else None)
        assert place.next == (keys[at + 1] if at + 1 < len(keys) else None)


def test_missing_values_come_last(results: Path) -> None:
    with Store(results, read_only=True) as store:
        for descending in (False, True):
            rows = list_page(store, AnswerFilter(), AnswerOrder("score", descending), 100).dicts()
            scores = [row["score"] for row in rows]
            known = [score for score in scores if score is not None]
            assert known == sorted(known, reverse=descending)
            assert scores[len(known) :] == [None, None], "the failed answers"


def test_runs_are_in_the_given_order(results: Path) -> None:
    with Store(results, read_only=True) as store:
        rows = list_page(store, AnswerFilter(), AnswerOrder("run", False, ["two", "umpire", "one"]), 100).dicts()
    assert list(dict.fromkeys(row["run_id"] for row in rows)) == ["two", "umpire", "one"]


def test_answers_by_name(results: Path) -> None:
    key = AnswerKey("two", "longbench", "qasper", "s3")
    with Store(results, read_only=True) as store:
        answer = answer_of(store, key)
        assert answer is not None and answer.values["output"] == "two says 3"
        assert answer_of(store, key._replace(iteration=1)) is None
        assert [answer.run_id for answer in answers_to(store, *key[1:4])] == ["one", "two"]
        assert [answer.run_id for answer in answers_to(store, *key[1:4], ["two"])] == ["two"]
