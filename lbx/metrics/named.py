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

VERSION = 2
"""Version, incremented whenever a change of code can change a score."""


class Asked(NamedTuple):
    """Sample that an answer is scored against.

    Attributes:
        references: accepted answers; letters if the question has choices.
        choices: {letter: text}; empty without any.
        answer_cues: the task's own phrases that announce the chosen option.
    """

    references: Sequence[str]
    language: str = "en"
    choices: Mapping[str, str] = {}
    answer_cues: Sequence[str] = ()


class Found(NamedTuple):
    """Metric value in 0..1, and the extracted answer; None if the whole output is the answer, "" if none was found."""

    value: float
    extracted: str | None = None


def exact_match(output: str, asked: Asked) -> Found:
    """Whether the answer equals a reference, ignoring case, punctuation and English articles before a word."""
    answer = _comparable(output, asked.language)
    return Found(float(any(answer == _comparable(reference, asked.language) for reference in asked.references)))


def contains(output: str, asked: Asked) -> Found:
    """Whether the answer contains a reference, ignoring case and white space."""
    text = _folded(output)
    return Found(float(any(_folded(one) in text for one in asked.references)))


def accuracy(output: str, asked: Asked) -> Found:
    """Whether the answer states the right option."""
    letter = stated_choice(output, asked.choices, asked.language, asked.answer_cues)
    return Found(float(letter in asked.references), letter or "")


def first_line(output: str, asked: Asked) -> Found:
    """``exact_match`` of the first line that is not blank."""
    line = next(filter(str.strip, output.splitlines()), "")
    return exact_match(line, asked)._replace(extracted=line)


def _f1(output: str, asked: Asked) -> Found:
    """LongBench's F1. A reference without words by its rules, such as "A" or "+", is compared by ``exact_match``."""
    chinese = asked.language == "zh"
    tokens = f1.chinese_tokens if chinese else f1.english_tokens
    worded = [reference for reference in asked.references if tokens(reference)]
    score = (f1.qa_f1_zh if chinese else f1.qa_f1)(output, worded)
    others = [reference for reference in asked.references if reference not in worded]
    return Found(max(score, exact_match(output, asked._replace(references=others)).value))


def _rouge_l(output: str, asked: Asked) -> rouge_l.RougeL:
    return (rouge_l.rouge_l_zh if asked.language == "zh" else rouge_l.rouge_l)(output, asked.references)


def _edit_similarity(output: str, asked: Asked) -> Found:
    line = longbench.code_line(output)
    return Found(longbench.edit_similarity(line, asked.references), line)


METRICS: dict[str, Callable[[str, Asked], Found]] = {
    "exact_match": exact_match,
    "exact_match_first_line": first_line,
    "contains": contains,
    "accuracy": accuracy,
    "f1": _f1,
    "rouge_l": lambda output, asked: Found(_rouge_l(output, asked).official),
    "rouge_l_unlimited": lambda output, asked: Found(_rouge_l(output, asked).unlimited),
    "rouge1": lambda output, asked: Found(rouge_n.rouge(output, asked.references).rouge1),
    "rouge2": lambda output, asked: Found(rouge_n.rouge(output, asked.references).rouge2),
    "rougeL": lambda output, asked: Found(rouge_n.rouge(output, asked.references).rouge_l),
    "edit_similarity": _edit_similarity,
    "count": lambda output, asked: Found(longbench.count(output, asked.references)),
}
"""rouge_l is LongBench's, with the official run's recursion limit, rouge1, rouge2 and rougeL are L-Eval's (English)."""
_LATIN_ONLY = ("rouge1", "rouge2", "rougeL")


_ARTICLE = re.compile(r"\b(?:a|an|the)\s+(?=\S)")
_UNSPACED = ("zh", "ja", "th", "lo", "km", "my")
"""Languages written without spaces between words."""


def _comparable(text: str, language: str) -> str:
    """Normalise a text for ``exact_match``; unchanged if it is all punctuation."""
    lowered = text.lower().replace("\u2212", "-")  # the minus sign
    worded = _ARTICLE.sub("", lowered) if language.partition("-")[0] == "en" else lowered
    kept = "".join(sign for place, sign in enumerate(worded) if not _is_punctuation(worded, place))
    return ("" if language in _UNSPACED else " ").join(kept.split()) or text.strip()


def _is_punctuation(text: str, place: int) -> bool:
    """Whether a character is punctuation, and no part of a number: a sign, a point or another separator."""
    sign, before, after = text[place], text[place - 1 : place], text[place + 1 : place + 2]
    if unicodedata.category(sign)[0] != "P" and sign not in "^`~|":
        return False
    if not after.isdigit():
        return True
    if before.isdigit():
        return sign == "," and bool(re.match(r"\d{3}(?!\d)", text[place + 1 : place + 5]))
    return sign not in "-." or before.isalnum()


def why_unscorable(metric: str, reference: str, asked: Asked) -> str:
    """Reason why a metric cannot recognise right answers by a reference; "" if it can."""
    letters = [sign for sign in reference if sign.isalpha()]
    if metric in _LATIN_ONLY and 2 * sum(sign.isascii() for sign in letters) < len(letters):
        return "it reads only the letters a to z, and digits"
    if not METRICS[metric](reference, asked._replace(references=(reference,))).value:
        return "an answer equal to the reference scores 0"
    return ""


def _folded(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().casefold()
