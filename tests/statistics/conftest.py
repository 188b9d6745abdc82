"""Real answers with their scores, made once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.benchmarks import BENCHMARKS
from lbx.engine.adding_up import scored_row
from lbx.exchange import understand, write_predictions
from lbx.records import ScoredSample
from lbx.store import Store

Imported = dict[str, dict[str, list[ScoredSample]]]
"""Run -> task -> its scored rows."""

PREDICTIONS = {
    "longbench": ("longbench/llama2-7b-chat-4k", "longbench/llama3-8b-instruct"),
    "longbench_v2": ("longbench_v2/oneshot.jsonl",),
    "leval": ("leval/ngram_eval/llama2-13b-chat-4k",),
}


@pytest.fixture(scope="session")
def imported(shared: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Imported:
    """The published predictions beside the checkout, with the scores that lbx gives them."""
    found: Imported = {}
    with Store(tmp_path_factory.mktemp("imported") / "results.duckdb") as store:
        for name, places in PREDICTIONS.items():
            for place in places:
                done = write_predictions(store, understand(name, shared(f"data/predictions/{place}"), model=place))
                found[place] = {task: _scored(store, done.run_id, name, task) for task in done.counts}
    return found


def _scored(store: Store, run_id: str, name: str, task: str) -> list[ScoredSample]:
    benchmark, found = BENCHMARKS[name], []
    for row in store.samples(run_id, name, task):
        bare = scored_row(benchmark, task, row, {})
        scores = {one.metric: one.score for one in benchmark.score(bare.sample, row["output"])}
        found.append(scored_row(benchmark, task, row, scores))
    return found
