"""HELMET: single functions, scores of outputs, their means, and the averages of collect_results.py.

Prompts are compared by ``test_helmet_prompts``. Left out are citations and judges, which need models, MAP and other
figures of rankings that no category averages, and F1 of ALCE, which its scores do not contain.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from lbx.base.number import Number
from lbx.base.records import Sample, Score, ScoredSample
from lbx.benchmarks.helmet.benchmark import Helmet, average_categories, average_lengths
from lbx.benchmarks.helmet.tasks import CATEGORIES, DATASETS, LENGTHS, dataset_of
from lbx.benchmarks.metrics import f1, helmet
from tests.golden.case import EXACT, Case
from tests.golden.helmet_draws import read_lines

NAME = "helmet"
LABELS = {"1": 3, "2": 0, "3": 1, "4": 2}
"""Labels of the passages that the authors' rankings were compared with."""
_FUNCTIONS: dict[str, Any] = {
    "utils.parse_output": helmet.parse_output,
    "utils.normalize_answer": lambda text: " ".join(f1.english_tokens(text)),
    "utils.f1_score": lambda output, gold: f1.qa_f1(output, [gold], whole_answers=f1.YES_NO),
    "utils.drqa_exact_match_score": lambda output, gold: f1.normalized_match(output, [gold]),
    "utils.substring_exact_match_score": lambda output, gold: f1.substring_match(output, [gold]),
    "eval_alce.exact_presence": lambda golds, output: f1.substring_match(output, golds),
    "utils.remove_citations": helmet.clean_cited_answer,
}
_TASKS = {
    "kilt_popqa_3": "kilt_popqa",
    "msmarco_rerank_psg": "msmarco_rerank",
    "ruler_qa_1": "kilt_nq",
    "ruler_qa_2": "kilt_nq",
}
"""{the authors' name: dataset with the same score}."""


def records() -> Iterator[Case]:
    """Single functions, and every metric of every output."""
    for number, record in enumerate(read_lines("functions")):
        yield from _function_cases(f"{record['f']} {number}", record)
    for record, (_, found_scores) in zip(read_lines("scores"), scored_outputs(), strict=True):
        if "alce" in record["dataset"]:
            continue
        task, name = _task(record["dataset"]), f"{record['run']} {record['n']}"
        scores = {score.metric: score for score in found_scores}
        for metric, score in scores.items():
            yield Case(NAME, record["dataset"], metric, name, score.score, float(record["metrics"][metric]), EXACT)
        if isinstance(record["parsed_output"], str) and dataset_of(task).kind != "ruler":
            found = next(iter(scores.values())).extracted
            yield Case(NAME, record["dataset"], "answer", name, found, record["parsed_output"])


def aggregates() -> Iterator[Case]:
    """Means of the runs, and averages of the categories."""
    outputs: dict[int, list[ScoredSample]] = {}
    for record, (sample, scores) in zip(read_lines("scores"), scored_outputs(), strict=True):
        row = ScoredSample(sample, {score.metric: score.score for score in scores})
        outputs.setdefault(record["run"], []).append(row)
    for run in read_lines("score_runs"):
        rows = outputs[run["run"]]
        wanted = {**run["averaged_metrics"], **run.get("alce_score", {})}
        for number in Helmet().aggregate(_task(run["dataset"]), rows):
            yield Case(NAME, run["dataset"], number.metric, run["file"], number.official, wanted[number.metric], 1e-8)
        Helmet().groups({_task(run["dataset"]): rows})
    for case in read_lines("collect"):
        if case["csv"]:
            yield from _averages(case)


