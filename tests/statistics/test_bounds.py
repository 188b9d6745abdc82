"""What failed leaves a number open, and every number says what it is made of."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from lbx.base.number import Number
from lbx.base.records import Sample, ScoredSample
from lbx.benchmarks.registry import BENCHMARKS
from lbx.results import GenerationRow, RunRow, SampleRow, ScoreRow, Store
from lbx.results.scoring.aggregation import aggregate_scores
from lbx.statistics.estimates import interval
from tests.scored_parts import TASKS, Imported, made_sample, made_scores

NO_MEAN = "effective_length_k"
"""RULER's effective length: a length, which has no interval and no bounds."""
SAMPLES = 12
"""Of each task."""

Scores = dict[tuple[str, str, int], dict[str, float]]
"""(task, sample, iteration) -> metric -> score."""

_runs = itertools.count()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store(tmp_path_factory.mktemp("bounds") / "results.duckdb") as opened:
        yield opened


def samples(benchmark: str) -> dict[tuple[str, str], Sample]:
    made = [made_sample(benchmark, task, number) for task in TASKS[benchmark] for number in range(SAMPLES)]
    return {(one.task, one.sample_id): one for one in made}


def numbers(store: Store, benchmark: str, scores: Scores, failed: dict[tuple[str, str, int], str]) -> dict[str, dict]:
    """What a run of these answers and failures adds up to: every number's row by its name.

    Args:
        failed: the failures, with the name that is known of each: its sample's, or one that no sample has, as in files
            of L-Eval and LongBench v2 that others made.
    """
    run_id, family, asked = f"run{next(_runs)}", BENCHMARKS[benchmark], samples(benchmark)
    store.begin_run(RunRow(run_id, "model", "scripted", "1", {benchmark: family.metric_version}, "", {}, {}, "1"))
    answered = [key for key in scores if key not in failed]
    store.write(
        samples=[SampleRow(sample, place) for place, sample in enumerate(asked.values())],
        generations=[
            *(GenerationRow(run_id, benchmark, *key, output="said") for key in answered),
            *(GenerationRow(run_id, benchmark, task, name, iteration, error="no answer", error_type="imported")
              for (task, _, iteration), name in failed.items()),
        ],
        scores=[
            ScoreRow(run_id, benchmark, *key, metric, family.metric_version, value, None, headline=place == 0)
            for key in answered for place, (metric, value) in enumerate(scores[key].items())
        ],
    )  # fmt: skip
    aggregate_scores(store, run_id, family)
    found = {}
    for table, names in (
        ("task_results", "task || '/' || metric"),
        ("group_results", "\"grouping\" || '/' || name || '/' || metric"),
        ("benchmark_results", "'all'"),
    ):
        query = store.query(f"SELECT {names} AS place, * FROM {table} WHERE run_id = ?", [run_id])
        found |= {f"{table} {row['place']}": row for row in query.dicts()}
    return found


