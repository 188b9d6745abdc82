"""Metrics by the names that a benchmark of one's own calls them.

Text in Chinese ("zh") is cut into words by jieba, every other language at its spaces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from lbx.metrics import code, f1, numbers, rouge_l, rouge_n
from lbx.metrics.multiple_choice import letter_said

VERSION = 1
"""Raised whenever a change of code can change a score."""


class Asked(NamedTuple):
    """What an answer is held against.

    Attributes:
        references: the accepted answers; a letter where the question has choices.
        letters: of the choices: "ABCD"; "" without any.
    """

    references: Sequence[str]
    language: str = "en"
    letters: str = ""


class Found(NamedTuple):
    """A metric's value in 0..1, and what it took for the answer where that is not all of it; "" for nothing."""

    value: float
    extracted: str | None = None


def exact_match(output: str, asked: Asked) -> Found:
    """Whether the answer's words are a reference's, case, punctuation and English articles aside (SQuAD's rule)."""
    answer_words = _words(output, asked.language)
    equal = (
        answer_words == words if (words := _words(one, asked.language)) else output == one for one in asked.references
    )
    return Found(float(any(equal)))


def contains(output: str, asked: Asked) -> Found:
    """Whether a reference stands in the answer, case and white space aside."""
    text = _folded(output)
    return Found(float(any(_folded(one) in text for one in asked.references)))


def accuracy(output: str, asked: Asked) -> Found:
    """Whether the letter that was chosen is the right one."""
    letter = letter_said(output, asked.letters)
    return Found(float(letter in asked.references), letter or "")


def first_line(output: str, asked: Asked) -> Found:
    """``exact_match`` of the first line that is not blank."""
    line = next(filter(str.strip, output.splitlines()), "")
    return exact_match(line, asked)._replace(extracted=line)


def _f1(output: str, asked: Asked) -> Found:
    return Found((f1.qa_f1_zh if asked.language == "zh" else f1.qa_f1)(output, asked.references))


def _rouge_l(output: str, asked: Asked) -> rouge_l.RougeL:
    return (rouge_l.rouge_l_zh if asked.language == "zh" else rouge_l.rouge_l)(output, asked.references)


def _edit_similarity(output: str, asked: Asked) -> Found:
    line = code.code_line(output)
    return Found(code.edit_similarity(line, asked.references), line)


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
    "count": lambda output, asked: Found(numbers.count(output, asked.references)),
}
"""rouge_l is LongBench's, with the official run's recursion limit, rouge1, rouge2 and rougeL are L-Eval's (English)."""


def _words(text: str, language: str) -> list[str]:
    return f1.chinese_tokens(text) if language == "zh" else f1.english_tokens(text)


def _folded(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().casefold()
