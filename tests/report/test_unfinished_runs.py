"""Runs that ended, or were killed, before the first answer to some of their tasks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lbx.base.records import Sample
from lbx.benchmarks.needle import NeedleSettings, make_sample
from lbx.benchmarks.ruler.tasks import TASKS
from lbx.cluster.merge import merge
from lbx.exchange.tools.run_records import read_run
from lbx.report.gates import GateVerdict, check_run
from lbx.report.query import ReportQuery
from lbx.report.reports import REPORTS
from lbx.results import RunRow, Store
from lbx.results.read.runs import listed_runs, states_of_runs
from lbx.results.scoring.reading import add_missing_numbers
from tests.report.made_runs import Answer, add_run, trec

KINDS = ("single", "multikey", "multiquery")
COUNTS = {f"needle/{kind}_en": 4 for kind in KINDS}


def answers(kinds: Sequence[str], right: int = 4) -> list[Answer]:
    samples = [
        make_sample(NeedleSettings(), kind, "en", length=64, depth=0.5, index=index)
        for kind in kinds
        for index in range(4)
    ]
    return [(sample, " ".join(sample.references) if at % 4 < right else "no") for at, sample in enumerate(samples)]


def kill(store: Store, run: str) -> None:
    store.query("UPDATE runs SET status = 'running', finished_at = NULL WHERE run_id = ?", [run])


def numbers(store: Store, run: str) -> dict[str, Any]:
    sql = """SELECT "grouping" || ' ' || name, official FROM group_results WHERE run_id = ?"""
    return dict(store.query(sql, [run]).rows)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "r.duckdb"
    with Store(path) as store:
        add_run(store, "whole", answers(KINDS, right=3), counts=COUNTS)
        add_run(store, "easy", answers(KINDS[:1]), model="easy", counts=COUNTS)
        kill(store, "easy")
    return path


def test_a_task_without_an_answer_counts_as_missing(file: Path) -> None:
    with Store(file, read_only=True) as store:
        rows = REPORTS["leaderboard"].read(store).dicts()
        told = [(row["run_id"], row["coverage"], row["status"], row["missing_as_0"]) for row in rows]
        assert told == [("whole", None, "done", 0.75), ("easy", "4 of 12", "killed", pytest.approx(1 / 3))]
        covered = store.query("SELECT task, samples, answers, bundle_answers FROM coverage WHERE run_id = 'easy'").rows
        assert sorted(covered) == [("multikey_en", 0, 0, 4), ("multiquery_en", 0, 0, 4), ("single_en", 4, 4, 4)]
        assert {run.run_id: run.bundle_answers for run in listed_runs(store)} == {"whole": 12, "easy": 12}
        assert "whole" in str(REPORTS["card"].read(store).dicts()[0]["run_id"])


def test_a_mean_of_tasks_without_an_answer_to_one_has_no_bound(tmp_path: Path) -> None:
    """Eight of ten answers are right, but with all others wrong, the mean of categories is no 80."""
    names = [("qasper", 8), ("hotpotqa", 2)]
    samples = [
        Sample("longbench", task, str(n), "text", "?", ("yes",), "en", 9) for task, of in names for n in range(of)
    ]
    counts = {f"longbench/{task}": of for task, of in names}
    with Store(tmp_path / "r.duckdb") as store:
        add_run(store, "whole", [(one, "yes" if at % 8 < 3 else "no") for at, one in enumerate(samples)], counts=counts)
        add_run(store, "begun", [(one, "yes") for one in samples[:9]], model="begun", counts=counts)
        add_run(store, "killed", [(one, "yes") for one in samples[:8]], model="killed", counts=counts)
        kill(store, "killed")
        table = REPORTS["leaderboard"].read(store)
        told = {row["run_id"]: row["missing_as_0"] for row in table.dicts()}
        assert list(told) == ["whole", "begun", "killed"]
        assert told["killed"] is None and told["begun"] == pytest.approx(0.5), "at most (1 + 1/2) / 2"
        read_notes = REPORTS["leaderboard"].read_notes
        assert read_notes is not None
        (sheet,) = REPORTS["leaderboard"].sheets(table, read_notes(store, table))
        assert any("without an answer to a task follow" in note for note in sheet.notes)


def test_no_average_that_may_include_a_missing_task_is_official(file: Path) -> None:
    with Store(file, read_only=True) as store:
        assert all(official is None for official in numbers(store, "easy").values())
        assert numbers(store, "whole")["overall all"] == 75
        assert not any(row["run_id"] == "easy" and row["part"] for row in REPORTS["paper"].read(store).dicts())


def test_an_average_of_certain_tasks_stays_official(tmp_path: Path) -> None:
    """An unanswered task of 1k is no part of BABILong's average of 0k."""
    tasks = [f"qa{number}_0k" for number in range(1, 6)]
    samples = [Sample("babilong", task, "0", "text", "Where?", ("park",), language="en", length=0) for task in tasks]
    counts = dict.fromkeys([f"babilong/{task}" for task in [*tasks, "qa1_1k"]], 1)
    with Store(tmp_path / "r.duckdb") as store:
        add_run(store, "run", [(sample, "park") for sample in samples], counts=counts)
        assert numbers(store, "run")["length 0k"] == 0


