"""A file's scored answers, as benchmarks add them up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lbx.base.records import ScoredSample, sha256_text
from lbx.benchmarks.base.aggregates import ScoredRows
from lbx.results import Store
from lbx.results.scoring.score_columns import RowsByTask, headline_of, read_scores
from tests.report.made_answers import Answer, make


def tasks_of(path: Path, *runs: str) -> dict[tuple[str, str], RowsByTask]:
    with Store(path, read_only=True) as store:
        return {key: dict(tasks) for key, tasks in read_scores(store, runs).items()}


def test_answers_come_in_order_with_all_their_scores_the_headline_first(tmp_path: Path) -> None:
    found = tasks_of(
        make(
            tmp_path / "r.duckdb",
            [
                Answer("q", {"f1": 0.25, "em": 0.0}, task="qasper", document="D", values={"original_tokens": 9}),
                Answer("s", {"b": 1.0, "a": 0.5}, task="narrativeqa", iteration=1, partial="all"),
                Answer("s", {"b": 0.5, "a": 0.75}, task="narrativeqa"),
                Answer("p", {"f1": 0.125, "em": 1.0}, values={"truncated": True, "prefill_s": 0.5}),
                Answer("p", {"f1": 1.0}, run="b"),
            ],
        )
    )
    assert list(found) == [("a", "longbench"), ("b", "longbench")]
    assert list(found["a", "longbench"]) == ["narrativeqa", "qasper"], "the paper's order"
    first, second = found["a", "longbench"]["narrativeqa"]
    assert (first.iteration, second.iteration) == (0, 1)
    assert list(second.scores.items()) == [("b", 1.0), ("a", 0.5)]
    assert (first.partial, second.partial) == (False, True)
    rows = found["a", "longbench"]["qasper"]
    with_document, without = rows
    assert with_document.cluster == sha256_text("D")
    assert without.cluster == "", "the hash of nothing is no document"
    assert rows.column("clustered").tolist() == [True, False]
    known = {name: rows.column(name) for name in ("original_tokens", "truncated", "prefill_s")}
    np.testing.assert_array_equal(list(known.values()), [[9, np.nan], [np.nan, 1], [np.nan, 0.5]])


def test_answers_of_one_task_may_have_different_metrics(tmp_path: Path) -> None:
    path = make(
        tmp_path / "r.duckdb",
        [Answer("1", {"f1": 0.5}), Answer("2", {"f1": 1.0, "em": 0.0}), Answer("3", {"em": 0.25, "f1": 0.0})],
    )
    ((rows,),) = (tasks.values() for tasks in tasks_of(path).values())
    assert [dict(row.scores) for row in rows] == [{"f1": 0.5}, {"f1": 1.0, "em": 0.0}, {"em": 0.25, "f1": 0.0}]


def test_questions_of_lveval_are_their_own_clusters(tmp_path: Path) -> None:
    level = "hotpotwikiqa_mixup_16k"
    path = make(tmp_path / "r.duckdb", [Answer("1", {"f1": 0.5}, benchmark="lveval", task=level, document="D")])
    assert tasks_of(path)["a", "lveval"][level][0].cluster == "Where?"


def test_failed_answers_and_those_without_scores_are_no_part(tmp_path: Path) -> None:
    failed = Answer("2", {"f1": 0.0}, values={"output": None, "error": "no answer"})
    path = make(tmp_path / "r.duckdb", [Answer("1", {"f1": 0.5}), failed, Answer("3", {})])
    assert [row.sample.sample_id for row in tasks_of(path)["a", "longbench"]["qasper"]] == ["1"]


def test_only_the_runs_that_are_asked_for(tmp_path: Path) -> None:
    path = make(tmp_path / "r.duckdb", [Answer("1", {"f1": 0.5}, run=run) for run in "abc"])
    assert [run for run, _ in tasks_of(path, "a", "c")] == ["a", "c"]


def test_an_empty_file_has_none(tmp_path: Path) -> None:
    assert tasks_of(make(tmp_path / "r.duckdb", [])) == {}


@pytest.mark.parametrize(
    ("benchmark", "task"), [("a name that none can have", "t"), ("leval", "a task that it has not"), ("mine", "t")]
)
def test_what_lbx_does_not_know_has_a_plain_mean(tmp_path: Path, benchmark: str, task: str) -> None:
    rows = [Answer(str(at), {"own": value}, benchmark=benchmark, task=task) for at, value in enumerate((0.0, 0.5))]
    found = tasks_of(make(tmp_path / "r.duckdb", rows))["a", benchmark][task]
    one = headline_of(benchmark, task, found)
    assert one is not None
    assert (one.metric, one.n, one.score) == ("own", 2, 0.25)
    assert headline_of(benchmark, task, []) is None


def test_only_the_benchmarks_that_are_asked_for_and_outputs_where_they_are(tmp_path: Path) -> None:
    rows = [Answer("1", {"f1": 0.5}), Answer("1", {"own": 0.5}, benchmark="mine", task="t")]
    with Store(make(tmp_path / "r.duckdb", rows), read_only=True) as store:
        assert list(read_scores(store, (), ["mine"])) == [("a", "mine")]
        found = [read_scores(store, outputs=wanted)["a", "mine"]["t"].column("output_hash") for wanted in (False, True)]
    assert not found[0].any() and found[1].all()


def test_what_is_read_is_kept_only_as_long_as_it_holds(tmp_path: Path) -> None:
    path = make(tmp_path / "r.duckdb", [Answer("1", {"f1": 0.5}), Answer("1", {"f1": 0.5}, run="b")])
    with Store(path, read_only=True) as store:
        first = read_scores(store, outputs=True)
        assert read_scores(store) == first == read_scores(store, ("a", "b")), (
            "the same rows, which are equal to no others"
        )
        assert list(read_scores(store, ("a",))) == [("a", "longbench")]
    with Store(path) as store:
        assert len(read_scores(store)) == 2
        with store.transaction() as connection:
            connection.execute("DELETE FROM scores WHERE run_id = 'a'")
        assert list(read_scores(store)) == [("b", "longbench")], "a file that is written to is read again"


def test_no_more_samples_are_made_than_are_looked_at(tmp_path: Path) -> None:
    """A report of 100,000 answers looks at a task's first one, and at parts of tasks that have none."""
    answers = [Answer(name, {"f1": 0.5, "em": at}, partial="all" if at else None) for at, name in enumerate("abc")]
    ((rows,),) = (tasks.values() for tasks in tasks_of(make(tmp_path / "r.duckdb", answers)).values())
    made: list[slice] = []

    def make_some(places: slice) -> list[ScoredSample]:
        made.append(places)
        return rows._columns.make_samples(places)

    seen = ScoredRows(replace(rows._columns, make_samples=make_some))
    assert headline_of("longbench", "qasper", seen.take([])) is None
    assert list(seen.take([])) == []
    assert not made
    assert (seen[0], seen.take([2, 1])[0]) == (rows[0], rows[2])
    assert made == [slice(0, 1), slice(2, 3)]
    assert list(seen) == [rows[0], rows[1], rows[2]]
    assert [one.scores["em"] for one in seen.take([2, 1])] == [2, 1]


def test_what_is_read_of_a_file_serves_reports_of_a_part_of_it(tmp_path: Path) -> None:
    answers = [
        Answer("1", {"f1": 0.5}, run=run, benchmark=name, task=task)
        for run in "ab"
        for name, task in (("longbench", "qasper"), ("leval", "tpo"))
    ]
    path = make(tmp_path / "r.duckdb", answers)
    with Store(path, read_only=True) as store:
        some = read_scores(store, ["a"], ["leval"])
        assert list(some) == [("a", "leval")]
        every = read_scores(store)
        assert len(every) == 4, "a part is not taken for everything"
        part = read_scores(store, ["b"], ["longbench"])
        assert list(part) == [("b", "longbench")]
        assert part["b", "longbench"] is every["b", "longbench"]
        assert read_scores(store, outputs=True)["b", "longbench"]["qasper"].column("output_hash").any()
