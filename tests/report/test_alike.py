"""What of a paper's column is bold beside the best: what the samples cannot tell from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lbx.report.query import ALL, ReportQuery
from lbx.report.reports import read_report
from lbx.report.rows.paper import mark_ties, sheets
from lbx.results import Store, Table
from tests.report.made_runs import add_run, trec


def _bold(store: Store, wanted: ReportQuery = ALL) -> dict[str, set[str]]:
    """{title: runs whose first number is bold}."""
    made = sheets(mark_ties(store, wanted, read_report(store, "paper", wanted)))
    return {one.title: {one.rows[row][0] for row, column in one.best if column == 1} for one in made}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    with Store(tmp_path / "r.duckdb") as made:
        for name, right in (("best", 30), ("near", 28), ("far", 5)):
            add_run(made, name, trec(right, 40), model=name)
    return Store(tmp_path / "r.duckdb", read_only=True)


def test_what_cannot_be_told_from_the_best_is_bold(store: Store) -> None:
    assert _bold(store)["LongBench: tasks"] == {"best", "near"}


def test_the_runs_that_are_asked_for_count(store: Store) -> None:
    assert _bold(store, ReportQuery(runs=("near", "far")))["LongBench: tasks"] == {"near"}


def test_nothing_is_compared_with_a_published_figure(store: Store) -> None:
    paper = read_report(store, "paper", ReportQuery(with_published_models=True, models=("GPT-3.5-Turbo-16k",)))
    for top, alike_ones in ((0.0, {"near"}), (99.0, set())):
        rows = [row if row[paper.columns.index("run_id")] else _with(paper, row, top) for row in paper.rows]
        found = mark_ties(store, ALL, Table(paper.columns, rows)).dicts()
        assert {row["run"] for row in found if row["alike"]} == alike_ones
        assert any(row["run"].endswith("*") for row in found)


def _with(paper: Table, row: tuple[Any, ...], official: float) -> tuple[Any, ...]:
    return tuple(official if name == "official" else value for name, value in zip(paper.columns, row, strict=True))
