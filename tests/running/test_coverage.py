"""A score over a part of a task's samples: it says so everywhere, and is never official."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lbx.benchmarks.leval.prompts import CONFIG, SCRIPT
from lbx.benchmarks.registry import BENCHMARKS
from lbx.options.run_spec import RunSettings
from lbx.options.sample_selection import EVERYTHING, Selection
from lbx.report.format import render
from lbx.report.format.table_cells import sheet
from lbx.report.query import ReportQuery
from lbx.report.reports import REPORTS, read_report
from lbx.results import Store
from lbx.results.scoring.scores import Rescoring, rescore
from lbx.running.answering import LocalAsker
from lbx.running.jobs import Work
from lbx.running.runner import Outcome, Runner
from tests.running.engine_parts import Watcher, longbench_bundle, longbench_row, scripted, write_bundle
from tests.running.engine_parts import make_work as work_of

SAMPLES = 4
TASKS = ("qasper", "hotpotqa")
SHOWN = ("leaderboard", "task_scores", "group_scores", "length_curve")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "results.duckdb") as opened:
        yield opened


@pytest.fixture
def work(tmp_path: Path) -> Work:
    rows = {task: [longbench_row(number, task) for number in range(SAMPLES)] for task in TASKS}
    bundle = longbench_bundle(tmp_path / "bundle", rows)
    _, backend = scripted(tmp_path / "model", {"*": "person 1"})
    return work_of(bundle, BENCHMARKS["longbench"].tasks(bundle), backend, RunSettings())


def ask(store: Store, work: Work, selection: Selection = EVERYTHING) -> Outcome:
    work = dataclasses.replace(work, selection=selection, row=work.row.with_sample_counts(work.tasks))
    runner = Runner([work.run_id], [work], store, [store.begin_run(work.row)], Watcher(), LocalAsker(lambda: [work]))
    return runner.run()[0]


def official(store: Store) -> dict[str, tuple[float | None, bool]]:
    """{task or group: (official, partial)}."""
    tasks = store.query("SELECT task, official, partial FROM task_scores WHERE headline").rows
    groups = store.query("SELECT \"grouping\" || ' ' || name, official, partial FROM group_scores").rows
    return {name: (number, partial) for name, number, partial in [*tasks, *groups]}


def test_a_part_is_said_everywhere_and_official_nowhere(store: Store, work: Work) -> None:
    outcome = ask(store, work, EVERYTHING.first(work.tasks, 1))
    assert (outcome.samples, outcome.bundle_samples) == (2, 8)
    assert set(official(store).values()) == {(None, True)}
    for name in SHOWN:
        shown = render.markdown(sheet(REPORTS[name], read_report(store, name)))
        assert ("1 of 4" in shown) or ("2 of 8" in shown), name
    assert {row["run"] for row in read_report(store, "paper").dicts()} == {"scripted (2 of 8 samples)"}
    assert rescore(store, Rescoring(BENCHMARKS)) == 2
    assert set(official(store).values()) == {(None, True)}, "nor after it is scored again"


def test_the_whole_is_official_again(store: Store, work: Work) -> None:
    ask(store, work, EVERYTHING.first(work.tasks, 1))
    outcome = ask(store, work)
    assert (outcome.samples, outcome.bundle_samples, outcome.done_before) == (8, 8, 2)
    found = official(store)
    assert all(found[task] == (62.5, False) for task in TASKS)
    assert not any(partial for _, partial in found.values())
    for name in SHOWN:
        shown = render.markdown(sheet(REPORTS[name], read_report(store, name)))
        assert not re.search(r"\d of \d", shown.partition("\n")[2]), name
    assert {row["run"] for row in read_report(store, "paper").dicts()} == {"scripted"}


def test_only_what_a_part_is_in_is_not_official(store: Store, work: Work) -> None:
    """qasper and hotpotqa are of two categories; each category has more tasks, so no average is official anyway."""
    ask(store, work, Selection({"longbench/qasper": frozenset({0}), "longbench/hotpotqa": frozenset(range(SAMPLES))}))
    found = official(store)
    assert found["qasper"] == (None, True)
    assert found["hotpotqa"] == (62.5, False)
    partial = {name: lacks for name, (_, lacks) in found.items()}
    assert partial["category multi-document QA"] is False
    assert partial["category single-document QA"] is True
    assert partial["overall all"] is True


def test_a_failed_sample_leaves_a_part(store: Store, work: Work, tmp_path: Path) -> None:
    _, backend = scripted(tmp_path / "other", {"*": "person 1", "longbench/qasper/id2": {"error": "no memory"}})
    outcome = ask(store, dataclasses.replace(work, backend=backend))
    assert (outcome.failed, outcome.samples, outcome.bundle_samples) == (1, 7, 8)
    assert official(store)["qasper"] == (None, True)
    assert official(store)["hotpotqa"] == (62.5, False)


def test_iterations_count_as_one_sample(store: Store, work: Work) -> None:
    three = dataclasses.replace(work, settings=RunSettings(iterations=3))
    ask(store, three)
    assert store.query("SELECT DISTINCT samples, n, partial FROM task_scores WHERE headline").rows == [(4, 12, False)]
    with store.transaction() as connection:
        connection.execute("DELETE FROM generations WHERE iteration = 2 AND sample_id = 'id0'")
        connection.execute("DELETE FROM scores WHERE iteration = 2 AND sample_id = 'id0'")
    rescore(store, Rescoring(BENCHMARKS))
    assert store.query("SELECT DISTINCT n, partial FROM task_scores WHERE headline").rows == [(11, True)]


CONFIG_PY = """
def get_sys_prompt(args, file_name):
    if "gsm" in file_name:
        prompt = "Count. "
    elif "codeU" in file_name:
        prompt = "Run."
    elif "exam" in args.metric:
        prompt = "Choose. "
    else:
        prompt  = "Write. "

    return prompt
