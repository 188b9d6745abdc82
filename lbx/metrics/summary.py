"""LongBench Pro's summary metric: half likeness by an embedding model, half ROUGE-L, each of the best reference.

Source: caskcsg/longcontext, LongBench-Pro/modules/utils.py at 88fbeb85. The answer marker is no matter here: the whole
output is the summary, in lower case with white space folded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lbx.metrics import chinese, rouge_l

FRAMES = 987
"""Deepest recursion of ``rouge`` that works at the depth the official script calls it from, on CPython 3.11 to 3.13."""


class SummaryRouge(NamedTuple):
    """The best of several references, in 0..1.

    Attributes:
        official: as the official run records it: 0 for all references as soon as one of them is too long for the
            package's recursion or has no sentence.
        unlimited: as it would be without the recursion limit.
    """

    official: float
    unlimited: float


def summary_rouge(text: str, references: Sequence[str], *, language: str) -> SummaryRouge:
    """ROUGE-L of a folded text against folded references; Chinese ("zh") is cut into words first."""
    if not references or any(_no_sentence(piece, language) for piece in (text, *references)):
        return SummaryRouge(0.0, 0.0)
    if language == "zh":
        rouge = rouge_l.rouge_l_zh(text, references, frame_limit=FRAMES)
    else:
        rouge = rouge_l.rouge_l(text, references, frame_limit=FRAMES)
    return SummaryRouge(rouge.unlimited if rouge.frames <= FRAMES else 0.0, rouge.unlimited)


def _no_sentence(text: str, language: str) -> bool:
    """Whether ``rouge`` finds nothing between the dots, which it refuses."""
    if text.strip("."):
        return False
    return language != "zh" or not " ".join(chinese.words(text)).strip(".")


def summary(similarity: float, rouge: float) -> float:
    """Both halves together. Not in 0..1 (officially a failure) where the similarity is far from 0..1, or NaN."""
    return 0.5 * similarity + 0.5 * rouge
