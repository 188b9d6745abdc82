"""Metrics by the names that user-defined benchmarks use.

Text in Chinese ("zh") is split into words by jieba, every other language at its spaces.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from lbx.metrics import f1, longbench, rouge_l, rouge_n
from lbx.metrics.stated_choice import stated_choice

VERSION = 3
"""Version, incremented whenever a change of code can change a score."""


class ScoringTarget(NamedTuple):
    """Part of a sample that its answers are scored against.

    Attributes:
        references: accepted answers; letters if the question has choices.
        choices: {letter: text}; empty without any.
        answer_cues: the task's own phrases that announce the chosen option.
    """

    references: Sequence[str]
    language: str = "en"
    choices: Mapping[str, str] = {}
    answer_cues: Sequence[str] = ()


class MetricResult(NamedTuple):
    """Metric value in 0..1, and the extracted answer; None if the whole output is the answer, "" if none was found."""

    value: float
    extracted: str | None = None


def exact_match(output: str, target: ScoringTarget) -> MetricResult:
    """Return whether the answer equals a reference, ignoring case, punctuation and English articles before a word."""
    answer = _normalize(output, target.language)
    return MetricResult(float(any(answer == _normalize(reference, target.language) for reference in target.references)))


def contains(output: str, target: ScoringTarget) -> MetricResult:
    """Return whether the answer contains a reference, ignoring case and white space."""
    text = _fold(output)
    return MetricResult(float(any(_fold(reference) in text for reference in target.references)))


def accuracy(output: str, target: ScoringTarget) -> MetricResult:
    """Return whether the answer states the right option."""
    letter = stated_choice(output, target.choices, target.language, target.answer_cues)
    return MetricResult(float(letter in target.references), letter or "")


def first_line(output: str, target: ScoringTarget) -> MetricResult:
    """Return ``exact_match`` of the first line that is not blank."""
    line = next(filter(str.strip, output.splitlines()), "")
    return exact_match(line, target)._replace(extracted=line)


def _f1(output: str, target: ScoringTarget) -> MetricResult:
    """Return LongBench's F1, or ``exact_match`` for a reference without words by its rules, such as "A" or "+"."""
    chinese = target.language == "zh"
    tokens = f1.chinese_tokens if chinese else f1.english_tokens
    worded = [reference for reference in target.references if tokens(reference)]
    score = (f1.qa_f1_zh if chinese else f1.qa_f1)(output, worded)
    wordless_references = [reference for reference in target.references if reference not in worded]
    return MetricResult(max(score, exact_match(output, target._replace(references=wordless_references)).value))


def _rouge_l(output: str, target: ScoringTarget) -> rouge_l.RougeL:
    return (rouge_l.rouge_l_zh if target.language == "zh" else rouge_l.rouge_l)(output, target.references)


def _edit_similarity(output: str, target: ScoringTarget) -> MetricResult:
    line = longbench.code_line(output)
    return MetricResult(longbench.edit_similarity(line, target.references), line)


METRICS: dict[str, Callable[[str, ScoringTarget], MetricResult]] = {
    "exact_match": exact_match,
    "exact_match_first_line": first_line,
    "contains": contains,
    "accuracy": accuracy,
    "f1": _f1,
    "rouge_l": lambda output, target: MetricResult(_rouge_l(output, target).official),
    "rouge_l_unlimited": lambda output, target: MetricResult(_rouge_l(output, target).without_limit),
    "rouge1": lambda output, target: MetricResult(rouge_n.rouge(output, target.references).rouge1),
    "rouge2": lambda output, target: MetricResult(rouge_n.rouge(output, target.references).rouge2),
    "rougeL": lambda output, target: MetricResult(rouge_n.rouge(output, target.references).rouge_l),
    "edit_similarity": _edit_similarity,
    "count": lambda output, target: MetricResult(longbench.count(output, target.references)),
}
"""rouge_l is LongBench's, with the official run's recursion limit, rouge1, rouge2 and rougeL are L-Eval's (English)."""
_LATIN_ONLY = ("rouge1", "rouge2", "rougeL")


_ARTICLE = re.compile(r"\b(?:a|an|the)\s+(?=\S)")
_UNSPACED = ("zh", "ja", "th", "lo", "km", "my")
"""Languages written without spaces between words."""


def _normalize(text: str, language: str) -> str:
    """Normalise a text for ``exact_match``; unchanged if it is all punctuation."""
    lowered = text.lower().replace("\u2212", "-")  # the minus sign
    worded = _ARTICLE.sub("", lowered) if language.partition("-")[0] == "en" else lowered
    characters = "".join(sign for index, sign in enumerate(worded) if not _is_punctuation(worded, index))
    return ("" if language in _UNSPACED else " ").join(characters.split()) or text.strip()


def _is_punctuation(text: str, index: int) -> bool:
    """Return whether a character is punctuation, and no part of a number: a sign, a point or another separator."""
    sign, before, after = text[index], text[index - 1 : index], text[index + 1 : index + 2]
    if unicodedata.category(sign)[0] != "P" and sign not in "^`~|":
        return False
    if not after.isdigit():
        return True
    if before.isdigit():
        return sign == "," and bool(re.match(r"\d{3}(?!\d)", text[index + 1 : index + 5]))
    return sign not in "-." or before.isalnum()


def unscorable_reason(metric: str, reference: str, target: ScoringTarget) -> str:
    """Return the reason why a metric cannot recognise right answers by a reference; "" if it can."""
    letters = [sign for sign in reference if sign.isalpha()]
    if metric in _LATIN_ONLY and 2 * sum(sign.isascii() for sign in letters) < len(letters):
        return "it reads only the letters a to z, and digits"
    if not METRICS[metric](reference, target._replace(references=(reference,))).value:
        return "an answer equal to the reference scores 0"
    return ""


def _fold(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().casefold()
