"""Win rates, errors, bias and ratings, as a plain DuckDB shell reads them; judges are no evaluated models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from lbx.base.records import Sample
from lbx.benchmarks.judge import Round
from lbx.opinions.rating_rows import RatingRow
from lbx.results import GenerationRow, RunRow, SampleRow, Store
from tests.judged_rounds import SCALE, Said, add_judge, add_ratings, both_orders, fastchat_rounds

ROUND = Round("leval", "narrative_qa", "s0", "Who?", ("He",), "r", "he did", 0, "b", 0, "she did it all")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "r.duckdb") as made:
        yield made


def rows(store: Store, sql: str) -> list[dict[str, Any]]:
    return store.query(sql).dicts()


def only(store: Store, view: str = "judge_results", questions: str = "all") -> dict[str, Any]:
    (row,) = [
        row
        for row in rows(
            store, f"FROM {view} WHERE {'task IS NULL' if view == 'judge_results' else 'run_id IS NOT NULL'}"
        )
        if row.get("questions", questions) == questions
    ]
    return row


def test_fastchats_file(tmp_path: Path, shared: Callable[[str], Path]) -> None:
    """The figures of its authors' data, to the digit, in a plain DuckDB shell."""
    path = tmp_path / "r.duckdb"
    with Store(path) as store:
        add_judge(store, "gpt-4", fastchat_rounds(shared("data/judgements/fastchat/gpt-4_pair.jsonl")))
    with duckdb.connect(str(path), read_only=True) as shell:
        found = shell.sql("FROM judge_results WHERE task IS NULL")
        row = dict(zip(found.columns, found.fetchall()[0], strict=True))
        bias = shell.sql("FROM judge_bias WHERE run_id IS NOT NULL")
        lean = dict(zip(bias.columns, bias.fetchall()[0], strict=True))
    assert [row[f"n_{name}"] for name in ("questions", "rounds", "wins", "draws", "losses")] == [75, 150, 62, 25, 60]
    assert (row["n_errors"], row["n_none"], row["many_errors"]) == (3, 3, False)
    assert row["win_rate"] == (62 + 0.5 * 25) / 147 and round(row["win_rate"], 6) == 0.506803
    assert round(row["win_rate_agreeing"], 6) == 0.513699
    assert (lean["n_decided"], lean["first_wins"]) == (122, 79)
    assert (lean["only_first"], lean["only_second"], lean["n_questions"]) == (16, 2, 73)
    assert lean["first_questions"] > lean["second_questions"]


def test_the_other_models_side_is_the_rest(store: Store, shared: Callable[[str], Path]) -> None:
    add_judge(store, "g", fastchat_rounds(shared("data/judgements/fastchat/gpt-4_pair.jsonl"), second=False))
    row = only(store)
    assert row["win_rate"] == (60 + 0.5 * 25) / 147 and row["against_win_rate"] == (62 + 0.5 * 25) / 147
    assert row["against_win_rate_agreeing"] == pytest.approx(0.513699, abs=1e-6)


def test_states_hide_nothing(store: Store) -> None:
    """What holds no verdict leaves the total; each kind is counted; of several marks the earlier letter counts."""
    said = [
        Said(ROUND, "[[A]]"),
        Said(replace(ROUND, sample_id="s1"), "[[B]] or [[A]]"),
        Said(replace(ROUND, sample_id="s2"), "I cannot say"),
        Said(replace(ROUND, sample_id="s3"), "let me think", cut=True),
        Said(replace(ROUND, sample_id="s4"), error="it broke"),
        Said(replace(ROUND, sample_id="s5"), "[[B]]", cut=True),
    ]
    add_judge(store, "j", said)
    row = only(store)
    counts = {name: row[f"n_{name}"] for name in ("rounds", "wins", "losses", "ambiguous", "none", "cut", "failed")}
    assert counts == {"rounds": 6, "wins": 2, "losses": 1, "ambiguous": 1, "none": 1, "cut": 1, "failed": 1}
    assert row["win_rate"] == 2 / 3 and row["n_errors"] == 3 and row["many_errors"]
    assert row["win_rate_agreeing"] is None  # nobody was asked in both orders
    states = rows(store, "SELECT sample_id, state, verdict FROM judgements ORDER BY sample_id")
    assert [(one["state"], one["verdict"]) for one in states] == [
        ("ok", "answer"), ("ambiguous", "answer"), ("none", None), ("cut", None), ("failed", None), ("ok", "against"),
    ]  # fmt: skip


