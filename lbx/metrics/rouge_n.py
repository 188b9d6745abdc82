"""ROUGE-1, ROUGE-2 and ROUGE-L of Google's ``rouge-score`` 0.1.2 without a stemmer, as L-Eval uses it.

The words are that package's own: runs of a-z and 0-9 of the lower-cased text. Repeated ones count: this is not the
ROUGE-L of ``lbx.metrics.rouge_l``. The F of each is the package's ``fmeasure``, in 0..1; its arithmetic is done here,
because its longest common subsequence is a table filled cell by cell in Python.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rouge_score.tokenize import tokenize

from lbx.metrics import lcs
from lbx.metrics.f1 import f_measure


@dataclass(frozen=True, slots=True)
class Rouge:
    """F of unigrams, of bigrams and of the longest common subsequence, each the best of its references."""

    rouge1: float
    rouge2: float
    rouge_l: float


def rouge(prediction: str, references: Sequence[str]) -> Rouge:
    """Compute the three scores; 0 without references, or without tokens on one side."""
    predicted = tokenize(prediction, None)
    best = Rouge(0.0, 0.0, 0.0)
    for reference in references:
        expected = tokenize(reference, None)
        best = Rouge(
            max(best.rouge1, _ngram_f(predicted, expected, 1)),
            max(best.rouge2, _ngram_f(predicted, expected, 2)),
            max(best.rouge_l, f_measure(lcs.length(predicted, expected), len(predicted), len(expected))),
        )
    return best


def _ngram_f(prediction_tokens: Sequence[str], reference_tokens: Sequence[str], n: int) -> float:
    prediction_ngrams, reference_ngrams = _ngrams(prediction_tokens, n), _ngrams(reference_tokens, n)
    return f_measure(
        (prediction_ngrams & reference_ngrams).total(), prediction_ngrams.total(), reference_ngrams.total()
    )


def _ngrams(tokens: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(tokens[start:] for start in range(n)), strict=False))
