"""BABILong: compare_answers of every record, and the table of collect_results.py."""

from __future__ import annotations

import csv
import io
import tarfile
from collections.abc import Iterator, Mapping

from lbx.base.records import Sample, ScoredSample
from lbx.benchmarks.babilong import LENGTHS, METRIC, Babilong
from tests.golden.case import EXACT, SHARED, Case, Record, beside_real_data, cached, golden_aggregates, golden_records

NAME = "babilong"
PREDICTIONS = SHARED.parents[1] / "data/predictions_more/babilong/predictions.tar.xz"


def records() -> Iterator[Case]:
    for record in _records():
        yield Case(NAME, _task(record), METRIC, record["id"], _scored(record).scores[METRIC], record["score"])


def aggregates() -> Iterator[Case]:
    """Numbers of each folder and way of asking; the means of the real ones are by the rule of collect_results.py."""
    runs: dict[str, dict[str, list[ScoredSample]]] = {}
    official: dict[str, list[float]] = {}
    for record in _records():
        run = record.get("run", "")
        runs.setdefault(run, {}).setdefault(_task(record), []).append(_scored(record))
        official.setdefault(f"{run} {_task(record)}", []).append(record["score"])
    wanted = {name: 100 * sum(scores) / len(scores) for name, scores in official.items()}
    if not beside_real_data():
        wanted |= {f" {name}": number for name, number in golden_aggregates(NAME).items()}
    for run, tasks in runs.items():
        for task, rows in tasks.items():
            found = Babilong().aggregate(task, rows)[0].official
            yield Case(NAME, task, METRIC, f"{run} {task}", found, wanted[f"{run} {task}"], EXACT)
        averages = {group.name: group.official for group in Babilong().groups(tasks) if group.grouping == "length"}
        for length in LENGTHS:
            five = [wanted.get(f"{run} qa{number}_{length}") for number in range(1, 6)]
            mean = sum(map(float, filter(None, five))) / 5 if None not in five else None
            if averages.get(length) is not None or mean is not None:
                average = wanted.get(f"{run} avg_{length}", mean)
                yield Case(NAME, length, "average", f"{run} {length}", averages.get(length), average, EXACT)


@cached
def _records() -> tuple[Record, ...]:
    if not beside_real_data():
        return golden_records(NAME)  # type: ignore[no-any-return]
    with tarfile.open(PREDICTIONS) as archive:
        texts = {member.name.removeprefix("./"): archive.extractfile(member) for member in archive if member.isfile()}
        files = {
            name: list(csv.DictReader(io.StringIO(file.read().decode(), newline="")))
            for name, file in texts.items()
            if file and name.endswith(".csv")
        }
    return tuple(_record(golden, files) for golden in golden_records(f"{NAME}/scores"))


def _record(golden: Record, files: Mapping[str, list[dict[str, str]]]) -> Record:
    folder, _, name = golden["file"].rpartition("/")
    task, length, way = name.split("_", 2)
    row = files[golden["file"]][golden["row"]]
    texts = {key: row[key] for key in ("target", "output", "question")}
    place = {"id": f"{golden['file']}, row {golden['row']}", "run": f"{folder} {way}", "task": task, "length": length}
    return {**place, **texts, "score": golden["score"]}


def _task(record: Record) -> str:
    return f"{record['task']}_{record['length']}"


def _scored(record: Record) -> ScoredSample:
    sample = Sample(NAME, _task(record), record["id"], "", record["question"], (record["target"],))
    return ScoredSample(sample, {score.metric: score.score for score in Babilong().score(sample, record["output"])})
