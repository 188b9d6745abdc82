"""One order of runs: the leaderboard's, in every table and chart of a benchmark."""

from __future__ import annotations

from pathlib import Path

import pytest

from lbx.base.records import Sample
from lbx.report.format.table_cells import sheet
from lbx.report.page.source import PageSource
from lbx.report.query import ALL
from lbx.report.reports import REPORTS, read_report
from lbx.results import Store
from tests.report.made_runs import Answer, add_run, trec

ORDER = ["m-best", "z-second", "a-third", "k-partial"]
"""Neither the order of names, nor that in which they were written, nor that of the scores over what was answered."""


def _needles(right: int) -> list[Answer]:
    samples = [
        Sample(
            "needle", "single_en", f"{n}", f"d{n}", "?", ("42",), "en", 1000 * (1 + n % 2), meta={"depth": n % 2 / 1}
        )
        for n in range(20)
    ]
    return [(sample, "42" if n < right else "no") for n, sample in enumerate(samples)]


def _choices(right: int) -> list[Answer]:
    meta = {"difficulty": "easy", "length": "short", "domain": "Legal", "sub_domain": "Legal"}
    samples = [Sample("longbench_v2", "mcq", f"{n}", f"d{n}", "?", ("B",), "en", 9000, meta=meta) for n in range(20)]
    return [(sample, f"The correct answer is ({'B' if n < right else 'C'})") for n, sample in enumerate(samples)]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("order") / "r.duckdb"
    with Store(path) as store:
        for run, right, failed in (("k-partial", 19, 30), ("a-third", 25, 0), ("z-second", 35, 0), ("m-best", 48, 0)):
            others = [*_needles(right // 3), *_choices(right // 3)] if not failed else []
            add_run(store, run, [*trec(right, 50 - failed, failed), *others], model=run)
    return path


@pytest.mark.parametrize(
    "name",
    ["leaderboard", "task_scores", "group_scores", "guards", "length_curve", "truncation", "truncation_effect",
     "effective_context", "cost", "needles", "board_longbench", "board_longbench_v2"],
)  # fmt: skip
def test_every_report_has_the_order_of_the_leaderboard(results: Path, name: str) -> None:
    with Store(results, read_only=True) as store:
        rows = read_report(store, name).dicts()
        board = read_report(store, "leaderboard").dicts()
    for benchmark in {row.get("benchmark") for row in rows}:
        runs = [row["run_id"] for row in rows if row.get("benchmark") == benchmark and row["run_id"]]
        wanted = [row["run_id"] for row in board if row["benchmark"] == benchmark] if benchmark else ORDER
        assert list(dict.fromkeys(runs)) == [run for run in wanted if run in runs], benchmark


def test_the_page_and_its_charts_have_this_order(results: Path) -> None:
    with Store(results, read_only=True) as store:
        source = PageSource(store, ALL)
        assert list(source.runs) == ORDER


def test_the_number_that_sorts_is_shown_where_it_is_not_the_score(results: Path) -> None:
    with Store(results, read_only=True) as store:
        table = read_report(store, "leaderboard")
    shown = sheet(REPORTS["leaderboard"], table)
    at = [column.heading for column in shown.columns].index("with missing as 0")
    cells = {(row["run_id"], row["benchmark"]): line[at] for row, line in zip(table.dicts(), shown.rows, strict=True)}
    assert cells["k-partial", "longbench"] == "38.0" and cells["m-best", "longbench"] == "96.0"
    assert cells["m-best", "needle"] == "", "nothing is missing there"
