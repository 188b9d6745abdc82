"""Prompts read whole beside those that were cut, and runs on what both read whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from lbx.report.format.table_cells import sheet
from lbx.report.query import ReportQuery
from lbx.report.reports import REPORTS, read_report
from lbx.report.rows.truncation_effect import BOTH, CUT, LESS, LOST, PAIRED, UNKNOWN, WHOLE
from lbx.results import Store
from tests.report.made_answers import Answer, make


def lines_of(path: Path, **wanted: Any) -> dict[tuple[str, str | None, str], dict[str, Any]]:
    """{(run, task, prompts): the line}."""
    with Store(path, read_only=True) as store:
        rows = read_report(store, "truncation_effect", ReportQuery(**wanted)).dicts()
    found = {(row["run_id"], row["task"], row["prompts"]): row for row in rows}
    assert len(found) == len(rows)
    return found


def answers(run: str, whole: list[float], cut: list[float], lost: int = 0, task: str = "qasper") -> list[Answer]:
    """Answers to q0, q1 ...: the first read whole, the others cut, of which the last ``lost`` lost their reference."""
    marks: list[dict[str, Any]] = [{"truncated": False}] * len(whole)
    marks += [{"truncated": True, "reference_cut": at >= len(cut) - lost} for at in range(len(cut))]
    return [
        Answer(f"q{at}", {"f1": score}, run=run, task=task, document=f"{task} {at}", values=values)
        for at, (score, values) in enumerate(zip([*whole, *cut], marks, strict=True))
    ]


SCORES = np.random.default_rng(3).uniform(0.1, 0.9, 60).round(3).tolist()


def test_each_part_has_its_mean_its_interval_and_its_count(tmp_path: Path) -> None:
    found = lines_of(make(tmp_path / "r.duckdb", answers("a", SCORES[:30], SCORES[30:], lost=20)))
    for part, scores in ((WHOLE, SCORES[:30]), (CUT, SCORES[30:]), (LOST, SCORES[40:])):
        line = found["a", "qasper", part]
        df, mean, se = len(scores) - 1, np.mean(scores), stats.sem(scores)
        low, high = stats.t.interval(0.95, df, mean, se)
        if len(scores) < 30:
            half = stats.t.ppf(0.975, df) * se / (mean * (1 - mean)) * (1 + abs(1 - 2 * mean) / df)
            low, high = special.expit(special.logit(mean) - half), special.expit(special.logit(mean) + half)
        method = "t" if len(scores) >= 30 else "logit"
        assert (line["n"], line["method"], line["cluster_by"]) == (len(scores), method, "document")
        assert (line["score"], line["low"], line["high"]) == pytest.approx((np.mean(scores), low, high), abs=1e-9)
    assert ("a", "qasper", UNKNOWN) not in found


def test_whole_less_cut_combines_the_intervals_of_both_means(tmp_path: Path) -> None:
    """The squared half widths of the two means' Student's t intervals are added."""
    whole, cut = SCORES[:35], SCORES[35:]
    line = lines_of(make(tmp_path / "r.duckdb", answers("a", whole, cut)))["a", "qasper", LESS]
    difference = np.mean(whole) - np.mean(cut)
    half = np.hypot(*(stats.t.ppf(0.975, len(scores) - 1) * stats.sem(scores) for scores in (whole, cut)))
    assert line["score"] == pytest.approx(difference, abs=1e-9)
    assert line["se"] == pytest.approx(np.hypot(stats.sem(whole), stats.sem(cut)), abs=1e-9)
    assert (line["low"], line["high"]) == pytest.approx((difference - half, difference + half), abs=1e-9)
    assert line["n"] == 60


def test_the_mean_is_over_tasks_that_have_both(tmp_path: Path) -> None:
    rows = [
        *answers("a", SCORES[:10], SCORES[10:20]),
        *answers("a", SCORES[20:30], SCORES[30:40], task="hotpotqa"),
        *answers("a", SCORES[40:], [], task="musique"),
    ]
    found = lines_of(make(tmp_path / "r.duckdb", rows))
    whole, cut, less = (found["a", None, part] for part in (WHOLE, CUT, LESS))
    assert [line["tasks"] for line in (whole, cut, less)] == [2, 2, 2]
    assert whole["score"] == pytest.approx((np.mean(SCORES[:10]) + np.mean(SCORES[20:30])) / 2)
    assert cut["score"] == pytest.approx((np.mean(SCORES[10:20]) + np.mean(SCORES[30:40])) / 2)
    assert less["score"] == pytest.approx(whole["score"] - cut["score"])
    assert less["se"] == pytest.approx(np.hypot(whole["se"], cut["se"]))


def test_two_runs_are_compared_on_what_both_read_whole(tmp_path: Path) -> None:
    """Run a reads q0..q39 whole, run b q0..q29: the 30 are compared sample by sample."""
    first, second = SCORES[:50], SCORES[10:60]
    path = make(tmp_path / "r.duckdb", answers("a", first[:40], first[40:]) + answers("b", second[:30], second[30:]))
    found = lines_of(path, runs=("a", "b"))
    assert found["a", "qasper", BOTH]["score"] == pytest.approx(np.mean(first[:30]))
    assert found["b", "qasper", BOTH]["score"] == pytest.approx(np.mean(second[:30]))
    line = found["b", "qasper", PAIRED]
    test = stats.ttest_rel(second[:30], first[:30])
    low, high = test.confidence_interval(0.95)
    assert (line["against"], line["n"]) == ("a", 30)
    assert (line["low"], line["high"], line["p"]) == pytest.approx((low, high, test.pvalue), abs=1e-9)
    assert ("a", None, BOTH) not in found, "one task is its own mean"
    assert lines_of(path, baseline="a").keys() == found.keys()
    assert not any(part == BOTH for _, _, part in lines_of(path)), "two runs are compared where they are named"


def test_two_runs_over_several_tasks(tmp_path: Path) -> None:
    rows = [
        answer
        for run, shift in (("a", 0), ("b", 7))
        for at, task in enumerate(("qasper", "musique"))
        for answer in answers(run, SCORES[20 * at + shift : 20 * at + shift + 20], [], task=task)
    ]
    found = lines_of(make(tmp_path / "r.duckdb", rows), runs=("a", "b"))
    parts = [np.subtract(SCORES[20 * at + 7 : 20 * at + 27], SCORES[20 * at : 20 * at + 20]) for at in (0, 1)]
    line = found["b", None, PAIRED]
    assert (line["tasks"], line["n"]) == (2, 40)
    assert line["score"] == pytest.approx(np.mean([np.mean(part) for part in parts]))
    assert line["se"] == pytest.approx(np.hypot(*(stats.sem(part) for part in parts)) / 2)


def test_what_only_one_run_counts_is_no_part_of_a_pair(tmp_path: Path) -> None:
    """LongBench v2's number leaves empty answers out."""
    rows = [
        Answer(
            f"q{at}",
            {"accuracy": float(at % 2), "compensated": 0.0, "empty": float(run == "b" and at == 5)},
            run=run,
            benchmark="longbench_v2",
            task="mcq",
            meta={"difficulty": "easy", "length": "short"},
            values={"truncated": False},
        )
        for run in "ab"
        for at in range(12)
    ]
    found = lines_of(make(tmp_path / "r.duckdb", rows), runs=("a", "b"))
    assert (found["a", "mcq", WHOLE]["n"], found["b", "mcq", WHOLE]["n"]) == (12, 11)
    assert (found["a", "mcq", BOTH]["n"], found["b", "mcq", PAIRED]["n"]) == (11, 11)


