"""LongBench Pro's prediction files: one JSON lines file a model, each question as often in it as it was asked.

Source: main.py and modules/evaluation.py of
https://github.com/caskcsg/longcontext/tree/88fbeb85827b78add4a5354b0c1194a57c176c38/LongBench-Pro

    {"id": "...", "language": "Chinese", "token_length": "32k", "primary_task": "T3. Evidence-Grounded QA",
     "secondary_task": "T3.2 Single-Hop Fact QA", "contextual_requirement": "Partial", "difficulty": "Easy",
     "answer": ["..."], "bon_idx": 1, "prediction": "...", "thinking": "... or null"}

``bon_idx`` counts the times from 1. An inference that failed stands there with the prediction "", which scores 0.
A run in several shards has several files: put them behind each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lbx.base.records import Sample
from lbx.benchmarks.base.prediction_lines import PredictionLine, wrong
from lbx.benchmarks.base.predictions import Prediction, PredictionFormat, StoredAnswer, differences, file_part
from lbx.benchmarks.longbench_pro.tasks import TASK_OF, TASKS, TEXT_META, accepted_answers

_CODES = {"English": "en", "Chinese": "zh"}
_MOST_TIMES = 1000
"""The report has numbers for each of so many answers to a question, whether or not they are there."""


class LongBenchProFormat(PredictionFormat):
    """The format "longbench_pro"."""

    folder = False
    reasoning_key = "thinking"
    scored = (*TEXT_META, "reference_is_no_text")

    def read(self, task: str, lines: Sequence[PredictionLine]) -> list[Prediction]:
        """See ``PredictionFormat.read``. The times a question was asked must agree on it."""
        samples: dict[tuple[str, str], tuple[int, Sample, PredictionLine]] = {}
        answered: dict[tuple[str, str, int], PredictionLine] = {}
        predictions = []
        for line in lines:
            sample, iteration = _sample(self.name, line, len(samples)), _iteration(line)
            key = (sample.task, sample.sample_id)
            place, known, first = samples.setdefault(key, (len(samples), sample, line))
            if other := differences(sample, known, self.scored):
                raise wrong(line.where, f"it differs from {first.where}, which has the same id, in {other}")
            earlier = answered.setdefault((*key, iteration), line)
            if earlier is not line:
                raise wrong(line.where, f"'id' and 'bon_idx' are those of {earlier.where}")
            thinking = line.values.get("thinking")
            reasoning = thinking if isinstance(thinking, str) else None
            prediction = self.answered(line, place, known, "prediction")
            predictions.append(replace(prediction, iteration=iteration, reasoning=reasoning))
        return predictions

    def identity(self, sample: Sample) -> object:
        return sample.sample_id

    def file_name(self, model: str, task: str) -> str:
        """MODEL.jsonl. main.py --only_eval wants it under the name that its other options make up."""
        return f"{file_part(model)}.jsonl"

    def row(self, model: str, task: str, answer: StoredAnswer) -> dict[str, Any]:
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

    def left_out(self, answer: StoredAnswer) -> str:
        """Every iteration has a row."""
        return ""


def _iteration(line: PredictionLine) -> int:
    value = line.need("bon_idx")
    if type(value) is not int or not 1 <= value <= _MOST_TIMES:
        raise wrong(line.where, f"'bon_idx' should be a whole number from 1 to {_MOST_TIMES}")
    return value - 1


def _sample(benchmark: str, line: PredictionLine, place: int) -> Sample:
    name, title, language = line.need("id"), line.text("secondary_task"), line.text("language")
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise wrong(line.where, "'id' should be text or a whole number")
    if title not in TASK_OF:
        raise wrong(line.where, f"there is no secondary task {title!r}")
    if language not in _CODES:
        raise wrong(line.where, f"the language {language!r} is neither English nor Chinese")
    references, readable = accepted_answers(line.need("answer"))
    meta: dict[str, Any] = {key: line.text(key) for key in TEXT_META}
    meta |= {"question_thinking": line.optional_text("question_thinking"), "row": place}
    if not readable:
        meta["reference_is_no_text"] = True
    thousands = meta["token_length"].removesuffix("k")
    if not (thousands.isascii() and thousands.isdigit() and len(thousands) < 9):
        raise wrong(line.where, f"'token_length' is {meta['token_length']!r}, not a length as \"32k\"")
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