def test_complete_averages_stay_official_without_another_task(tmp_path: Path) -> None:
    """Each has one task, and qasper belongs to neither."""
    samples = [Sample("longbench", task, "0", "text", "?", ("yes",), "zh", 9) for task in ("vcsum", "dureader")]
    counts = dict.fromkeys(["longbench/vcsum", "longbench/dureader", "longbench/qasper"], 1)
    with Store(tmp_path / "r.duckdb") as store:
        add_run(store, "run", [(sample, "yes") for sample in samples], counts=counts)
        found = {name: official for name, official in numbers(store, "run").items() if name.startswith("category_zh")}
    assert len(found) == 2 and None not in found.values()


def test_an_effective_length_without_a_longer_task_that_was_asked_for_is_not_official(tmp_path: Path) -> None:
    names = [f"{task}_{length}" for length in (4096, 8192) for task in TASKS]
    samples = [Sample("ruler", name, "0", "text", "?", ("yes",), "en", int(name.rpartition("_")[2])) for name in names]
    asked = dict.fromkeys([f"ruler/{name}" for name in names], 1)
    with Store(tmp_path / "r.duckdb") as store:
        for run, counts in (("all", asked), ("killed", asked | {"ruler/vt_16384": 1})):
            add_run(store, run, [(sample, "yes") for sample in samples], counts=counts)
        lengths = store.query("SELECT official FROM group_results WHERE metric = 'effective_length_k' ORDER BY run_id")
        assert lengths.rows == [(8,), (None,)]
        assert numbers(store, "killed")["length 8k"] == 100


def test_every_iteration_of_a_task_without_an_answer_counts(tmp_path: Path) -> None:
    with Store(tmp_path / "r.duckdb") as store:
        add_run(store, "run", answers(KINDS[:1]), counts=COUNTS, settings={"iterations": 6})
        (run,) = listed_runs(store)
        assert (run.answers, run.bundle_answers) == (4, 72)


@pytest.mark.parametrize("status", ["running", "interrupted", "failed"])
def test_a_run_that_gets_more_tasks_keeps_averages_without_official_numbers(tmp_path: Path, status: str) -> None:
    with Store(tmp_path / "r.duckdb") as store:
        first = {"needle/single_en": 4}
        add_run(store, "run", answers(KINDS[:1]), counts=first)
        assert numbers(store, "run")["overall all"] == 100
        row = RunRow("run", "model", "scripted", "1", {}, "digest", {"run_id": "run"}, {}, "0.1", task_samples=COUNTS)
        store.begin_run(row)
        assert not numbers(store, "run")
        if status != "running":
            store.finish_run("run", status)
        add_missing_numbers(store)
        assert numbers(store, "run")["overall all"] is None


def test_a_killed_run_passes_no_check(file: Path) -> None:
    with Store(file, read_only=True) as store:
        (condition,) = check_run(store, "easy", {"needle": 50}, [], ReportQuery()).conditions
        assert condition.verdict is GateVerdict.UNDECIDED
        assert condition.reason == "the run was killed with 4 of 12 answers; repeat its command to finish it"
        (task,) = check_run(store, "easy", {"needle/single_en": 1}, [], ReportQuery()).conditions
        assert "killed" not in task.reason, "all its samples have an answer"


