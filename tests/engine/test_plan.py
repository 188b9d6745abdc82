"""A plan counts what a run then reads."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from engine_parts import (
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

from lbx.benchmarks import BENCHMARKS
from lbx.engine.plan import TaskPlan, plan
from lbx.engine.retrieving import Finder, StoredChunks, find_all
from lbx.engine.settings import RunSettings
from lbx.engine.work import Work
from lbx.layout import Bundle
from lbx.store import Store

CHAT = "{% for m in messages %}<s>user: {{ m['content'] }} assistant: {% endfor %}"
COUNTED = """
    SELECT benchmark || '/' || task, count(*) FILTER (WHERE error IS NULL), sum(prompt_tokens),
           count(*) FILTER (WHERE truncated), count(*) FILTER (WHERE error IS NOT NULL), max(prompt_tokens)
    FROM generations GROUP BY 1
"""


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
    finder = Finder(2, words=12)
    with Store(tmp_path / "results.duckdb") as store:
        find_all(store, finder, bundle, [(BENCHMARKS["longbench_v2"], task)], limit=4)
        work = make_work(bundle, [task], backend, RunSettings(rag=2), limit=4, chunks=finder.find)
        planned = plan(work)
        stored = dataclasses.replace(work, chunks=StoredChunks(store, finder.name))
        assert planned == plan(stored) == counted(store, stored)
        assert planned[0].samples == 4
