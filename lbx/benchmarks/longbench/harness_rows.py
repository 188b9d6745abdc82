"""LongBench v1 in other evaluation harnesses: rows of result files, and differences from the official script.

The harnesses' prompts and limits were compared with the official dataset2prompt.json and dataset2maxlen.json:
lm-evaluation-harness 0.4.13 (task versions 5 and 6), and OpenCompass at a5acc4b (August 2026).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lbx.base.records import Sample
from lbx.benchmarks.base.benchmark import with_unique_ids
from lbx.benchmarks.base.prediction_lines import PredictionLine
from lbx.benchmarks.base.predictions import Prediction
from lbx.benchmarks.longbench.predictions import LongBenchFormat, class_list
from lbx.benchmarks.longbench.tasks import TASKS, rules_of

SAMPLES: Mapping[str, int] = {
    **dict.fromkeys((task for task in TASKS if task != "nq"), 200),
    "multifieldqa_en": 150,
    "lcc": 500,
    "repobench-p": 500,
}
"""Number of LongBench v1's samples by task. The numbers of LongBench-E differ."""

_CODE_PROMPT = 'no line end after "Next line of code:" in the prompt'
_NO_SPACE = "no space after the last colon of the prompt"
_LINE_END = "one line end instead of two between document and question"
LM_EVAL_PROMPTS: Mapping[str, str] = {
    "lcc": _CODE_PROMPT,
    "repobench-p": _CODE_PROMPT,
    "passage_count": _NO_SPACE,
    "passage_retrieval_en": _NO_SPACE,
    "samsum": _LINE_END,
    "triviaqa": _LINE_END,
}
"""Differences of lm-evaluation-harness's prompts from the official ones, by task without "_e"."""
LM_EVAL_VERSIONS = range(4, 7)
"""Task versions of lm-evaluation-harness with these prompts, and with greedy decoding."""
LM_EVAL_FIRST_REFERENCE = 2
"""Last task version of lm-evaluation-harness whose own scores count only the first reference."""

OPENCOMPASS_PROMPTS: Mapping[str, str] = {
    "narrativeqa": 'the prompt has "as concisely" instead of "asconcisely"',
    "multi_news": "one more line end at the end of the prompt",
}
"""Small differences of OpenCompass's prompts from the official ones, by task."""
OPENCOMPASS_OTHER: Mapping[str, str] = {
    "qasper": "it was asked with the prompt for multi-document questions, and with 32 new tokens instead of 128",
}
"""Tasks that OpenCompass asks by another protocol, and the differences."""


def is_bare(task: str) -> bool:
    """Whether the official script sends the prompt without a chat template."""
    return rules_of(task).bare


def scores_first_line(task: str) -> bool:
    """Whether only the answer's first line counts."""
    return rules_of(task).first_line


@dataclass(frozen=True, slots=True)
class HarnessRow:
    """Answered question of a harness's file.

    Attributes:
        number: line of the file, from 1.
        position: position of the question in the data, from 0.
        answers: the answer of each repetition. A value that is not text becomes "" with ``NOT_TEXT``.
        references, classes, length: values as in the data. ``length`` is 0 if the file does not contain it.
        sample_id: the data's ``_id``, or "" if the file does not contain it.
    """

    location: str
    number: int
    position: int
    answers: Sequence[object]
    references: object
    classes: object = None
    length: object = 0
    question: str = ""
    document: str = ""
    sample_id: str = ""


@dataclass(frozen=True, slots=True)
class HarnessFormat(LongBenchFormat):
    """Format of a harness's file, which parses rows into predictions and matches them with a bundle's samples.

    Attributes:
        by_position: whether rows are matched by position in the data, instead of by ``_id``, or else by content.
    """

    by_position: bool = False
    appends = False

    def read_rows(self, task: str, rows: Sequence[HarnessRow]) -> list[Prediction]:
        """Parse rows into predictions in the data's order. Raises UsageError naming file and line."""
        rows = sorted(rows, key=lambda row: row.position)
        samples = with_unique_ids(self._sample(task, row, rows[-1].classes) for row in rows)
        return [
            replace(
                self.make_prediction(_line(row, {"pred": answer}), row.position, sample, "pred"),
                line=_line(row, {}),
                iteration=iteration,
            )
            for row, sample in zip(rows, samples, strict=True)
            for iteration, answer in enumerate(row.answers)
        ]

    def _sample(self, task: str, row: HarnessRow, classes: object) -> Sample:
        meta: dict[str, Any] = {"category": rules_of(task).category}
        if rules_of(task).metric == "classification" and (names := class_list(_line(row, {"all_classes": classes}))):
            meta["all_classes"] = names
        values = {"pred": "", "answers": row.references, "length": row.length}
        sample = self._prediction(task, row.position, _line(row, values), meta).sample
        assert sample is not None
        return replace(
            sample,
            sample_id=row.sample_id or sample.sample_id,
            question=row.question,
            context=row.document,
        )

    def match_keys(
        self, samples: Sequence[Sample], predictions: Sequence[Prediction]
    ) -> tuple[list[object], list[object]]:
        """Keys that match predictions with samples: positions, or else ids, or the content if only one side has an id.

        Returns:
            the keys of the samples, and the keys of the predictions.
        """
        if self.by_position:
            return list(range(len(samples))), [prediction.position for prediction in predictions]
        ids = {sample.sample_id for sample in samples} & {prediction.sample_id for prediction in predictions}

        def identify(sample: Sample) -> object:
            return sample.sample_id if sample.sample_id in ids else (sample.references, sample.length, sample.question)

        return [*map(identify, samples)], [identify(row.sample) for row in predictions if row.sample]

    def contradiction(self, prediction: Prediction, sample: Sample) -> str | None:
        """Reason why a row contradicts the sample: other references, even if the row does not mark the answer."""
        of_file = prediction.sample
        if of_file and of_file.references != sample.references:
            return "its reference answers are others"
        return None


def _line(row: HarnessRow, values: dict[str, Any]) -> PredictionLine:
    """Make a line without ``raw``, because a harness's rows contain whole documents."""
    return PredictionLine(row.location, row.number, "", values)
