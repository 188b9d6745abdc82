"""LV-Eval's prediction files: a folder with {dataset}_{level}.jsonl.

Source: prediction.py and evaluation.py of
https://github.com/infinigence/LVEval/tree/63e7ae939bd347c76b2cdb1cebfb216faca26897

    {"pred": "...", "answers": ["..."], "gold_ans": "the keywords, or null", "input": "the question",
     "all_classes": null, "length": 15342}

A row does not identify its sample: without a bundle its position in the file does, which is also the bundle's id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lbx.base.records import Sample
from lbx.benchmarks.base.prediction_lines import (
    PredictionLine,
    describe_value,
    prediction_file_error,
    require_references,
    row_length,
)
from lbx.benchmarks.base.predictions import AnswerToExport, Prediction, PredictionFormat, differences
from lbx.benchmarks.lveval.tasks import kind_of


class LVEvalFormat(PredictionFormat):
    folder = True
    score_keys = ("answer_keywords", "fault")

    def read(self, task: str, lines: Sequence[PredictionLine]) -> list[Prediction]:
        return [self._prediction(task, number, line) for number, line in enumerate(lines)]

    def _prediction(self, task: str, number: int, line: PredictionLine) -> Prediction:
        kind = kind_of(task)
        keywords = line.values.get("gold_ans")
        if kind.metric == "keyword_f1" and keywords and not isinstance(keywords, str):
            raise prediction_file_error(
                line.location, f"'gold_ans' must be text or null, not {describe_value(keywords)}"
            )
        meta: dict[str, Any] = {"category": kind.category, **({"answer_keywords": str(keywords)} if keywords else {})}
        sample = Sample(
            benchmark=self.name,
            task=task,
            sample_id=f"{number:04d}",
            context="",
            question=line.optional_text("input"),
            references=tuple(require_references(line, "answers")),
            language=kind.language,
            length=row_length(line),
            length_unit="characters" if kind.language == "zh" else "words",
            meta=meta,
        )
        return self.make_prediction(line, number, sample, "pred")

    def identity(self, sample: Sample) -> object:
        """Return question and answers: a level asks each question once."""
        return sample.question, sample.references

    def may_match_by_position(self, prediction: Prediction, sample: Sample) -> bool:
        """Accept rows without the question: evaluation.py never reads it, and some files leave it out."""
        mine = prediction.sample
        if mine is None or mine.question or mine.references != sample.references:
            return False
        return not differences(mine, sample, self.score_keys)

    def file_name(self, model: str, task: str) -> str:
        """Return {dataset}_{level}.jsonl, the name that evaluation.py looks for in its --input-dir."""
        return f"{task}.jsonl"

    def row(self, model: str, task: str, answer: AnswerToExport) -> dict[str, Any]:
        return {
            "pred": answer.output,
            "answers": list(answer.sample.references),
            "gold_ans": answer.sample.meta.get("answer_keywords"),
            "input": answer.sample.question,
            "all_classes": None,
            "length": answer.sample.length,
        }
