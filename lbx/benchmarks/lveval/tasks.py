"""Properties of each task of LV-Eval: dataset and level, category, metric, language; and its answers."""

from __future__ import annotations

from dataclasses import dataclass

METRICS: dict[str, tuple[str, ...]] = {
    "keyword_f1": ("keyword_f1", "keyword_f1_paper", "f1"),
    "f1": ("f1",),
    "rouge_l": ("rouge_l", "rouge_l_unlimited"),
}
"""Metrics stored by a dataset's kind.

keyword_f1 is F1 if the answer names enough of the keywords, else 0; keyword_f1_paper leaves stop words out of the
F1, as in the paper but not in the code; f1 is without the gate. rouge_l_unlimited is rouge_l without the official
run's recursion limit.
"""

NO_TEXT = "The first answer in the data is no text, on which the official script stops."
KEYWORDS_NO_TEXT = "The answer keywords in the data are no text, on which the official script stops."


@dataclass(frozen=True, slots=True)
class DatasetRules:
    """Properties of a dataset.

    Attributes:
        category: the paper's group.
        metric: a key of ``METRICS``.
    """

    category: str
    metric: str
    language: str


SINGLE_HOP = "single-hop QA"
MULTI_HOP = "multi-hop QA"

DATASETS: dict[str, DatasetRules] = {
    "hotpotwikiqa_mixup": DatasetRules(MULTI_HOP, "keyword_f1", "en"),
    "loogle_SD_mixup": DatasetRules(SINGLE_HOP, "keyword_f1", "en"),
    "loogle_CR_mixup": DatasetRules(MULTI_HOP, "keyword_f1", "en"),
    "loogle_MIR_mixup": DatasetRules(MULTI_HOP, "keyword_f1", "en"),
    "multifieldqa_en_mixup": DatasetRules(SINGLE_HOP, "keyword_f1", "en"),
    "multifieldqa_zh_mixup": DatasetRules(SINGLE_HOP, "keyword_f1", "zh"),
    "factrecall_en": DatasetRules(SINGLE_HOP, "f1", "en"),
    "factrecall_zh": DatasetRules(SINGLE_HOP, "f1", "zh"),
    "cmrc_mixup": DatasetRules(SINGLE_HOP, "keyword_f1", "zh"),
    "lic_mixup": DatasetRules(MULTI_HOP, "keyword_f1", "zh"),
    "dureader_mixup": DatasetRules(MULTI_HOP, "rouge_l", "zh"),
}
LEVELS = ("16k", "32k", "64k", "128k", "256k")
TASKS = tuple(f"{dataset}_{level}" for dataset in DATASETS for level in LEVELS)


def split_task(task: str) -> tuple[str, str]:
    """Split a task into dataset and level: ("factrecall_en", "16k") for "factrecall_en_16k"."""
    dataset, _, level = task.rpartition("_")
    return dataset, level


def kind_of(task: str) -> DatasetRules:
    return DATASETS[split_task(task)[0]]


def first_answers(answers: object) -> tuple[tuple[str, ...], str | None]:
    """Return the references of a row's ``answers``, and why the official script would stop on them.

    Only the first answer is scored, so only that one can stop it. A bare string counts as its characters, as there.
    """
    if not isinstance(answers, list | tuple | str):
        return (), NO_TEXT
    if answers and not isinstance(answers[0], str):
        return (), NO_TEXT
    return tuple(answer for answer in answers if isinstance(answer, str)), None