def _function_cases(name: str, record: dict[str, Any]) -> Iterator[Case]:
    function, arguments, wanted = record["f"], record["args"], record["result"]
    if function in _FUNCTIONS:
        got = _FUNCTIONS[function](*arguments)
        wanted = wanted[0] if isinstance(wanted, list) else wanted
        yield Case(NAME, "functions", function, name, got, wanted if isinstance(wanted, str) else float(wanted), EXACT)
    elif function == "utils.calculate_metrics" and "error" not in wanted:
        golds = [arguments[1]] if isinstance(arguments[1], str) else arguments[1]
        flat = [gold for part in golds for gold in (part if isinstance(part, list) else [part])]
        for metric, value in helmet.text_scores(arguments[0], flat).items():
            yield Case(NAME, "functions", metric, name, value, float(wanted[metric]), EXACT)
    elif function == "utils.calculate_retrieval_metrics":
        ranking = [item for item, _ in sorted(arguments[0].items(), key=lambda pair: (pair[1], pair[0]), reverse=True)]
        for depth in (1, 5, 10):
            metric = f"NDCG@{depth}"
            yield Case(NAME, "functions", metric, name, helmet.ndcg(ranking, LABELS, depth), wanted[metric], EXACT)
    elif function == "utils.parse_rankings":
        yield Case(NAME, "functions", function, name, " ".join(helmet.parse_ranking(*arguments)), " ".join(wanted))


@cache
def scored_outputs() -> list[tuple[Sample, list[Score]]]:
    """Sample and scores of each output."""
    samples = [(_sample(record), record["scored_output"]) for record in read_lines("scores")]
    return [(sample, Helmet().score(sample, output)) for sample, output in samples]


@cache
def _qrels(run: int) -> dict[str, dict[str, int]]:
    rows = [record["row"] for record in read_lines("scores") if record["run"] == run]
    return {row["qid"]: {name: int(label) for name, label in row["qrel"]} for row in rows}


def _task(dataset: str) -> str:
    name = re.sub(r"_\d+(shot.*)?$|_nocite_\d+$|_eng_\d+$", "", dataset)
    if name.startswith("ruler_") and name not in DATASETS and dataset not in _TASKS:
        name = "ruler_niah_mv"
    return f"{_TASKS.get(dataset, name)}_8k"


def _sample(record: dict[str, Any]) -> Sample:
    row, meta = record["row"], {}
    golds = [row["answer"]] if isinstance(row["answer"], str) else row["answer"]
    if "qrel" in row:
        meta["labels"] = _qrels(record["run"])[row["qid"]]
    if "alce" in record["dataset"]:
        pairs = row.get("qa_pairs")
        meta["golds"] = [pair["short_answers"] for pair in pairs] if pairs else row["answers"]
    return Sample(NAME, _task(record["dataset"]), f"{record['run']}-{record['n']}", "", "", tuple(golds), meta=meta)


def _averages(case: dict[str, Any]) -> Iterator[Case]:
    labels = {str(tokens): label for label, tokens in LENGTHS.items()}
    for line in csv.DictReader(case["csv"].splitlines()):
        label = labels[line["input_max_length"]]
        numbers = {}
        for name, dataset in DATASETS.items():
            official = re.sub("^(icl|kilt)_", "", name.replace("msmarco_rerank", "msmarco_rerank_psg"))
            task = f"{name}_{label}"
            metrics = {task: dataset.judge_metric or dataset.metrics[0]}
            metrics = {f"{task} {dataset.judge_metric}": dataset.judge_metric} if dataset.judge_metric else metrics
            metrics |= {f"{task} {metric}": metric for metric in dataset.model_metrics}
            for key, metric in metrics.items():
                if value := line.get(f"{official} {metric}"):
                    numbers[key] = Number(metric=metric, n=1, score=float(value) / 100, official=float(value))
        averages = average_categories(numbers, label)
        name = f"{case['case']} {line['model']} {label}"
        for category in CATEGORIES:
            got = averages[category].percent if category in averages else None
            yield Case(NAME, "collect", category, name, got, float(line[category]) if line[category] else None, EXACT)
        mean = average_lengths(averages)
        yield Case(NAME, "collect", "Ours", name, mean.percent if mean else None, float(line["Ours"]), EXACT)
