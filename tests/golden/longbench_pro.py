"""LongBench Pro's golden records, and the report that the official code made of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from lbx.base.number import Number
from lbx.base.records import Sample, Score, ScoredSample
from lbx.benchmarks.longbench_pro.benchmark import LongBenchPro
from lbx.benchmarks.longbench_pro.paper_tables import missing_category
from lbx.benchmarks.longbench_pro.tasks import TASK_OF, TASKS, accepted_answers
from tests.golden.case import EXACT, Case, Record, cached, golden_aggregates, golden_records

FAMILY = "longbench_pro"
_BENCHMARK = LongBenchPro()
_REPORT = {
    "token_length": "length",
    "contextual_requirement": "requirement",
    "difficulty": "difficulty",
    "primary_task": "primary_task",
    "language": "language",
}
"""The official report's dimensions by the name that lbx gives the grouping."""


def records() -> Iterator[Case]:
    """Every metric of every record, and whether the official code counts it as a failure."""
    for record in golden_records(FAMILY):
        scores = _scores(record)
        task, name = TASK_OF[record["secondary_task"]], record["uid"]

        def case(metric: str, wanted: float, task: str = task, name: str = name, scores: Any = scores) -> Case:
            return Case(FAMILY, task, metric, name, scores[metric].score, wanted, EXACT)

        if TASKS[task].metric != "summary":
            yield case(TASKS[task].metric, record["score"])
        else:
            yield case("rouge_l", record["score"])
            yield case("rouge_l_unlimited", record["score_unlimited_recursion"])
            yield case("summary", record["summary_score"])
        headline = next(iter(scores.values()))
        said = "success" if headline.error is None else "failure"
        yield Case(FAMILY, task, "outcome", name, said, "success" if record["success"] else "failure")


def aggregates() -> Iterator[Case]:
    """Every number of every report, whatever the iterations asked for and the order of the rows."""
    golden = golden_aggregates(FAMILY)
    rows = golden_records(FAMILY)
    full = _BENCHMARK.groups(_tasks(rows))
    for name in ("bon_3", "bon_2", "bon_1"):
        yield from _report(name, full, golden[name])
    by_uid = {row["uid"]: row for row in rows}
    shuffled = golden["shuffled_bon_3"]
    yield from _report("shuffled_bon_3", _BENCHMARK.groups(_tasks([by_uid[uid] for uid in shuffled["uids"]])),
                       shuffled["summary"])  # fmt: skip
    without = _tasks([row for row in rows if not row["primary_task"].startswith("T9.")])
    wanted = golden["missing_category_bon_3"]["summary"]["error"]
    yield Case(FAMILY, "report", "error", "missing_category", f"KeyError: {missing_category(without)!r}", wanted)
    for group in _BENCHMARK.groups(without):
        yield Case(FAMILY, "report", group.metric, f"missing_category/{group.name}", group.official, None)


def _report(name: str, groups: list[Number], wanted: Mapping[str, Any]) -> Iterator[Case]:
    found = {(group.metric, group.grouping, group.name): group for group in groups}
    for key, number in _numbers(wanted):
        group = found.get(key)
        where = f"{name}/{key[1]}/{key[2]}"
        yield Case(FAMILY, "report", key[0], where, group.official if group else None, number)
        yield Case(FAMILY, "report", key[0], f"{where}/score", group.score if group else None, number)
    questions = found["average", "overall", "all"].n
    yield Case(FAMILY, "report", "average", f"{name}/n", questions, wanted["total_questions_num"])


def _numbers(report: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str, str], float]]:
    """The official report's numbers by the metric, grouping and group that lbx gives them."""
    yield ("average", "overall", "all"), report["average_overall_metric"]
    for dimension, grouping in _REPORT.items():
        for name, number in report[f"average_{dimension}_metric"].items():
            yield ("average", grouping, name), number
    for n in range(1, report["inference_iterations"] + 1):
        yield (f"iteration {n}", "overall", "all"), report[f"inference_iteration_{n}_overall_metric"]
        yield (f"pass@{n}", "overall", "all"), report[f"pass@{n}"]
        best = report[f"BoN-{n}"]
        yield (f"bon@{n}", "overall", "all"), best["overall_metric"]
        for dimension, grouping in _REPORT.items():
            for name, number in best[dimension].items():
                yield (f"bon@{n}", grouping, name), number


def _tasks(rows: Any) -> dict[str, list[ScoredSample]]:
    """The records as the engine would hand them over, numbered in the order they are given in."""
    tasks: dict[str, list[ScoredSample]] = {}
    for place, record in enumerate(rows):
        sample = _sample(record)
        sample = replace(sample, meta={**sample.meta, "row": place})
        values = {metric: score.score for metric, score in _scores(record).items()}
        tasks.setdefault(sample.task, []).append(ScoredSample(sample, values, record["bon_idx"] - 1))
    return tasks


def _scores(record: Record) -> Mapping[str, Score]:
    return _scored(record["uid"])


@cached
def _scored(uid: str) -> Mapping[str, Score]:
    record = _by_uid()[uid]
    said = record["prediction"] if isinstance(record["prediction"], str) else ""
    scores = _BENCHMARK.score(_sample(record), said, similarity=record["stub_similarity"])
    return {score.metric: score for score in scores}


@cached
def _by_uid() -> Mapping[str, Record]:
    return {record["uid"]: record for record in golden_records(FAMILY)}


def _sample(record: Record) -> Sample:
    references, readable = accepted_answers(record["answer"])
    meta = {
        name: record[name]
        for name in ("secondary_task", "primary_task", "difficulty", "token_length", "contextual_requirement")
    }
    if not readable:
        meta["reference_is_no_text"] = True
    return Sample(
        benchmark=FAMILY,
        task=TASK_OF[record["secondary_task"]],
        sample_id=record["id"],
        context="",
        question="",
        references=references,
        language="zh" if record["language"] == "Chinese" else "en",
        meta=meta,
    )
