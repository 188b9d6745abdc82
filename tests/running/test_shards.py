"""Shards: every sample once, no document in two, as even as the largest document lets them be."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.base.errors import UsageError
from lbx.base.records import Task
from lbx.benchmarks.registry import BENCHMARKS
from lbx.engine.prefix import DecodeCapacity
from lbx.options.run_spec import RunSettings
from lbx.options.sample_selection import EVERYTHING, Selection
from lbx.running.forecast.estimate import Costs
from lbx.running.forecast.run_plan import PrefixOrder
from lbx.running.forecast.shards import (
    ONE_BY_ONE,
    RULE_OF_THUMB,
    PlannedDocument,
    PlannedSample,
    ShardPlan,
    assign_items,
    cost_of,
    estimate_document_tokens,
    make_shards,
    read_shards,
)
from lbx.running.jobs import RunQuestions
from tests.running.engine_parts import v2_bundle, v2_row

TASKS = ("longbench/a", "longbench/b", "leval/c")


def document(places: list[PlannedSample]) -> PlannedDocument:
    return PlannedDocument(tuple(places), ())


@st.composite
def document_sets(draw: st.DrawFn) -> tuple[list[PlannedDocument], list[float]]:
    """Documents whose questions are spread over tasks, and what they cost."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=40))
    counts = dict.fromkeys(range(len(TASKS)), 0)
    documents = []
    for size in sizes:
        places = []
        for _ in range(size):
            task = draw(st.integers(0, len(TASKS) - 1))
            places.append(PlannedSample(task, counts[task], f"s{counts[task]}"))
            counts[task] += 1
        documents.append(document(places))
    cost = st.floats(0, 1e6, allow_nan=False)
    return documents, draw(st.lists(cost, min_size=len(documents), max_size=len(documents)))


@given(document_sets(), st.integers(1, 12))
def test_every_sample_once_and_no_document_in_two_shards(
    made: tuple[list[PlannedDocument], list[float]], count: int
) -> None:
    documents, costs = made
    shards = make_shards(documents, costs, TASKS, count)
    assert len(shards) == min(count, len(documents))
    owners: dict[tuple[str, int], int] = {}
    for number, shard in enumerate(shards):
        for task, places in shard.samples.items():
            assert list(places) == sorted(places)
            for position in places:
                assert owners.setdefault((task, position), number) == number, "a sample in two shards"
    assert len(owners) == sum(len(one.samples) for one in documents)
    for one in documents:
        assert len({owners[TASKS[place.task], place.position] for place in one.samples}) == 1


@given(st.lists(st.floats(0, 1e6, allow_nan=False), max_size=60), st.integers(1, 12))
def test_shards_differ_by_no_more_than_the_dearest_document(costs: list[float], count: int) -> None:
    parts = assign_items(costs, count)
    assert sorted(index for part in parts for index in part) == list(range(len(costs)))
    assert all(parts) or len(costs) < count
    loads = [sum(costs[index] for index in part) for part in parts]
    assert max(loads) - min(loads) <= max(costs, default=0.0) * (1 + 1e-9)
    assert max(loads) <= (4 / 3) * max(sum(costs) / count, max(costs, default=0.0), _pair(costs, count)) * (1 + 1e-9)


def _pair(costs: list[float], count: int) -> float:
    """Where there are more things than shards, two of the first count + 1 must lie together: no way to do better."""
    dearest = sorted(costs, reverse=True)
    return dearest[count - 1] + dearest[count] if len(costs) > count else 0.0


def test_a_document_goes_whole_with_all_its_questions(tmp_path: Path) -> None:
    rows = [v2_row(number, context=f"document {number // 3} " * 50) for number in range(9)]
    bundle = v2_bundle(tmp_path, rows)
    tasks = BENCHMARKS["longbench_v2"].tasks(bundle)
    found = estimate_document_tokens([RunQuestions(bundle, tasks, BENCHMARKS, RunSettings())])
    assert [[place.position for place in one.samples] for one in found] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    (walk,) = found[0].prefix_orders
    assert len(walk.length) == 3
    assert walk.reused_tokens[0] == 0 and all(
        kept > 0.9 * (length - 40) for kept, length in zip(walk.reused_tokens[1:], walk.length[1:], strict=True)
    )
    alone = RunQuestions(bundle, tasks, BENCHMARKS, RunSettings(no_context=True))
    assert [len(one.samples) for one in estimate_document_tokens([alone])] == [1] * 9, "nothing is shared without it"