def test_only_agreeing_orders(store: Store) -> None:
    """A win where both orders agree; everything else is a tie; a question with an error has no part."""
    texts = [
        ("[[A]]", "[[B]]"),
        ("[[A]]", "[[A]]"),
        ("[[C]]", "[[B]]"),
        ("[[B]]", "[[A]]"),
        ("[[A]]", "-"),
        ("[[C]]",) * 2,
    ]
    add_judge(
        store, "j", [s for n, two in enumerate(texts) for s in both_orders(replace(ROUND, sample_id=f"s{n}"), *two)]
    )
    row, bias = only(store), only(store, "judge_bias")
    assert row["win_rate_agreeing"] == (1 + 3 * 0.5) / 5
    assert row["win_rate"] == (5 + 0.5 * 3) / 11
    assert (bias["n_questions"], bias["n_consistent"]) == (5, 3)
    assert (bias["only_first"], bias["only_second"]) == (1, 0)
    assert (bias["n_decided"], bias["first_wins"]) == (8, 5)
    assert (bias["first_questions"], bias["second_questions"]) == (2, 1)
    # "she did it all" is the longer answer, and wins where the judged one loses
    assert (bias["n_unequal"], bias["longer_wins"]) == (8, 3)


def test_a_question_with_two_marks_counts_twice_where_both_were_asked(store: Store) -> None:
    """As in the official file of 181 rows; where only the judge's questions were asked it is one of them."""
    both = replace(ROUND, sample_id="s1", marks=("LLM", "human"))
    llm, human = replace(ROUND, sample_id="s2", marks=("LLM",)), replace(ROUND, sample_id="s3", marks=("human",))
    add_judge(store, "j", [Said(both, "[[A]]"), Said(llm, "[[B]]")])
    assert only(store)["n_rounds"] == 2 and only(store, questions="llm")["win_rate"] == 0.5
    assert not rows(store, "FROM judge_results WHERE questions = 'human'")
    add_judge(store, "j", [Said(both, "[[A]]"), Said(llm, "[[B]]"), Said(human, "[[B]]")])
    assert only(store)["n_rounds"] == 4 and only(store)["win_rate"] == 0.5 and only(store)["n_questions"] == 3
    assert [only(store, questions=name)["n_rounds"] for name in ("llm", "human")] == [2, 2]
    names = {row["name"]: row["n"] for row in rows(store, "FROM group_results")}
    assert names == {"j vs b": 4, "j vs b, llm questions": 2, "j vs b, human questions": 2}


def test_copies_with_verdicts_of_their_own_count_once_each(store: Store) -> None:
    """An official file of both kinds has two rows of such a question."""
    both = replace(ROUND, sample_id="s1", marks=("LLM", "human"))
    said = [Said(both, "[[A]]"), Said(both, "[[B]]", iteration=1)]
    said += [Said(replace(ROUND, sample_id=mark, marks=(mark,)), "[[A]]") for mark in ("LLM", "human")]
    add_judge(store, "j", said)
    assert only(store)["n_rounds"] == 4 and only(store)["n_wins"] == 3
    assert [only(store, questions=name)["n_wins"] for name in ("llm", "human")] == [2, 1]


def test_ratings_of_a_judge(store: Store) -> None:
    alone = Round("leval", "narrative_qa", "s0", "Who?", (), "r", "he did")
    said = [Said(replace(alone, sample_id=f"s{n}"), text) for n, text in enumerate(("[[5]]", "[[2]]", "no idea"))]
    add_judge(store, "j", said, rubric=SCALE)
    row = only(store)
    assert (row["kind"], row["rating"], row["score"], row["n_errors"]) == ("score", 3.5, 0.625, 1)
    assert row["win_rate"] is None and row["against_run_id"] is None
    (number,) = rows(store, "FROM group_results")
    assert (number["name"], number["metric"], number["official"], number["score"]) == ("j", "rating", 3.5, 0.625)


