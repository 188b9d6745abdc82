"""A plan counts what a run then reads."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.base.bundle_folder import Bundle
from lbx.base.records import SampleKey
from lbx.benchmarks.registry import BENCHMARKS
from lbx.engine.prefix import pack_tokens, plan_prefixes
from lbx.options.run_spec import RetrievalOptions, RunSettings
from lbx.options.sample_selection import EVERYTHING
from lbx.results import Store
from lbx.running.forecast.run_plan import TaskPlan, make_plan
from lbx.running.jobs import JobSize, Work
from lbx.running.retrieving import ChunkFinder, StoredChunks, retrieve_all
from tests.running.engine_parts import (
    longbench_bundle,
    longbench_row,
    make_work,
    pro_bundle,
    pro_row,
    run,
    scripted,
    v2_bundle,
    v2_row,
)

CHAT = "{% for m in messages %}<s>user: {{ m['content'] }} assistant: {% endfor %}"
COUNTED = """
    SELECT benchmark || '/' || task, count(*) FILTER (WHERE error IS NULL), sum(prompt_tokens),
           count(*) FILTER (WHERE truncated), count(*) FILTER (WHERE error IS NOT NULL), max(prompt_tokens)
    FROM generations GROUP BY 1
"""


def plan(work: Work) -> list[TaskPlan]:
    return make_plan([work]).tasks


def counted(store: Store, work: Work) -> list[TaskPlan]:
    """The run's own figures; what only a plan knows is taken from it."""
    run(store, work)
    found = {row[0]: row for row in store.query(COUNTED).rows}
    plans = []
    for one in plan(work):
        _, samples, tokens, truncated, refused, longest = found[one.task]
        plans.append(
            dataclasses.replace(
                one, samples=samples, prompt_tokens=int(tokens), truncated=truncated, refused=refused, longest=longest
            )
        )
    return plans


def bundle_of(name: str, folder: Path) -> Bundle:
    rows = range(6)
    if name == "longbench":
        made = [longbench_row(n, "qasper", context="Rain falls. " * 40 * (n + 1)) for n in rows]
        return longbench_bundle(folder, {"qasper": made, "lcc": [longbench_row(n, "lcc") for n in rows]})
    if name == "longbench_v2":
        return v2_bundle(folder, [v2_row(n, choice_A="word " * 40 * n) for n in rows])
    return pro_bundle(folder, [pro_row(n, "t3.2") for n in rows])


@pytest.mark.parametrize("name", ["longbench", "longbench_v2", "longbench_pro"])
@pytest.mark.parametrize(
    "settings",
    [
        RunSettings(iterations=1),
        RunSettings(iterations=1, max_prompt_tokens=150),
        RunSettings(iterations=1, thinking_tokens=100, max_new_tokens=100),
        RunSettings(iterations=1, max_new_tokens=4090),
    ],
    ids=["plain", "cut", "thinking", "refused"],
)
def test_a_run_reads_what_was_planned(tmp_path: Path, name: str, settings: RunSettings) -> None:
    bundle = bundle_of(name, tmp_path / "bundle")
    _, backend = scripted(tmp_path / "model", {"*": "x"}, window=4096, template=CHAT)
    work = make_work(bundle, BENCHMARKS[name].tasks(bundle), backend, settings)
    with Store(tmp_path / "results.duckdb") as store:
        if settings.max_new_tokens == 4090:
            outcome = run(store, work)
            planned = plan(work)
            assert outcome.failed == sum(one.refused for one in planned) > 0
            assert outcome.answered == sum(one.samples for one in planned)
            return
        planned = plan(work)
        assert counted(store, work) == planned
        assert sum(one.truncated for one in planned) > 0 or settings.max_prompt_tokens is None


def test_retrieved_chunks_are_planned_too(tmp_path: Path) -> None:
    bundle = bundle_of("longbench_v2", tmp_path / "bundle")
    (task,) = BENCHMARKS["longbench_v2"].tasks(bundle)
    _, backend = scripted(tmp_path / "model", {"*": "x"})
    finder, four = ChunkFinder(bundle, RetrievalOptions(rag=2, chunk_words=12)), EVERYTHING.first([task], 4)
    with Store(tmp_path / "results.duckdb") as store:
        retrieve_all(store, finder, bundle, [(BENCHMARKS["longbench_v2"], task)], selection=four)
        work = make_work(bundle, [task], backend, RunSettings(rag=2), selection=four, chunks=finder.find)
        planned = plan(work)
        stored = dataclasses.replace(work, chunks=StoredChunks(store, finder.name))
        assert planned == plan(stored) == counted(store, stored)
        assert planned[0].samples == 4


