"""Export as lm-evaluation-harness's results and samples files, with a folder for each run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lbx.base.records import sha256_text
from lbx.exchange.tools.run_records import ANSWER_FACTS, RunRecord, TaskRecord, ascii_json, file_name_part, task_names

_FILTER = "none"


def lm_eval_files(run: RunRecord) -> dict[str, Iterable[str]]:
    """Build a file of results, and a file of samples for each task, as {path: pieces of text}.

    Readers find the samples of a task by name in the folder of the results. In a folder of two runs they would join the
    results of a run with the samples of the other run.
    """
    tasks = [task for task in run.tasks if task.numbers]
    names = task_names(tasks)
    time = run.started_at.isoformat(timespec="microseconds").removesuffix("+00:00").replace(":", "-")
    folder = file_name_part(run.run_id)
    files: dict[str, Iterable[str]] = {
        f"{folder}/samples_{names[task.benchmark, task.name]}_{time}.jsonl": _samples(run, task)
        for task in tasks
        if run.has_samples
    }
    if tasks:
        results = _results(run, {names[task.benchmark, task.name]: task for task in tasks})
        files[f"{folder}/results_{time}.json"] = [ascii_json(results) + "\n"]
    return files


def _results(run: RunRecord, tasks: Mapping[str, TaskRecord]) -> dict[str, Any]:
    seconds = (run.finished_at - run.started_at).total_seconds() if run.finished_at else None
    return {
        "results": {name: _task_results(name, task) for name, task in tasks.items()},
        "group_subtasks": {},
        "configs": {name: _config(run, name, task) for name, task in tasks.items()},
        "versions": {name: task.numbers[0]["metric_version"] for name, task in tasks.items()},
        "n-shot": dict.fromkeys(tasks, 0),
        "higher_is_better": {
            name: {_metric_key(number): True for number in task.numbers} for name, task in tasks.items()
        },
        "n-samples": {
            name: {
                "original": task.counts["samples_in_data"] or task.counts["samples_asked"],
                "effective": task.counts["samples_answered"],
            }
            for name, task in tasks.items()
        },
        "config": {"model": run.backend, "model_args": {"pretrained": run.model}, "limit": None, "bootstrap_iters": 0},
        "date": run.started_at.timestamp(),
        "model_source": run.backend,
        "model_name": run.model,
        "model_name_sanitized": file_name_part(run.model),
        "lm_eval_version": None,
        "total_evaluation_time_seconds": None if seconds is None else str(seconds),
        "lbx": {
            "version": run.lbx_version,
            **run.facts,
            "tasks": {
                name: {number["metric"]: task.facts_of(number) for number in task.numbers}
                for name, task in tasks.items()
            },
        },
    }


def _metric_key(number: Mapping[str, Any]) -> str:
    """Return the name of a number's metric without a comma, after which readers expect a filter."""
    return str(number["metric"]).replace(",", ";")


def _task_results(name: str, task: TaskRecord) -> dict[str, Any]:
    results = {"name": name, "alias": name, "sample_len": task.counts["samples_answered"]}
    for number in task.numbers:
        results[f"{_metric_key(number)},{_FILTER}"] = number["score"]
        results[f"{_metric_key(number)}_stderr,{_FILTER}"] = "N/A" if number["se"] is None else number["se"]
    return results


def _config(run: RunRecord, name: str, task: TaskRecord) -> dict[str, Any]:
    return {
        "task": name,
        "dataset_path": task.benchmark,
        "dataset_name": task.name,
        "output_type": "generate_until",
        "num_fewshot": 0,
        "repeats": task.iterations,
        "metric_list": [
            {"metric": _metric_key(number), "aggregation": "mean", "higher_is_better": True} for number in task.numbers
        ],
        "metadata": {
            "version": task.numbers[0]["metric_version"],
            "lbx_run": run.run_id,
            "lbx_version": run.lbx_version,
            **task.counts,
        },
    }


def _samples(run: RunRecord, task: TaskRecord) -> Iterator[str]:
    """Yield a line for each answer except failed answers, which the format cannot represent."""
    for answer in run.answers(task):
        if answer["error"] is None:
            yield ascii_json(_sample(answer)) + "\n"


def _sample(answer: Mapping[str, Any]) -> dict[str, Any]:
    doc = {"_id": answer["sample_id"], "question": answer["question"], "answers": answer["references"]}
    doc |= {fact: answer[fact] for fact in ("language", "length", "length_unit", "context_sha256")}
    scores = {_metric_key(score): score["score"] for score in answer["scores"]}
    target, output = str(answer["references"]), answer["output"] or ""
    return {
        "doc_id": answer["position"],
        "doc": doc,
        "target": target,
        "arguments": {"gen_args_0": {"arg_0": answer["question"], "arg_1": {}}},
        "resps": [[output]],
        "filtered_resps": [output],
        "filter": _FILTER,
        "metrics": list(scores),
        "doc_hash": sha256_text(json.dumps(doc, indent=2, ensure_ascii=False)),
        "prompt_hash": answer["prompt_sha256"] or sha256_text(answer["question"]),
        "target_hash": sha256_text(target),
        **scores,
        "lbx": {
            **{fact: answer[fact] for fact in ANSWER_FACTS},
            "prompt_tokens": answer["prompt_tokens"],
            "output_tokens": answer["output_tokens"],
            "reasoning": answer["reasoning"],
        },
    }