@pytest.mark.parametrize(
    ("benchmark", "unnamed"), [*((name, False) for name in TASKS), ("longbench_v2", True), ("leval", True)]
)
@settings(max_examples=4, phases=(Phase.generate,))  # a smaller seed is no simpler
@given(seed=st.integers(0, 2**32))
def test_bounds_hold_what_hidden_answers_reveal(store: Store, benchmark: str, unnamed: bool, seed: int) -> None:
    chance = random.Random(seed)
    iterations = range(BENCHMARKS[benchmark].protocol.iterations)
    said = {(*key, place): made_scores(sample, chance) for key, sample in samples(benchmark).items()
            for place in iterations}  # fmt: skip
    hidden: dict[tuple[str, str, int], str] = {}
    shares = {task: chance.choice((0, 0.1, 0.5, 1)) for task in TASKS[benchmark]}
    if min(shares.values()) == 1:
        shares[TASKS[benchmark][0]] = 0.5
    for task, sample_id, place in said:
        if chance.random() < shares[task]:
            by_name_alone = unnamed and chance.random() < 0.5
            hidden[task, sample_id, place] = f"gap {sample_id}" if by_name_alone else sample_id
    revealed = {key: values | ({"empty": 0.0} if "empty" in values else {}) for key, values in said.items()}
    truth, found = numbers(store, benchmark, revealed, {}), numbers(store, benchmark, said, hidden)
    assert truth and (found or len(hidden) == len(said))
    for name, row in found.items():
        ends = row["failed_as_0"], row["failed_as_1"]
        if name.endswith(NO_MEAN):
            assert row["low"] is row["asked"] is ends[0] is None
            continue
        assert (ends[0] is None) == (ends[1] is None)
        assert row["low"] is None or row["low"] < row["high"]
        if ends[0] is None:
            assert unnamed, name
        elif name not in ("task_results mcq/empty",):
            assert ends[0] - 1e-9 <= truth[name]["score"] <= ends[1] + 1e-9, (name, ends, truth[name]["score"])
            assert ends[0] - 1e-9 <= row["score"] <= ends[1] + 1e-9
            assert row["asked"] == truth[name]["asked"] >= row["answered"]
        if not hidden and not any(values.get("empty") for values in said.values()):
            assert ends == (row["score"], row["score"]) and row["asked"] == row["answered"]


def made_of(number: Number) -> None:
    assert number.estimate is not None, number
    found = interval(number.estimate)
    assert found.value == pytest.approx(number.score, abs=1e-12), number
    assert found.method in ("t", "logit", "exact", "one cluster", "all alike", "all alike in a part")
    assert (found.low is None) == (found.high is None) == (found.method not in ("t", "logit", "exact"))
    if found.low is not None and found.high is not None:
        assert 0 <= found.low < found.high <= 1 and found.low <= number.score <= found.high


@pytest.mark.parametrize("benchmark", TASKS)
@settings(phases=(Phase.generate,))
@given(seed=st.integers(0, 2**32))
def test_every_number_is_the_mean_of_what_its_interval_is_made_of(benchmark: str, seed: int) -> None:
    chance, family = random.Random(seed), BENCHMARKS[benchmark]
    share = chance.choice((0.1, 0.5, 1))
    tasks: dict[str, list[ScoredSample]] = {}
    for (task, _), sample in samples(benchmark).items():
        for place in range(family.protocol.iterations):
            if chance.random() < share:
                row = ScoredSample(sample, made_scores(sample, chance), place)
                tasks.setdefault(task, []).append(replace(row, cluster=family.cluster(sample, sample.context)))
    for task, rows in tasks.items():
        for one in family.aggregate(task, rows):
            made_of(one)
    for group in family.groups(tasks):
        if group.metric != NO_MEAN:
            made_of(group)


def test_so_are_the_numbers_of_imported_answers(imported: Imported) -> None:
    for tasks in imported.values():
        family = BENCHMARKS[next(iter(tasks.values()))[0].sample.benchmark]
        for task, rows in tasks.items():
            for one in family.aggregate(task, rows):
                made_of(one)
        for group in family.groups(tasks):
            made_of(group)


@pytest.mark.parametrize("benchmark", TASKS)
def test_an_answer_that_is_all_reasoning_has_its_part_in_every_number(benchmark: str) -> None:
    family = BENCHMARKS[benchmark]
    tasks: dict[str, list[ScoredSample]] = {}
    for (task, _), sample in samples(benchmark).items():
        for place in range(family.protocol.iterations):
            scores = {one.metric: one.score for one in family.score(sample, "")}
            tasks.setdefault(task, []).append(ScoredSample(sample, scores, place, reasoned=True))
    for task, rows in tasks.items():
        assert all(map(family.scoring.is_counted, rows))
        head = family.headline(task, rows)
        assert head and head.n == len(rows) == family.aggregate(task, rows)[0].n
