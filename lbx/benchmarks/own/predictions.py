"""Prediction files of a benchmark of one's own: a folder with {task}.jsonl.

    {"id": "...", "output": "...", "question": "...", "references": ["..."], "reasoning": "only where there was some"}

Where the question has choices, they stand behind it: "choices": {"A": "...", "B": "..."}.

Of a file that is read only "id" and "output" count; the bundle that has the benchmark says the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lbx.base.records import Sample
from lbx.benchmarks.base.prediction_lines import PredictionLine, wrong
from lbx.benchmarks.base.predictions import Prediction, PredictionFormat, StoredAnswer


class OwnFormat(PredictionFormat):
    """The format of a benchmark of one's own; ``known_tasks`` are those of the bundle, () without one."""

    folder = True
    stands_alone = False

    def read(self, task: str, lines: Sequence[PredictionLine]) -> list[Prediction]:
        """See ``PredictionFormat.read``."""
        predictions = []
        for number, line in enumerate(lines):
            name = line.need("id")
            if not isinstance(name, str | int) or isinstance(name, bool):
                raise wrong(line.where, "'id' should be text or a whole number")
            sample = Sample(self.name, task, str(name), context="", question="", references=())
            predictions.append(self.answered(line, number, sample, "output"))
        return predictions

    def identity(self, sample: Sample) -> object:
        return sample.sample_id

    def file_name(self, model: str, task: str) -> str:
        return f"{task}.jsonl"

    def row(self, model: str, task: str, answer: StoredAnswer) -> dict[str, Any]:
        """What was asked beside what was answered."""
        return {
            "id": answer.sample.sample_id,
            "question": answer.sample.question,
            **({"choices": choices} if (choices := answer.sample.meta.get("choices")) else {}),
            "references": list(answer.sample.references),
            "output": answer.output,
        }
