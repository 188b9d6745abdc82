"""What may have spoilt scores: counts and rates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from lbx.base.marks import MARKS
from lbx.report.format.table_cells import sheet
from lbx.report.query import ReportQuery
from lbx.report.reports import REPORTS, read_report
from lbx.results import Store
from lbx.statistics.estimates import binomial_interval
from tests.report.made_answers import Answer, make


def rows_of(path: Path, **wanted: Any) -> list[dict[str, Any]]:
    with Store(path, read_only=True) as store:
        return read_report(store, "guards", ReportQuery(**wanted)).dicts()


def answers(*values: dict[str, Any], documents: int = 0, **how: Any) -> list[Answer]:
    """Answers with these marks, each on a document of its own, or on so many in turn."""
    return [
        Answer(f"q{at}", {"f1": 1.0}, document=f"document {at % (documents or len(values))}", values=one, **how)
        for at, one in enumerate(values)
    ]


def test_failures_of_unknown_questions_are_part_of_the_rate(imports: Path) -> None:
    """191 of LongBench v2's 503 published answers failed, and their lines hold no question."""
    (row,) = (row for row in rows_of(imports) if row["benchmark"] == "longbench_v2")
    assert (row["n"], row["failed"]) == (503, 191)
    assert row["failed_rate"] == 191 / 503
    values = np.arange(503) < 191
    expected = stats.t.interval(0.95, 502, values.mean(), stats.sem(values))
    assert (row["failed_low"], row["failed_high"]) == pytest.approx(expected, abs=1e-9)


SOUND = {"truncated": False, "finish_reason": "stop", "bos_tokens": 1, "stop_in_reasoning": False}


def test_a_rate_has_the_interval_of_a_share(tmp_path: Path) -> None:
    marks = [SOUND | {"truncated": at < 15, "finish_reason": "length" if at < 2 else "stop"} for at in range(40)]
    (row,) = rows_of(make(tmp_path / "r.duckdb", answers(*marks)))
    exact = stats.binomtest(15, 40).proportion_ci(0.95)
    assert (row["n"], row["truncated"], row["truncated_rate"]) == (40, 15, 0.375)
    assert (row["truncated_low"], row["truncated_high"]) == pytest.approx((exact.low, exact.high), abs=1e-9)
    assert (row["answers_cut"], row["answers_cut_rate"]) == (2, 0.05)
    assert (row["answers_cut_low"], row["answers_cut_high"]) == pytest.approx(binomial_interval(0.05, 40), abs=1e-9)
    assert (row["failed"], row["failed_rate"]) == (0, 0.0)
    assert (row["failed_low"], row["failed_high"]) == pytest.approx(binomial_interval(0.0, 40), abs=1e-9)


def test_answers_on_one_document_are_not_so_many_witnesses(tmp_path: Path) -> None:
    (row,) = rows_of(make(tmp_path / "r.duckdb", answers(*[SOUND] * 40, documents=8)))
    assert row["truncated_high"] == pytest.approx(binomial_interval(0.0, 8)[1], abs=1e-9)
    with Store(tmp_path / "r.duckdb", read_only=True) as store:
        assert any("95% intervals" in note for note in sheet(REPORTS["guards"], read_report(store, "guards")).notes)
    (row,) = rows_of(make(tmp_path / "one.duckdb", answers(*[SOUND] * 40, documents=1)))
    with Store(tmp_path / "one.duckdb", read_only=True) as store:
        assert not any("95% intervals" in note for note in sheet(REPORTS["guards"], read_report(store, "guards")).notes)
    assert (row["truncated_rate"], row["truncated_low"], row["truncated_high"]) == (0.0, None, None)


def test_a_rate_is_of_those_of_which_it_is_known(tmp_path: Path) -> None:
    cut = SOUND | {"truncated": True}
    marks = [SOUND, SOUND, cut | {"reference_cut": True}, cut | {"reference_cut": False}, cut, {}]
    (row,) = rows_of(make(tmp_path / "r.duckdb", answers(*marks)))
    assert (row["n"], row["truncated"], row["truncated_rate"]) == (6, 3, 0.6)
    assert (row["reference_cut"], row["reference_cut_rate"]) == (1, 0.25)


def test_what_nobody_knows_is_unknown(tmp_path: Path) -> None:
    path = make(tmp_path / "r.duckdb", answers({}, {}))
    (row,) = rows_of(path)
    unknown = {
        "doubled_bos", "reasoning_unclosed", "answers_cut", "stop_in_reasoning", "truncated", "reference_cut",
        "loose_matches",
    }  # fmt: skip
    for mark in (one.name for one in MARKS):
        assert (row[mark] is None) == (row[f"{mark}_rate"] is None) == (mark in unknown), mark
    with Store(path, read_only=True) as store:
        made = sheet(REPORTS["guards"], read_report(store, "guards"))
    (said,) = [note for note in made.notes if note.startswith("Columns left out, because no answer has a value: ")]
    assert len(said.split(", ")) == 1 + len(unknown) + 1, "tokens cut, too"
    (none,) = [note for note in made.notes if note.endswith(": none in 2 answers.")]
    assert len(none.split(", ")) == len(MARKS) - len(unknown) and not made.rows
    both = make(tmp_path / "both.duckdb", [*answers({}, {}), Answer("x", {"f1": 0.0}, task="musique", values=SOUND)])
    with Store(both, read_only=True) as store:
        made = sheet(REPORTS["guards"], read_report(store, "guards"))
    assert made.rows == [] and any(note.endswith(": none in 3 answers.") for note in made.notes)
    assert [note for note in made.notes if "unknown" in note] == [
        "-: unknown; imported answers and some backends do not report it."
    ]


def test_reasoning_that_never_closed_and_failures(tmp_path: Path) -> None:
    marks = [
        SOUND | {"reasoning_closed": True},
        SOUND | {"reasoning_closed": False, "finish_reason": "length"},
        SOUND,
        {"output": None, "error": "nothing left", "error_type": "EmptyPromptError"},
        {"output": None, "error": "no answer", "error_type": "PromptError"},
    ]
    (row,) = rows_of(make(tmp_path / "r.duckdb", answers(*marks)))
    assert (row["reasoning_unclosed"], row["reasoning_unclosed_rate"]) == (1, pytest.approx(1 / 3))
    assert (row["answers_cut"], row["answers_cut_rate"]) == (0, 0.0)
    assert (row["empty_prompts_rate"], row["failed_rate"]) == (0.2, 0.2)


def test_counts_are_the_view_s_and_rates_can_be_left_alone(tmp_path: Path) -> None:
    path = make(tmp_path / "r.duckdb", [*answers(SOUND, SOUND), *answers(SOUND, run="b")])
    with Store(path, read_only=True) as store:
        view = store.query("SELECT * FROM guards ORDER BY run_id")
    rows = rows_of(path)
    assert [tuple(row[name] for name in view.columns) for row in rows] == view.rows
    assert [row["run_id"] for row in rows_of(path, runs=("b",))] == ["b"]
    assert not any(name.endswith(("_low", "_high")) for name in rows_of(path, without_intervals=True)[0])


def test_an_empty_file_has_none(tmp_path: Path) -> None:
    assert rows_of(make(tmp_path / "r.duckdb", [])) == []
