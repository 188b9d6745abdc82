"""Every score that the official code gave on the shared golden records, and every number it added up from them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lbx.benchmarks.base import ScoredSample
from lbx.benchmarks.leval import KINDS, LEval
from lbx.benchmarks.longbench import METRICS, TASKS, LongBench, accepted_answers, kind_of
from lbx.benchmarks.longbench_v2 import TASK, LongBenchV2
from lbx.metrics import rouge_l
from lbx.records import Sample

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden" / "open"
pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason="the golden scores are not beside the checkout")

EXACT = 1e-9
LONGBENCH_TASKS = [task for task in TASKS if task != "nq"]
Record = dict[str, Any]


@cache
def records(name: str) -> tuple[Record, ...]:
    with gzip.open(GOLDEN / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        return tuple(json.loads(line) for line in file)


@cache
def aggregate(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((GOLDEN / f"{name}_aggregate.json").read_text("utf-8"))
    return loaded


def text(value: object) -> str:
    """A prediction: what is no text (null, a number) has no counterpart in lbx but silence."""
    return value if isinstance(value, str) else ""


def close(got: float, wanted: float | None) -> bool:
    return abs(got - (wanted or 0.0)) <= EXACT  # null is where the official code raised: 0 here


# --- LongBench v1 and E


def longbench_sample(record: Record, all_classes: object) -> Sample:
    names = all_classes if isinstance(all_classes, list) and all(isinstance(c, str) for c in all_classes) else []
    return Sample(
        benchmark="longbench",
        task=record["dataset"],
        sample_id=record["id"],
        context="",
        question="",
        references=accepted_answers(record["dataset"], record["answers"]),
        length=record["length"],
        meta={"all_classes": names},
    )


@cache
def longbench_rows(task: str) -> dict[str, ScoredSample]:
    return {r["id"]: score_longbench(r, r["all_classes"]) for r in records("longbench") if r["dataset"] == task}


def score_longbench(record: Record, all_classes: object) -> ScoredSample:
    sample = longbench_sample(record, all_classes)
    scores = LongBench().score(sample, text(record["prediction"]))
    return ScoredSample(sample, {score.metric: score.score for score in scores})


@pytest.mark.parametrize("task", LONGBENCH_TASKS)
def test_longbench_records(task: str) -> None:
    rows = longbench_rows(task)
    metric = METRICS[kind_of(task).metric][0]
    wrong = [
        r["id"] for r in records("longbench") if r["id"] in rows and not close(rows[r["id"]].scores[metric], r["score"])
    ]
    assert rows
    assert wrong == []


@pytest.mark.parametrize("task", [task for task in LONGBENCH_TASKS if kind_of(task).metric == "rouge_l"])
def test_longbench_recursion(task: str) -> None:
    """The depth that is counted is the depth that the recursion had; without its limit there is another score."""
    measure = rouge_l.rouge_l_zh if kind_of(task).language == "zh" else rouge_l.rouge_l
    found = 0
    for record in records("longbench"):
        if record["dataset"] != task or record["error"]:
            continue
        answer = text(record["prediction"])
        if task == "samsum":
            answer = answer.lstrip("\n").split("\n")[0]
        measured = measure(answer, accepted_answers(task, record["answers"]))
        assert measured.frames == (record["recon_frames"] or 0), record["id"]
        assert close(measured.unlimited, record["score_unlimited_recursion"]), record["id"]
        found += measured.official != measured.unlimited
    assert found or task == "samsum"


def longbench_numbers(task: str, rows: Iterable[ScoredSample]) -> dict[str, float]:
    return {score.metric: score.official for score in LongBench().aggregate(task, list(rows))}


@pytest.mark.parametrize("task", LONGBENCH_TASKS)
def test_longbench_aggregates(task: str) -> None:
    golden, rows = aggregate("longbench"), longbench_rows(task)
    metric = METRICS[kind_of(task).metric][0]
    cases = [(golden["record_ids"][task], golden["result"][task])]
    cases += [
        (c["record_ids"], c["result"])
        for kind in ("subsets", "rounding_subsets")
        for c in golden[kind]
        if c["dataset"] == task
    ]
    assert len(cases) > 20
    for ids, wanted in cases:
        assert longbench_numbers(task, (rows[i] for i in ids))[metric] == wanted


@pytest.mark.parametrize("task", LONGBENCH_TASKS)
def test_longbench_e_buckets(task: str) -> None:
    golden, rows = aggregate("longbench_e"), longbench_rows(task)
    metric = METRICS[kind_of(task).metric][0]
    cases = [(golden["record_ids"][task], golden["result"][task])]
    cases += [
        (c["record_ids"], c["result"])
        for kind in ("subsets", "rounding_subsets")
        for c in golden[kind]
        if c["dataset"] == task
    ]
    assert len(cases) > 20
    for ids, wanted in cases:
        numbers = longbench_numbers(f"{task}_e", (rows[i] for i in ids))
        assert {bucket: numbers.get(f"{metric}/{bucket}") for bucket in wanted} == wanted


@pytest.mark.parametrize("task", ["trec", "lsht"])
def test_longbench_last_classes_serve_all(task: str) -> None:
    by_id = {r["id"]: r for r in records("longbench")}
    for suffix, name in (("", "longbench"), ("_e", "longbench_e")):
        mixed = aggregate(name)["mixed_classes"]
        classes = by_id[mixed["all_classes_taken_from"][task]]["all_classes"]
        rows = [score_longbench(by_id[i], classes) for i in mixed["record_ids"][task]]
        numbers = longbench_numbers(task + suffix, rows)
        wanted = mixed["result"][task]
        got = (
            {bucket: numbers[f"classification/{bucket}"] for bucket in wanted} if suffix else numbers["classification"]
        )
        assert got == wanted


# --- LongBench v2


@cache
def v2_rows() -> dict[str, ScoredSample]:
    return {r["id"]: score_v2(r) for r in records("longbench_v2")}


def score_v2(record: Record) -> ScoredSample:
    meta = {"difficulty": record["difficulty"], "length": record["length"]}
    sample = Sample("longbench_v2", TASK, record["id"], "", "", (record["answer"],), meta=meta)
    scores = LongBenchV2().score(sample, text(record["output"]))
    return ScoredSample(sample, {score.metric: score.score for score in scores})


def test_v2_records() -> None:
    for record in records("longbench_v2"):
        if not isinstance(record["output"], str):
            continue
        scores = {
            score.metric: score for score in LongBenchV2().score(v2_rows()[record["id"]].sample, record["output"])
        }
        assert scores["accuracy"].extracted == record["pred"]
        assert scores["accuracy"].score == float(bool(record["judge"]))
        assert scores["compensated"].score == (float(bool(record["judge"])) if record["pred"] else 0.25)
        assert bool(scores["empty"].score) == record["dropped"]


@pytest.mark.parametrize("table", range(54))
def test_v2_tables(table: int) -> None:
    tables = aggregate("longbench_v2")["tables"]
    assert len(tables) == 54
    case = tables[table]
    metric = "compensated" if case["compensated"] else "accuracy"
    rows = [v2_rows()[i] for i in case["record_ids"]]
    numbers = {score.metric: score.official for score in LongBenchV2().aggregate(TASK, rows)}
    if case["error"]:  # an empty group or a single record, over which the official script stumbles
        assert numbers[metric] == round(100 * sum(row.scores[metric] for row in rows) / len(rows), 1)
        return
    names = {column: metric if column == "Overall" else f"{metric}/{column.lower()}" for column in case["row"]}
    assert {column: numbers[name] for column, name in names.items()} == case["row"]


def test_v2_empty_outputs_leave_the_denominator() -> None:
    dropped = {r["id"] for r in records("longbench_v2") if r["dropped"]}
    whole = {r["id"] for r in records("longbench_v2") if isinstance(r["output"], str)}
    told = [row for name, row in v2_rows().items() if name in whole - dropped]
    silent = [row for name, row in v2_rows().items() if name in dropped]
    assert silent
    with_them = {s.metric: s for s in LongBenchV2().aggregate(TASK, told + silent)}
    without = {s.metric: s for s in LongBenchV2().aggregate(TASK, told)}
    assert with_them["accuracy"] == without["accuracy"]
    assert with_them["accuracy_all"].n == len(told) + len(silent)
    assert with_them["empty"].score == pytest.approx(len(silent) / (len(told) + len(silent)))


# --- L-Eval


def leval_answers(task: str) -> Iterator[tuple[Record, ScoredSample, dict[str, str | None]]]:
    """Each (model, index) of a task once, with the first of its records."""
    seen = set()
    for record in records("leval"):
        if record["task"] != task or (record["model"], record["index"]) in seen:
            continue
        seen.add((record["model"], record["index"]))
        references = () if record["reference"] is None else (record["reference"],)
        meta = {"evaluation": "exam", "topic": record["index"] % 3}
        sample = Sample("leval", task, record["id"], "", "", references, meta=meta)
        scores = LEval().score(sample, text(record["prediction"]))
        extracted = {score.metric: score.extracted for score in scores}
        yield record, ScoredSample(sample, {score.metric: score.score for score in scores}), extracted


@cache
def leval_rows(task: str) -> dict[tuple[str, int], tuple[ScoredSample, dict[str, str | None]]]:
    return {(r["model"], r["index"]): (row, extracted) for r, row, extracted in leval_answers(task)}


@pytest.mark.parametrize("task", KINDS)
def test_leval_records(task: str) -> None:
    rows = leval_rows(task)
    assert rows
    for record in records("leval"):
        if record["task"] != task:
            continue
        row, extracted = rows[record["model"], record["index"]]
        metric = record["metric"]
        if task == "sci_fi" and record["group"] is not None:
            metric = ("loyalty", "fact")[record["group"]]
        percent = 100 if metric.startswith("rouge") else 1
        assert close(row.scores.get(metric, 0.0) * percent, record["score"]), record["id"]
        if metric in ("exact_match", "loyalty", "fact") and not record["error"]:
            assert extracted[metric] == record["processed_prediction"], record["id"]


@pytest.mark.parametrize("task", KINDS)
def test_leval_aggregates(task: str) -> None:
    cases = [case for case in aggregate("leval")["results"] if case["task"] == task]
    assert cases
    for case in cases:
        rows = [leval_rows(task)[case["model"], index][0] for index in case["indices"]]
        found = LEval().aggregate(task, rows)
        numbers = {score.metric: score.official for score in found}
        metrics = case["metrics"]
        if isinstance(metrics, list):
            parts = (
                ["loyalty", "fact"]
                if task == "sci_fi"
                else [f"exact_match/{name}" for name in ("first", "second", "third")]
            )
            assert [numbers[part] for part in parts] == [part["exact_match"] for part in metrics]
            assert numbers["exact_match"] == case["average"]
            assert [score.n for score in found[1:]] == [part["num_predicted"] for part in metrics]
            continue
        printed = {
            name.removeprefix("rouge/"): metrics[name] for name in metrics if name.removeprefix("rouge/") in numbers
        }
        assert printed == numbers
        assert found[0].official == metrics["LEval_score"]
        assert found[0].n == metrics["num_predicted"]
