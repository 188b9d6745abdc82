"""The leaderboard: runs in the order of what they surely have, and the places that they may have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lbx.base.records import Sample
from lbx.report.format.table_cells import sheet
from lbx.report.query import ReportQuery
from lbx.report.ranks import sort_score
from lbx.report.reports import REPORTS, read_report
from lbx.report.rows.leaderboard import describe_few_documents, rank_ranges
from lbx.results import Store
from tests.command_line import Lbx
from tests.report.made_runs import add_run, trec


def row(score: float | None, se: float | None = 0.01, **changes: object) -> dict[str, object]:
    made = {"score": score, "se": se, "df": 99.0, "answered": 100, "asked": 100}
    part = {"scorable_answers": 100, "least_part": 1.0, "score_of": "mean of tasks"}
    return {**made, "failed_as_0": score, "failed_as_1": score, **part, **changes}


def test_places_are_ranges_of_what_cannot_be_told_apart() -> None:
    assert rank_ranges([row(0.9), row(0.5), row(0.49), row(0.2)]) == ["1", "2-3", "2-3", "4"]
    assert rank_ranges([row(0.9), row(0.89), row(0.88)]) == ["1-3"] * 3
    assert rank_ranges([row(0.9), row(0.1, se=None)]) == ["1-2", "1-2"]
    assert rank_ranges([row(0.9)]) == [None]
    assert rank_ranges([]) == []


def test_missing_answers_leave_places_open() -> None:
    half = {"answered": 50, "failed_as_0": 0.45, "failed_as_1": 0.95}
    assert rank_ranges([row(0.6), row(0.9, **half)]) == ["1-2", "1-2"], "the one that stands second is not surely first"
    assert rank_ranges([row(0.6), row(0.3, **half | {"failed_as_0": 0.15, "failed_as_1": 0.55})]) == ["1", "2"]
    asked = {"answered": 50, "asked": 50}
    killed = row(0.9, **asked, failed_as_0=0.9, failed_as_1=0.9)
    assert rank_ranges([row(0.6), killed]) == ["1-2", "1-2"]
    limited = row(0.6, **asked, failed_as_0=0.6, failed_as_1=0.6)
    assert rank_ranges([killed, limited]) == ["1", "2"], "nothing is missing of what both were asked"


def test_all_wrong_is_surely_worse_than_half_right() -> None:
    none = row(0.0, se=0.0, method="logit", low=0.0, high=0.037)
    every = row(1.0, se=0.0, method="logit", low=0.963, high=1.0)
    few = row(0.03, se=0.017, method="logit", low=0.010, high=0.084)
    assert rank_ranges([every, row(0.5, se=0.05, method="t"), none]) == ["1", "2", "3"]
    assert rank_ranges([few, none]) == ["1-2", "1-2"]


def test_two_are_told_apart_as_welch_does() -> None:
    """By the standard errors and degrees of freedom of their own: 0.02 is where p crosses 5%."""
    for gap in (0.0270, 0.0285):
        p = 2 * stats.t.sf(gap / (0.01 * 2**0.5), 198)
        assert (rank_ranges([row(0.5 + gap), row(0.5)]) == ["1", "2"]) == (p < 0.05)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8))
def test_a_place_is_no_other_s_for_sure(scores: list[float]) -> None:
    found = rank_ranges([row(score) for score in sorted(scores, reverse=True)])
    ends = [tuple(map(int, (place or "").partition("-")[::2])) if "-" in (place or "") else (int(place or 0),) * 2
            for place in found]  # fmt: skip
    assert all(first <= number <= last for number, (first, last) in enumerate(ends, start=1))


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, 0.6),
        ({"answered": 99, "failed_as_0": 0.55}, 0.6),
        ({"answered": 98, "failed_as_0": 0.55}, 0.55),
        ({"scorable_answers": 200, "least_part": 0.5}, 0.3),  # killed halfway
        ({"scorable_answers": 200, "least_part": 0.1}, 0.06),
        ({"scorable_answers": 200, "least_part": 0.1, "score_of": "mean of questions"}, 0.3),
        ({"scorable_answers": 100, "least_part": 0.0}, -0.5),
        ({"scorable_answers": None}, 0.6),
        ({"answered": None, "asked": None, "failed_as_0": None}, 0.6),
    ],
)
def test_too_many_missing_answers_count_as_wrong(changes: dict[str, object], wanted: float) -> None:
    assert sort_score(row(0.6, **changes)) == pytest.approx(wanted)


def test_what_failed_is_never_left_out_in_silence(shared: Callable[[str], Path], tmp_path: Path) -> None:
    """LongBench v2's published answers: 191 of 503 failed, and the script's 28.2 is over the others."""
    out = tmp_path / "r.duckdb"
    source = shared("data/predictions/longbench_v2/oneshot.jsonl")
    assert Lbx()("import", "longbench_v2", source, "--model-name", "v2", "-o", out).returncode == 0
    with Store(out, read_only=True) as store:
        (found,) = read_report(store, "leaderboard").dicts()
    assert (found["answered"], found["asked"]) == (312, 503)
    assert (found["score"], found["failed_as_0"], found["failed_as_1"]) == pytest.approx(
        (88 / 312, 88 / 503, 279 / 503)
    )
    said = " ".join(Lbx()("report", out, "leaderboard").stdout.split())
    assert "312 of 503 answers; the score is 17.5 to 55.5 with the others all wrong to all right" in said


@pytest.mark.parametrize("tasks", [("qasper",), ("qasper", "hotpotqa")])
def test_of_one_document_nothing_has_an_interval(tmp_path: Path, tasks: tuple[str, ...]) -> None:
    """Wherever its numbers stand: nothing tells how far off another document's would be."""
    with Store(tmp_path / "r.duckdb") as store:
        for run, right in (("a", 5), ("b", 3)):
            samples = [Sample("longbench", task, f"{n}", "the one", "?", ("yes",), "en", 9)
                       for task in tasks for n in range(8)]  # fmt: skip
            answers = ["yes" if n % 8 < right else "no" for n in range(len(samples))]
            add_run(store, run, zip(samples, answers, strict=True), model=run)
        reports = ("leaderboard", "task_scores", "group_scores", "paper", "length_curve", "comparison", "cost")
        found = {name: read_report(store, name).dicts() for name in reports}
        found["truncation_effect"] = read_report(store, "truncation_effect", ReportQuery(runs=("a", "b"))).dicts()
        shown = sheet(REPORTS["leaderboard"], read_report(store, "leaderboard")).rows
    for name, rows in found.items():
        said = {(row.get("method"), row.get("low"), row.get("se"), row.get("clusters", 1)) for row in rows}
        assert said <= {("one cluster", None, None, 1)}, name
    assert len(found["comparison"]) > 2 and {row["verdict"] for row in found["comparison"]} == {
        "undecided: one document"
    }
    assert [row["place"] for row in found["leaderboard"]] == ["1-2", "1-2"]
    assert {cell for row in shown for cell in row if "document" in cell} == {
        "62.5 (one document)",
        "37.5 (one document)",
    }


