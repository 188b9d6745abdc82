"""L-Eval: every golden record, and everything that auto_eval.py printed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lbx.base.number import Number
from lbx.base.records import Sample, Score, ScoredSample
from lbx.benchmarks.leval.benchmark import LEval
from lbx.benchmarks.leval.predictions import as_text
from tests.golden.case import EXACT, Case, Record, cached, golden_aggregates, golden_records

NAME = "leval"

_Key = tuple[str, str, int]
_Pair = tuple[float | None, float | None]


def records() -> Iterator[Case]:
    """The score, what was taken for the answer, and where auto_eval.py stops."""
    for record in golden_records(NAME):
        task, metric, name = record["task"], _metric(record), f"{record['id']} {record['metric']}"
        score = _scores()[_key(record)][metric]
        percent = 100 if metric.startswith("rouge") else 1
        yield Case(NAME, task, metric, name, score.score * percent, record["score"] or 0.0, EXACT)
        if metric in ("exact_match", "loyalty", "fact") and not record["error"]:
            yield Case(NAME, task, "processed answer", name, score.extracted, record["processed_prediction"])
        if isinstance(record["prediction"], str):
            yield Case(NAME, task, "error", name, _stops(score.error), _stops(record["error"]))


def aggregates() -> Iterator[Case]:
    """Per prediction file: each number, the three or two parts of a task that has parts, and how many there were."""
    for place, printed in enumerate(golden_aggregates(NAME)["results"]):
        task, name = printed["task"], f"{printed['model']} {place}"
        rows = [_rows()[task, printed["model"], index] for index in printed["indices"]]
        found = LEval().aggregate(task, rows)
        for metric, (got, wanted) in _compared(task, printed, found).items():
            yield Case(NAME, task, metric, name, got, wanted)


def _compared(task: str, printed: Record, found: list[Number]) -> dict[str, _Pair]:
    """Metric -> (lbx's number, the official one)."""
    numbers = {number.metric: number.official for number in found}
    counts = {number.metric: number.n for number in found}
    metrics = printed["metrics"]
    if isinstance(metrics, list):
        parts = ["loyalty", "fact"]
        if task == "topic_retrieval_longchat":
            parts = [f"exact_match/{place}" for place in ("first", "second", "third")]
        compared: dict[str, _Pair] = {"exact_match": (numbers["exact_match"], printed["average"])}
        for part, one in zip(parts, metrics, strict=True):
            compared[part] = numbers[part], one["exact_match"]
            compared[f"{part} n"] = counts[part], one["num_predicted"]
        return compared
    plain = {key.removeprefix("rouge/"): value for key, value in metrics.items()}
    return {
        **{metric: (number, plain.get(metric)) for metric, number in numbers.items()},
        "LEval_score": (found[0].official, metrics["LEval_score"]),
        "n": (found[0].n, metrics["num_predicted"]),
    }


def _stops(error: str | None) -> str:
    return "stops" if error else "scores"


def _metric(record: Record) -> str:
    if record["task"] == "sci_fi" and record["group"] is not None:
        return ("loyalty", "fact")[record["group"]]
    return str(record["metric"])


def _key(record: Record) -> _Key:
    return record["task"], record["model"], record["index"]


@cached
def _answers() -> dict[_Key, tuple[Sample, list[Score]]]:
    """Each answer scored once; its golden records are several."""
    found: dict[_Key, tuple[Sample, list[Score]]] = {}
    for record in golden_records(NAME):
        if _key(record) in found:
            continue
        reference, said = (as_text(record["task"], record[name]) for name in ("reference", "prediction"))
        meta = {"evaluation": "exam", "topic": record["index"] % 3}
        sample = Sample(NAME, record["task"], record["id"], "", "", (), meta=meta)
        if reference is not None:
            sample = replace(sample, references=(reference,))
        found[_key(record)] = sample, LEval().score(sample, said or "")
    return found


@cached
def _scores() -> dict[_Key, dict[str, Score]]:
    return {key: {one.metric: one for one in scores} for key, (_, scores) in _answers().items()}


@cached
def _rows() -> dict[_Key, ScoredSample]:
    return {
        key: ScoredSample(sample, {one.metric: one.score for one in scores})
        for key, (sample, scores) in _answers().items()
    }
