r"""LongBench's metrics of short answers: numbers, classes, lines of code, and v2's choices.

Source: count_score, retrieval_score, retrieval_zh_score, classification_score and code_sim_score of
https://github.com/THUDM/LongBench/blob/2e00731f8d0bff23dc4325161044d0ed8af94c1e/LongBench/metrics.py
and extract_answer of https://github.com/THUDM/LongBench/blob/2e00731f8d0bff23dc4325161044d0ed8af94c1e/pred.py

Numbers are runs of ``\d`` compared as text: "03" differs from "3", and a full-width digit is a digit but never right.
Lines of code are compared by the ratio of fuzzywuzzy 0.18.0 without a Levenshtein package, as the official
requirements install it. That is difflib's ratio, which cydifflib computes in compiled code. (With python-Levenshtein
the numbers would differ.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cydifflib import SequenceMatcher  # type: ignore[import-untyped]

_NUMBER = re.compile(r"\d+")
_PARAGRAPH = {"en": re.compile(r"Paragraph (\d+)"), "zh": re.compile(r"段落(\d+)")}


def count(prediction: str, references: Sequence[str]) -> float:
    """Share of the numbers in a prediction that equal the reference, for the best of the references."""
    return max((_share_of_numbers(prediction, reference) for reference in references), default=0.0)


def retrieval(prediction: str, references: Sequence[str], *, language: str) -> float:
    """Share of the numbers in a prediction that equal the reference's paragraph ("Paragraph 3", or "段落3" in "zh").

    It is 0 if any reference states no paragraph, at which the official script stops with an IndexError.
    """
    paragraphs = [paragraph(reference, language) for reference in references]
    return count(prediction, [number for number in paragraphs if number]) if all(paragraphs) else 0.0


def paragraph(reference: str, language: str) -> str | None:
    """Extract the paragraph number of a reference, verbatim, or None without one."""
    match = _PARAGRAPH[language].search(reference)
    return match.group(1) if match else None


def _share_of_numbers(prediction: str, reference: str) -> float:
    numbers = _NUMBER.findall(prediction)
    return numbers.count(reference) / len(numbers) if numbers else 0.0


def classification(prediction: str, references: Sequence[str], classes: Sequence[str]) -> float:
    """Score a named class: 1 / the number of classes that the prediction names, if the reference is among them.

    Args:
        prediction: text, already cut to its first line where the benchmark does so.
        references: class names. The best counts. An empty list gives 0.
        classes: every class name, in the data's order.
    """
    predicted_classes = [name for name in classes if name in prediction]
    return max((_share_of_classes(predicted_classes, reference) for reference in references), default=0.0)


def _share_of_classes(predicted_classes: Sequence[str], reference: str) -> float:
    remaining = list(predicted_classes)
    # Classes with a name inside the reference's ("Date" in "Event date") should not count against it. The official
    # loop removes from the list that it iterates over, so it skips the class after a removed one.
    index = 0
    while index < len(remaining):
        if remaining[index] in reference and remaining[index] != reference:
            remaining.remove(remaining[index])
        index += 1
    return 1.0 / len(remaining) if reference in remaining else 0.0


def edit_similarity(line: str, references: Sequence[str]) -> float:
    """Similarity of a line of code to the best reference, in whole hundredths of 0..1. It is 0 without references.

    Args:
        line: the answer's ``code_line``.
        references: the expected lines, verbatim.
    """
    return max((_count_score(line, reference) / 100 for reference in references), default=0.0)


def code_line(output: str) -> str:
    r"""Extract the first line that contains no `, # or //, after leading "\n", or "" without one.

    A line of spaces counts.
    """
    for line in output.lstrip("\n").split("\n"):
        if "`" not in line and "#" not in line and "//" not in line:
            return line
    return ""


def _count_score(line: str, reference: str) -> int:
    if line == reference:
        return 100
    if not line or not reference:
        return 0
    # Argument order and difflib's default autojunk (a reference of 200 characters or more) are part of the number.
    ratio: float = SequenceMatcher(None, line, reference).ratio()
    return round(100 * ratio)


LETTERS = ("A", "B", "C", "D")

_PARENTHESISED = re.compile(r"The correct answer is \(([A-D])\)")
_BARE = re.compile(r"The correct answer is ([A-D])")


def chosen_letter(output: str) -> str | None:
    """Extract the chosen letter of an answer, A, B, C or D, or None if the answer lacks the requested wording.

    A parenthesised letter anywhere beats a bare one before it, and a bare one may begin a word ("is Apple" is A).
    """
    plain = output.strip().replace("*", "")
    match = _PARENTHESISED.search(plain) or _BARE.search(plain)
    return match.group(1) if match else None
