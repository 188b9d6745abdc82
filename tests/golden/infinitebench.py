"""InfiniteBench: compute_scores.py's score of every record, and its mean of each file."""

from __future__ import annotations

import json
from collections.abc import Iterator

from lbx.base.records import Sample, Score, ScoredSample
from lbx.benchmarks.infinitebench import TASKS, InfiniteBench, parse_references
from tests.golden.case import (
    EXACT,
    SHARED,
    Case,
    Record,
    beside_real_data,
    cached,
    golden_aggregates,
    golden_file,
    golden_records,
)

NAME = "infinitebench"
PREDICTIONS = SHARED.parents[1] / "data/predictions_more/infinitebench"


def records() -> Iterator[Case]:
    for record in _records():
        metric = _metric(record)
        (score,) = (score for score in _scores(record) if score.metric == metric)
        yield Case(NAME, record["task"], metric, record["id"], score.score, record["score"] or 0.0, EXACT)
        if "error" in record:
            stops = ("stops" if error else "scores" for error in (score.error, record["error"]))
            yield Case(NAME, record["task"], "error", record["id"], *stops)


def aggregates() -> Iterator[Case]:
    wanted = golden_file(f"{NAME}/means.json") if beside_real_data() else golden_aggregates(NAME)
    files: dict[str, list[Record]] = {}
    for record in _records():
        if not record.get("error"):
            files.setdefault(f"{record['model']}/{record['task']}", []).append(record)
    models: dict[str, dict[str, list[ScoredSample]]] = {}
    for name, some in files.items():
        model, task = name.split("/")
        metric = _metric(some[0])
        rows = [_scored(record) for record in some]
        (number,) = (one for one in InfiniteBench().aggregate(task, rows) if one.metric == metric)
        yield Case(NAME, task, metric, name, number.official, 100 * wanted[name]["mean"], EXACT)
        models.setdefault(model, {})[task] = rows
    for model, tasks in models.items():
        means = [100 * wanted[f"{model}/{task}"]["mean"] for task in tasks]
        if len(means) == len(TASKS) and model != "gpt4":  # of whom a number of math_calc is left out
            (average,) = InfiniteBench().groups(tasks)
            yield Case(NAME, "all", "average", model, average.official, sum(means) / len(means), EXACT)


def _metric(record: Record) -> str:
    """The headline, but GPT-4's own score of math_calc."""
    return TASKS[record["task"]].metrics[-1 if record["model"] == "gpt4" else 0]


@cached
def _records() -> tuple[Record, ...]:
    if not beside_real_data():
        return golden_records(NAME)  # type: ignore[no-any-return]
    golden: dict[str, list[Record]] = {}
    for record in golden_records(f"{NAME}/scores"):
        golden.setdefault(f"{record['model']}/preds_{record['task']}.jsonl", []).append(record)
    found = []
    for file, scores in golden.items():
        lines = [*filter(str.strip, (PREDICTIONS / file).read_text("utf-8").split("\n"))]
        for score, row in zip(scores, map(json.loads, lines), strict=True):
            texts = {
                "prediction": row.get("prediction", row.get("pred")),
                "answer": row.get("ground_truth", row.get("label")),
            }
            found.append({**score, **texts, "id": f"{file}, row {score['row']}"})
    return tuple(found)


@cached
def _scores_of(identity: str) -> list[Score]:
    record = _by_id()[identity]
    references = parse_references(record["task"], record["answer"])
    assert references, record
    sample = Sample(NAME, record["task"], record["id"], "", "", references)
    return InfiniteBench().score(sample, record["prediction"])


@cached
def _by_id() -> dict[str, Record]:
    return {record["id"]: record for record in _records()}


def _scores(record: Record) -> list[Score]:
    scores: list[Score] = _scores_of(record["id"])
    return scores


def _scored(record: Record) -> ScoredSample:
    sample = Sample(NAME, record["task"], record["id"], "", "", ())
    return ScoredSample(sample, {score.metric: score.score for score in _scores(record)})
