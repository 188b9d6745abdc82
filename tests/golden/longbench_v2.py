"""LongBench v2: every golden answer, and every table that result.py made of them."""

from __future__ import annotations

import json
from collections.abc import Iterator

from lbx.base.records import Sample, Score, ScoredSample
from lbx.benchmarks.longbench_v2 import TASK, LongBenchV2
from tests.golden.case import EXACT, SHARED, Case, Record, beside_real_data, cached, golden_aggregates, golden_records

NAME = "longbench_v2"
PREDICTIONS = SHARED.parents[1] / "data" / "predictions" / "longbench_v2"


def records() -> Iterator[Case]:
    """The chosen letter, whether it is right, the compensated score, and whether pred.py drops the answer."""
    for record in golden_records(NAME):
        if not isinstance(record["output"], str):
            continue
        name, right = record["id"], float(bool(record["judge"]))
        scores = {score.metric: score for score in _scores(record)}
        yield Case(NAME, TASK, "letter", name, scores["accuracy"].extracted or None, record["pred"])
        yield Case(NAME, TASK, "accuracy", name, scores["accuracy"].score, right, EXACT)
        compensated = right if record["pred"] else 0.25
        yield Case(NAME, TASK, "compensated", name, scores["compensated"].score, compensated, EXACT)
        yield Case(NAME, TASK, "empty", name, scores["empty"].score, float(record["dropped"]), EXACT)
        stops = "stops" if any(score.error for score in scores.values()) else "scores"
        yield Case(NAME, TASK, "error", name, stops, "stops" if record["error"] else "scores")


def aggregates() -> Iterator[Case]:
    """result.py's tables, and one that others published with their answers."""
    for table in golden_aggregates(NAME)["tables"]:
        metric = "compensated" if table["compensated"] else "accuracy"
        rows = [_rows()[one] for one in table["record_ids"]]
        wanted = table["row"]
        if table["error"]:
            # An empty group or a single record, over which the official script stumbles: lbx gives the rest.
            wanted = {"Overall": round(100 * sum(row.scores[metric] for row in rows) / len(rows), 1)}
        yield from _table(table["name"], metric, rows, wanted)
    yield from _published()


def _table(name: str, metric: str, rows: list[ScoredSample], wanted: Record) -> Iterator[Case]:
    numbers = {number.metric: number.official for number in LongBenchV2().aggregate(TASK, rows)}
    for column, number in wanted.items():
        key = metric if column == "Overall" else f"{metric}/{column.lower()}"
        yield Case(NAME, TASK, key, name, numbers.get(key), number)


def _published() -> Iterator[Case]:
    """Letters that others published, without the right answers; questions that failed there do not count."""
    if not (beside_real_data() and PREDICTIONS.is_dir()):
        return
    header, first = (PREDICTIONS / "result.txt").read_text("utf-8").splitlines()[:2]
    published = dict(zip(header.split("\t"), first.split("\t"), strict=True))
    lines = [json.loads(line) for line in (PREDICTIONS / "oneshot.jsonl").read_text("utf-8").splitlines()]
    rows = []
    for line in lines:
        if "error" in line:
            continue
        # The judgement tells whether the letter was right; any other stands for the right one where it was not.
        answer = line["pred"] if line["judge"] else next(letter for letter in "ABCD" if letter != line["pred"])
        output = f"The correct answer is ({line['pred']})"
        rows.append(_row({**line, "id": line["_id"], "answer": answer, "output": output}))
    numbers = {number.metric: number.official for number in LongBenchV2().aggregate(TASK, rows)}
    yield Case(NAME, TASK, "failed", "published", len(lines) - len(rows), int(published["Errors"]))
    for column in ("Overall", "Easy", "Hard", "Short", "Medium", "Long"):
        key = "accuracy" if column == "Overall" else f"accuracy/{column.lower()}"
        wanted = published[column]
        yield Case(NAME, TASK, key, "published", numbers.get(key), None if wanted == "none" else float(wanted))


def _sample(record: Record) -> Sample:
    meta = {"difficulty": record["difficulty"], "length": record["length"]}
    return Sample(NAME, TASK, record["id"], "", "", (record["answer"],), meta=meta)


def _scores(record: Record) -> list[Score]:
    return LongBenchV2().score(_sample(record), record["output"] if isinstance(record["output"], str) else "")


def _row(record: Record) -> ScoredSample:
    return ScoredSample(_sample(record), {score.metric: score.score for score in _scores(record)})


@cached
def _rows() -> dict[str, ScoredSample]:
    return {record["id"]: _row(record) for record in golden_records(NAME)}