def answers(store: Store, output: str) -> None:
    """The judged run's own answer."""
    sample = Sample("leval", "narrative_qa", "s0", "", ROUND.question, ROUND.references)
    store.begin_run(RunRow("r", "model", "scripted", "1", {}, "digest", {}, {}, "0.1"))
    store.write(samples=[SampleRow(sample, 0)], generations=[GenerationRow("r", *sample.key, output=output)])


def test_what_is_said_of_an_answer_that_changed_counts_no_more(store: Store) -> None:
    answers(store, "he did")
    add_judge(store, "j", [Said(ROUND, "[[A]]")])
    assert only(store)["n_wins"] == 1 and len(rows(store, "FROM group_results")) == 1
    answers(store, "nobody did")
    assert not rows(store, "FROM judge_results") and not rows(store, "FROM group_results")
    assert rows(store, "SELECT current FROM judgements") == [{"current": False}]
    add_judge(store, "j", [Said(replace(ROUND, answer="nobody did"), "[[B]]")])
    assert (only(store)["n_rounds"], only(store)["n_losses"]) == (1, 1)
    assert len(rows(store, "FROM judgements")) == 2


def test_a_family_is_marked(store: Store) -> None:
    add_judge(store, "j", [Said(ROUND, "[[A]]"), Said(replace(ROUND, run_id="q"), "[[A]]")], family=["q"])
    found = {row["run_id"]: row["same_family"] for row in rows(store, "FROM judge_results WHERE task IS NULL")}
    assert found == {"r": False, "q": True}


def rate(store: Store, kind: str, ratings: list[RatingRow], items: int = 3) -> None:
    add_ratings(store, "s", kind, ratings, items)


def test_people_the_last_revision_counts(store: Store) -> None:
    rate(store, "score", [
        RatingRow("s", 0, "ann", "r", score=1.0), RatingRow("s", 0, "ann", "r", score=4.0, revision=1),
        RatingRow("s", 1, "ann", "r", score=5.0), RatingRow("s", 0, "bob", "r", score=4.0),
        RatingRow("s", 2, "bob", "r", score=3.0), RatingRow("s", 2, "bob", "r", revision=1),
        RatingRow("s", 0, "bob", "b", score=1.0),
    ])  # fmt: skip
    found = {row["run_id"]: row for row in rows(store, "FROM rating_results WHERE task IS NULL")}
    assert (found["r"]["mean"], found["r"]["n_ratings"], found["r"]["n_items"]) == (13 / 3, 3, 2)
    assert found["r"]["n_raters"] == 2 and found["r"]["score"] == pytest.approx((13 / 3 - 1) / 4)
    assert found["b"]["mean"] == 1.0


def test_peoples_pairs_are_about_both(store: Store) -> None:
    verdicts = ["answer", "both_bad", "against", "answer"]
    rate(store, "pair", [
        RatingRow("s", n, "ann", "r", against_run_id="b", verdict=verdict) for n, verdict in enumerate(verdicts)
    ], items=4)  # fmt: skip
    found = {row["run_id"]: row for row in rows(store, "FROM rating_results WHERE task IS NULL")}
    assert (found["r"]["n_wins"], found["r"]["n_draws"], found["r"]["n_losses"]) == (2, 1, 1)
    assert found["r"]["win_rate"] == 0.625 and found["b"]["win_rate"] == 0.375


def test_the_mean_of_the_official_page(store: Store) -> None:
    """10_evaled.json's digits: each score times how often it came, in the order in which they came."""
    scores = [3.7, 4.1, 3.7]
    rate(store, "score", [RatingRow("s", n, "ann", "r", score=score) for n, score in enumerate(scores)])
    counts = {3.7: 2, 4.1: 1}
    official = sum(float(score) * count for score, count in counts.items()) / 3
    assert rows(store, "SELECT mean FROM rating_results WHERE task IS NULL") == [{"mean": official}]
