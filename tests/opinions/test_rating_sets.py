"""Which questions are asked, how they are dealt, and that raters see neither names nor an order that tells them."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.base.errors import UsageError
from lbx.opinions.rating_sets import (
    PAIR,
    SCORE,
    Item,
    RatingAnswer,
    RatingSet,
    make_pairs,
    make_rating_set,
    mark_agreement_sample,
)
from lbx.opinions.rounds import read_answers
from lbx.results import Store
from tests.opinions.rated_file import RUNS, answers_file, set_of


def made(questions: int, documents: int, runs: int = 3, seed: int = 0, each: int | None = 1) -> RatingSet:
    items = [
        Item(
            n,
            "b",
            "t",
            str(n),
            "?",
            (),
            f"d{n % documents}",
            tuple(RatingAnswer(f"r{r}", 0, f"{r} {n}") for r in range(runs)),
        )
        for n in range(questions)
    ]
    names = tuple(f"r{r}" for r in range(runs))
    return RatingSet("score", "open", names, mark_agreement_sample(items, 0.2, seed), seed=seed, raters_per_item=each)


def test_questions_are_those_that_all_have_answered(tmp_path: Path) -> None:
    chosen = set_of(answers_file(tmp_path / "r.duckdb"))
    assert chosen.source == "human"
    assert [item.sample_id for item in chosen.items] == [f"q{n:03d}" for n in range(10) if n != 4]
    assert chosen.runs == RUNS
    assert [answer.run_id for answer in chosen.items[0].answers] == list(RUNS)


def test_marks_choose_first_then_words(tmp_path: Path) -> None:
    path = answers_file(tmp_path / "r.duckdb", marks=["LLM"])
    assert set_of(path).source == "open"
    assert len(set_of(path, questions="llm").items) == len(set_of(path, questions="both").items) == 9
    with pytest.raises(UsageError, match="no question of the kind 'human'"):
        set_of(path, questions="human")
    assert len(set_of(path, limit=2).items) == 2
    assert len(set_of(path, patterns=["leval/*/q00[12]"]).items) == 2
    with pytest.raises(UsageError, match="no question"):
        set_of(path, patterns=["longbench/*"])


@pytest.mark.parametrize(
    "meta", ["[1]", "7", "null", '{"judged_by": 5, "evaluation": [1]}', '{"judged_by": [{}, "human"]}']
)
def test_what_a_sample_says_of_itself_may_be_anything(tmp_path: Path, meta: str) -> None:
    path = answers_file(tmp_path / "r.duckdb")
    with Store(path) as store:
        store.query('UPDATE samples SET meta = ?::JSON, "references" = ?::JSON', [meta, "7"])
        chosen, _ = make_rating_set(store, (), kind=SCORE)
        assert chosen.source == ("human" if "human" in meta else "open")
        assert not chosen.items[0].references
        assert len(read_answers(store, "beta").questions) == 10


def test_pairs_leave_out_equal_answers(tmp_path: Path) -> None:
    path = answers_file(tmp_path / "r.duckdb", (*RUNS, "gamma"), questions=4)
    chosen = set_of(path, PAIR)
    assert len(chosen.items) == 9, "three pairs each of three questions; the answers to the fourth are equal"
    assert {len(item.answers) for item in chosen.items} == {2}
    with pytest.raises(UsageError, match="two runs"):
        set_of(answers_file(tmp_path / "one.duckdb", ("alpha",)), PAIR)
    same = answers_file(tmp_path / "same.duckdb", output="same")
    with pytest.raises(UsageError, match="all equal"):
        set_of(same, PAIR)


def test_a_set_is_named_by_what_it_is_made_of(tmp_path: Path) -> None:
    path = answers_file(tmp_path / "r.duckdb")
    name = set_of(path).set_id
    assert set_of(answers_file(tmp_path / "again.duckdb")).set_id == name
    assert set_of(answers_file(tmp_path / "other.duckdb", output="{run} {n}!")).set_id != name
    for option in ({"seed": 1}, {"scale": (1, 10)}, {"agreement": 1.0}, {"limit": 3}, {"raters_per_item": 2}):
        assert set_of(path, **option).set_id != name  # type: ignore[arg-type]


def test_equal_answers_are_one(tmp_path: Path) -> None:
    chosen = set_of(answers_file(tmp_path / "r.duckdb"))
    (same,) = (item for item in chosen.items if item.sample_id == "q003")
    assert [len(group) for group in chosen.answer_groups(same, "ann")] == [2]
    assert [len(group) for group in chosen.answer_groups(chosen.items[0], "ann")] == [1, 1]


def test_the_order_is_a_raters_own_and_tells_nothing() -> None:
    chosen = made(400, 40)
    first = Counter(chosen.answer_groups(item, "ann")[0][0].run_id for item in chosen.items)
    assert all(90 < count < 180 for count in first.values()), first
    orders = [
        [group[0].run_id for group in chosen.answer_groups(item, rater)] for rater in "ab" for item in chosen.items
    ]
    same = sum(one == other for one, other in zip(orders[:400], orders[400:], strict=True))
    assert 30 < same < 110, "one in six"
    assert [i.number for i in chosen.queue("a", ["a"])] != [i.number for i in chosen.queue("b", ["b"])]
    assert chosen.queue("a", ["a"]) == made(400, 40).queue("a", ["a"])


@given(st.integers(1, 60), st.integers(1, 12), st.integers(1, 5), st.integers(1, 6), st.integers(0, 9))
def test_everybody_gets_a_share_and_every_question_its_raters(
    questions: int, documents: int, raters: int, each: int, seed: int
) -> None:
    chosen = made(questions, documents, seed=seed, each=each)
    names = [f"rater-{n}" for n in range(raters)]
    queues = {name: chosen.queue(name, names) for name in names}
    got = Counter(item.number for queue in queues.values() for item in queue)
    for item in chosen.items:
        assert got[item.number] == (raters if item.for_all else min(each, raters))
    loads = [sum(not item.for_all for item in queue) for queue in queues.values()]
    largest = max(Counter(item.document for item in chosen.items).values())
    assert max(loads) - min(loads) <= largest, "documents stay whole, and differ by one at most"
    for queue in queues.values():
        seen = [item.document for item in queue]
        assert len(list(groupby(seen))) == len({*seen}), "a document is read once"


@given(st.integers(1, 80), st.integers(1, 20), st.floats(0, 1), st.integers(0, 99))
def test_the_agreement_sample_is_about_the_share(questions: int, documents: int, share: float, seed: int) -> None:
    items = [Item(n, "b", "t", str(n), "", (), f"d{n % documents}", ()) for n in range(questions)]
    marked = mark_agreement_sample(items, share, seed)
    largest = max(Counter(item.document for item in items).values())
    assert abs(sum(item.for_all for item in marked) - share * questions) <= largest
    assert len({item.document for item in marked if item.for_all} & {i.document for i in marked if not i.for_all}) == 0


def test_pairs_are_numbered() -> None:
    found, equal = make_pairs(made(2, 1).items)
    assert ([item.number for item in found], equal) == ([0, 1, 2, 3, 4, 5], 0)
