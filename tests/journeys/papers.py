"""What each family's authors print of the answers of ``made_families``: their scorer's numbers and their tables' means.

official.json is what the authors' scorers gave (tests/golden/making/journeys.py); LongBench's result.json was published
with the answers. No script prints the means of the tables: here they are by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tests.journeys.made_families import LEVELS, LVEVAL_COUNTS, Made, Row

Numbers = dict[tuple[str, ...], float]
"""By (task, metric) or (grouping, name, metric)."""

OFFICIAL = Path(__file__).with_name("official.json")
CATEGORIES = {
    "single-document QA": ("narrativeqa", "qasper", "multifieldqa_en", "multifieldqa_zh"),
    "multi-document QA": ("hotpotqa", "2wikimqa", "musique", "dureader"),
    "summarization": ("gov_report", "qmsum", "multi_news", "vcsum"),
    "few-shot learning": ("trec", "triviaqa", "samsum", "lsht"),
    "synthetic": ("passage_count", "passage_retrieval_en", "passage_retrieval_zh"),
    "code completion": ("lcc", "repobench-p"),
}
CHINESE = ("multifieldqa_zh", "dureader", "vcsum", "lsht", "passage_retrieval_zh")
BUCKETS = ("0-4k", "4-8k", "8k+")
METRICS = {
    "f1": (
        "narrativeqa",
        "qasper",
        "multifieldqa_en",
        "multifieldqa_zh",
        "hotpotqa",
        "2wikimqa",
        "musique",
        "triviaqa",
    ),
    "rouge_l": ("dureader", "gov_report", "qmsum", "multi_news", "vcsum", "samsum"),
    "classification": ("trec", "lsht"),
    "count": ("passage_count",),
    "retrieval": ("passage_retrieval_en", "passage_retrieval_zh"),
    "edit_similarity": ("lcc", "repobench-p"),
}
METRIC_OF = {task: metric for metric, tasks in METRICS.items() for task in tasks}
LEVAL_CLOSED = ("coursera", "gsm100", "quality", "tpo", "codeU", "sci_fi")
LVEVAL_METRICS = {"factrecall_en": "f1", "factrecall_zh": "f1", "dureader_mixup": "rouge_l"}


def mean(numbers: Iterable[float]) -> float:
    every = list(numbers)
    return sum(every) / len(every)


def _said(family: str) -> Numbers:
    found: Mapping[str, float] = json.loads(OFFICIAL.read_text("utf-8"))[family]
    return {tuple(name.split("|")): number for name, number in found.items()}


def longbench(_: Made, shared: Callable[[str], Path]) -> Numbers:
    published = shared("data/predictions/longbench/llama2-7b-chat-4k/result.json")
    tasks: Mapping[str, float] = json.loads(published.read_text("utf-8"))
    found: Numbers = {(task, METRIC_OF[task]): number for task, number in tasks.items()}
    for suffix, left_out in (("", ()), ("_en", CHINESE), ("_zh", set(tasks) - {*CHINESE, "lcc", "repobench-p"})):
        means = {
            category: mean(tasks[task] for task in members if task not in left_out)
            for category, members in CATEGORIES.items()
        }
        found |= {(f"category{suffix}", category, "average"): round(one, 1) for category, one in means.items()}
        name = ("language", suffix.strip("_")) if suffix else ("overall", "all")
        found[*name, "average"] = round(mean(means.values()), 1)
    return found


def longbench_e(_: Made, _shared: object) -> Numbers:
    said = _said("longbench_e")
    found: Numbers = {
        (task, f"{METRIC_OF[task.removesuffix('_e')]}/{bucket}"): number for (task, bucket), number in said.items()
    }
    for bucket in BUCKETS:
        means = {
            category: mean(said[f"{task}_e", bucket] for task in members if (f"{task}_e", bucket) in said)
            for category, members in CATEGORIES.items()
        }
        found |= {("category_e", category, bucket): round(one, 1) for category, one in means.items()}
        found["overall_e", "all", bucket] = round(mean(means.values()), 1)
    return found


def longbench_v2(made: Made, _shared: object) -> Numbers:
    """result.py's row is a task's and a group's; the paper's table of domains is by hand, from its letters."""
    said = _said("longbench_v2")
    found = dict(said)
    for (_, name), number in said.items():
        metric, _, part = name.partition("/")
        grouping = "overall" if not part else "difficulty" if part in ("easy", "hard") else "length"
        found[grouping, part or "all", metric] = number
    return found | _domains([row for row in made.predictions["mcq"] if row["output"]])


def _domains(rows: Iterable[Row]) -> Numbers:
    from lbx.base.records import Sample
    from lbx.benchmarks.longbench_v2 import LongBenchV2

    found: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        sample = Sample("longbench_v2", "mcq", row["_id"], "", "", (row["answer"],))
        for score in LongBenchV2().score(sample, row["output"]):  # of one letter: the golden records' part
            if score.metric in ("accuracy", "compensated"):
                found.setdefault(("domain", row["domain"], score.metric), []).append(score.score)
    return {name: round(100 * sum(scores) / len(scores), 1) for name, scores in found.items()}


def longbench_pro(_: Made, _shared: object) -> Numbers:
    return _said("longbench_pro")


def lveval(_: Made, _shared: object) -> Numbers:
    said = {task: number for (task, _), number in _said("lveval").items()}
    found: Numbers = {}
    for dataset in LVEVAL_COUNTS:
        metric = LVEVAL_METRICS.get(dataset, "keyword_f1")
        found |= {(f"{dataset}_{level}", metric): said[f"{dataset}_{level}"] for level in LEVELS}
        found["dataset", dataset, "average"] = round(mean(said[f"{dataset}_{level}"] for level in LEVELS), 2)
    for level in LEVELS:
        found["length", level, "average"] = round(mean(said[f"{dataset}_{level}"] for dataset in LVEVAL_COUNTS), 2)
    return found


def leval(_: Made, _shared: object) -> Numbers:
    found = _said("leval")
    tables = [("closed", "exact_match", LEVAL_CLOSED)]
    for metric in ("f1", "rouge1", "rouge2", "rougeL"):
        tables.append(("open", metric, [task for task, name in found if name == metric]))
    means: Numbers = {
        (grouping, "all", metric): round(mean(found[task, metric] for task in tasks), 2)
        for grouping, metric, tasks in tables
    }
    return found | means


PRINTED: Mapping[str, Callable[[Made, Callable[[str], Path]], Numbers]] = {
    "longbench": longbench,
    "longbench_e": longbench_e,
    "longbench_v2": longbench_v2,
    "longbench_pro": longbench_pro,
    "lveval": lveval,
    "leval": leval,
}
