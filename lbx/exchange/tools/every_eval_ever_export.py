"""Export in the format of Every Eval Ever's datastore, schema 0.3.0: a file of numbers and a file of samples."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

from lbx.base.errors import UsageError
from lbx.base.records import sha256_text
from lbx.base.visible import as_command
from lbx.exchange.tools.run_records import (
    ANSWER_FACTS,
    CONFIDENCE,
    SCORE_FACTS,
    RunRecord,
    TaskRecord,
    as_texts,
    ascii_json,
)

_SCHEMA = "0.3.0"
_NOT_PORTABLE = re.compile(r'[<>:"\\|?*/]')
_RESERVED = re.compile(r"(?:data|unknown|(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?)", re.IGNORECASE)
_LONGEST_BYTES = 200
_IS_CORRECT = "score == 1"


def every_eval_ever_files(run: RunRecord) -> dict[str, Iterable[str]]:
    """Build the files of a run as {path: pieces of text}: per benchmark the scores, after the samples if there are any.

    Raises:
        UsageError: the model's developer, by which the datastore sorts files, is unknown.
    """
    files: dict[str, Iterable[str]] = {}
    developer, _, name = run.model.rpartition("/") if run.model.count("/") == 1 else ("", "", run.model)
    developer = (run.metadata.get("developer") or developer).strip()
    if developer.casefold() in ("", "unknown"):
        raise UsageError(
            f"Every Eval Ever sorts results by the developer of a model, and {run.model!r} does not begin with one, "
            "such as meta-llama/.",
            fix="Record the developer and export again:",
            command=as_command("lbx", "runs", "note", run.store.path, run.run_id, "developer=NAME"),
        )
    developer, model = _path_part(developer), _path_part(name)
    for benchmark in dict.fromkeys(task.benchmark for task in run.tasks):
        tasks = [task for task in run.tasks if task.benchmark == benchmark and task.numbers]
        if tasks:
            evaluation = _Evaluation(run, benchmark, tasks, developer, model)
            if run.has_samples:
                files[evaluation.samples_path] = evaluation.samples()
            files[evaluation.path] = evaluation.aggregate()
    return files


def _path_part(text: str) -> str:
    """Convert a text to a folder's name that is valid on any system, as the datastore demands."""
    printable = "".join(character if character.isprintable() else "_" for character in text)
    part = _NOT_PORTABLE.sub("_", printable).encode()[:_LONGEST_BYTES].decode("utf-8", "ignore").strip().rstrip(". ")
    return f"_{part}" if not part or _RESERVED.fullmatch(part) else part