def test_runs_that_read_every_prompt_whole_are_one_sentence(tmp_path: Path) -> None:
    rows = [*answers("a", SCORES[:20], []), *answers("b", SCORES[:20], [])]
    with Store(make(tmp_path / "r.duckdb", rows), read_only=True) as store:
        shown = sheet(REPORTS["truncation_effect"], read_report(store, "truncation_effect"))
        table = read_report(store, "truncation_effect", ReportQuery(runs=("a", "b")))
    pairs = sheet(REPORTS["truncation_effect"], table)
    sentence = "longbench: every prompt of model a, model b was read whole, so there is nothing to compare."
    assert (shown.rows, shown.notes) == ([], [sentence])
    assert {row[3] for row in pairs.rows} <= {BOTH, PAIRED} or sentence in pairs.notes


def test_what_nobody_knows_is_a_line_of_its_own(tmp_path: Path) -> None:
    path = make(tmp_path / "r.duckdb", [Answer(f"q{at}", {"f1": SCORES[at]}) for at in range(20)])
    found = lines_of(path)
    assert list(found) == [("a", "qasper", UNKNOWN)]
    assert (found["a", "qasper", UNKNOWN]["n"], found["a", "qasper", UNKNOWN]["cluster_by"]) == (20, "sample")


@pytest.mark.parametrize("scores", [[], [0.5], [1.0, 1.0], [float("nan"), 0.5]])
def test_few_or_odd_answers_have_words(tmp_path: Path, scores: list[float]) -> None:
    path = make(tmp_path / "r.duckdb", answers("a", scores, scores[:1]))
    with Store(path, read_only=True) as store:
        table = read_report(store, "truncation_effect")
    made = sheet(REPORTS["truncation_effect"], table)
    texts = [text for row in made.rows for text in row]
    assert "nan" not in " ".join(texts)
    assert bool(made.rows) == bool(scores)
    assert made.notes