"""
SCRIPT_PY = r"""
def main():
    for inst, out in []:
        if args.metric == "exam_eval":
            context = "Text: {} Asked: {} \nAnswer: "
        else:
            context = "Text: {} Task: {} " + f"About {len(out.split())} words. Output: "
        if "sci_fi" in file_name:
            text_inputs = inst.replace("in the story.", "in the world") + "\nReally?"
"""

JUDGED = ("LLM", "human")


@pytest.fixture
def partly_judged(tmp_path: Path) -> Work:
    """L-Eval's scientific_qa: two questions that have an F1, then two that only a judge and people read."""
    bundle = write_bundle(
        tmp_path / "leval",
        {
            "hub:L4NLP/LEval/LEval/Generation/scientific_qa.jsonl": leval_lines("f1", "f1", *JUDGED),
            "hub:L4NLP/LEval/LEval/Generation/financial_qa.jsonl": leval_lines(*["f1"] * 4),
            f"files/{CONFIG}": CONFIG_PY.encode(),
            f"files/{SCRIPT}": SCRIPT_PY.encode(),
        },
    )
    answers = {f"leval/scientific_qa/00{number}-00": f"person {number}" for number in range(4)}
    _, backend = scripted(tmp_path / "judged-model", answers)
    tasks = [task for task in BENCHMARKS["leval"].tasks(bundle) if task.name == "scientific_qa"]
    return work_of(bundle, tasks, backend, RunSettings())


def leval_lines(*evaluations: str) -> bytes:
    """Documents with a question each, which are marked so."""
    rows = [
        {
            "instructions": [f"Who lives in house {number}?"],
            "outputs": [f"person {number}"],
            "input": f"House {number} is where person {number} lives.",
            "source": "made",
            "evaluation": evaluation,
        }
        for number, evaluation in enumerate(evaluations)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def test_what_only_a_judge_reads_holds_no_number_back(store: Store, partly_judged: Work) -> None:
    outcome = ask(store, partly_judged)
    assert (outcome.samples, outcome.bundle_samples) == (4, 4), "it is asked, and counts in what there is to ask"
    assert store.query("SELECT n, official, partial, coverage FROM task_scores").rows == [(2, 100.0, False, None)]
    assert rescore(store, Rescoring(BENCHMARKS)) == 4
    assert store.query("SELECT n, official, partial FROM task_scores").rows == [(2, 100.0, False)]


def test_of_a_task_that_failed_altogether_only_what_is_scored_counts_as_asked(
    store: Store, partly_judged: Work, tmp_path: Path
) -> None:
    failing = {f"leval/scientific_qa/00{number}-00": {"error": "no memory"} for number in range(4)}
    _, backend = scripted(tmp_path / "failing", {"*": "person 0", **failing})
    ask(
        store,
        dataclasses.replace(partly_judged, backend=backend, tasks=BENCHMARKS["leval"].tasks(partly_judged.bundle)),
    )
    assert store.query("SELECT answered, asked, failed_as_0, failed_as_1 FROM leaderboard").rows == [
        (4, 6, 0.3125, 0.8125)
    ]


def test_a_part_of_what_is_scored_is_a_part(store: Store, partly_judged: Work) -> None:
    ask(store, partly_judged, Selection({"leval/scientific_qa": frozenset({0, 2, 3})}))
    assert store.query("SELECT official, partial, coverage FROM task_scores").rows == [(None, True, "3 of 4")]
    ask(store, partly_judged)
    assert store.query("SELECT official, partial, coverage FROM task_scores").rows == [(100.0, False, None)]


def test_without_what_only_a_judge_reads_the_number_is_whole(store: Store, partly_judged: Work) -> None:
    ask(store, partly_judged, Selection({"leval/scientific_qa": frozenset({0, 1})}))
    assert store.query("SELECT official, partial, coverage FROM task_scores").rows == [(100.0, False, "2 of 4")]


def test_reports_hold_scored_samples_against_scored_samples(store: Store, partly_judged: Work) -> None:
    """Two of two, not two of four."""
    ask(store, partly_judged)
    ask(store, dataclasses.replace(partly_judged, row=dataclasses.replace(partly_judged.row, run_id="r2")))
    compared = read_report(store, "comparison", ReportQuery(runs=("r1", "r2"))).dicts()
    assert [(row["samples"], row["bundle_samples"], row["coverage"]) for row in compared if row["level"] == "task"] == [
        (2, 2, None)
    ]
