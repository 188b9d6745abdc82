"""Files whose run goes on, or was killed, have numbers of the answers so far as they will be at its end."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from lbx.base.records import Sample, Score
from lbx.benchmarks.registry import BENCHMARKS
from lbx.report.query import ReportQuery
from lbx.report.reports import REPORTS, has_number_reports, read_report
from lbx.results import GenerationRow, RunRow, SampleRow, Store
from lbx.results.scoring.adding_up import add_up
from lbx.results.scoring.reading import add_missing_numbers, open_with_numbers
from lbx.results.scoring.scores import score_rows
from lbx.results.whole.copies import open_copy
from tests.report.made_answers import Answer, make
from tests.scored_parts import TASKS, made_sample, made_scores

QUESTIONS = 11
NUMBERS = ("task_results", "length_results", "group_results", "benchmark_results")


@pytest.mark.parametrize("benchmark", TASKS)
def test_a_file_of_a_run_that_goes_on_says_what_it_will_say_of_the_same_answers(benchmark: str, tmp_path: Path) -> None:
    family, path = BENCHMARKS[benchmark], tmp_path / "results.duckdb"
    with Store(path) as store:
        store.begin_run(RunRow("r", "model", "scripted", "1", {}, "digest", {}, {}, "0.1"))
        chance = random.Random(7)
        samples = [made_sample(benchmark, task, number) for task in TASKS[benchmark] for number in range(QUESTIONS)]
        store.write(
            samples=[SampleRow(sample, place) for place, sample in enumerate(samples)],
            generations=[GenerationRow("r", *sample.key, output="so") for sample in samples],
            scores=[row for one in samples for row in score_rows("r", one.key, family, _scores(one, chance))],
        )
    before = path.read_bytes()
    with open_with_numbers(path) as store:
        going = _numbers(store)
    assert path.read_bytes() == before, "who reads a file does not write it"
    with Store(path, read_only=True) as store:
        assert not any(_numbers(store).values())
    with Store(path) as store:
        add_up(store, "r", family, is_complete=False)
        assert _numbers(store) == going
        assert {row[0] for row in going["task_results"]} == set(TASKS[benchmark])
        assert all(going.values()) and len(going["length_results"]) > len(TASKS[benchmark])
        add_up(store, "r", family)
        official = store.query("SELECT count(official) FROM task_results").rows
    assert (official > [(0,)]) is (benchmark != "longbench_pro"), (
        "at its end there are official ones, where tasks have any"
    )


@pytest.mark.parametrize(("benchmark", "task"), [("no name?", "t"), ("longbench", "of another tool")])
def test_what_lbx_does_not_know_has_plain_means(benchmark: str, task: str, tmp_path: Path) -> None:
    answers = [Answer(str(at), {"f1": at / 4, "em": 1.0}, benchmark=benchmark, task=task) for at in range(3)]
    with open_with_numbers(make(tmp_path / "r.duckdb", answers)) as store:
        asked = "SELECT task, metric, n, score, headline FROM task_scores ORDER BY position"
        assert store.query(asked).rows == [(task, "f1", 3, 0.25, True), (task, "em", 3, 1.0, False)]
        assert store.query("SELECT n, score FROM leaderboard").rows == [(3, 0.25)]


def test_a_killed_run_of_an_older_lbx_has_numbers_of_its_metric_version(tmp_path: Path) -> None:
    path = make(tmp_path / "r.duckdb", [Answer(str(at), {"f1": at / 4}) for at in range(3)])
    assert BENCHMARKS["longbench"].metric_version > 1
    with open_with_numbers(path) as store:
        asked = "SELECT metric_version, n, score, official FROM task_scores"
        assert store.query(asked).rows == [(1, 3, 0.25, None)]


def test_reports_that_are_not_of_numbers_say_the_same_without_them(tmp_path: Path) -> None:
    answers = [
        Answer(f"{at}", {"f1": at % 3 / 2}, run, document=f"{at // 2}", length=900 * at, meta={"depth": at},
               values={"original_tokens": 900 * at, "truncated": at % 2 == 1, "decode_s": 0.5})
        for run in "ab" for at in range(24)
    ]  # fmt: skip
    path, wanted = make(tmp_path / "r.duckdb", answers), ReportQuery(allow_different_settings=True, baseline="a")
    names = [name for name in REPORTS if name not in ("reference", "expected")]
    with open_with_numbers(path) as store, open_with_numbers(path, numbers=False) as bare:
        assert any(_numbers(store).values()) and not any(_numbers(bare).values())
        different = {name for name in names if read_report(store, name, wanted) != read_report(bare, name, wanted)}
    assert different and all(has_number_reports([name]) for name in different)


def test_a_copy_of_a_run_on_another_disk_is_read_with_numbers(tmp_path: Path) -> None:
    scratch, target = tmp_path / "scratch", tmp_path / "r.duckdb"
    scratch.mkdir()
    with (
        open_copy(target, scratch, pytest.fail) as copies,
        Store(copies.path, after_commit=copies.update) as store,
    ):
        store.begin_run(RunRow("r", "model", "scripted", "1", {}, "digest", {}, {}, "0.1"))
        one = made_sample("longbench", "qasper", 1)
        store.write(
                samples=[SampleRow(one, 0)], generations=[GenerationRow("r", *one.key, output="so")],
                scores=score_rows("r", one.key, BENCHMARKS["longbench"], [Score("f1", 0.5)]),
            )  # fmt: skip
        with open_with_numbers(target) as copy:
            assert copy.query("SELECT score, answered FROM task_scores").rows == [(0.5, 1)]


def _scores(sample: Sample, chance: random.Random) -> list[Score]:
    values = made_scores(sample, chance)
    if "loyalty" in values:
        values["exact_match"] = (values["loyalty"] + values["fact"]) / 2
    return [Score(metric, value) for metric, value in values.items()]


def _numbers(store: Store) -> dict[str, list[tuple[object, ...]]]:
    return {
        table: store.query(f"SELECT task, * EXCLUDE (task) FROM {table} ORDER BY ALL").rows
        if table in ("task_results", "length_results")
        else store.query(f"FROM {table} ORDER BY ALL").rows
        for table in NUMBERS
    }


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
        add_missing_numbers(store)
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
        told = read_report(store, "changes", ReportQuery(runs=("r", "s"))).dicts()
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