LONE = ("narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique", "gov_report", "qmsum",
        "multi_news", "triviaqa", "samsum")  # fmt: skip
"""Tasks of LongBench that score 1 for the reference itself, and 0 for another word."""


def test_places_are_those_of_the_comparison_where_an_average_has_no_interval(tmp_path: Path) -> None:
    """One question of each task leaves nothing to make an interval of, and all eleven speak for one of two runs."""
    with Store(tmp_path / "r.duckdb") as store:
        for run, right in (("a", 11), ("b", 10), ("c", 1), ("d", 0), ("e", 0)):
            samples = [Sample("longbench", task, "0", task, "?", ("yes",), "en", 9) for task in LONE]
            answers = [(one, "yes" if at < right else "no") for at, one in enumerate(samples)]
            add_run(store, run, answers, model=run)
        board = {row["run_id"]: row for row in read_report(store, "leaderboard").dicts()}
        pairs = {
            (row["run_a"], row["run_b"]): row
            for row in read_report(store, "comparison").dicts() if row["level"] == "benchmark"
        }  # fmt: skip
    assert {row["method"] for row in board.values()} == {"one cluster"}
    assert pairs["a", "d"]["p"] < 0.001
    assert {run: row["place"] for run, row in board.items()} == {
        "a": "1-2", "b": "1-2", "c": "3-5", "d": "3-5", "e": "3-5",
    }  # fmt: skip
    _contradicts_no_pair(board, pairs)


def test_places_are_those_of_the_comparison_of_published_answers(imports: Path) -> None:
    with Store(imports, read_only=True) as store:
        board = {
            row["run_id"]: row for row in read_report(store, "leaderboard").dicts() if row["benchmark"] == "longbench"
        }
        pairs = {
            (row["run_a"], row["run_b"]): row for row in read_report(store, "comparison").dicts()
            if row["level"] == "benchmark" and row["benchmark"] == "longbench"
        }  # fmt: skip
    ((pair, row),) = pairs.items()
    assert [board[run]["score"] for run in pair] == pytest.approx([row["score_a"], row["score_b"]])
    _contradicts_no_pair(board, pairs)


