"""LV-Eval: metrics.py's score of every record, and what evaluation.py printed and wrote to its table."""

from __future__ import annotations

import csv
from collections.abc import Iterator

from lbx.base.records import Sample, Score, ScoredSample
from lbx.benchmarks.lveval import LVEval, parse_references, rules_of
from lbx.benchmarks.metrics import keyword_gate
from tests.golden.case import EXACT, Case, Record, cached, golden_aggregates, golden_records

NAME = "lveval"


def records() -> Iterator[Case]:
    """The headline of every record, whether the official code stops on it, and dureader's depth and plain score."""
    for record in golden_records(NAME):
        headline = _scores(record)[0]
        yield _case(record, headline.metric, headline.score, record["score"] or 0.0)
        if isinstance(record["prediction"], str):  # an answer of lbx is always text
            yield _case(record, "error", _stops(headline.error is not None), _stops(record["error"] is not None))
        if rules_of(_task(record)).metric == "rouge_l" and not record["error"]:
            yield from _unlimited(record)


def aggregates() -> Iterator[Case]:
    golden = golden_aggregates(NAME)
    numbers = {}
    for task, ids in golden["record_ids"].items():
        headline = LVEval().aggregate(task, [_row(name) for name in ids])[0]
        numbers[task] = headline.official
        yield Case(NAME, task, headline.metric, task, headline.official, golden["result"][task])
    for line in csv.DictReader(golden["result_csv"].splitlines()):
        dataset = line.pop("dataset_name")
        for level, cell in line.items():
            task = f"{dataset}_{level}"
            yield Case(NAME, task, "result.csv", task, numbers.get(task), float(cell) if cell else None)


def _unlimited(record: Record) -> Iterator[Case]:
    plain = next(score for score in _scores(record) if score.metric == "rouge_l_unlimited")
    yield _case(record, plain.metric, plain.score, record["score_unlimited_recursion"])
    references, _ = parse_references(record["answers"])
    if references and "recon_frames" in record:
        measured = keyword_gate.rouge_l_zh(record["prediction"], references[0])
        yield _case(record, "frames", float(measured.frames), float(record["recon_frames"] or 0))


def _case(record: Record, metric: str, got: float | str, wanted: float | str) -> Case:
    tolerance = EXACT if isinstance(got, float) else 0.0
    return Case(NAME, record["dataset"], metric, record["id"], got, wanted, tolerance)


def _stops(stops: bool) -> str:
    return "stops" if stops else "scores"


def _task(record: Record) -> str:
    return f"{record['dataset']}_{record['length']}"


def _sample(record: Record) -> Sample:
    references, fault = parse_references(record["answers"])
    meta = {"answer_keywords": record["answer_keywords"], "fault": fault}
    return Sample(NAME, _task(record), record["id"], "", "", references, meta=meta)


def _scores(record: Record) -> list[Score]:
    output = record["prediction"]
    return LVEval().score(_sample(record), output if isinstance(output, str) else "")


@cached
def _by_id() -> dict[str, Record]:
    return {record["id"]: record for record in golden_records(NAME)}


@cached
def _row(name: str) -> ScoredSample:
    record = _by_id()[name]
    return ScoredSample(_sample(record), {score.metric: score.score for score in _scores(record)})
