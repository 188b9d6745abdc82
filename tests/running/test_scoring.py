"""Scores from stored outputs: the same however they are made, one metric version beside the other."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lbx.backends.options import thread_count
from lbx.base.errors import StoreError
from lbx.base.records import ScoredSample
from lbx.base.resources import bound_cpus, usable_cpu_count
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.benchmarks.longbench.benchmark import LongBench
from lbx.benchmarks.longbench_pro.benchmark import LongBenchPro
from lbx.benchmarks.registry import BENCHMARKS
from lbx.bundle.disk import Tally
from lbx.options.run_spec import RunSettings
from lbx.results import GenerationRow, SampleRow, Store
from lbx.results.rows import stored_sample
from lbx.results.scoring.aggregation import aggregate_scores
from lbx.results.scoring.reading import open_with_numbers
from lbx.results.scoring.scores import FEWEST, Rescoring, ScoringInput, ScoringPool, rescore
from lbx.running.workers.pool import divide_machine
from tests.running.engine_parts import (
    Watcher,
    longbench_bundle,
    longbench_row,
    make_work,
    pro_bundle,
    pro_row,
    run,
    run_row,
    scripted,
)
from tests.running.newer_metric import Longer, Newer

SCORES = "SELECT * FROM scores ORDER BY ALL"
RESULTS = "SELECT * FROM task_results ORDER BY ALL"
GROUPS = "SELECT * FROM group_results ORDER BY ALL"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "results.duckdb") as opened:
        yield opened


def test_a_system_that_does_not_say_which_cores_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    assert bound_cpus() == list(range(os.cpu_count() or 1))
    for outputs in (0, 10 * FEWEST):
        ScoringPool(outputs)
    assert Tally(lambda *_: None, "", 0).outweighs(1)
    assert thread_count(0) == usable_cpu_count() == sum(share.cpu_count for share in divide_machine(1))


def answered(store: Store, folder: Path, task: str, count: int, run_id: str = "r1") -> list[str]:
    """Answers to a task of LongBench, some of them right, none of them scored; returns them."""
    bundle = longbench_bundle(folder, {task: [longbench_row(n % 7, task, _id=f"id{n}") for n in range(count)]})
    samples = list(LongBench().samples(bundle, task))
    outputs = [f"person {n % 5} {'or so ' * (n % 11)}" for n in range(count)]
    store.begin_run(run_row(run_id))
    store.write(
        samples=[SampleRow(sample, place) for place, sample in enumerate(samples)],
        generations=[
            GenerationRow(run_id, *sample.key, output=output) for sample, output in zip(samples, outputs, strict=True)
        ],
    )
    return outputs


def everything(store: Store) -> list[Any]:
    return [store.query(sql).rows for sql in (SCORES, RESULTS, GROUPS)]


# One process or several


class Counted:
    """A progress that remembers."""

    def __init__(self) -> None:
        self.states: list[tuple[int, int]] = []

    def count(self, done: int, total: int) -> None:
        self.states.append((done, total))


def test_processes_change_nothing(tmp_path: Path, store: Store) -> None:
    """Two runs of three tasks, together more than are scored in one process."""
    for number, (task, count) in enumerate((("qasper", 250), ("hotpotqa_e", 60), ("musique", 1))):
        answered(store, tmp_path / str(number), task, count)
    answered(store, tmp_path / "other", "qasper", 30, "r2")
    found = []
    for processes in (1, 2):
        watched = Counted()
        assert rescore(store, Rescoring(BENCHMARKS, processes=processes), watched.count) == 341
        states = watched.states
        assert states[0] == (0, 341)
        assert states[-1] == (341, 341)
        assert [done for done, _ in states] == sorted(done for done, _ in states)
        found.append(everything(store))
        for name in ("r1", "r2"):
            aggregate_scores(store, name, BENCHMARKS["longbench"])
        assert everything(store) == found[-1], "the same numbers from the stored scores"
    assert found[0] == found[1]
    assert len(found[0][0]) == 341


def test_the_order_of_answers_is_kept(tmp_path: Path, store: Store) -> None:
    answered(store, tmp_path / "a", "qasper", FEWEST + 50)
    samples = [stored_sample("longbench", "qasper", row) for row in store.samples("r1", "longbench", "qasper")]
    answers = [ScoringInput(sample, f"person {n % 9} {'x ' * (n % 13)}") for n, sample in enumerate(samples)]
    benchmark = LongBench()
    with ScoringPool(len(answers), 2) as pool:
        found = [scores for part in pool.score(benchmark, answers) for scores in part]
    assert found == [benchmark.score(one.sample, one.output) for one in answers]
    assert len({scores[0].score for scores in found}) > 5


def test_groups_are_the_benchmarks_own(tmp_path: Path, store: Store) -> None:
    """LongBench Pro, each question three times: pass@3 needs the iterations apart."""
    bundle = pro_bundle(tmp_path / "bundle", [pro_row(n, ("t3.2", "t11.1")[n % 2]) for n in range(12)])
    benchmark = LongBenchPro()
    right = "[Answer]\nIn {} the ship left the harbour."
    answers = {"*": "[Answer]\nnone"}
    for n in range(12):
        task = ("t3.2", "t11.1")[n % 2]
        answers[f"longbench_pro/{task}/q{n}" + (f"#{n % 3}" if n % 3 else "")] = right.format(1900 + n)
    _, backend = scripted(tmp_path / "model", answers)
    run(store, make_work(bundle, benchmark.tasks(bundle), backend, RunSettings()))
    while_running = everything(store)
    assert rescore(store, Rescoring(BENCHMARKS)) == 36
    assert everything(store) == while_running
    tasks: dict[str, list[ScoredSample]] = {}
    for task in benchmark.tasks(bundle):
        for sample in benchmark.samples(bundle, task.name):  # type: ignore[attr-defined]
            for iteration in range(3):
                key = str(sample.key._replace(iteration=iteration))
                scores = benchmark.score(sample, answers.get(key, answers["*"]))
                values = {score.metric: score.score for score in scores}
                tasks.setdefault(task.name, []).append(ScoredSample(sample, values, iteration))  # type: ignore[attr-defined]
    columns = ("grouping", "name", "metric", "n", "score", "official", "partial")
    wanted = [tuple(getattr(group, column) for column in columns) for group in benchmark.groups(tasks)]
    found = store.query(f'SELECT "{columns[0]}", {", ".join(columns[1:])} FROM group_results ORDER BY position').rows
    assert found == wanted
    numbers = {(row[0], row[2]): row[4] for row in found if row[1] == "all"}
    assert numbers["overall", "average"] == pytest.approx(1 / 3)
    assert numbers["overall", "pass@3"] == 1.0
    assert numbers["overall", "pass@1"] == pytest.approx(4 / 12)


def test_failed_answers_are_no_part_of_it(tmp_path: Path, store: Store) -> None:
    bundle = longbench_bundle(tmp_path / "bundle", {"qasper": [longbench_row(n, "qasper") for n in range(3)]})
    _, backend = scripted(tmp_path / "model", {"longbench/qasper/id0": {"error": "no"}, "*": "person 1"})
    run(store, make_work(bundle, LongBench().tasks(bundle), backend, RunSettings()))
    before = everything(store)
    assert rescore(store, Rescoring(BENCHMARKS)) == 2
    assert everything(store) == before
    assert store.query("SELECT n, official FROM task_scores").rows == [(2, 75.0)]


def test_only_named_runs_and_known_benchmarks(tmp_path: Path, store: Store) -> None:
    answered(store, tmp_path / "a", "qasper", 3, "r1")
    answered(store, tmp_path / "b", "qasper", 3, "r2")
    assert rescore(store, Rescoring({})) == 0
    assert rescore(store, Rescoring(BENCHMARKS, ["r2"])) == 3
    assert store.query("SELECT DISTINCT run_id FROM scores").rows == [("r2",)]


@pytest.mark.parametrize("failed", [False, True])
def test_a_task_that_its_benchmark_has_not_is_left_alone(failed: bool, tmp_path: Path, store: Store) -> None:
    answered(store, tmp_path / "a", "qasper", 3, "r")
    with store.transaction() as connection:
        for table in ("samples", "generations", "scores"):
            connection.execute(
                f"INSERT INTO {table} SELECT * REPLACE ('foreign' AS task) FROM {table} WHERE task = 'qasper'"
            )
        if failed:
            connection.execute("UPDATE generations SET error = 'no', output = NULL WHERE task = 'foreign'")
    said: list[str] = []
    assert rescore(store, Rescoring(BENCHMARKS), warn=said.append) == 3
    assert said == (
        [] if failed else ["longbench/foreign: longbench does not have this task, so its 3 outputs are not scored."]
    )
    assert store.query("SELECT DISTINCT task FROM task_results").rows == [("qasper",)]
    aggregate_scores(store, "r", BENCHMARKS["longbench"])
    assert store.query("SELECT DISTINCT task FROM task_results").rows == [("qasper",)]


# Metric versions


def use(benchmark: Benchmark) -> dict[str, Benchmark]:
    return {benchmark.name: benchmark}


def test_scoring_again_replaces_scores_and_numbers_of_another_metric_version(tmp_path: Path, store: Store) -> None:
    answered(store, tmp_path / "a", "qasper_e", 10)
    rescore(store, Rescoring(use(LongBench())))
    before = everything(store)
    rescore(store, Rescoring(use(Newer())))
    after = everything(store)
    assert [len(rows) for rows in after] == [len(rows) for rows in before]
    assert not any({*earlier} & {*later} for earlier, later in zip(before, after, strict=True))
    for table in ("scores", "numbers"):
        versions = store.query(f"SELECT DISTINCT metric_version FROM {table}").rows
        assert versions == [(Newer.metric_version,)], table
    rescore(store, Rescoring(use(Newer())))
    assert everything(store) == after, "scoring again changes nothing"


def test_a_new_answer_drops_the_numbers_of_its_task(tmp_path: Path, store: Store) -> None:
    answered(store, tmp_path / "a", "qasper", 10)
    rescore(store, Rescoring(use(LongBench())))
    assert store.query("SELECT count(*) FROM task_results").rows == [(1,)]
    store.write(generations=[GenerationRow("r1", "longbench", "qasper", "id3", 0, output="another")])
    assert store.query("SELECT count(*) FROM task_results").rows == [(0,)]
    assert store.query("SELECT count(*) FROM group_results").rows == [(0,)]


def test_a_run_is_continued_by_a_newer_lbx_once_it_is_scored_again(tmp_path: Path, store: Store) -> None:
    bundle = longbench_bundle(tmp_path / "bundle", {"qasper": [longbench_row(n, "qasper") for n in range(6)]})
    _, backend = scripted(tmp_path / "model", {"*": "person 1"})
    tasks = LongBench().tasks(bundle)
    older, newer = (
        dataclasses.replace(work, row=dataclasses.replace(work.row, benchmark_versions={"longbench": version}))
        for work, version in (
            (make_work(bundle, tasks, backend, RunSettings()), LongBench.metric_version),
            (make_work(bundle, tasks, backend, RunSettings(), benchmarks=use(Newer())), Newer.metric_version),
        )
    )
    with pytest.raises(KeyboardInterrupt):
        run(store, older, Watcher(raise_at=4))
    with pytest.raises(StoreError, match=f"metric version {LongBench.metric_version} of longbench") as refused:
        run(store, newer)
    assert "lbx score" in refused.value.fix
    assert store.query("SELECT n, metric_version FROM task_scores").rows == [(4, LongBench.metric_version)]
    rescore(store, Rescoring(use(Newer())))
    run(store, newer)
    assert store.query("SELECT n, metric_version, official FROM task_scores").rows == [(6, Newer.metric_version, 29.17)]


def test_numbers_over_tasks_leave_out_those_that_are_not_scored_again_yet(tmp_path: Path, store: Store) -> None:
    for task in ("qasper", "hotpotqa"):
        answered(store, tmp_path / task, task, 4)
    rescore(store, Rescoring(use(LongBench())))
    store.query("UPDATE scores SET metric_version = ? WHERE task = 'qasper'", [Newer.metric_version])
    aggregate_scores(store, "r1", Newer())
    assert store.query("SELECT task, metric_version FROM task_results ORDER BY ALL").rows == [
        ("hotpotqa", LongBench.metric_version), ("qasper", Newer.metric_version)
    ]  # fmt: skip
    assert store.query("SELECT DISTINCT metric_version FROM group_results").rows == [(Newer.metric_version,)]


def test_metrics_that_are_no_more_leave_nothing_behind(tmp_path: Path, store: Store) -> None:
    answered(store, tmp_path / "a", "qasper", 3)
    rescore(store, Rescoring(use(Longer())))
    assert store.query("SELECT DISTINCT metric FROM scores ORDER BY 1").rows == [("f1",), ("length",)]
    rescore(store, Rescoring(use(LongBench())))
    assert store.query("SELECT metric, count(*) FROM scores WHERE headline GROUP BY 1").rows == [("f1", 3)]
    assert store.query("SELECT count(*) FROM scores").rows == [(3,)]


# Interruptions, on real processes

WAIT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from newer_metric import Slow
from lbx.results.scoring.scores import Rescoring, rescore
from lbx.results import Store
def progress(done, total):
    print(done, total, flush=True)
with Store(Path(sys.argv[1])) as store:
    rescore(store, Rescoring({"longbench": Slow()}, processes=2), progress)
print("scored", flush=True)
"""


