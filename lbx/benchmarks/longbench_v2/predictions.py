"""LongBench v2's prediction files: one JSON lines file a model.

Source: pred.py and result.py of https://github.com/THUDM/LongBench/tree/2e00731f8d0bff23dc4325161044d0ed8af94c1e

    {"_id": "66ec...", "domain": "...", "sub_domain": "...", "difficulty": "hard", "length": "short", "question": "...",
     "choice_A": "...", ..., "choice_D": "...", "answer": "C", "context": "its first 1,000 characters",
     "response_cot": "only with --cot", "response": "...", "pred": "C", "judge": true}

result.py reads ``judge``, ``difficulty`` and ``length``, and ``pred`` if it compensates, from JSON lines or from one
JSON array. Other programs' files have only these and no ``answer`` or ``response``, and rows {"_id": ..., "error": ...}
for questions without an answer. A question that is answered several times counts once for each answer, as iterations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lbx.base.records import Sample
from lbx.benchmarks.base.prediction_lines import PredictionLine, prediction_file_error
from lbx.benchmarks.base.predictions import (
    AnswerToExport,
    Prediction,
    PredictionFormat,
    SplitReasoning,
    differences,
    file_part,
)
from lbx.metrics.longbench import LETTERS, chosen_letter


class LongBenchV2Format(PredictionFormat):
    folder = False
    array = True
    appends = True
    score_keys = ("difficulty", "length")

    def read(self, task: str, lines: Sequence[PredictionLine]) -> list[Prediction]:
        """Read rows; ids are the rows' own, else their positions."""
        task = self.known_tasks[0]
        times: Counter[str] = Counter()
        first_rows: dict[str, tuple[Sample, PredictionLine]] = {}
        predictions = []
        for number, line in enumerate(lines):
            name = _sample_id(line, number)
            prediction = self._prediction(task, name, number, times[name], line)
            times[name] += 1
            if sample := prediction.sample:
                first_sample, first_line = first_rows.setdefault(name, (sample, line))
                if other := differences(sample, first_sample, self.score_keys):
                    raise prediction_file_error(
                        line.location, f"it has the same _id as {first_line.location} but differs in {other}"
                    )
                if sample.references and not first_sample.references:
                    first_rows[name] = sample, line
            predictions.append(prediction)
        return [
            replace(row, sample=first_rows[row.sample_id][0]) if row.sample and times[row.sample_id] > 1 else row
            for row in predictions
        ]

    def _prediction(self, task: str, name: str, number: int, iteration: int, line: PredictionLine) -> Prediction:
        if "pred" not in line.values and "judge" not in line.values and line.values.get("error") is not None:
            return Prediction(line, task, name, number, None, error=str(line.values["error"]), iteration=iteration)
        judge = _is_judged_right(line)
        answer, letter = _letter(line, judge=judge)
        cot = line.optional_text("response_cot")
        prediction = Prediction(
            line,
            task,
            name,
            number,
            _sample((self.name, task, name), line, letter, judge=judge),
            output=_output(line, letter),
            iteration=iteration,
            steps=[{"output": cot}] if cot else None,
            reasoning=line.optional_text("reasoning") or None,
            marked_right=judge,
            note=f"'pred' is {answer!r}, which is not one of {', '.join(LETTERS)}, and counts as no answer"
            if answer and not letter
            else "",
        )
        assert prediction.sample is not None
        if problem := self.contradiction(prediction, prediction.sample):
            raise prediction_file_error(line.location, problem)
        return prediction

    def identity(self, sample: Sample) -> object:
        return sample.sample_id

    def split_reasoning(self, prediction: Prediction, split: SplitReasoning) -> Prediction:
        """Return the row with its reasoning split off.

        The letter is the answer's, even if pred.py found another in the reasoning.
        """
        response = prediction.line.optional_text("response")
        reasoning, answer, _ = split(response)
        if reasoning is None:
            return prediction
        if chosen_letter(answer) != chosen_letter(prediction.output or "") and not prediction.line.values.get("answer"):
            raise prediction_file_error(
                prediction.line.location,
                "the letter after the reasoning differs from 'pred', and 'answer', the right letter, is missing",
            )
        return PredictionFormat.split_reasoning(self, replace(prediction, output=response, marked_right=None), split)

    def contradiction(self, prediction: Prediction, sample: Sample) -> str | None:
        """Return why ``judge``, which result.py counts, contradicts the answer: no number would be right."""
        letter = chosen_letter(prediction.output or "")
        if prediction.marked_right and letter is None:
            return "'judge' marks an answer without a letter as right"
        if prediction.marked_right is None or not sample.references:
            return None
        if (letter in sample.references) == prediction.marked_right:
            return None
        marked_as = "right" if prediction.marked_right else "wrong"
        return (
            f"'judge' marks the answer {letter} as {marked_as}, but the question's answer is "
            f"{'/'.join(sample.references)}"
        )

    def label(self, model: str, settings: Mapping[str, Any]) -> str:
        """Return the model's name with its first mode of rag, no_context and cot, as pred.py names files."""
        if settings.get("rag"):
            return f"{model}_rag_{settings['rag']}"
        if settings.get("no_context"):
            return f"{model}_no_context"
        return f"{model}_cot" if settings.get("cot") else model

    def file_name(self, model: str, task: str) -> str:
        return f"{file_part(model)}.jsonl"

    def row(self, model: str, task: str, answer: AnswerToExport) -> dict[str, Any]:
        """Return a row; results files have no documents, so ``context`` is "" (the document's beginning in pred.py)."""
        sample, response = answer.sample, answer.output.strip()
        choices = sample.meta.get("choices") or {}
        letter = chosen_letter(response)
        right = sample.references[0] if sample.references else None
        row: dict[str, Any] = {"_id": sample.sample_id}
        row |= {key: sample.meta.get(key, "") for key in ("domain", "sub_domain", "difficulty", "length")}
        row |= {"question": sample.question}
        row |= {f"choice_{key}": choices.get(key, "") for key in LETTERS}
        row |= {"answer": right, "context": ""}
        if answer.steps:
            row["response_cot"] = str(answer.steps[0].get("output") or "").strip()
        row |= {"response": response, "pred": letter, "judge": letter is not None and letter == right}
        return row

    def omission_reason(self, answer: AnswerToExport) -> str:
        """Return a reason also for empty outputs, which pred.py drops; an answer that is all reasoning is wrong."""
        empty = not answer.output and answer.reasoning is None
        return PredictionFormat.omission_reason(self, answer) or ("empty answers" if empty else "")


