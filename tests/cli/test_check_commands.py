"""`lbx check`: conditions on a run's scores, for continuous integration; the exit code is the verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lbx.report.query import ReportQuery
from lbx.report.reports import read_report
from lbx.results import Store
from tests.command_line import Lbx, fails
from tests.report.made_runs import add_run, trec

ALL = "longbench", "longbench/trec"
PASSED, FAILED, UNDECIDED = 0, 1, 4


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of 100 documents with a question each, by the number of right answers; and one of only 50 documents."""
    path = tmp_path_factory.mktemp("check") / "r.duckdb"
    with Store(path) as store:
        for name, right in (("good", 80), ("same", 80), ("close", 78), ("bad", 40), ("none", 0), ("all", 100)):
            add_run(store, name, trec(right, 100))
        add_run(store, "half", trec(40, 50))
        add_run(store, "broken", trec(80, 97, failed=3))
    return path


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("conditions", "code"),
    [
        (("--at-least", "{name}=60"), PASSED),
        (("--at-least", "{name}=0"), PASSED),
        (("--at-least", "{name}=79"), UNDECIDED),
        (("--at-least", "{name}=95"), FAILED),
        (("--not-worse-than", "same"), UNDECIDED),
        (("--not-worse-than", "same", "--margin", "3"), PASSED),
        (("--not-worse-than", "bad"), PASSED),
        (("--not-worse-than", "none"), PASSED),
        (("--not-worse-than", "close", "--margin", "10"), PASSED),
        (("--not-worse-than", "bad", "--not-worse-than", "none"), PASSED),
        (("--at-least", "{name}=60", "--at-least", "{other}=79"), UNDECIDED),
        (("--at-least", "{name}=95", "--at-least", "{other}=79"), FAILED),
    ],
)
def test_the_exit_code_is_the_verdict(
    lbx: Lbx, results: Path, name: str, conditions: tuple[str, ...], code: int
) -> None:
    (other,) = {*ALL} - {name}
    tasks = ("--tasks", name) if "--not-worse-than" in conditions else ()
    done = lbx("check", results, "--run", "good", *tasks, *(word.format(name=name, other=other) for word in conditions))
    assert done.returncode == code, done.stdout + done.stderr
    assert ["Passed", "Failed", "", "", "Undecided"][code] in done.stdout


@pytest.mark.parametrize(
    ("run", "other", "margin", "code"),
    [
        ("bad", "good", "1", FAILED),
        ("none", "good", "1", FAILED),
        ("bad", "good", "60", PASSED),
        ("bad", "good", "40", UNDECIDED),
        ("close", "good", "1", UNDECIDED),
        ("close", "good", "10", PASSED),
    ],
)
def test_a_margin_decides_by_the_interval_of_the_report(
    lbx: Lbx, results: Path, run: str, other: str, margin: str, code: int
) -> None:
    done = lbx("check", results, "--run", run, "--not-worse-than", other, "--margin", margin, "--json")
    assert done.returncode == code, done.stderr
    (condition,) = json.loads(done.stdout)["conditions"]
    with Store(results, read_only=True) as store:
        rows = read_report(store, "comparison", ReportQuery(runs=[run], baseline=other)).dicts()
    row = next(row for row in rows if row["task"] == "overall")
    assert condition["value"] == pytest.approx(100 * row["difference"])
    assert (condition["n"], condition["clusters"]) == (row["n"], row["clusters"]) == (100, 100)
    assert condition["low"] > 100 * row["low"], "the 90% interval is inside the 95% interval"


def test_what_was_compared_is_shown(lbx: Lbx, results: Path) -> None:
    done = lbx("check", results, "--run", "close", "--at-least", "longbench/trec=60", "--not-worse-than", "good")
    assert done.returncode == UNDECIDED
    for words in ("longbench/trec", "at least 60", "not worse than good by 1 points", " needed", "78.0", "-2.0"):
        assert words in done.stdout, done.stdout
    decided = lbx("check", results, "--run", "good", "--at-least", "longbench/trec=60")
    assert "reason" in done.stdout and "reason" not in decided.stdout
    assert "80.0 [72.3, 86.3]" in decided.stdout and "90% intervals" in decided.stdout


def test_a_score_without_an_interval_says_why(lbx: Lbx, tmp_path: Path) -> None:
    with Store(tmp_path / "one.duckdb") as store:
        add_run(store, "one", trec(1, 1))
    done = lbx("check", tmp_path / "one.duckdb", "--at-least", "longbench=50")
    assert "no interval: all questions are on one document" in done.stdout, done.stdout + done.stderr


