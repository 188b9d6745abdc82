"""LongBench v1 and E: every golden record, and every number that eval.py made of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from lbx.base.records import Sample, Score, ScoredSample
from lbx.benchmarks.longbench.benchmark import METRICS, LongBench, accepted_answers, rules_of
from lbx.benchmarks.longbench.tasks import ODD_ANSWERS, classify_odd_answers
from lbx.benchmarks.metrics import rouge
from tests.golden.case import EXACT, SHARED, Case, Record, beside_real_data, cached, golden_aggregates, golden_records

NAME = "longbench"
PREDICTIONS = SHARED.parents[1] / "data" / "predictions" / "longbench"


def records() -> Iterator[Case]:
    """The score, the score without the recursion limit, the depth of the recursion, and where eval.py stops."""
    for record in golden_records(NAME):
        task, name = record["dataset"], record["id"]
        headline = METRICS[rules_of(task).metric][0]
        scores = _judged()[name][1]
        # null is where the official code raises: 0 here, with a reason
        yield Case(NAME, task, headline, name, scores[headline].score, record["score"] or 0.0, EXACT)
        if isinstance(record["prediction"], str):
            stops = "stops" if scores[headline].error else "scores"
            yield Case(NAME, task, "error", name, stops, "stops" if record["error"] else "scores")
        if rules_of(task).metric == "rouge_l" and not record["error"]:
            wanted = record["score_unlimited_recursion"]
            yield Case(NAME, task, "rouge_l_unlimited", name, scores["rouge_l_unlimited"].score, wanted or 0.0, EXACT)
            if "recon_frames" in record:
                yield Case(NAME, task, "recursion frames", name, _frames(record), record["recon_frames"] or 0)


def aggregates() -> Iterator[Case]:
    """eval.py, eval.py --e and the published results of two models."""
    yield from _plain()
    yield from _buckets()
    yield from _mixed_classes()
    yield from _published()


def _plain() -> Iterator[Case]:
    golden = golden_aggregates("longbench")
    for task, name, ids, wanted in _chosen(golden):
        metric = METRICS[rules_of(task).metric][0]
        yield Case(NAME, task, metric, name, _numbers(task, _rows(ids)).get(metric), wanted)


def _buckets() -> Iterator[Case]:
    golden = golden_aggregates("longbench_e")
    for task, name, ids, wanted in _chosen(golden):
        numbers = _numbers(f"{task}_e", _rows(ids))
        for bucket, number in wanted.items():
            metric = f"{METRICS[rules_of(task).metric][0]}/{bucket}"
            yield Case(NAME, f"{task}_e", metric, name, numbers.get(metric), number)


def _chosen(golden: Record) -> Iterator[tuple[str, str, list[str], Any]]:
    """(task, name, the records' ids, the official number)."""
    for task, wanted in golden["result"].items():
        yield task, "all", golden["record_ids"][task], wanted
    for kind in ("subsets", "rounding_subsets"):
        for place, chosen in enumerate(golden[kind]):
            yield chosen["dataset"], f"{kind} {place}", chosen["record_ids"], chosen["result"]


def _mixed_classes() -> Iterator[Case]:
    """The last row's classes serve every row of a file."""
    for suffix, name in (("", "longbench"), ("_e", "longbench_e")):
        mixed = golden_aggregates(name)["mixed_classes"]
        for task, wanted in mixed["result"].items():
            classes = _by_id()[mixed["all_classes_taken_from"][task]]["all_classes"]
            rows = [_row(_by_id()[one], classes) for one in mixed["record_ids"][task]]
            numbers = _numbers(task + suffix, rows)
            for bucket, number in wanted.items() if suffix else [("", wanted)]:
                metric = f"classification/{bucket}" if bucket else "classification"
                yield Case(NAME, task + suffix, metric, "mixed classes", numbers.get(metric), number)


def _published() -> Iterator[Case]:
    """Predictions of all tasks that others published, beside the numbers that they published with them."""
    for folder in sorted(PREDICTIONS.iterdir()) if beside_real_data() and PREDICTIONS.is_dir() else ():
        for task, wanted in json.loads((folder / "result.json").read_text("utf-8")).items():
            rows = [json.loads(line) for line in (folder / f"{task}.jsonl").read_text("utf-8").splitlines()]
            records = [{"id": "", "dataset": task, "prediction": row["pred"], **row} for row in rows]
            scored = [_row(record, rows[-1]["all_classes"]) for record in records]
            metric = METRICS[rules_of(task).metric][0]
            yield Case(NAME, task, metric, f"published by {folder.name}", _numbers(task, scored).get(metric), wanted)


def _sample(record: Record, all_classes: object) -> Sample:
    meta: dict[str, object] = {"all_classes": all_classes}
    if odd := classify_odd_answers(record["answers"]):
        meta[ODD_ANSWERS] = odd
    return Sample(
        benchmark=NAME,
        task=record["dataset"],
        sample_id=record["id"],
        context="",
        question="",
        references=accepted_answers(record["dataset"], record["answers"]),
        length=record.get("length", 0),
        meta=meta,
    )


def _judge(record: Record, all_classes: object) -> tuple[Sample, dict[str, Score]]:
    sample = _sample(record, all_classes)
    # What is no text (null, a number) has no counterpart in lbx but silence.
    output = record["prediction"] if isinstance(record["prediction"], str) else ""
    return sample, {score.metric: score for score in LongBench().score(sample, output)}


def _row(record: Record, all_classes: object) -> ScoredSample:
    sample, scores = _judge(record, all_classes)
    return ScoredSample(sample, {metric: score.score for metric, score in scores.items()})


def _frames(record: Record) -> int:
    task, answer = record["dataset"], record["prediction"]
    answer = answer if isinstance(answer, str) else ""
    if rules_of(task).first_line:
        answer = answer.lstrip("\n").split("\n")[0]
    measure = rouge.rouge_l_zh if rules_of(task).language == "zh" else rouge.rouge_l
    return measure(answer, accepted_answers(task, record["answers"])).frames


@cached
def _by_id() -> dict[str, Record]:
    return {record["id"]: record for record in golden_records(NAME)}


@cached
def _judged() -> dict[str, tuple[Sample, dict[str, Score]]]:
    return {name: _judge(record, record["all_classes"]) for name, record in _by_id().items()}


def _rows(ids: Iterable[str]) -> list[ScoredSample]:
    judged = (_judged()[one] for one in ids)
    return [ScoredSample(sample, {metric: one.score for metric, one in scores.items()}) for sample, scores in judged]


def _numbers(task: str, rows: list[ScoredSample]) -> dict[str, float | None]:
    return {number.metric: number.official for number in LongBench().aggregate(task, rows)}
