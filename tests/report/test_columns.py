"""Numbers of columns are those of samples, to the bit, in every benchmark."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from lbx.base.number import Number
from lbx.base.records import ScoredSample
from lbx.benchmarks.base.aggregates import ScoredRows
from lbx.benchmarks.registry import BENCHMARKS
from lbx.results import Store
from lbx.results.scoring.score_columns import RowsByTask, find_benchmark, read_scores
from tests.report.made_answers import Answer, make
from tests.scored_parts import TASKS, made_sample, made_scores


def told(numbers: Sequence[Number]) -> list[tuple[object, ...]]:
    """All that a number says, with the arrays that its interval is made of."""
    return [
        (one, one.estimate and (one.estimate.clustered, one.estimate.linear, [
            (part.weight, part.samples.tobytes(), part.clusters.tobytes(), part.values.tobytes())
            for part in one.estimate.strata
        ]))
        for one in numbers
    ]  # fmt: skip


def check(benchmark: str, tasks: RowsByTask) -> None:
    family = find_benchmark(benchmark)
    assert family
    samples = {task: list(rows) for task, rows in tasks.items()}
    assert told(family.groups(tasks)) == told(family.groups(samples))
    for task, rows in tasks.items():
        for some, alike in parts(rows, samples[task]):
            whole = family.aggregate(task, alike)
            assert told(family.aggregate(task, some)) == told(whole)
            assert told([one for one in (family.headline(task, some),) if one]) == told(whole[:1])


def parts(rows: ScoredRows, samples: Sequence[ScoredSample]) -> list[tuple[ScoredRows, list[ScoredSample]]]:
    """All of a task, its shorter half, and parts of that."""
    half = rows.take(rows.column("length") <= np.median(rows.column("length")))
    some = np.arange(0, len(half), 3)
    places = [place for place, row in enumerate(samples) if row.sample.length <= np.median(rows.column("length"))]
    chosen = [
        (rows, [*samples]),
        (half, [samples[at] for at in places]),
        (half.take(some), [samples[places[at]] for at in some]),
    ]
    assert all([*one] == other for one, other in chosen)
    return chosen


@pytest.mark.parametrize("benchmark", TASKS)
@pytest.mark.parametrize("lacking", [False, True])
def test_of_made_up_answers(benchmark: str, lacking: bool, tmp_path: Path) -> None:
    chance = random.Random(7)
    answers = []
    for task in TASKS[benchmark]:
        for number in range(40):
            sample = made_sample(benchmark, task, number)
            for iteration in range(BENCHMARKS[benchmark].protocol.iterations):
                scores = made_scores(sample, chance)
                if lacking and number % 7 == 3:
                    scores.pop(list(scores)[-1])
                answers.append(Answer(
                    sample.sample_id, scores, benchmark=benchmark, task=task, iteration=iteration,
                    document=sample.context if number % 5 else "", length=sample.length, meta=sample.meta,
                    question=sample.question, language=("en", "zh")[number % 2],
                    partial="a part" if number % 9 == 2 else None,
                ))  # fmt: skip
    with Store(make(tmp_path / "r.duckdb", answers), read_only=True) as store:
        (found,) = read_scores(store).items()
    check(found[0][1], found[1])


def test_of_published_answers(imports: Path) -> None:
    with Store(imports, read_only=True) as store:
        found: Mapping[tuple[str, str], RowsByTask] = read_scores(store)
    assert {benchmark for _, benchmark in found} == {"longbench", "longbench_v2", "leval"}
    for (_, benchmark), tasks in found.items():
        check(benchmark, tasks)


@pytest.mark.parametrize(("meant", "wanted"), [(lambda at: at < 2, [0, 1]), (lambda at: at < 0, [])])
def test_rows_of_several_tasks_as_one(meant: Callable[[int], bool], wanted: Sequence[int], tmp_path: Path) -> None:
    answers = [Answer(str(at), {"f1": at / 4, **({"em": 1.0} if at else {})}, task="qasper") for at in range(3)]
    answers += [Answer(str(at), {"f1": 1.0}, task="trec") for at in range(2)]
    with Store(make(tmp_path / "r.duckdb", answers), read_only=True) as store:
        ((_, tasks),) = read_scores(store).items()
    some = [rows.take(np.array([meant(at) for at in range(len(rows))])) for rows in tasks.values()]
    rows = ScoredRows.concatenate(some)
    assert [row.sample.task for row in rows] == ["qasper"] * len(wanted) + ["trec"] * len(wanted)
    assert rows.with_metric("f1")[1].tolist() == [at / 4 for at in wanted] + [1.0] * len(wanted)
    assert [row.sample.sample_id for row in rows.with_metric("em")[0]] == [str(at) for at in wanted if at]
    assert len(rows.with_metric("of nobody")[0]) == 0