def test_what_differs_alike_is_decided_as_in_the_report_of_formats(lbx: Lbx, results: Path, tmp_path: Path) -> None:
    check = ("check", results, "--not-worse-than")
    assert lbx(*check, "all", "--run", "none").returncode == FAILED
    assert lbx(*check, "none", "--run", "all").returncode == PASSED
    with Store(tmp_path / "one.duckdb") as store:
        for name in ("old", "new"):
            add_run(store, name, trec(1, 1))
    done = lbx("check", tmp_path / "one.duckdb", "--run", "new", "--not-worse-than", "old")
    assert done.returncode == UNDECIDED and "about 300 more questions needed" in " ".join(done.stdout.split())


def test_failed_samples_leave_it_undecided(lbx: Lbx, results: Path) -> None:
    done = lbx("check", results, "--run", "broken", "--at-least", "longbench=1", "--json")
    assert done.returncode == UNDECIDED
    assert json.loads(done.stdout)["conditions"][0]["reason"].startswith("3 samples failed; repeat the run's")
    for run, other, said in (
        ("broken", "good", "3 samples failed; repeat the run's command with --retry-failed"),
        ("good", "broken", "3 samples of broken failed; repeat its command with --retry-failed"),
    ):
        done = lbx("check", results, "--run", run, "--not-worse-than", other, "--json")
        assert done.returncode == UNDECIDED, done.stderr
        assert json.loads(done.stdout)["conditions"][0]["reason"] == said


def test_a_score_of_a_part_of_the_samples_is_marked(lbx: Lbx, bundle: Path, answers: Path, tmp_path: Path) -> None:
    results = tmp_path / "part.duckdb"
    lbx.ok("run", "-b", bundle, "-m", answers, "-t", "needle/single_en", "--limit", 2, "-o", results, "--no-plan")
    done = lbx("check", results, "--at-least", "needle/single_en=0", "--at-least", "needle=0")
    assert "Caution: needle/single_en: 2 of 8 samples" in done.stdout, done.stdout + done.stderr
    lbx.ok("run", "-b", bundle, "-m", answers, "-t", "needle/single_en", "-o", results, "--no-plan")
    assert "Caution" not in lbx("check", results, "--at-least", "needle/single_en=0").stdout


def test_a_baseline_may_be_in_another_file(lbx: Lbx, results: Path, tmp_path: Path) -> None:
    with Store(tmp_path / "new.duckdb") as store:
        add_run(store, "new", trec(79, 100))
    check = ("check", tmp_path / "new.duckdb", "--not-worse-than", "good", "--baseline-file", results)
    assert lbx(*check, "--margin", "10").returncode == PASSED
    assert lbx(*check, "--at-least", "longbench=95").returncode == FAILED
    fails(lbx(*check[:3], "nobody", *check[4:]), 2, "nobody")


def test_a_part_of_the_questions_is_refused_also_against_another_file(lbx: Lbx, results: Path, tmp_path: Path) -> None:
    with Store(tmp_path / "new.duckdb") as store:
        add_run(store, "new", trec(50, 50))
    check = ("check", tmp_path / "new.duckdb", "--not-worse-than", "good", "--baseline-file", results)
    fails(lbx(*check, "--margin", "10"), 2, "answered different samples of longbench: 50 in common, 50 not")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "There is nothing to check."),
        (("--at-least", "longbench"), "--at-least must be KEY=VALUE"),
        (("--at-least", "longbench=0.8"), "must be in percent"),
        (("--at-least", "longbench=much"), "must be in percent"),
        (("--at-least", "longbench=101"), "must be in percent"),
        (("--at-least", "longbench/tre=50"), "good has no score of 'longbench/tre'. Did you mean longbench/trec"),
        (("--at-least", "longbench=50", "--at-least", "longbench=60"), "--at-least names a task twice."),
        (("--at-least", "longbench=50", "--margin", "2"), "--margin needs --not-worse-than RUN."),
        (("--not-worse-than", "same", "--tasks", "leval"), "good has no score of 'leval'."),
        (("--not-worse-than", "nobody"), "No run 'nobody'"),
        (("--not-worse-than", "good"), "cannot be compared with itself"),
        (("--not-worse-than", "half"), "good and half answered different samples of longbench: 100 and 50, 50 of them"),
        (("--not-worse-than", "same", "--margin", "-1"), "--margin"),
    ],
)
def test_bad_conditions_are_refused(lbx: Lbx, results: Path, words: Any, said: str) -> None:
    fails(lbx("check", results, "--run", "good", *words), 2, said)


def test_the_run_is_the_only_other_one(lbx: Lbx, results: Path, tmp_path: Path) -> None:
    fails(lbx("check", results, "--not-worse-than", "good"), 2, "contains several runs", "--run")
    with Store(tmp_path / "two.duckdb") as store:
        add_run(store, "old", trec(80, 100))
        add_run(store, "new", trec(80, 100))
    done = lbx("check", tmp_path / "two.duckdb", "--not-worse-than", "old", "--margin", "3", "--json")
    assert (done.returncode, json.loads(done.stdout)["run"]) == (PASSED, "new")
