r"""LongBench's metrics of short answers: numbers, classes, lines of code, and v2's choices.

Source: count_score, retrieval_score, retrieval_zh_score, classification_score and code_sim_score of
https://github.com/THUDM/LongBench/blob/2e00731f8d0bff23dc4325161044d0ed8af94c1e/LongBench/metrics.py
and extract_answer of https://github.com/THUDM/LongBench/blob/2e00731f8d0bff23dc4325161044d0ed8af94c1e/pred.py

Numbers are runs of ``\d`` compared as text: "03" differs from "3", and a full-width digit is a digit but never right.
Lines of code are compared by the ratio of fuzzywuzzy 0.18.0 without a Levenshtein package, which the official
requirements give: difflib's, and cydifflib is the same, compiled. (python-Levenshtein gives other numbers, which are
not mixed in here.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cydifflib import SequenceMatcher  # type: ignore[import-untyped]

_NUMBER = re.compile(r"\d+")
_PARAGRAPH = {"en": re.compile(r"Paragraph (\d+)"), "zh": re.compile(r"段落(\d+)")}


def count(prediction: str, references: Sequence[str]) -> float:
    """Return the share of the numbers in the prediction that equal the reference; the best reference counts."""
    return max((_share_of_numbers(prediction, reference) for reference in references), default=0.0)


def retrieval(prediction: str, references: Sequence[str], *, language: str) -> float:
    """Return the share of numbers that equal the reference's paragraph ("Paragraph 3"; "段落3" in "zh").

    Any reference without a paragraph number makes it 0: there the official script stops with an IndexError.
    """
    paragraphs = [paragraph(reference, language) for reference in references]
    return count(prediction, [number for number in paragraphs if number]) if all(paragraphs) else 0.0


def paragraph(reference: str, language: str) -> str | None:
    """Return the paragraph number in a reference, verbatim; None without one."""
    match = _PARAGRAPH[language].search(reference)
    return match.group(1) if match else None


def _share_of_numbers(prediction: str, reference: str) -> float:
    numbers = _NUMBER.findall(prediction)
    return numbers.count(reference) / len(numbers) if numbers else 0.0


def classification(prediction: str, references: Sequence[str], classes: Sequence[str]) -> float:
    """Return 1 / the number of classes the prediction names, if the reference is among them; the best reference counts.

    Args:
        prediction: text, already cut to its first line where the benchmark does so.
        references: class names; an empty list gives 0.
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
    """Return the similarity in whole hundredths, 0..1, of the best reference; 0 without any.

    Args:
        line: the answer's ``code_line``.
        references: the expected lines, verbatim.
    """
    return max((_count_score(line, reference) / 100 for reference in references), default=0.0)


def code_line(output: str) -> str:
    r"""Return the first line without `, # and //, after leading "\n"; "" without any. A line of spaces counts."""
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
    """Extract A, B, C or D; None if the answer lacks the requested wording.

    A parenthesised letter anywhere beats a bare one before it, and a bare one may begin a word ("is Apple" is A).
    """
    plain = output.strip().replace("*", "")
    match = _PARENTHESISED.search(plain) or _BARE.search(plain)
    return match.group(1) if match else None