class _Evaluation:
    """The two files of a run and a benchmark."""

    def __init__(self, run: RunRecord, benchmark: str, tasks: list[TaskRecord], developer: str, model: str) -> None:
        self._run, self._benchmark, self._tasks = run, benchmark, tasks
        self._developer, self._model = developer, model
        versions = sorted({str(number["metric_version"]) for task in tasks for number in task.numbers})
        self._uuid = UUID(bytes=run.stable_id(benchmark, *versions)[:16], version=4)
        self._time = f"{run.started_at.timestamp():.6f}"
        self._id = f"{benchmark}/{developer}_{model}/{self._time}"
        folder = f"data/{_path_part(benchmark)}/{developer}/{model}"
        self.path, self.samples_path = f"{folder}/{self._uuid}.json", f"{folder}/{self._uuid}_samples.jsonl"
        self._digest, self._n_rows = hashlib.sha256(), 0

    def aggregate(self) -> Iterator[str]:
        """Yield the file of numbers, which describes the file of samples and must be written after that file."""
        run = self._run
        is_import = run.backend == "import"
        organization = run.metadata.get("organization", "unknown")
        yield ascii_json({
            "schema_version": _SCHEMA,
            "evaluation_id": self._id,
            **({} if is_import else {"evaluation_timestamp": self._time}),
            "retrieved_timestamp": self._time,
            "source_metadata": {
                "source_name": "lbx",
                "source_type": "evaluation_run",
                "source_organization_name": organization,
                "evaluator_relationship": "other",
            },
            "eval_library": {
                "name": "lbx",
                "version": run.lbx_version,
                "additional_details": as_texts(run.facts),
            },
            "model_info": {
                "name": run.model,
                "id": f"{self._developer}/{self._model}",
                "developer": self._developer,
                "inference_engine": {"name": run.backend, "version": run.backend_version or "unknown"},
                "additional_details": {
                    "deployment_type": "unknown" if run.backend in ("import", "endpoint") else "self_deployed",
                    "model_availability": "unknown",
                },
            },
            "evaluation_results": [
                self._result(task, number) for task in self._tasks for number in task.numbers
            ],
            **({"detailed_evaluation_results": self._samples_file()} if self._n_rows else {}),
        }) + "\n"  # fmt: skip

    def _samples_file(self) -> dict[str, Any]:
        return {
            "format": "jsonl",
            "file_path": self.samples_path,
            "hash_algorithm": "sha256",
            "checksum": self._digest.hexdigest(),
            "total_rows": self._n_rows,
            "additional_details": {
                "is_correct": _IS_CORRECT,
                "rows": "one for each answer and metric; failed answers are left out",
                "input": "the question without its document, which lbx does not store",
            },
        }

    def _result(self, task: TaskRecord, number: Mapping[str, Any]) -> dict[str, Any]:
        uncertainty: dict[str, Any] = {"num_samples": task.counts["samples_answered"]}
        if number["se"] is not None:
            uncertainty["standard_error"] = {"value": number["se"], "method": f"clustered by {number['cluster_by']}"}
        if number["low"] is not None and number["high"] is not None:
            uncertainty["confidence_interval"] = {
                "lower": number["low"],
                "upper": number["high"],
                "confidence_level": CONFIDENCE,
                "method": number["method"],
            }
        return {
            "evaluation_result_id": self._result_id(task, number["metric"]),
            "evaluation_name": f"{task.benchmark}_{task.name}",
            "source_data": {
                "dataset_name": task.benchmark,
                "source_type": "other",
                "additional_details": {"task": task.name, "bundle_digest": self._run.bundle_digest},
            },
            "metric_config": {
                "metric_id": f"{task.benchmark}.{number['metric']}",
                "metric_name": number["metric"],
                "metric_unit": "proportion",
                "lower_is_better": False,
                "score_type": "continuous",
                "min_score": 0.0,
                "max_score": 1.0,
            },
            "score_details": {
                "score": number["score"],
                "details": as_texts(task.facts_of(number)),
                "uncertainty": uncertainty,
            },
        }

    def _result_id(self, task: TaskRecord, metric: str) -> str:
        return f"{self._uuid}/{task.name}/{metric}"

    def samples(self) -> Iterator[str]:
        """Yield a line for each answer and metric."""
        for task in self._tasks:
            for answer in self._run.answers(task):
                for score in answer["scores"] if answer["error"] is None else ():
                    line = ascii_json(self._sample(task, answer, score)) + "\n"
                    self._digest.update(line.encode())
                    self._n_rows += 1
                    yield line

    def _sample(self, task: TaskRecord, answer: Mapping[str, Any], score: Mapping[str, Any]) -> dict[str, Any]:
        name = f"{task.name}/{answer['sample_id']}" + (f"#{answer['iteration']}" if answer["iteration"] else "")
        question, references = answer["question"], answer["references"]
        identity = ascii_json([question, references, answer["context_sha256"]])
        reasoning, value = answer["reasoning"], score["extracted"]
        facts = {fact: answer[fact] for fact in ANSWER_FACTS} | {fact: score[fact] for fact in SCORE_FACTS}
        return {
            "schema_version": _SCHEMA,
            "evaluation_id": self._id,
            "model_id": f"{self._developer}/{self._model}",
            "evaluation_name": f"{task.benchmark}_{task.name}",
            "evaluation_result_id": self._result_id(task, score["metric"]),
            "sample_id": name,
            "sample_hash": sha256_text(identity),
            "interaction_type": "single_turn",
            "input": {"raw": question, "reference": references},
            "output": {"raw": [answer["output"] or ""], **({"reasoning_trace": [reasoning]} if reasoning else {})},
            "answer_attribution": [] if value is None else [
                {
                    "turn_idx": 0,
                    "source": "output.raw",
                    "extracted_value": value,
                    "extraction_method": f"{task.benchmark}.{score['metric']}",
                    "is_terminal": True,
                }
            ],
            "evaluation": {"score": score["score"], "is_correct": score["score"] == 1},
            **_token_usage(answer),
            "metadata": as_texts({fact: value for fact, value in facts.items() if value is not None}),
        }  # fmt: skip


def _token_usage(answer: Mapping[str, Any]) -> dict[str, Any]:
    read, written = answer["prompt_tokens"], answer["output_tokens"]
    if read is None or written is None:
        return {}
    usage = {
        "input_tokens": read,
        "output_tokens": written,
        "total_tokens": read + written,
        "input_tokens_cache_read": answer["cached_tokens"],
        "reasoning_tokens": answer["reasoning_tokens"],
    }
    return {"token_usage": usage}
