"""Answers with some finished steps: no answer for counts, and more than a failure without any for merges."""

from __future__ import annotations

import dataclasses
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lbx.base.marks import UNFINISHED
from lbx.base.records import SampleKey
from lbx.cluster.merge import _answer_counts, find_gaps
from lbx.results import Store
from lbx.results.file.depth import _is_possible
from lbx.results.read.runs import run_states
from lbx.results.whole.merging import merge_files
from lbx.running.jobs import PendingSample
from lbx.running.runner import Runner, _CommitBuffer
from tests.made_depth import depth_pair, depth_rows
from tests.results.store_rows import RUN, fill, generation, sample

STEP = {"output": "x", "prompt_sha256": "a"}
BEGUN = generation(error="ended", error_type=UNFINISHED, steps=[STEP, STEP])
PLAN: Any = SimpleNamespace(
    runs=["r1"],
    iterations={"needle/single_en": 1},
    shards=[SimpleNamespace(samples={"needle/single_en": {0: ("s1", "hash")}})],
)


def file(path: Path, row: Any) -> Path:
    with Store(path) as store:
        store.begin_run(RUN)
        store.write(samples=[sample()], generations=[row])
    return path


def test_a_shard_with_an_unfinished_answer_is_not_done(tmp_path: Path) -> None:
    path = file(tmp_path / "r.duckdb", BEGUN)
    assert _answer_counts(path, PLAN) == (0, 0)
    with Store(path) as store:
        ((gap),) = find_gaps(store, PLAN)
        assert gap.missing == [SampleKey("needle", "single_en", "s1", 0)]
        (state,) = run_states(store)
        assert (state.answers, state.failures, state.last_error) == (0, 0, "")
        store.write(generations=[generation()])
        assert find_gaps(store, PLAN) == []
        assert [state.answers for state in run_states(store)] == [1]
    assert _answer_counts(path, PLAN) == (1, 0)


@pytest.mark.parametrize("first", [0, 1])
def test_a_merge_keeps_finished_steps(tmp_path: Path, first: int) -> None:
    later = dataclasses.replace(generation(error="no", error_type="BackendError"), created_at=BEGUN.created_at.max)
    files = [file(tmp_path / "a.duckdb", BEGUN), file(tmp_path / "b.duckdb", later)]
    with Store(tmp_path / "merged.duckdb", allowed_files=files) as store:
        merge_files(store, [files[first], files[1 - first]])
        assert store.query("SELECT error_type, json_array_length(steps) FROM generations").rows == [(UNFINISHED, 2)]


def test_an_empty_answer_with_a_beginning_can_be_asked_again(tmp_path: Path) -> None:
    with Store(file(tmp_path / "r.duckdb", generation(output="Answer:", output_words=0))) as store:
        assert len(store.begin_run(RUN)) == 1
        assert store.begin_run(RUN, empty=True) == set()


def test_an_answer_stays_until_its_repetition_is_complete(tmp_path: Path) -> None:
    with Store(file(tmp_path / "r.duckdb", generation(output=" "))) as store:
        done = store.begin_run(RUN, empty=True)
        questions: Any = SimpleNamespace(benchmarks={})
        runner = Runner(["r1"], [questions], store, [done], watch=None, asker=None)  # type: ignore[arg-type]
        list(runner._with_finished_steps(iter([])))
        with closing(_CommitBuffer(store)) as batch:
            runner._store_answer(batch, PendingSample(0, sample().sample, 0, (0,)), BEGUN)
        assert store.query("SELECT output, error_type FROM generations").rows == [(" ", None)]


@pytest.mark.parametrize("steps", ['{"output": "x"}', "5", "null"])
def test_steps_that_are_no_list_are_none(tmp_path: Path, steps: str) -> None:
    with Store(file(tmp_path / "r.duckdb", BEGUN)) as store:
        store.query("UPDATE generations SET steps = ?", [steps])
        assert store.read_finished_steps("r1") == {}


@pytest.mark.parametrize(
    ("task_samples", "counts"),
    [
        ('{"needle/single_en": 3, "needle/x": 4}', [("single_en", 3), ("x", 4)]),
        ("5", [("single_en", None)]),
        ("[1]", [("single_en", None)]),
        ('{"a\\"b/c": 2, "needle/single_en": "x"}', [("c", 2), ("single_en", None)]),
        ('{"needle/single_en": 3, "needle/single_en": 3}', [("single_en", 3)]),
        ('{"needle/single_en": 9223372036854775807, "needle/x": -1}', [("single_en", None), ("x", None)]),
    ],
)
def test_coverage_of_files_of_other_programs(
    tmp_path: Path, task_samples: str, counts: list[tuple[str, int | None]]
) -> None:
    fill(path := tmp_path / "r.duckdb", "r1")
    with Store(path) as store:
        store.query("UPDATE runs SET task_samples = ?", [task_samples])
        assert store.query("SELECT task, bundle_samples FROM coverage ORDER BY ALL").rows == counts
        store.begin_run(RUN)


def test_null_is_no_number_of_a_comparison() -> None:
    row = depth_rows(depth_pair(), [1])[0]
    assert _is_possible(row)
    assert not _is_possible(dataclasses.replace(row, kl=None))  # type: ignore[arg-type]
