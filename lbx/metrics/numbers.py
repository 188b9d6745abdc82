r"""The share of right numbers: LongBench's passage_count and passage_retrieval.

Numbers are runs of ``\d`` compared as text: "03" is not "3", and a full-width digit is a digit but never right.

Source: count_score, retrieval_score and retrieval_zh_score of
https://github.com/THUDM/LongBench/blob/2e00731f8d0bff23dc4325161044d0ed8af94c1e/LongBench/metrics.py
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBER = re.compile(r"\d+")
_PARAGRAPH = {"en": re.compile(r"Paragraph (\d+)"), "zh": re.compile(r"段落(\d+)")}


def count(prediction: str, references: Sequence[str]) -> float:
    """Of the numbers in the prediction, the share equal to the reference; the best reference counts."""
    return max((_share(prediction, reference) for reference in references), default=0.0)


def retrieval(prediction: str, references: Sequence[str], *, language: str) -> float:
    """The same against the reference's paragraph number ("Paragraph 3", "段落3"), language "en" or "zh".

    Any reference without a paragraph number makes it 0: there the official script stops with an IndexError.
    """
    wanted = [paragraph(reference, language) for reference in references]
    return count(prediction, [number for number in wanted if number]) if all(wanted) else 0.0


def paragraph(reference: str, language: str) -> str | None:
    """The number that a reference names, as it is written; None where it names none."""
    match = _PARAGRAPH[language].search(reference)
    return match.group(1) if match else None


def _share(prediction: str, wanted: str) -> float:
    numbers = _NUMBER.findall(prediction)
    return numbers.count(wanted) / len(numbers) if numbers else 0.0
