"""ROUGE-L of the ``rouge`` package 1.0.1 (pltrdy), summary level, on sets of unique tokens.

LongBench, LV-Eval and LongBench Pro score summaries with it. Differences from the paper's ROUGE-L:

- sentences end at ASCII "." only; a piece of mere whitespace becomes one empty token, which counts;
- tokens count once each, over the whole text: the union of the sentence pairs' subsequences against unique tokens;
- the backtrace moves up only if the cell above is larger, else left, which decides *which* subsequence is found;
- F has 1e-8 in its denominator, so an exact match scores 0.999999995.

The package recurses once per step of the backtrace, and the official scripts turn the RecursionError of a long
sentence into a score of 0. Chinese has no "." to split at, so long Chinese answers score 0 officially. This code
does not recurse: it counts the depth and returns both numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from lbx.metrics import chinese, lcs

FRAMES_ENGLISH = 991
FRAMES_CHINESE = 990
"""Deepest recursion that works officially on CPython 3.11 to 3.13: LongBench English; LongBench Chinese and LV-Eval."""


@dataclass(frozen=True, slots=True)
class RougeL:
    """ROUGE-L of the best of several references, in 0..1.

    Attributes:
        official: value of the official run: references beyond the recursion limit score 0.
        frames: deepest recursion over all pairs of sentences; 0 without pairs.
    """

    official: float
    without_limit: float
    frames: int


def rouge_l(prediction: str, references: Sequence[str], *, frame_limit: int = FRAMES_ENGLISH) -> RougeL:
    """Return ROUGE-L's F over whitespace tokens; 0 for an empty prediction or reference, or one of "." only."""
    predicted = _Text(prediction)
    official = unlimited = 0.0
    deepest = 0
    for reference in references:
        score, frames = _compare(predicted, _Text(reference))
        unlimited = max(unlimited, score)
        deepest = max(deepest, frames)
        if frames <= frame_limit:
            official = max(official, score)
    return RougeL(official, unlimited, deepest)


def rouge_l_zh(prediction: str, references: Sequence[str], *, frame_limit: int = FRAMES_CHINESE) -> RougeL:
    """Return ROUGE-L's F over jieba's words."""
    return rouge_l(join_words(prediction), [join_words(reference) for reference in references], frame_limit=frame_limit)


def join_words(text: str) -> str:
    """Return jieba's words joined by spaces, as the official scripts hand them to ``rouge``."""
    return " ".join(chinese.words(text))


class _Sentence:
    def __init__(self, tokens: tuple[str, ...]) -> None:
        self.tokens = tokens
        self.size = len(tokens)
        self.unique = frozenset(tokens)

    @cached_property
    def masks(self) -> Mapping[str, int]:
        return lcs.positions(self.tokens)


class _Text:
    """Distinct sentences of a text, the longest first, and the positions of its tokens.

    Attributes:
        holders: {token: numbers of the sentences with it, ascending}.
    """

    def __init__(self, text: str) -> None:
        pieces = {tuple(piece.split()) or ("",) for piece in text.split(".") if piece}
        self.sentences = [_Sentence(tokens) for tokens in sorted(pieces, key=len, reverse=True)]
        self.holders: dict[str, list[int]] = {}
        for number, sentence in enumerate(self.sentences):
            for token in sentence.unique:
                self.holders.setdefault(token, []).append(number)


def _compare(prediction_text: _Text, reference_text: _Text) -> tuple[float, int]:
    """Return F and the frames of the deepest recursion."""
    if not prediction_text.sentences or not reference_text.sentences:
        return 0.0, 0
    union = _Union(prediction_text)
    for reference in reference_text.sentences:
        union.add(reference)
    recall = len(union.tokens) / len(reference_text.holders)
    precision = len(union.tokens) / len(prediction_text.holders)
    return 2.0 * ((precision * recall) / (precision + recall + 1e-8)), union.deepest


class _Union:
    """Union of the subsequences of all pairs of sentences, from as few pairs as necessary.

    Most pairs cannot change the result: all their common tokens are in the union already, and they are too short to
    recurse deeper than an earlier pair.

    Attributes:
        tokens: the union.
        deepest: frames of the deepest recursion.
    """

    def __init__(self, prediction_text: _Text) -> None:
        self._prediction = prediction_text
        self.tokens: set[str] = set()
        self.deepest = 0

    def add(self, reference: _Sentence) -> None:
        """Add the pairs of a reference's sentence with all sentences of the prediction."""
        holders, candidates = self._prediction.holders, self._prediction.sentences
        shared = [token for token in reference.unique if token in holders]
        done: set[int] = set()
        for token in shared:
            for number in holders[token]:
                if token in self.tokens:
                    break
                if number not in done:
                    done.add(number)
                    self._add(reference, candidates[number])
        if reference.size + candidates[0].size <= self.deepest:
            return
        touching = set[int]().union(*(holders[token] for token in shared))
        unrelated = next((candidate for number, candidate in enumerate(candidates) if number not in touching), None)
        if unrelated:
            self.deepest = max(self.deepest, unrelated.size + 1)  # nothing in common: all the way to the left
        for number in sorted(touching - done):
            if reference.size + candidates[number].size <= self.deepest:  # a path has no more frames than this
                return
            self._add(reference, candidates[number])

    def _add(self, reference: _Sentence, candidate: _Sentence) -> None:
        matched, frames = _backtrace(reference.tokens, candidate)
        self.tokens.update(matched)
        self.deepest = max(self.deepest, frames)


def _backtrace(reference: Sequence[str], candidate: _Sentence) -> tuple[list[str], int]:
    """Return the tokens of the subsequence, and the recursion depth that the package would need for it.

    At a cell with differing tokens, "the cell above is larger than the cell to the left" is true exactly if the row
    steps up at that column: a row's bits are enough for the backtrace. A run of moves to the left ends at the highest
    bit that is a step or a match; rows without any match repeat the row above them, so that the path goes left once and
    then straight up through them.
    """
    matched: list[str] = []
    i, j = len(reference), candidate.size
    while i and j and reference[i - 1] == candidate.tokens[j - 1]:  # an end in common needs no table
        i -= 1
        j -= 1
        matched.append(reference[i])
    frames = 1 + len(matched)
    if not i or not j:
        return matched, frames
    masks = candidate.masks
    hits = [row for row, token in enumerate(reference[:i], 1) if token in masks]
    steps = lcs.rows_upwards([reference[row - 1] for row in hits], masks, j)
    for row, step in zip(reversed(hits), steps, strict=True):
        if i > row:
            stop = (step & ((1 << j) - 1)).bit_length()
            frames += j - stop
            if not stop:
                return matched, frames
            frames += i - row
            i, j = row, stop
        mask = masks[reference[row - 1]]
        stop = ((step | mask) & ((1 << j) - 1)).bit_length()
        frames += j - stop + bool(stop)
        j = stop
        if j and mask >> (j - 1) & 1:
            matched.append(reference[row - 1])
            j -= 1
        if not j:
            return matched, frames
        i -= 1
    return matched, frames + (j if i else 0)
