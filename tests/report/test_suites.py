"""All benchmarks in one table, by length, and the areas under their curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from lbx.benchmarks.ruler.aggregates import metrics_of as ruler_metrics
from lbx.benchmarks.ruler.tasks import LENGTHS
from lbx.benchmarks.ruler.tasks import TASKS as RULER
from lbx.report.format.sheets import Sheet
from lbx.report.format.table_cells import BYTES_NOTE
from lbx.report.query import ReportQuery
from lbx.report.reports import REPORTS, read_report
from lbx.report.rows.suites import area
from lbx.results import Store
from lbx.statistics.estimates import Estimate, Stratum, interval
from tests.report.made_answers import Answer, make
from tests.report.test_effective_context import Lines, answers, spread


def lines_of(path: Path) -> Lines:
    with Store(path, read_only=True) as store:
        return read_report(store, "suites", ReportQuery()).dicts()


def estimate(*values: float, weight: float = 1.0, seed: str = "") -> Estimate:
    names = [f"{seed}{at}" for at in range(len(values))]
    return Estimate((Stratum(weight, names, names, np.array(values)),))  # type: ignore[arg-type]


def test_an_area_weighs_lengths_by_their_distance_in_doublings() -> None:
    heights = {8192: 0.9, 16384: 0.5, 65536: 0.3}
    got = area({length: estimate(height, height, seed=str(length)) for length, height in heights.items()})
    assert interval(got).value == pytest.approx(((0.9 + 0.5) / 2 * 1 + (0.5 + 0.3) / 2 * 2) / 3)
    of_documents = {length: estimate(*spread(height, 40), seed=str(length)) for length, height in heights.items()}
    ends = interval(area(of_documents))
    assert ends.se == pytest.approx(
        np.sqrt(sum((weight / 3) ** 2 * 0.1**2 / 39 for weight in (0.5, 1.5, 1.0))), rel=1e-9
    )


def test_lengths_below_8k_and_lengths_of_single_runs_are_outside_the_area(tmp_path: Path) -> None:
    lengths = {4000: spread(0.9, 30), 8000: spread(0.8, 30), 16000: spread(0.6, 30), 32000: spread(0.2, 30)}
    path = make(
        tmp_path / "r.duckdb",
        [*answers("qasper", lengths, run="wide"), *answers("qasper", {**lengths, 32000: []}, run="short")],
    )
    rows = {(row["run_id"], row["length_up_to"]): row for row in lines_of(path)}
    assert {up_to for model, up_to in rows if model == "wide"} == {4096, 8192, 16384, 32768}
    for name in ("wide", "short"):
        row = rows[name, 8192]
        assert (row["area_from"], row["area_to"], row["area"]) == (8192, 16384, pytest.approx(0.7))
        assert row["area_low"] < 0.7 < row["area_high"]
    with Store(path, read_only=True) as store:
        table = read_report(store, "suites", ReportQuery())
    (sheet,) = REPORTS["suites"].sheets(table)
    headings = [column.heading for column in sheet.columns]
    assert headings == ["model", *(f"longbench {at}" for at in ("4k", "8k", "16k", "32k", "area"))]
    assert dict(zip(headings, next(row for row in sheet.rows if row[0] == "model short"), strict=True))[
        "longbench 32k"
    ] == ""  # fmt: skip


def test_the_average_is_that_of_the_authors_over_the_tasks_with_all_lengths(tmp_path: Path) -> None:
    # The paper averages tasks, however many samples they have.
    path = make(
        tmp_path / "r.duckdb",
        [
            *answers("qasper", {8000: spread(0.8, 30), 16000: spread(0.6, 30)}),
            *answers("hotpotqa", {8000: spread(0.4, 60), 16000: spread(0.2, 10)}),
            *answers("triviaqa", {8000: spread(0.1, 30)}),
        ],
    )
    rows = {row["length_up_to"]: row for row in lines_of(path)}
    assert rows[8192]["score"] == pytest.approx(0.6) and rows[16384]["score"] == pytest.approx(0.4)
    assert {row["left_out"] for row in rows.values()} == {"triviaqa"}
    assert rows[8192]["official"] is None  # of 2 of 21 tasks


def needles(*, run: str = "a", **how: Any) -> list[Answer]:
    """Needles in English at 128 to 1,024 tokens, which fail at 512, and in Chinese, which takes fewer, at 64 to 512."""
    counts = {"single_en": {100: 3, 200: 3, 500: 12, 1000: 6}, "single_zh": {60: 6, 100: 6, 200: 6, 500: 6}}
    return [
        answer
        for task, lengths in counts.items()
        for answer in answers(
            task,
            {length: [float(length < 500 or task != "single_en")] * count for length, count in lengths.items()},
            benchmark="needle",
            metric="recall",
            meta={"depth": 0.5},
            run=run,
            **how,
        )
    ]


def sheet_of(path: Path) -> Sheet:
    with Store(path, read_only=True) as store:
        (sheet,) = REPORTS["suites"].sheets(read_report(store, "suites", ReportQuery()), in_text=True)
    return sheet


def test_lengths_that_some_tasks_lack_are_counted_and_named(tmp_path: Path) -> None:
    path = make(tmp_path / "r.duckdb", needles())
    rows = {row["length_up_to"]: row for row in lines_of(path)}
    assert [*rows] == [128, 256, 512]
    assert {row["left_out"] for row in rows.values()} == {"12 answers at 64 and 1k"}
    reason = "not every task has enough samples at every length"
    note = f"needle, prompt tokens: not shown, because {reason}: 12 answers at 64 and 1k."
    assert any(line.startswith(note) for line in sheet_of(path).notes)


def test_two_means_of_the_same_answers_are_told_apart(tmp_path: Path) -> None:
    """The benchmark averages questions, and a comparison of lengths the tasks."""
    path = make(tmp_path / "r.duckdb", needles())
    with Store(path, read_only=True) as store:
        table = read_report(store, "effective_context", ReportQuery())
    own, by_task = ({row["length_up_to"]: row["score"] for row in rows} for rows in (lines_of(path), table.dicts()))
    assert (own[512], by_task[512]) == (pytest.approx(6 / 18), pytest.approx(1 / 2))
    assert "needle: mean of questions; effective_context has the mean of the tasks." in sheet_of(path).notes
    assert any("A score is the mean of the tasks, each with equal weight." in note
               for sheet in REPORTS["effective_context"].sheets(table) for note in sheet.notes)  # fmt: skip


def test_bytes_and_tokens_in_one_column_are_told_apart(tmp_path: Path) -> None:
    path = make(tmp_path / "r.duckdb", [*needles(), *needles(run="b")])
    assert BYTES_NOTE in sheet_of(path).notes
    mixed = "needle: at one length a table of answers has other questions than a model."
    assert mixed not in sheet_of(path).notes
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE runs SET backend = 'llamacpp' WHERE run_id = 'b'")
    assert {BYTES_NOTE, mixed} <= {*sheet_of(path).notes}


def test_tasks_that_begin_at_other_lengths_are_averaged_as_the_authors_do(tmp_path: Path) -> None:
    def cells(task: str, score: float, lengths: Sequence[int]) -> list[Answer]:
        return [
            answer
            for length in lengths
            for answer in answers(
                f"{task}_{length}", {length: [score] * 12}, benchmark="ruler", metric=ruler_metrics(f"{task}_4096")[0]
            )
        ]

    made = [cells(task, 0.2 if task.startswith("qa") else 1.0, LENGTHS[at > 6 : 3]) for at, task in enumerate(RULER)]
    path = make(tmp_path / "r.duckdb", [answer for of_task in made for answer in of_task])
    rows = {row["length_up_to"]: row for row in lines_of(path)}
    expected = (11 + 2 * 0.2) / 13
    assert {length: row["score"] for length, row in rows.items()} == pytest.approx({8192: expected, 16384: expected})
    assert {row["official"] for row in rows.values()} == {round(100 * expected, 1)}
    assert rows[8192]["area"] == pytest.approx(expected)