@given(st.lists(st.lists(st.integers(0, 3) | st.just(70_000), min_size=1, max_size=12), max_size=14), st.randoms())
def test_distinct_tokens_are_the_prefix_tree(prompts: list[list[int]], chance: random.Random) -> None:
    tree = {tuple(prompt[: n + 1]) for prompt in prompts for n in range(len(prompt))}
    assert plan_prefixes(prompts).tree_tokens == len(tree)
    chance.shuffle(prompts)
    plan = plan_prefixes([pack_tokens(prompt) for prompt in prompts])
    assert plan.tree_tokens == len(tree) == sum(branch.length - branch.shared_with_previous for branch in plan.branches)


@pytest.fixture
def work(tmp_path: Path) -> Work:
    """Twelve questions on four documents, asked three times each."""
    rows = [pro_row(n, "t3.2", context=f"Document {n // 3}. " + "Sea. " * 60) for n in range(12)]
    bundle = pro_bundle(tmp_path / "bundle", rows)
    _, backend = scripted(tmp_path / "model", {"*": "x"})
    tasks = BENCHMARKS["longbench_pro"].tasks(bundle)
    return make_work(bundle, tasks, backend, RunSettings(iterations=3))


def test_iterations_and_documents_share(work: Work) -> None:
    plan = make_plan([work])
    (task,) = plan.tasks
    assert task.samples == 36
    assert task.shared_factor > 6
    (walk,) = plan.prefix_orders
    assert int((walk.length - walk.reused_tokens).sum()) == task.distinct_tokens + 24, (
        "each answer again takes a prompt's end"
    )
    assert int(walk.length.sum()) == task.prompt_tokens
    assert int(walk.answer_limit.sum()) == task.new_tokens
    assert plan.total == dataclasses.replace(task, task="total")
    assert [len(trial.token_ids) for trial in plan.trials] == sorted(walk.length)[::3][:2]


def test_pieces_share_nothing_with_each_other(work: Work) -> None:
    """As the run, which computes them one after the other."""
    whole = make_plan([work]).total
    plan = make_plan([work], size=JobSize(questions=1))
    assert len(plan.prefix_orders) == 4, "a piece ends with its document"
    assert plan.total.prompt_tokens == whole.prompt_tokens
    assert 0 < plan.total.distinct_tokens - whole.distinct_tokens < 4 * len("Document 0. ")


def test_what_is_answered_is_left_out(work: Work, tmp_path: Path) -> None:
    keys = [sample.key for sample in BENCHMARKS["longbench_pro"].samples(work.bundle, work.tasks[0].name)]
    done = {key._replace(iteration=i) for key in keys[:6] for i in range(3)} | {keys[6]._replace(iteration=1)}
    rest = make_plan([work], [done]).total
    assert rest.samples == 36 - 19
    with Store(tmp_path / "results.duckdb") as store:
        run(store, dataclasses.replace(work, selection=EVERYTHING.first(work.tasks, 6)))
        store.query("DELETE FROM generations WHERE sample_id = ? AND iteration > 0", [keys[0].sample_id])
        held = store.query("SELECT benchmark, task, sample_id, iteration FROM generations").rows
        left = make_plan([work], [{SampleKey(*row) for row in held}]).total
        run(store, work)
        answered = store.query("SELECT sum(prompt_tokens) FROM generations").rows[0][0]
    assert left.samples == 36 - 16
    assert left.prompt_tokens < answered == make_plan([work]).total.prompt_tokens
    everything = {key._replace(iteration=i) for key in keys for i in range(3)}
    assert make_plan([work], [everything]).total == TaskPlan("total")


def test_what_a_memory_reads_afresh_is_not_counted_as_shared(work: Work) -> None:
    """Tokens of long ends follow singly in some memories: there they share nothing, however much is common."""
    shared, afresh = make_plan([work], follow_limit=600), make_plan([work], follow_limit=1)
    assert afresh.total == shared.total == make_plan([work]).total, "the prefix tree is the same"
    assert int(shared.prefix_orders[0].reused_tokens.sum()) > 0
    kept, length = afresh.prefix_orders[0].reused_tokens, afresh.prefix_orders[0].length
    assert set(kept.tolist()) <= {0, *(length - 1).tolist()}, "but what equal prompts have in common"
    assert kept.sum() < shared.prefix_orders[0].reused_tokens.sum()


def test_runs_that_are_made_together_share(work: Work) -> None:
    alone = make_plan([work]).total
    plan = make_plan([work, work])
    assert [sum(task.samples for task in tasks) for tasks in plan.runs] == [36, 36]
    assert plan.total.prompt_tokens == 2 * alone.prompt_tokens
    assert plan.total.distinct_tokens == alone.distinct_tokens
