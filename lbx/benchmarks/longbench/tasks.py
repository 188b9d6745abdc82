"""Rules of each task of LongBench v1 and LongBench-E: category, metric, language, prompt, accepted answers.

``official_error`` describes the samples at which the official eval.py stops.
"""

from __future__ import annotations

from dataclasses import dataclass

from lbx.base.records import Sample
from lbx.benchmarks.metrics.longbench import paragraph

METRICS: dict[str, tuple[str, ...]] = {
    "f1": ("f1",),
    "rouge_l": ("rouge_l", "rouge_l_unlimited"),
    "classification": ("classification",),
    "count": ("count",),
    "retrieval": ("retrieval",),
    "edit_similarity": ("edit_similarity",),
}
"""{metric of a task: stored metrics}. rouge_l_unlimited is rouge_l without the official run's recursion limit."""


@dataclass(frozen=True, slots=True)
class TaskRules:
    """Rules of a task.

    Attributes:
        category: category in the paper's averages.
        metric: a key of ``METRICS``.
        language: "en", "zh" or "code".
        bare: whether the prompt is sent without a chat template, even to chat models.
        first_line: whether only the answer's first line counts.
        in_e: whether LongBench-E includes the task.
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
"""LongBench-E's buckets by the length of a sample: below 4,000, below 8,000, and longer."""


def rules_of(task: str) -> TaskRules:
    """Rules of a task of LongBench or of E: "qasper_e" uses those of "qasper"."""
    return TASKS[task.removesuffix("_e")]


ODD_ANSWERS = "classify_odd_answers"
"""Key of ``Sample.meta`` that describes values in a row's answers that are not text. Sound rows do not contain it."""


def accepted_answers(task: str, answers: object) -> tuple[str, ...]:
    """Answers that the official scorer would compare with, for any value of ``answers``.

    As in the scorer, a bare string counts as its characters, and passage_count compares numbers by their text.
    In other tasks, values that are not text (null, a number) are dropped.
    """
    if not isinstance(answers, list | tuple | str):
        return ()
    if rules_of(task).metric == "count":
        return tuple(str(answer) for answer in answers)
    return tuple(answer for answer in answers if isinstance(answer, str))


def classify_odd_answers(answers: object) -> str | None:
    """Classify the values of ``answers`` that are not text: "null", "other", None, or "all" if it is no list."""
    if not isinstance(answers, list | tuple | str):
        return "all"
    odd = [answer for answer in answers if not isinstance(answer, str)]
    if not odd:
        return None
    return "null" if all(answer is None for answer in odd) else "other"


def official_error(sample: Sample, answer: str) -> str | None:
    """Reason why eval.py would stop at this sample, or None if it gives a score.

    Args:
        answer: the scored text of the output.
    """
    kind, odd = rules_of(sample.task), sample.meta.get(ODD_ANSWERS)
    if odd == "all":
        return "The answers are no list: the official scorer stops with TypeError."
    if kind.metric == "classification":
        return _classification_error(sample, answer, odd)
    if kind.metric == "retrieval":
        return _retrieval_error(sample, kind, odd)
    if not odd or kind.metric == "count":
        return None
    if kind.metric == "edit_similarity":
        # fuzzywuzzy gives 0 for null, and for anything compared with an empty line.
        stops = odd == "other" and answer != ""
        return "An answer is no text: the official code_sim_score stops with TypeError." if stops else None
    # The English ROUGE function turns every error into 0; the Chinese one cuts words before that.
    stops = kind.metric == "f1" or kind.language == "zh"
    return "An answer is no text: the official metric stops with AttributeError." if stops else None


def class_names(sample: Sample) -> tuple[str, ...]:
    """Names of the classes in a sample, without values that are not text. () for a task without classes."""
    classes = sample.meta.get("all_classes")
    return tuple(name for name in classes if isinstance(name, str)) if isinstance(classes, list | str) else ()


def _classification_error(sample: Sample, answer: str, odd: str | None) -> str | None:
    classes, names = sample.meta.get("all_classes"), class_names(sample)
    if (sample.references or odd) and (not isinstance(classes, list | str) or len(names) != len(classes)):
        return "all_classes is no list of names: the official classification_score stops with TypeError."
    if odd and any(name in answer for name in names):
        return "An answer is no text: the official classification_score stops with TypeError."
    return None


def _retrieval_error(sample: Sample, kind: TaskRules, odd: str | None) -> str | None:
    if odd:
        return "An answer is no text: the official retrieval score stops with TypeError."
    if any(paragraph(reference, kind.language) is None for reference in sample.references):
        return "A reference has no paragraph number: the official retrieval score stops with IndexError."
    return None
