"""Export as inspect_ai's evaluation logs, version 2 of the JSON format, with a log for each task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lbx.exchange.tools.run_records import (
    ANSWER_FACTS,
    CONFIDENCE,
    SCORE_FACTS,
    RunRecord,
    TaskRecord,
    ascii_json,
    task_names,
)

_STATUS = {"done": "success", "failed": "error"}
_STOP_REASONS = {"stop": "stop", "length": "max_tokens"}


def inspect_files(run: RunRecord) -> dict[str, Iterable[str]]:
    """Build a log for each task, as {path: pieces of text}.

    Inspect lists a log only if the name begins with the time, and reads task and id from the name.
    """
    names = task_names(run.tasks)
    time = run.started_at.strftime("%Y-%m-%dT%H-%M-%S+00-00")
    return {f"{time}_{names[task.benchmark, task.name]}_{_task_id(run, task)}.json": _log(run, task)
            for task in run.tasks if task.numbers or run.has_samples}  # fmt: skip


def _task_id(run: RunRecord, task: TaskRecord) -> str:
    return run.stable_id(task.benchmark, task.name).hex()[:22]


def _log(run: RunRecord, task: TaskRecord) -> Iterator[str]:
    head = {
        "version": 2,
        "status": _STATUS.get(run.status, "cancelled"),
        "eval": _spec(run, task),
        "plan": {"name": "lbx"},
        "results": _results(task),
        "stats": {
            "started_at": run.started_at.isoformat(),
            "completed_at": run.finished_at.isoformat() if run.finished_at else "",
            "model_usage": _model_usage(run, task.tokens),
        },
    }
    yield ascii_json(head)[:-1] + ', "samples": ['
    separator = "\n"
    for answer in run.answers(task) if run.has_samples else ():
        yield separator + ascii_json(_sample(run, task, answer))
        separator = ",\n"
    yield "]}\n"


def _spec(run: RunRecord, task: TaskRecord) -> dict[str, Any]:
    return {
        "eval_id": _task_id(run, task),
        "run_id": run.run_id,
        "created": run.started_at.isoformat(),
        "task": f"lbx/{task.benchmark}/{task.name}",
        "task_id": _task_id(run, task),
        "dataset": {"name": task.benchmark, "samples": task.counts["samples_asked"]},
        "model": run.model,
        "config": {"epochs": task.iterations},
        "packages": {"lbx": run.lbx_version},
        "metadata": {**run.facts, **task.counts},
    }


def _results(task: TaskRecord) -> dict[str, Any]:
    return {
        "total_samples": task.counts["asked"],
        "completed_samples": task.counts["answered"],
        "scores": [
            {
                "name": number["metric"],
                "scorer": number["metric"],
                "scored_samples": number["n"],
                "unscored_samples": max(0, (task.counts["asked"] or 0) - number["n"]),
                "metrics": {
                    name: {"name": name, "value": value}
                    for name, value in (("mean", number["score"]), ("stderr", number["se"]))
                    if value is not None
                },
                "metadata": {**task.facts_of(number), "confidence_level": CONFIDENCE},
            }
            for number in task.numbers
        ],
    }


def _sample(run: RunRecord, task: TaskRecord, answer: Mapping[str, Any]) -> dict[str, Any]:
    name, question, references = f"{task.name}/{answer['sample_id']}", answer["question"], answer["references"]
    sample = {
        "id": name,
        "epoch": answer["iteration"] + 1,
        "input": question,
        "target": references[0] if len(references) == 1 else references,
        "metadata": {fact: answer[fact] for fact in ANSWER_FACTS if answer[fact] is not None},
        "uuid": run.stable_id(task.benchmark, name, str(answer["iteration"])).hex()[:22],
    }
    asked = {"id": "question", "role": "user", "content": question}
    if answer["error"] is not None:
        error = {"message": answer["error"], "traceback": "", "traceback_ansi": ""}
        return {**sample, "messages": [asked], "error": error}
    text = answer["output"] or ""
    if not answer["reasoning"]:
        content = text
    else:
        content = [{"type": "reasoning", "reasoning": answer["reasoning"]}, {"type": "text", "text": text}]
    message = {"id": "answer", "role": "assistant", "content": content, "model": run.model}
    usage = _usage(answer)
    choice = {"message": message, "stop_reason": _STOP_REASONS.get(answer["finish_reason"], "unknown")}
    return {
        **sample,
        "messages": [asked, message],
        "output": {"model": run.model, "choices": [choice], **({"usage": usage} if usage else {})},
        "scores": {score["metric"]: _score(score) for score in answer["scores"]},
        "model_usage": _model_usage(run, answer),
    }


def _score(score: Mapping[str, Any]) -> dict[str, Any]:
    answer = {} if score["extracted"] is None else {"answer": score["extracted"]}
    facts = {fact: score[fact] for fact in SCORE_FACTS if score[fact] is not None}
    return {"value": score["score"], **answer, **({"metadata": facts} if facts else {})}


def _model_usage(run: RunRecord, tokens: Mapping[str, Any]) -> dict[str, Any]:
    usage = _usage(tokens)
    return {run.model: usage} if usage else {}


def _usage(tokens: Mapping[str, Any]) -> dict[str, int]:
    """Convert token counts to Inspect's definition: cached tokens are not input tokens, but count in the total."""
    read, written, cached = tokens["prompt_tokens"], tokens["output_tokens"], tokens["cached_tokens"] or 0
    if read is None or written is None:
        return {}
    return {
        "input_tokens": read - cached,
        "output_tokens": written,
        "total_tokens": read + written,
        "input_tokens_cache_read": cached,
        **({} if tokens["reasoning_tokens"] is None else {"reasoning_tokens": tokens["reasoning_tokens"]}),
    }
