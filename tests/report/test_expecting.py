"""Runs held against published figures: what agrees, what differs, and what cannot be told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lbx.base.errors import UsageError
from lbx.report.query import ReportQuery
from lbx.report.rows.expected import table, verdict
from lbx.report.rows.reference import PublishedModel, PublishedScore
from lbx.results import Store
from tests.command_line import Lbx
from tests.report.made_runs import add_run, trec


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "results.duckdb") as opened:
        yield opened


def figures(folder: Path, *lines: str) -> list[Path]:
    path = folder / "published.csv"
    path.write_text("\n".join(["benchmark,model,trec", *lines]) + "\n", "utf-8")
    return [path]


@pytest.mark.parametrize(
    ("printed", "own", "low", "high", "said"),
    [
        (28.2, 30.0, 26.0, 34.0, "agrees"),
        (25.96, 30.0, 26.0, 34.0, "agrees"),  # 26.0 with half a digit more
        (34.04, 30.0, 26.0, 34.0, "agrees"),
        (25.9, 30.0, 26.0, 34.0, "differs"),
        (34.1, 30.0, 26.0, 34.0, "differs"),
        (99.0, 30.0, None, None, "cannot tell"),
        (28.2, None, None, None, "cannot tell"),
    ],
)
def test_the_rule(printed: float, own: float | None, low: float | None, high: float | None, said: str) -> None:
    assert verdict(PublishedScore(printed, 0.1), {"official": own, "low": low, "high": high})[0] == said


@pytest.mark.parametrize(
    ("published_score", "own", "hindrance", "said"),
    [
        (PublishedScore(28.2, 0.1), {"official": 28.24}, None, ("agrees", "equal as printed")),
        (
            PublishedScore(28.2, 0.1), {"official": 28.25, "low": 28.25, "high": 28.26}, None,
            ("agrees", "equal as printed"),
        ),
        (PublishedScore(30, 10), {"official": 36, "low": 35.5, "high": 36.5}, None, ("differs", None)),
        (
            PublishedScore(30, 10), {"official": 35.2, "low": 34.5, "high": 36}, None,
            ("cannot tell", "the score is printed too coarsely"),
        ),
        (
            PublishedScore(0, 1), {"official": 9, "method": "all alike"}, None,
            ("cannot tell", "every document has the same value"),
        ),
        (
            PublishedScore(0, 1), {"official": 9, "method": "one cluster", "clusters": 1}, None,
            ("cannot tell", "all questions are on one document"),
        ),
        (
            PublishedScore(0, 1), {"official": 9, "method": "one cluster", "clusters": 9}, None,
            ("cannot tell", "all questions of a part, such as a task, are on one document"),
        ),
        (PublishedScore(0, 1), {"official": 9}, None, ("cannot tell", "the score has no interval")),
        (PublishedScore(28.2, 0.1), {"official": 28.2}, "3 of 9 answered", ("cannot tell", "3 of 9 answered")),
    ],
)  # fmt: skip
def test_why(published_score: PublishedScore, own: dict, hindrance: str | None, said: tuple[str, str | None]) -> None:
    assert verdict(published_score, own, hindrance) == said


def test_a_line_for_each_figure_that_both_have(store: Store, tmp_path: Path) -> None:
    add_run(store, "all", trec(33, 40), counts={"longbench/trec": 40})
    add_run(store, "few", trec(33, 40), counts={"longbench/trec": 200})
    add_run(store, "gone", trec(33, 40, failed=2))
    references = figures(tmp_path, "longbench,M one,82.5", "longbench,M two,10", "leval,M one,3")
    found = table(store, ReportQuery(references=references, expected_models=["one"])).dicts()
    assert [(row["run_id"], row["published"], row["official"], row["verdict"], row["why"]) for row in found] == [
        ("all", 82.5, 82.5, "agrees", "equal as printed"),
        ("few", 82.5, None, "cannot tell", "40 of 200 answered"),
        ("gone", 82.5, 82.5, "cannot tell", "40 of 42 answered"),
    ]
    assert {row["line"] for row in found} == {"trec"}
    (only,) = table(store, ReportQuery(runs=["all"], references=references, expected_models=["M TWO"])).dicts()
    assert (only["published"], only["difference"]) == (10, 72.5)


def test_a_part_of_a_name_has_to_say_which(store: Store, tmp_path: Path) -> None:
    add_run(store, "r", trec(33, 40))
    references = figures(tmp_path, "longbench,GPT,82.5", "longbench,GPT mini,10", "longbench,GPT nano,10")
    with pytest.raises(UsageError, match=r"several published models of longbench.*GPT mini, GPT nano"):
        table(store, ReportQuery(references=references, expected_models=["GPT "]))
    (row,) = table(store, ReportQuery(references=references, expected_models=["gpt"])).dicts()
    assert row["model"] == "GPT", "the whole name of one, though a part of the others"
    with pytest.raises(UsageError, match="matches 'Claude'"):
        table(store, ReportQuery(references=references, expected_models=["Claude"]))


def test_a_model_of_other_lines_is_said(store: Store, tmp_path: Path) -> None:
    add_run(store, "r", trec(33, 40))
    path = tmp_path / "published.csv"
    path.write_text("benchmark,model,qasper\nlongbench,M,82.5\n", "utf-8")
    with pytest.raises(UsageError, match="No score of M was published"):
        table(store, ReportQuery(references=[path], expected_models=["M"]))


def test_a_row_that_contradicts_itself_is_no_measure() -> None:
    printed = {"overall: accuracy": 9.0, "difficulty easy: accuracy": 50.0, "difficulty hard: accuracy": 60.0}
    doubt = PublishedModel(
        "longbench_v2", "M", "", scores={line: PublishedScore(one, 1) for line, one in printed.items()}
    ).doubt
    assert verdict(PublishedScore(9, 1), {"official": 9.0}, doubt) == ("cannot tell", doubt)
    assert doubt is not None


@pytest.mark.parametrize(("printed", "said", "code"), [("60", "agrees", 0), ("95", "differs", 1)])
def test_the_interval_is_the_runs_own_and_the_exit_code_says_whether_one_differs(
    tmp_path: Path, printed: str, said: str, code: int
) -> None:
    path = tmp_path / "results.duckdb"
    with Store(path) as store:
        add_run(store, "r", trec(21, 40))
        ((low, high),) = store.query("SELECT low, high FROM paper WHERE line = 'trec'").rows
    assert 30 < low < 52.5 < 60 < high < 75
    (reference,) = figures(tmp_path, f"longbench,M,{printed}")
    for output_format in ("json", "table", "html"):
        done = Lbx()("report", path, "--expect", "M", "--reference", reference, "--format", output_format)
        assert done.returncode == code, done.stderr
        assert said in done.stdout
    (row,) = json.loads(Lbx()("report", path, "--expect", "M", "--reference", reference, "-f", "json").stdout)
    assert (row["low"], row["high"], row["verdict"], row["why"]) == (low, high, said, None)
    written = ("--format", "parquet", "-o", tmp_path / "expected.parquet")
    assert Lbx()("report", path, "--expect", "M", "--reference", reference, *written).returncode == code
    shown = Lbx()("report", path, "--expect", "M", "--reference", reference, "--no-interval").stdout
    assert said in shown