def _contradicts_no_pair(board: Mapping[str, Mapping[str, Any]], pairs: Mapping[Any, Mapping[str, Any]]) -> None:
    """A run is surely behind as many others as the comparison calls better."""
    for run, row in board.items():
        better = sum(
            pair["verdict"].startswith("better" if one == run else "worse")
            for (one, other), pair in pairs.items() if run in (one, other)
        )  # fmt: skip
        assert int(row["place"].partition("-")[0]) == 1 + better, run


def test_the_score_of_a_benchmark_is_its_authors_average(imports: Path) -> None:
    """One number, and its name, wherever a run has one; that LongBench's weighs categories test_boards shows."""
    with Store(imports, read_only=True) as store:
        rows = {row["model"]: row for row in read_report(store, "leaderboard").dicts()}
        sums: dict[str, list[float]] = {}
        for row in store.query("FROM group_scores WHERE \"grouping\" = 'overall'").dicts():
            sums.setdefault(row["run_id"], []).append(row["score"])
        spent = {row["run_id"]: row for row in read_report(store, "cost").dicts() if row["task"] is None}
    found = {model: (row["score_of"], round(100 * row["score"], 2)) for model, row in rows.items()}
    assert found["llama3-8b-instruct"] == ("mean of categories", 47.48)
    assert found["llama2-7b-chat-4k"] == ("mean of categories", 28.87)
    assert found["gpt-4o-mini"][0] == "mean of questions"
    assert found["llama2-13b-chat-4k"][0] == "mean of tasks", "L-Eval's authors average its parts alone"
    for row in rows.values():
        assert spent[row["run_id"]]["score"] == pytest.approx(row["score"]), row["model"]
        assert any(score == pytest.approx(row["score"]) for score in sums[row["run_id"]]), row["model"]


def test_tasks_that_a_score_does_not_count_are_not_missing_in_it(tmp_path: Path) -> None:
    """LongBench's score is of its own tasks; a run may have those of LongBench-E, too."""
    in_e = [(replace(sample, task="trec_e"), output) for sample, output in trec(2, 9)]
    with Store(tmp_path / "r.duckdb") as store:
        counts = {"longbench/trec": 12, "longbench/trec_e": 9}
        add_run(store, "both", [*trec(6, 12), *in_e], model="both", counts=counts)
        add_run(store, "half", [*trec(6, 12), *in_e[:4]], model="half", counts=counts)
        rows = {row["run_id"]: row for row in read_report(store, "leaderboard").dicts()}
    assert [(row["score"], row["asked"]) for row in rows.values()] == [(0.5, 12)] * 2
    assert [row["scorable_answers"] for row in rows.values()] == [12, 17]
    assert (sort_score(rows["both"]), sort_score(rows["half"])) == pytest.approx((0.5, 0.5 * 4 / 9))


def test_a_part_of_one_question_is_not_called_one_document(tmp_path: Path) -> None:
    with Store(tmp_path / "r.duckdb") as store:
        lone = Sample("longbench", "qasper", "q", "another", "?", ("yes",), "en", 9)
        for run, right in (("a", 9), ("b", 4)):
            add_run(store, run, [*trec(right, 12), (lone, "yes")], model=run)
        board = read_report(store, "leaderboard")
        (row, *_) = [row for row in read_report(store, "comparison").dicts() if row["task"] == "overall"]
    assert {(row["method"], row["clusters"]) for row in board.dicts()} == {("one cluster", 13)}
    shown = sheet(REPORTS["leaderboard"], board)
    assert "87.5 (one document in a part)" in shown.rows[0]
    explained = "One document in a part: all questions of a part, such as a task, are on one document, so there is no"
    assert [note.startswith(explained) for note in shown.notes].count(True) == 1
    assert (row["clusters"], row["verdict"]) == (13, "undecided: one document in a part")


@pytest.mark.parametrize(
    ("documents", "runs", "wanted"),
    [
        (6, 3, "6 documents cannot separate 3 runs: at least 7 are needed"),
        (4, 2, "4 documents cannot separate 2 runs: at least 6 are needed"),
        (9, 40, "9 documents cannot separate 40 runs: at least 10 are needed"),
        (6, 2, ""),
        (7, 3, ""),
        (100, 40, ""),
    ],
)
def test_documents_too_few_for_any_difference_are_named(documents: int, runs: int, wanted: str) -> None:
    rows = [{"clusters": documents, "cluster_by": "document", "place": f"1-{runs}"} for _ in range(runs)]
    assert describe_few_documents(rows) == wanted
    assert describe_few_documents([*rows[1:], rows[0] | {"place": "1"}]) == ""
