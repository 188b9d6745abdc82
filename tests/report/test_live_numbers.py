"""While a run goes on, views show each task's own number of the answers so far, and not another."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from scored_parts import TASKS, made_sample, made_scores

from lbx.benchmarks import BENCHMARKS
from lbx.engine.adding_up import add_up
from lbx.engine.scoring import score_rows
from lbx.records import Sample, Score
from lbx.store import GenerationRow, RunRow, SampleRow, Store

QUESTIONS = 11


@pytest.mark.parametrize("benchmark", TASKS)
def test_views_of_a_run_that_goes_on_show_what_they_will_show_of_the_same_answers(
    benchmark: str, tmp_path: Path
) -> None:
    family = BENCHMARKS[benchmark]
    with Store(tmp_path / "results.duckdb") as store:
        store.begin_run(RunRow("r", "model", "scripted", "1", {}, "digest", {}, {}, "0.1"))
        chance = random.Random(7)
        samples = [made_sample(benchmark, task, number) for task in TASKS[benchmark] for number in range(QUESTIONS)]
        store.write(
            samples=[SampleRow(sample, place) for place, sample in enumerate(samples)],
            generations=[GenerationRow("r", *sample.key, output="so") for sample in samples],
            scores=[row for one in samples for row in score_rows("r", one.key, family, _scores(one, chance))],
        )
        going = _shown(store, samples[0].length_unit)
        add_up(store, "r", family)
        done = _shown(store, samples[0].length_unit)
    assert len(going) > len(TASKS[benchmark]), "a number a task, and its curve"
    assert going == {name: (n, pytest.approx(score)) for name, (n, score) in done.items() if name in going}
    assert {name[0] for name in going} == set(TASKS[benchmark]) == {name[0] for name in done}


def _scores(sample: Sample, chance: random.Random) -> list[Score]:
    values = made_scores(sample, chance)
    if "loyalty" in values:
        values["exact_match"] = (values["loyalty"] + values["fact"]) / 2
    return [Score(metric, value) for metric, value in values.items()]


def _shown(store: Store, unit: str) -> dict[tuple[object, ...], tuple[int, float]]:
    """{(task, metric, length): how many answers, and their number} of headlines; of curves only those of documents."""
    rows = store.query(
        "SELECT task, metric, NULL AS length_up_to, n, score FROM task_scores WHERE headline UNION ALL "
        "SELECT task, metric, coalesce(length_up_to, 0), n, score FROM length_curve WHERE length_unit = $1",
        [unit],
    ).rows
    return {tuple(name): (n, score) for *name, n, score in rows}