def test_a_killed_run_passes_no_check_without_its_last_iteration(tmp_path: Path) -> None:
    with Store(tmp_path / "r.duckdb") as store:
        add_run(store, "run", answers(KINDS[:1]), counts={"needle/single_en": 4}, settings={"iterations": 2})
        kill(store, "run")
        (condition,) = check_run(store, "run", {"needle/single_en": 1}, [], ReportQuery()).conditions
    assert condition.reason == "the run was killed with 4 of 8 answers; repeat its command to finish it"
    assert condition.caution == "needle/single_en: 4 of 8 answers"


def test_a_complete_task_of_an_unfinished_run_is_compared(file: Path) -> None:
    with Store(file) as store:
        add_run(store, "same", answers(KINDS[:1]), model="same", counts=COUNTS)
        kill(store, "same")
        query = ReportQuery(tasks=("needle/single_en", "needle"), margin=80)
        task, whole = check_run(store, "easy", {}, ["same"], query).conditions
        assert task.verdict is GateVerdict.PASSED, task.reason
        assert whole.reason == "the run was killed with 4 of 12 answers; repeat its command to finish it"


def test_exports_name_the_state_and_all_samples(file: Path) -> None:
    with Store(file, read_only=True) as store:
        facts = read_run(store, "easy").facts
        assert [facts[name] for name in ("status", "run_samples_answered", "run_samples_in_data")] == ["killed", 4, 12]


def test_a_merge_keeps_the_state(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.duckdb"
    with Store(other) as store:
        add_run(store, "easy", answers(KINDS[:1]), model="easy", counts={"needle/single_en": 4})
    new = tmp_path / "new.duckdb"
    merge([file], new, None, update=False)
    merge([file], other, None, update=True)
    for path in (new, other):
        with Store(path, read_only=True) as store:
            assert states_of_runs(store) == {"whole": "done", "easy": "killed"}


@pytest.mark.parametrize("update", [False, True])
def test_a_merge_of_all_answers_makes_a_killed_run_done(file: Path, tmp_path: Path, update: bool) -> None:
    rest = tmp_path / "rest.duckdb"
    with Store(rest) as store:
        add_run(store, "easy", answers(KINDS[1:]), model="easy", counts=COUNTS)
        kill(store, "easy")
    new = rest if update else tmp_path / "new.duckdb"
    merge([file] if update else [file, rest], new, None, update=update)
    with Store(new, read_only=True) as store:
        assert states_of_runs(store)["easy"] == "done"
        ((ended, newest),) = store.query(
            "SELECT any_value(finished_at), max(created_at) FROM runs JOIN generations USING (run_id) "
            "WHERE run_id = 'easy'"
        ).rows
        assert ended == newest


def test_a_report_says_why_a_killed_run_has_no_score(tmp_path: Path) -> None:
    with Store(tmp_path / "r.duckdb") as store:
        row = RunRow("run", "model", "scripted", "1", {}, "digest", {}, {}, "0.1", task_samples=COUNTS)
        store.begin_run(row)
        board = REPORTS["leaderboard"]
        table = board.read(store)
        assert board.read_notes is not None
        (sheet,) = board.sheets(table, board.read_notes(store, table))
        assert list(sheet.notes) == ["run was killed with 0 answers; repeat its command to continue."]


def test_a_failed_task_counts_like_a_missing_one(tmp_path: Path) -> None:
    failed = [(sample, None) for sample, _ in answers(KINDS[1:2])]
    counts = dict.fromkeys(list(COUNTS)[:2], 4)
    with Store(tmp_path / "r.duckdb") as store:
        add_run(store, "run", [*answers(KINDS[:1]), *failed, *trec(1, of=1)], counts=counts | {"longbench/trec": 1})
        assert numbers(store, "run")["overall all"] is None
        assert json.loads(store.query("SELECT task_samples FROM runs").rows[0][0])["longbench/trec"] == 1