def group_members(group: int) -> list[int]:
    """Living processes of a process group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *arguments, str(Path(__file__).parent)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.parametrize("how", ["to all", "to one", "kill"])
def test_an_end_from_outside_keeps_finished_tasks_and_leaves_no_process(tmp_path: Path, how: str) -> None:
    """Ctrl-C as a terminal sends it, to every process; `kill -INT`, to the first one only; `kill -KILL`."""
    path = tmp_path / "results.duckdb"
    with Store(path) as store:
        answered(store, tmp_path / "a", "hotpotqa", 100)
        answered(store, tmp_path / "b", "2wikimqa", 200)
        store.finish_run("r1", "done")
    process = start(WAIT, str(path))
    assert process.stdout
    for line in process.stdout:
        if int(line.split()[0]) > 100:
            break
    number = signal.SIGKILL if how == "kill" else signal.SIGINT
    (os.killpg if how == "to all" else os.kill)(process.pid, number)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == -number
    assert "scored" not in out
    assert errors.count("Traceback") == (0 if how == "kill" else 1), errors
    deadline = time.monotonic() + 20
    while group_members(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert group_members(process.pid) == []
    with open_with_numbers(path) as store:
        assert store.query("SELECT task, count(*) FROM scores GROUP BY 1").rows == [("hotpotqa", 100)]
        assert store.query("SELECT task, n, official IS NULL FROM task_scores").rows == [("hotpotqa", 100, False)]


SCRIPT = """
import sys
from pathlib import Path
from lbx.benchmarks.registry import BENCHMARKS
from lbx.running.offline import block_network
from lbx.results.scoring.scores import Rescoring, rescore
from lbx.results import Store
block_network()
print("begins", flush=True)
with Store(Path(sys.argv[1])) as store:
    print(rescore(store, Rescoring(BENCHMARKS, processes=2)), flush=True)
"""


def test_a_script_without_a_main_guard(tmp_path: Path) -> None:
    """And offline, as runs score: processes are reached through sockets that do not leave the machine."""
    path, script = tmp_path / "results.duckdb", tmp_path / "mine.py"
    with Store(path) as store:
        answered(store, tmp_path / "a", "qasper", FEWEST + 10)
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script), str(path)], capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["begins", str(FEWEST + 10)], "")


def test_half_a_surrogate_pair_scores_the_same_when_scored_again(tmp_path: Path, store: Store) -> None:
    """The file holds U+FFFD in its place, which is what the model's answer has, too."""
    bundle = longbench_bundle(tmp_path / "bundle", {"qasper": [longbench_row(0, "qasper", answers=["boat \ud83d"])]})
    _, backend = scripted(tmp_path / "model", {"*": "boat \ud83d"})
    run(store, make_work(bundle, LongBench().tasks(bundle), backend, RunSettings()))
    scored = store.query(SCORES).rows
    rescore(store, Rescoring(BENCHMARKS, processes=1))
    assert store.query(SCORES).rows == scored
    assert store.query("SELECT max(score) FROM scores").rows == [(1.0,)]
