"""While a run goes on, views show each task's own number of the answers so far, and not another."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from scored_parts import TASKS, made_sample, made_scores

from lbx.base.records import Sample, Score
from lbx.benchmarks import BENCHMARKS
from lbx.report.reports import read
from lbx.report.shapes import Wanted
from lbx.scoring.adding_up import add_up
from lbx.scoring.scores import score_rows
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


def test_a_task_has_one_headline_where_answers_lack_an_embedding_model(tmp_path: Path) -> None:
    """Of LongBench Pro's summaries an empty one has its whole score, 0; the others have ROUGE-L alone until a model is
    asked. Nothing counts such a task twice, while its run goes on or later, nor leaves an empty answer out.
    """
    family = BENCHMARKS["longbench_pro"]
    said = {"r": ["here it is"] * 4 + [""] * 3, "s": ["", "and here"] + ["nothing"] * 5, "only empty": [""] * 7}
    with Store(tmp_path / "results.duckdb") as store:
        for run, texts in said.items():
            store.begin_run(RunRow(run, run, "scripted", "1", {}, "digest", {}, {}, "0.1"))
            for place, text in enumerate(texts):
                one = replace(made_sample("longbench_pro", "t4.1", place), length=3000 if place < 5 else 9000)
                scores = score_rows(run, one.key, family, family.score(one, text))
                store.write(
                    samples=[SampleRow(one, place)], generations=[GenerationRow(run, *one.key, output=text)],
                    scores=scores,
                )  # fmt: skip
        going = _views(store)
        for run in said:
            add_up(store, run, family)
        assert _views(store) == going
        heads = {(run, metric, n) for run, metric, n, _ in going["task_scores"]}
        assert heads == {("r", "rouge_l", 7), ("s", "rouge_l", 7), ("only empty", "summary", 7)}
        assert [(row[0], row[2]) for row in going["length_curve"]] == [
            (run, metric)
            for run, metric in (("only empty", "summary"), ("r", "rouge_l"), ("s", "rouge_l"))
            for _ in "12"
        ]
        assert going["paper"] == sorted((run, "t4.1") for run in said)
        assert ("r", "s", "rouge_l", 7) in going["comparison"]
        told = read(store, "changes", Wanted(runs=("r", "s"))).dicts()
        assert {row["sample_id"] for row in told if not row["output_a"] or not row["output_b"]} >= {"s0"}


def _views(store: Store) -> dict[str, list[tuple[object, ...]]]:
    asked = {
        "task_scores": "SELECT run_id, metric, n, score FROM task_scores WHERE headline ORDER BY ALL",
        "leaderboard": "SELECT run_id, n, score FROM leaderboard ORDER BY ALL",
        "length_curve": "SELECT run_id, length_up_to, metric, n, score FROM length_curve "
        "WHERE length_unit = 'words' ORDER BY ALL",
        "paper": "SELECT run, line FROM paper WHERE part = 0 ORDER BY ALL",
        "comparison": "SELECT run_a, run_b, metric, n FROM comparison ORDER BY ALL",
    }
    return {name: store.query(query).rows for name, query in asked.items()}
