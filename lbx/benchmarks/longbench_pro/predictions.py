"""LongBench Pro's prediction files, one JSON lines file per model, and result files.

Source: main.py, modules/evaluation.py and app.py of
https://github.com/caskcsg/longcontext/tree/88fbeb85827b78add4a5354b0c1194a57c176c38/LongBench-Pro

    {"id": "...", "language": "Chinese", "token_length": "32k", "primary_task": "T3. Evidence-Grounded QA",
     "secondary_task": "T3.2 Single-Hop Fact QA", "contextual_requirement": "Partial", "difficulty": "Easy",
     "answer": ["..."], "bon_idx": 1, "prediction": "...", "thinking": "... or null"}

There is a row for each time that a question was asked, counted by ``bon_idx`` from 1. The prediction of a failed
inference is "", which scores 0.
A run in several shards writes several files, to be concatenated.

The result files contain every answer with its score, a summary, and the leaderboard's facts about models.

    MODEL/nonthinking_context-120000_bon-3_evaluation.jsonl     rows of the prediction file and their "metric"
    MODEL/nonthinking_context-120000_bon-3_summary.json
    model_info.json                                             {MODEL: {"type", "context_length", "url"}}

app.py shows the contents of its folder "output". A summary states the date of the run. File names leave out an unknown
window, for which app.py takes 0.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lbx.base.errors import UsageError
from lbx.base.records import Sample
from lbx.benchmarks.base.paper_tables import format_window
from lbx.benchmarks.base.prediction_lines import PredictionLine, prediction_file_error, require_references
from lbx.benchmarks.base.predictions import (
    AnswerToExport,
    Prediction,
    PredictionFormat,
    ScoredRun,
    differences,
    file_part,
)
from lbx.benchmarks.longbench_pro.paper_tables import CATEGORIES, headline, missing_category, report
from lbx.benchmarks.longbench_pro.tasks import LIMITS, TASK_OF, TASKS, TEXT_META

_CODES = {"English": "en", "Chinese": "zh"}
_MAX_ITERATIONS = 1000
"""Largest accepted ``bon_idx``, because the report contains numbers for each iteration up to the largest one."""


class LongBenchProFormat(PredictionFormat):
    folder = False
    reasoning_key = "thinking"
    score_keys = (*TEXT_META, "reference_is_no_text")

    def read(self, task: str, lines: Sequence[PredictionLine]) -> list[Prediction]:
        """Parse the rows of a file. All rows of a question must describe it in the same way."""
        samples: dict[tuple[str, str], tuple[int, Sample, PredictionLine]] = {}
        answered: dict[tuple[str, str, int], PredictionLine] = {}
        predictions = []
        for line in lines:
            value = line.require("bon_idx")
            if type(value) is not int or not 1 <= value <= _MAX_ITERATIONS:
                raise prediction_file_error(
                    line.location, f"'bon_idx' must be a whole number from 1 to {_MAX_ITERATIONS}"
                )
            sample, iteration = _sample(self.name, line, len(samples)), value - 1
            key = (sample.task, sample.sample_id)
            position, first_sample, first_line = samples.setdefault(key, (len(samples), sample, line))
            if other := differences(sample, first_sample, self.score_keys):
                raise prediction_file_error(
                    line.location, f"it has the same id as {first_line.location} but differs in {other}"
                )
            earlier = answered.setdefault((*key, iteration), line)
            if earlier is not line:
                raise prediction_file_error(line.location, f"'id' and 'bon_idx' repeat {earlier.location}")
            thinking = line.values.get("thinking")
            reasoning = thinking if isinstance(thinking, str) else None
            prediction = self.make_prediction(line, position, first_sample, "prediction")
            predictions.append(replace(prediction, iteration=iteration, reasoning=reasoning))
        return predictions

    def match_key(self, sample: Sample) -> object:
        return sample.sample_id

    def file_name(self, model: str, task: str) -> str:
        """File name MODEL.jsonl. (main.py --only_eval expects a name composed of its other options.)"""
        return f"{file_part(model)}.jsonl"

    def row(self, model: str, task: str, answer: AnswerToExport) -> dict[str, Any]:
        sample = answer.sample
        languages = {code: name for name, code in _CODES.items()}
        row: dict[str, Any] = {"id": sample.sample_id, "language": languages[sample.language]}
        row |= {key: sample.meta.get(key, "") for key in TEXT_META}
        row["secondary_task"] = TASKS[sample.task].title
        row |= {
            "question_nonthinking": sample.question,
            "question_thinking": sample.meta.get("question_thinking", ""),
            "answer": list(sample.references),
            "bon_idx": answer.iteration + 1,
            "prediction": answer.output,
            "thinking": answer.reasoning,
        }
        return row

    def omission_reason(self, answer: AnswerToExport) -> str:
        """Reason to omit an answer: always "", because every iteration is exported."""
        return ""


def _sample(benchmark: str, line: PredictionLine, position: int) -> Sample:
    name, title, language = line.require("id"), line.text("secondary_task"), line.text("language")
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise prediction_file_error(line.location, "'id' must be text or a whole number")
    if title not in TASK_OF:
        raise prediction_file_error(line.location, f"there is no secondary task {title!r}")
    if language not in _CODES:
        raise prediction_file_error(line.location, f"the language {language!r} is neither English nor Chinese")
    references = tuple(require_references(line, "answer"))
    meta: dict[str, Any] = {key: line.text(key) for key in TEXT_META}
    meta |= {"question_thinking": line.optional_text("question_thinking"), "row": position}
    thousands = meta["token_length"].removesuffix("k")
    if not (thousands.isascii() and thousands.isdigit() and len(thousands) < 9):
        raise prediction_file_error(
            line.location, f"'token_length' is {meta['token_length']!r}, not a length such as \"32k\""
        )
    return Sample(
        benchmark=benchmark,
        task=TASK_OF[title],
        sample_id=str(name),
        context="",
        question=line.optional_text("question_nonthinking"),
        references=references,
        language=_CODES[language],
        length=int(thousands) * 1024,
        length_unit="tokens",
        meta=meta,
    )


MODEL_INFO = "model_info.json"
_BOTH_TYPES = (["Thinking", "Instruct"], ["Instruct", "Thinking"])
_DIMENSIONS = dict(
    zip(CATEGORIES, ("token_length", "contextual_requirement", "difficulty", "primary_task", "language"), strict=True)
)


def result_files(run: ScoredRun) -> dict[str, str]:
    """Write the three files of the official scorer: {path: text}.

    Raises:
        UsageError: evaluation.py would stop, or summaries were scored without an embedding model.
    """
    if any(line.scored_sample.partial for line in run.lines):
        raise UsageError(
            f"Summaries of the run {run.run_id!r} were scored without an embedding model, and half their score is "
            "missing: no number of the file would be right.",
            fix="Score them first.",
            command="lbx score RESULTS --embedding CARD --bundle DIR",
        )
    if category := missing_category(run.tasks):
        raise UsageError(
            f"The run {run.run_id!r} has no answer to a question of {category!r}, on which the official "
            "evaluation.py stops.",
            fix="`lbx report RESULTS group_scores` shows the groups with answers.",
        )
    # Whether the run asked for reasoning: by the run or the imported file's name, else by the answers
    if not run.has_settings and (match := re.search(r"(non)?thinking", run.file)):
        thinks = not match[1]
    else:
        thinking = run.settings.get("thinking")
        thinks = bool(thinking) if thinking is not None else any(line.row().get("thinking") for line in run.lines)
    name = f"{file_part(run.model)}/{'' if thinks else 'non'}thinking_"
    if limit := _limit(run):
        name += f"context-{limit}_"
    iterations = 1 + max(line.scored_sample.iteration for line in run.lines)
    rows = ({**line.row(), "metric": headline(line.scored_sample)} for line in run.lines)
    info = {
        "type": run.metadata.get("type", "Thinking" if thinks else "Instruct"),
        "context_length": run.metadata.get("context_length")
        or format_window(run.settings.get("context_window"))
        or "-",
        "url": run.metadata.get("url", ""),
    }
    return {
        f"{name}bon-{iterations}_evaluation.jsonl": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows),
        f"{name}bon-{iterations}_summary.json": _json(_summary(run, iterations)),
        MODEL_INFO: _json({file_part(run.model): info}),
    }


def join_model_info(path: str, first: str, second: str) -> str | None:
    """Merge two texts of model_info.json, or return None for another or a damaged file.

    For a model in both texts the first counts, but if the types are Thinking and Instruct, the type becomes "Mixed".
    """
    if path != MODEL_INFO:
        return None
    try:
        former, new = (json.loads(text) for text in (first, second))
    except (ValueError, RecursionError):
        return None
    if not isinstance(former, dict):
        return None
    for name, info in new.items():
        entry = former.setdefault(name, info)
        if isinstance(entry, dict) and [entry.get("type"), info["type"]] in _BOTH_TYPES:
            entry["type"] = "Mixed"
    return _json(former)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=4)


def _limit(run: ScoredRun) -> int | None:
    if not run.has_settings:
        match = re.search(r"context-(\d+)", run.file)
        return int(match[1]) if match else None
    window = run.settings.get("context_window")
    return run.settings.get("max_prompt_tokens") or LIMITS.get(window or 0, window)


def _summary(run: ScoredRun, iterations: int) -> dict[str, Any]:
    numbers = {
        (group.grouping, group.name, group.metric): group.score
        for group in report([line.scored_sample for line in run.lines])
    }
    times = Counter(line.scored_sample.sample.sample_id for line in run.lines)

    def by(metric: str, grouping: str) -> dict[str, float]:
        return {name: numbers[grouping, name, metric] for name in CATEGORIES[grouping]}

    summary: dict[str, Any] = {
        "date": run.finished_at.strftime("%Y-%m-%d"),
        "total_questions_num": len(times),
        "inference_iterations": iterations,
        "total_samples_num": len(run.lines),
        "fail_samples_num": sum(line.failed for line in run.lines),
        "inference_inconsistent_samples_num": sum(count != iterations for count in times.values()),
        "average_overall_metric": numbers["overall", "all", "average"],
    }
    for number in range(1, iterations + 1):
        summary[f"inference_iteration_{number}_overall_metric"] = numbers.get(
            ("overall", "all", f"iteration {number}"), 0.0
        )
    summary |= {f"average_{name}_metric": by("average", grouping) for grouping, name in _DIMENSIONS.items()}
    for number in range(1, iterations + 1):
        best = {name: by(f"bon@{number}", grouping) for grouping, name in _DIMENSIONS.items()}
        summary[f"BoN-{number}"] = {"overall_metric": numbers["overall", "all", f"bon@{number}"], **best}
        summary[f"pass@{number}"] = numbers["overall", "all", f"pass@{number}"]
    return summary
