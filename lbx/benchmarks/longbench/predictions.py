"""LongBench v1's and LongBench-E's prediction files: pred/MODEL/{task}.jsonl and pred_e/MODEL/{task}.jsonl.

Source: pred.py and eval.py of https://github.com/THUDM/LongBench/tree/2e00731f8d0bff23dc4325161044d0ed8af94c1e/LongBench

    {"pred": "...", "answers": ["..."], "all_classes": null, "length": 2099}

Only these four keys are read: all_classes only for tasks with classes, length only for E. A row does not
identify its sample: without a bundle its position in the file does.

pred.py appends to an existing file and asks everything again; eval.py counts every row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lbx.base.records import Sample
from lbx.benchmarks.base.prediction_lines import (
    PredictionLine,
    describe_value,
    prediction_file_error,
    require_references,
    row_length,
)
from lbx.benchmarks.base.predictions import AnswerToExport, Prediction, PredictionFormat, differences, file_part
from lbx.benchmarks.longbench.tasks import ODD_ANSWERS, accepted_answers, rules_of

_MAX_DUPLICATE_SHARE = 0.05
"""Largest share of rows whose answers and length may equal another question's. In the data it is 1% at most."""


class LongBenchFormat(PredictionFormat):
    folder = True
    appends = True
    score_keys = ("all_classes", ODD_ANSWERS)
    fillable_keys = frozenset({"all_classes"})

    def task_of(self, stem: str, *, e: bool) -> str:
        """Task of a file from its name: "qasper" is "qasper_e" in a folder of E's predictions."""
        return f"{stem}_e" if e and not stem.endswith("_e") else stem

    def read(self, task: str, lines: Sequence[PredictionLine]) -> list[Prediction]:
        """Parse the rows of a file. The last row's classes count for all rows, as in eval.py."""
        kind = rules_of(task)
        meta: dict[str, Any] = {"category": kind.category}
        if kind.metric == "classification" and (classes := class_list(lines[-1])):
            meta["all_classes"] = classes
        predictions = [self._prediction(task, number, line, meta) for number, line in enumerate(lines)]
        lengths = all(row_length(line) for line in lines)
        return self._with_iterations(predictions) if lengths else predictions

    def _with_iterations(self, predictions: list[Prediction]) -> list[Prediction]:
        """Count repeated questions as further iterations if they are too many for chance."""
        first: dict[object, Prediction] = {}
        times: Counter[object] = Counter()
        rows = []
        for row in predictions:
            assert row.sample is not None
            question = self.match_key(row.sample)
            original = first.setdefault(question, row)
            rows.append(
                replace(
                    row, sample=original.sample, sample_id=original.sample_id, position=original.position,
                    iteration=times[question],
                )
            )  # fmt: skip
            times[question] += 1
        return rows if len(rows) - len(first) > _MAX_DUPLICATE_SHARE * len(rows) else predictions

    def _prediction(self, task: str, number: int, line: PredictionLine, meta: dict[str, Any]) -> Prediction:
        kind = rules_of(task)
        answers = require_references(line, "answers", with_numbers=kind.metric == "count")
        sample = Sample(
            benchmark=self.name,
            task=task,
            sample_id=f"{number:04d}",
            context="",
            question="",
            references=accepted_answers(task, answers),
            language=kind.language,
            length=row_length(line, needed_by="LongBench-E" if task.endswith("_e") else ""),
            length_unit="characters" if kind.language == "zh" else "words",
            meta=meta,
        )
        return self.make_prediction(line, number, sample, "pred")

    def match_key(self, sample: Sample) -> object:
        """Match key of a sample: references and length.

        It is nearly unique in a task, and rows with the same key get the same scores.
        """
        return sample.references, sample.length

    def may_match_by_position(self, prediction: Prediction, sample: Sample) -> bool:
        """Whether a row lacks the length that distinguishes rows with the same answers, as in some files."""
        mine = prediction.sample
        if mine is None or mine.length or mine.references != sample.references:
            return False
        return not differences(mine, sample, self.score_keys, self.fillable_keys)

    def file_name(self, model: str, task: str) -> str:
        return self.export_path(model, task, f"{task.removesuffix('_e')}.jsonl")

    def row(self, model: str, task: str, answer: AnswerToExport) -> dict[str, Any]:
        return {
            "pred": answer.output,
            "answers": list(answer.sample.references),
            "all_classes": answer.sample.meta.get("all_classes"),
            "length": answer.sample.length,
        }

    def export_path(self, model: str, task: str | None, name: str) -> str:
        """Path of a file in the folder that eval.py reads for the task, plain or E's."""
        return f"{folder_of(model, task or '')}/{name}"


def class_list(line: PredictionLine) -> list[str]:
    """Classes of a row, or [] if it states none, because a bundle may contain them. Raises UsageError if invalid."""
    classes = line.values.get("all_classes")
    if classes is None:
        return []
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise prediction_file_error(
            line.location, f"'all_classes' must be a list of names, not {describe_value(classes)}"
        )
    return classes


def folder_of(model: str, task: str) -> str:
    return f"{'pred_e' if task.endswith('_e') else 'pred'}/{file_part(model)}"