def test_an_agenda_with_a_shard_asks_that_shard_only() -> None:
    task = Task("needle", "single_en", ("recall",), 10)
    shard = Selection({"needle/single_en": frozenset({1, 5, 8})})
    questions = RunQuestions(SimpleNamespace(), [task], BENCHMARKS, RunSettings(), EVERYTHING.first([task], 6) & shard)
    assert questions.samples_in(task) == 2, "8 is beyond the limit"
    assert questions.samples_in(Task("needle", "other", ("recall",), 10)) == 0


def walk(lengths: list[int], kept: list[int]) -> PrefixOrder:
    zeros = [0] * len(lengths)
    return PrefixOrder(*(np.array(column, np.int64) for column in (zeros, lengths, kept, [10] * len(lengths))))


def test_costs_grow_with_tokens_and_shrink_with_what_is_shared() -> None:
    costs = Costs(0.001, 0.0, 0.0, 0.01, 0.0, 1.0, {}, "a test")
    room = DecodeCapacity(1, 100_000, 0, 1)
    apart = PlannedDocument((), (walk([1000, 1000], [0, 0]),))
    shared = PlannedDocument((), (walk([1000, 1000], [0, 900]),))
    assert cost_of([apart], TASKS, costs, room) == pytest.approx(2.0 + 0.2)
    assert cost_of([shared], TASKS, costs, room) == pytest.approx(1.1 + 0.2)
    assert cost_of([apart, shared], TASKS, costs, room) == pytest.approx(3.5)
    by_rule = [cost_of([one], TASKS, RULE_OF_THUMB, ONE_BY_ONE) for one in (shared, apart)]
    assert by_rule == pytest.approx([1000 * 1.01 + 100 * 1.019 + 2 * 80, 2 * 1000 * 1.01 + 2 * 80])


@given(document_sets(), st.integers(1, 4), st.integers(1, 8))
def test_processes_share_a_shard_but_no_document(
    made: tuple[list[PlannedDocument], list[float]], count: int, processes: int
) -> None:
    documents, costs = made
    alone = make_shards(documents, costs, TASKS, count)
    shared = make_shards(documents, costs, TASKS, count, processes=processes)
    assert [shard.samples for shard in shared] == [shard.samples for shard in alone]
    for shard, of_one in zip(shared, alone, strict=True):
        assert of_one.cost / processes * (1 - 1e-9) <= shard.cost <= of_one.cost
        assert shard.cost <= max(of_one.cost / processes, *costs)


def plan(documents: int = 6, shards: int = 3) -> ShardPlan:
    places = [document([PlannedSample(0, 2 * n, f"é{n}"), PlannedSample(1, n, f"t{n}")]) for n in range(documents)]
    made = make_shards(places, [1.5] * documents, TASKS, shards)
    return ShardPlan("digest", ("r-thinking", "r-nonthinking"), dict.fromkeys(TASKS, 3), "s", "a test", made)


def test_a_plan_comes_back_as_it_was_written(tmp_path: Path) -> None:
    plan().write(tmp_path / "shards.json")
    assert read_shards(tmp_path / "shards.json") == plan()
    assert [path.name for path in tmp_path.iterdir()] == ["shards.json"]
    assert plan().answer_count(0) == 2 * 3 * 4


def test_a_plan_of_another_bundle_or_other_tasks_is_refused() -> None:
    plan().check("digest", TASKS)
    with pytest.raises(UsageError, match="another bundle"):
        plan().check("other", TASKS)
    with pytest.raises(UsageError, match="other tasks: leval/c, leval/d"):
        plan().check("digest", ["longbench/a", "longbench/b", "leval/d"])


DAMAGED = {
    "no JSON": "{",
    "not a plan": "[]",
    "another version": '{"lbx_shards": 99}',
    "half a plan": '{"lbx_shards": 1, "shards": []}',
    "odd samples": json.dumps({**plan().to_json(), "shards": [{"cost": 1, "samples": {"a/b": [[1]]}}]}),
    "unknown task": json.dumps({**plan().to_json(), "iterations": {}}),
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_plan_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "shards.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="shard plan"):
        read_shards(path)
