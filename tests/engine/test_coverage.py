"""A score over a part of a task's samples: it says so everywhere, and is never official."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_parts import Watcher, longbench_bundle, longbench_row, run_row, scripted
from engine_parts import make_work as work_of

from lbx.benchmarks import BENCHMARKS
from lbx.engine.executors import LocalExecutor
from lbx.engine.runner import Outcome, Runner
from lbx.engine.scoring import Rescoring, rescore
from lbx.engine.selection import EVERYTHING, Selection
from lbx.engine.settings import RunSettings
from lbx.engine.work import Prepared, Work
from lbx.report import render
from lbx.report.cells import sheet
from lbx.report.reports import REPORTS, read
from lbx.store import Store

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


def ask(store: Store, work: Work, selection: Selection = EVERYTHING, *, counted: bool = True) -> Outcome:
    """As ``lbx run`` does; ``counted`` False as an lbx did that did not store how many samples there are."""
    work = dataclasses.replace(work, selection=selection)
    known = {task.full_name: task.samples for task in work.tasks} if counted else None
    row = dataclasses.replace(run_row(work.run_id, settings=work.settings.to_json()), task_samples=known)
    return Runner([work], store, [store.begin_run(row)], Watcher(), LocalExecutor(lambda: [Prepared(work, row)])).run()[
        0
    ]


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
        shown = render.markdown(sheet(REPORTS[name], read(store, name)))
        assert ("1 of 4" in shown) or ("2 of 8" in shown), name
    assert {row["run"] for row in read(store, "paper").dicts()} == {"scripted (2 of 8 samples)"}
    assert rescore(store, Rescoring(BENCHMARKS)) == 2
    assert set(official(store).values()) == {(None, True)}, "nor after it is scored again"


def test_the_whole_is_official_again(store: Store, work: Work) -> None:
    ask(store, work, EVERYTHING.first(work.tasks, 1))
    outcome = ask(store, work)
    assert (outcome.samples, outcome.bundle_samples, outcome.found) == (8, 8, 2)
    found = official(store)
    assert all(found[task] == (62.5, False) for task in TASKS)
    assert not any(partial for _, partial in found.values())
    for name in SHOWN:
        shown = render.markdown(sheet(REPORTS[name], read(store, name)))
        assert " of " not in shown.partition("\n")[2], name
    assert {row["run"] for row in read(store, "paper").dicts()} == {"scripted"}


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


def test_of_older_files_nobody_knows(store: Store, work: Work) -> None:
    """Their numbers stay as they were; what goes on is known from then on."""
    ask(store, work, EVERYTHING.first(work.tasks, 1), counted=False)
    assert store.query("SELECT DISTINCT bundle_samples, coverage, partial FROM task_scores").rows == [
        (None, None, False)
    ]
    assert {row["run"] for row in read(store, "paper").dicts()} == {"scripted"}
    ask(store, work, EVERYTHING.first(work.tasks, 2))
    assert store.query("SELECT DISTINCT coverage, partial FROM task_scores").rows == [("2 of 4", True)]


def test_iterations_count_as_one_sample(store: Store, work: Work) -> None:
    three = dataclasses.replace(work, settings=RunSettings(iterations=3))
    ask(store, three)
    assert store.query("SELECT DISTINCT samples, n, partial FROM task_scores WHERE headline").rows == [(4, 12, False)]
    with store.transaction() as connection:
        connection.execute("DELETE FROM generations WHERE iteration = 2 AND sample_id = 'id0'")
        connection.execute("DELETE FROM scores WHERE iteration = 2 AND sample_id = 'id0'")
    rescore(store, Rescoring(BENCHMARKS))
    assert store.query("SELECT DISTINCT n, partial FROM task_scores WHERE headline").rows == [(11, True)]
