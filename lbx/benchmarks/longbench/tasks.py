"""What is fixed about each task of LongBench v1 and LongBench-E: category, metric, language, how it is asked."""

from __future__ import annotations

from dataclasses import dataclass

METRICS: dict[str, tuple[str, ...]] = {
    "f1": ("f1",),
    "rouge_l": ("rouge_l", "rouge_l_unlimited"),
    "classification": ("classification",),
    "count": ("count",),
    "retrieval": ("retrieval",),
    "edit_similarity": ("edit_similarity",),
}
"""What a task's kind of metric stores. rouge_l_unlimited is rouge_l without the official run's recursion limit."""


@dataclass(frozen=True, slots=True)
class TaskRules:
    """What is fixed about a task.

    Attributes:
        category: the paper's group, which its averages go by.
        metric: a key of ``METRICS``.
        language: "en", "zh" or "code".
        bare: the prompt stays bare text even for chat models.
        first_line: only the answer's first line counts.
        in_e: whether LongBench-E has it.
    """

    category: str
    metric: str
    language: str = "en"
    bare: bool = False
    first_line: bool = False
    in_e: bool = False


TASKS: dict[str, TaskRules] = {
    "narrativeqa": TaskRules("single-document QA", "f1"),
    "qasper": TaskRules("single-document QA", "f1", in_e=True),
    "multifieldqa_en": TaskRules("single-document QA", "f1", in_e=True),
    "multifieldqa_zh": TaskRules("single-document QA", "f1", "zh"),
    "hotpotqa": TaskRules("multi-document QA", "f1", in_e=True),
    "2wikimqa": TaskRules("multi-document QA", "f1", in_e=True),
    "musique": TaskRules("multi-document QA", "f1"),
    "dureader": TaskRules("multi-document QA", "rouge_l", "zh"),
    "gov_report": TaskRules("summarization", "rouge_l", in_e=True),
    "qmsum": TaskRules("summarization", "rouge_l"),
    "multi_news": TaskRules("summarization", "rouge_l", in_e=True),
    "vcsum": TaskRules("summarization", "rouge_l", "zh"),
    "trec": TaskRules("few-shot learning", "classification", bare=True, first_line=True, in_e=True),
    "triviaqa": TaskRules("few-shot learning", "f1", bare=True, first_line=True, in_e=True),
    "samsum": TaskRules("few-shot learning", "rouge_l", bare=True, first_line=True, in_e=True),
    "lsht": TaskRules("few-shot learning", "classification", "zh", bare=True, first_line=True),
    "nq": TaskRules("few-shot learning", "f1", bare=True),
    "passage_count": TaskRules("synthetic", "count", in_e=True),
    "passage_retrieval_en": TaskRules("synthetic", "retrieval", in_e=True),
    "passage_retrieval_zh": TaskRules("synthetic", "retrieval", "zh"),
    "lcc": TaskRules("code completion", "edit_similarity", "code", bare=True, in_e=True),
    "repobench-p": TaskRules("code completion", "edit_similarity", "code", bare=True, in_e=True),
}

BUCKETS = ("0-4k", "4-8k", "8k+")
"""LongBench-E's, by the row's ``length``: below 4,000, below 8,000, the rest."""


def kind_of(task: str) -> TaskRules:
    """The kind of "qasper" and of "qasper_e"."""
    return TASKS[task.removesuffix("_e")]