def _sample_id(line: PredictionLine, number: int) -> str:
    value = line.values.get("_id")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else f"{number:04d}"


def _is_judged_right(line: PredictionLine) -> bool:
    """Return whether a row's 'judge' marks it as right. Like result.py, convert the value with ``int``.

    Without a judgement, at which result.py stops, the letters decide.
    """
    value = line.values.get("judge")
    if value is None and line.optional_text("answer"):
        return _letter(line, judge=False)[1] == line.text("answer")
    try:
        judge = int(line.require("judge"))
    except (TypeError, ValueError, OverflowError):
        judge = -1
    if isinstance(value, float) and judge != value:
        judge = -1
    if judge not in (0, 1):
        raise prediction_file_error(line.location, "'judge' must be true or false")
    return bool(judge)


def _letter(line: PredictionLine, *, judge: bool) -> tuple[object, str | None]:
    """Return ``pred`` and the letter that it means; without ``pred``, the letter of the response."""
    answer = line.values.get("pred")
    if "pred" not in line.values:
        letter = chosen_letter(line.optional_text("response"))
        if letter is None and judge:
            letter = line.text("answer")
        return letter, letter
    letter = answer.strip(" \t\r\n().:*").upper() if isinstance(answer, str) else ""
    return answer, letter if letter in LETTERS else None


def _sample(names: tuple[str, str, str], line: PredictionLine, letter: str | None, *, judge: bool) -> Sample:
    answer = line.values.get("answer")
    answer = "" if answer is None else answer
    if answer not in ("", *LETTERS):
        raise prediction_file_error(line.location, f"'answer' must be one of {', '.join(LETTERS)}, not {answer!r:.40}")
    return Sample(
        *names,
        context="",
        question=line.optional_text("question"),
        # Without the answer, a right choice reveals it; a wrong one leaves it unknown, and no sample matches then.
        references=(answer,) if answer else (letter,) if judge and letter else (),
        length_unit="characters",
        meta={
            # result.py compares them with "easy", "short" and "medium"; all other values are hard and long.
            **{key: _text(line.require(key)) for key in ("difficulty", "length")},
            **{key: line.values[key] for key in ("domain", "sub_domain") if line.optional_text(key)},
            **_choices(line),
        },
    )


def _choices(line: PredictionLine) -> dict[str, dict[str, str]]:
    choices = {letter: line.values.get(f"choice_{letter}") for letter in LETTERS}
    return {"choices": {letter: _text(choice) for letter, choice in choices.items()}} if any(choices.values()) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _output(line: PredictionLine, letter: str | None) -> str:
    """Return the model's output, or the row's choice in official words if the output is missing or chose another.

    pred.py strips outputs when it writes them and drops empty ones before: an empty ``response`` was white space.
    """
    response = line.values.get("response")
    if isinstance(response, str) and chosen_letter(response) == letter:
        return response or " "
    return " " if letter is None else f"The correct answer is ({letter})"
