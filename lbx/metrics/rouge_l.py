"""ROUGE-L of the ``rouge`` package 1.0.1 (pltrdy), summary level, on sets of unique tokens.

LongBench, LV-Eval and LongBench Pro score summaries with it. What it does differently from the paper's ROUGE-L:

- sentences end at ASCII "." only; a piece of mere whitespace becomes one empty token, which counts;
- tokens count once each, over the whole text: the union of the sentence pairs' subsequences against unique tokens;
- the backtrace goes up only where the cell above is larger, else left, which decides *which* subsequence is found;
- F has 1e-8 in its denominator, so an exact match scores 0.999999995.

The package recurses once per step of the backtrace, and the official scripts turn the RecursionError of a long
sentence into a score of 0. Chinese has no "." to split at, so long Chinese answers score 0 officially. Here nothing
recurses: the depth is counted, and both numbers come back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lbx.metrics import chinese, lcs

FRAMES_ENGLISH = 991
FRAMES_CHINESE = 990
"""Deepest recursion that works officially on CPython 3.11 to 3.13: LongBench English; LongBench Chinese and LV-Eval."""


@dataclass(frozen=True, slots=True)
class RougeL:
    """The best of several references, in 0..1.

    Attributes:
        official: as the official run records it: references beyond the recursion limit score 0.
        unlimited: as it would be without the limit.
        frames: deepest recursion over all pairs of sentences; 0 where there was nothing to compare.
    """

    official: float
    unlimited: float
    frames: int


def rouge_l(prediction: str, references: Sequence[str], *, frame_limit: int = FRAMES_ENGLISH) -> RougeL:
    """F of whitespace tokens. An empty prediction or reference (or one of "." only) scores 0."""
    predicted = _Text.of(prediction)
    official = unlimited = 0.0
    deepest = 0
    for reference in references:
        score, frames = _compare(predicted, _Text.of(reference))
        unlimited = max(unlimited, score)
        deepest = max(deepest, frames)
        if frames <= frame_limit:
            official = max(official, score)
    return RougeL(official, unlimited, deepest)


def rouge_l_zh(prediction: str, references: Sequence[str], *, frame_limit: int = FRAMES_CHINESE) -> RougeL:
    """F of jieba's words."""
    return rouge_l(spaced(prediction), [spaced(reference) for reference in references], frame_limit=frame_limit)


def spaced(text: str) -> str:
    """jieba's words joined by spaces, as the official scripts hand them to ``rouge``."""
    return " ".join(chinese.words(text))


@dataclass(frozen=True, slots=True)
class _Sentence:
    tokens: list[str]
    masks: Mapping[str, int]

    @classmethod
    def of(cls, piece: str) -> _Sentence:
        tokens = piece.split() or [""]
        return cls(tokens, lcs.positions(tokens))


@dataclass(frozen=True, slots=True)
class _Text:
    sentences: list[_Sentence]
    unique: int

    @classmethod
    def of(cls, text: str) -> _Text:
        sentences = [_Sentence.of(piece) for piece in text.split(".") if piece]
        return cls(sentences, len(set().union(*(sentence.masks for sentence in sentences))))


def _compare(predicted: _Text, expected: _Text) -> tuple[float, int]:
    if not predicted.sentences or not expected.sentences:
        return 0.0, 0
    common: set[str] = set()
    deepest = 0
    for reference in expected.sentences:
        for candidate in predicted.sentences:
            if reference.masks.keys().isdisjoint(candidate.masks):
                deepest = max(deepest, len(candidate.tokens) + 1)  # all the way to the left
                continue
            found, frames = _backtrace(reference.tokens, candidate)
            common.update(found)
            deepest = max(deepest, frames)
    recall = len(common) / expected.unique
    precision = len(common) / predicted.unique
    return 2.0 * ((precision * recall) / (precision + recall + 1e-8)), deepest


def _backtrace(reference: Sequence[str], candidate: _Sentence) -> tuple[list[str], int]:
    """The subsequence's tokens, and how many calls deep the package would have gone for it.

    At a cell whose tokens differ, "the cell above is larger than the cell to the left" holds exactly where the
    row steps up at that column: a row's bits are all the table that is needed. A run of moves to the left ends at
    the highest bit that is a step or a match; rows without any match repeat the row above them, so that the path
    goes left once and then straight up through them.
    """
    masks = candidate.masks
    hits = [(row, masks[token]) for row, token in enumerate(reference, 1) if token in masks]
    steps = lcs.rows((mask for _, mask in hits), len(candidate.tokens))
    found: list[str] = []
    i, j = len(reference), len(candidate.tokens)
    frames = 1
    for (row, mask), step in zip(reversed(hits), reversed(steps), strict=True):
        if i > row:
            stop = (step & ((1 << j) - 1)).bit_length()
            frames += j - stop
            if not stop:
                return found, frames
            frames += i - row
            i, j = row, stop
        stop = ((step | mask) & ((1 << j) - 1)).bit_length()
        frames += j - stop + bool(stop)
        j = stop
        if j and mask >> (j - 1) & 1:
            found.append(reference[row - 1])
            j -= 1
        if not j:
            return found, frames
        i -= 1
    return found, frames + (j if i else 0)
