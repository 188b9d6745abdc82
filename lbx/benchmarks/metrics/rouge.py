"""ROUGE as two packages compute it, and the longest common subsequence that both need.

First, ROUGE-L of the ``rouge`` package 1.0.1 (pltrdy), summary level, on sets of unique tokens.

LongBench, LV-Eval and LongBench Pro score summaries with it. Differences from the paper's ROUGE-L:

- sentences end at ASCII "." only; a piece of mere whitespace becomes one empty token, which counts;
- tokens count once each, over the whole text: the union of the sentence pairs' subsequences against unique tokens;
- the backtrace moves up only if the cell above is larger, else left, which decides *which* subsequence is found;
- F has 1e-8 in its denominator, so an exact match scores 0.999999995.

The package recurses once per step of the backtrace, and the official scripts turn the RecursionError of a long
sentence into a score of 0. Chinese has no "." to split at, so long Chinese answers score 0 officially. This code
does not recurse: it counts the depth and returns both numbers.

Second, Google's ``rouge-score`` 0.1.2: ROUGE-1, ROUGE-2, ROUGE-L and ROUGE-Lsum without a stemmer, as L-Eval and
InfiniteBench use it, and F and recall of ROUGE-L and ROUGE-Lsum with its stemmer, as HELMET does.

The words are that package's own: runs of a-z and 0-9 of the lower-cased text. Repeated ones count: this is not the
first ROUGE-L. The F of each is the package's ``fmeasure``, in 0..1; its arithmetic is done here,
because its longest common subsequence is a table filled cell by cell in Python.

The longest common subsequence of two token lists is computed with one big integer per row of the table.

The usual table T[i, j] (length over the first i tokens of x and the first j of y) grows by 0 or 1 from one
column to the next, so a row is a bit per column: bit j is set where T[i, j + 1] = T[i, j] + 1. Python's integers
compute a whole row in three operations (H. Hyyro, "Bit-parallel LCS-length computation revisited", 2004), and the
bits hold all that a backtrace needs.

Time is proportional to the product of the two lengths over 64. Memory stays under a few times ``MAX_BITS`` at any
length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import chain
from math import isqrt
from typing import Any, NamedTuple

from rouge_score.tokenize import tokenize

from lbx.benchmarks.metrics import chinese
from lbx.benchmarks.metrics.f1 import f_measure

MAX_BITS = 1 << 29
"""Number of bits to store of positions, and of rows (64 MiB each). Further bits are computed again when needed."""


def positions(tokens: Sequence[str]) -> Mapping[str, int]:
    """Positions of each token as bits of an integer: bit j is set if ``tokens[j]`` is the token."""
    if len(tokens) ** 2 > MAX_BITS:
        return _ManyPositions(tokens)
    masks: dict[str, int] = {}
    for index, token in enumerate(tokens):
        masks[token] = masks.get(token, 0) | (1 << index)
    return masks


def rows_upwards(tokens: Sequence[str], masks: Mapping[str, int], width: int) -> Iterator[int]:
    """Yield the rows of the table for x and y as step bits, from the last token of x to the first.

    Args:
        tokens: tokens of x that are also in y. (The row of any other token repeats the row above.)
        masks: ``positions(y)``.
        width: number of leading tokens of y that count.
    """
    full = (1 << width) - 1
    size = len(tokens) if len(tokens) * width <= MAX_BITS else isqrt(len(tokens))
    parts = [tokens[start : start + size] for start in range(0, len(tokens), size or 1)]
    above = [0]  # the row before each part, to start again from
    for part in parts[:-1]:
        above.append(_last_row(part, masks, above[-1], full))
    while parts:
        steps = _rows(parts.pop(), masks, above.pop(), full)
        steps.reverse()
        yield from steps


def lcs_length(x: Sequence[str], y: Sequence[str]) -> int:
    """Length of the longest common subsequence of two token lists."""
    if len(x) < len(y):
        x, y = y, x
    begin = _common_prefix_length(
        x, y
    )  # both begin and end alike: all of that is in the subsequence, and needs no table
    x, y = x[begin:], y[begin:]
    end = _common_prefix_length(x[::-1], y[::-1])
    x, y = x[: len(x) - end], y[: len(y) - end]
    masks = positions(y)
    middle = _last_row([token for token in x if token in masks], masks, 0, (1 << len(y)) - 1)
    return begin + middle.bit_count() + end


def _common_prefix_length(x: Sequence[str], y: Sequence[str]) -> int:
    pairs = enumerate(zip(x, y, strict=False))
    return next((index for index, (x_token, y_token) in pairs if x_token != y_token), min(len(x), len(y)))


def _rows(tokens: Sequence[str], masks: Mapping[str, int], above: int, full: int) -> list[int]:
    flat = full ^ above  # bits where the row does NOT grow
    steps = []
    for token in tokens:
        hits = flat & masks[token]
        flat = ((flat + hits) | (flat - hits)) & full
        steps.append(full ^ flat)
    return steps


def _last_row(tokens: Sequence[str], masks: Mapping[str, int], above: int, full: int) -> int:
    flat = full ^ above
    for token in tokens:
        hits = flat & masks[token]
        flat = ((flat + hits) | (flat - hits)) & full
    return full ^ flat


class _ManyPositions(Mapping[str, int]):
    """``positions`` of a list with too many tokens to store the bits of all of them.

    Bits of tokens that are often requested are cached. Those are frequent tokens, and bits of rare ones are quick to
    compute.
    """

    def __init__(self, tokens: Sequence[str]) -> None:
        self._width = len(tokens)
        self._positions: dict[str, list[int]] = {}
        for index, token in enumerate(tokens):
            self._positions.setdefault(token, []).append(index)
        self._cached_mask = lru_cache(max(MAX_BITS // self._width, 16))(self._mask)

    def __getitem__(self, token: str) -> int:
        return self._cached_mask(token)

    def __contains__(self, token: object) -> bool:
        return token in self._positions

    def __iter__(self) -> Iterator[str]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)

    def _mask(self, token: str) -> int:
        octets = bytearray(self._width // 8 + 1)
        for position in self._positions[token]:
            octets[position >> 3] |= 1 << (position & 7)
        return int.from_bytes(octets, "little")


FRAMES_ENGLISH = 991
FRAMES_CHINESE = 990
"""Deepest recursion that works officially on CPython 3.11 to 3.13, in LongBench English, and in Chinese or LV-Eval."""


@dataclass(frozen=True, slots=True)
class RougeL:
    """ROUGE-L of a prediction for the best reference, in 0..1.

    Attributes:
        official: value of the official run, in which references beyond the recursion limit score 0.
        without_limit: value without the recursion limit.
        frames: deepest recursion over all pairs of sentences, or 0 without pairs.
    """

    official: float
    without_limit: float
    frames: int


def rouge_l(prediction: str, references: Sequence[str], *, frame_limit: int = FRAMES_ENGLISH) -> RougeL:
    """F of ROUGE-L over whitespace tokens. It is 0 for a prediction or reference that is empty or only dots."""
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
    """F of ROUGE-L over jieba's words."""
    return rouge_l(join_words(prediction), [join_words(reference) for reference in references], frame_limit=frame_limit)


def join_words(text: str) -> str:
    """Join jieba's words of a text by spaces, as the official scripts pass them to ``rouge``."""
    return " ".join(chinese.words(text))


class _Sentence:
    def __init__(self, tokens: tuple[str, ...]) -> None:
        self.tokens = tokens
        self.size = len(tokens)
        self.unique = frozenset(tokens)

    @cached_property
    def masks(self) -> Mapping[str, int]:
        return positions(self.tokens)


class _Text:
    """Distinct sentences of a text, the longest first.

    Attributes:
        holders: {token: numbers of the sentences that contain it, ascending}.
    """

    def __init__(self, text: str) -> None:
        pieces = {tuple(piece.split()) or ("",) for piece in text.split(".") if piece}
        self.sentences = [_Sentence(tokens) for tokens in sorted(pieces, key=len, reverse=True)]
        self.holders: dict[str, list[int]] = {}
        for number, sentence in enumerate(self.sentences):
            for token in sentence.unique:
                self.holders.setdefault(token, []).append(number)


def _compare(prediction_text: _Text, reference_text: _Text) -> tuple[float, int]:
    """Compare two texts. Returns F and the frames of the deepest recursion."""
    if not prediction_text.sentences or not reference_text.sentences:
        return 0.0, 0
    union = _Union(prediction_text)
    for reference in reference_text.sentences:
        union.add(reference)
    recall = len(union.tokens) / len(reference_text.holders)
    precision = len(union.tokens) / len(prediction_text.holders)
    return 2.0 * ((precision * recall) / (precision + recall + 1e-8)), union.deepest


class _Union:
    """Union of the longest common subsequences of all pairs of sentences, from as few pairs as necessary.

    Most pairs cannot change the result, because all common tokens are in the union already, and the sentences are too
    short to recurse deeper than an earlier pair.

    Attributes:
        tokens: the union.
        deepest: frames of the deepest recursion.
    """

    def __init__(self, prediction_text: _Text) -> None:
        self._prediction = prediction_text
        self.tokens: set[str] = set()
        self.deepest = 0

    def add(self, reference: _Sentence) -> None:
        """Add the subsequences of a reference's sentence with all sentences of the prediction."""
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
        self.tokens.update(candidate.tokens[at] for at in matched)
        self.deepest = max(self.deepest, frames)


def _backtrace(reference: Sequence[str], candidate: _Sentence) -> tuple[list[int], int]:
    """Find the longest common subsequence, and the recursion depth that the package would need.

    Returns the subsequence as indices of the candidate's tokens, and the depth in frames.

    At a cell with differing tokens, "the cell above is larger than the cell to the left" is true exactly if the row
    steps up at that column: a row's bits are enough for the backtrace. A run of moves to the left ends at the highest
    bit that is a step or a match; rows without any match repeat the row above them, so that the path goes left once and
    then straight up through them.
    """
    matched: list[int] = []
    i, j = len(reference), candidate.size
    while i and j and reference[i - 1] == candidate.tokens[j - 1]:  # an end in common needs no table
        i -= 1
        j -= 1
        matched.append(j)
    frames = 1 + len(matched)
    if not i or not j:
        return matched, frames
    masks = candidate.masks
    hits = [row for row, token in enumerate(reference[:i], 1) if token in masks]
    steps = rows_upwards([reference[row - 1] for row in hits], masks, j)
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
            j -= 1
            matched.append(j)
        if not j:
            return matched, frames
        i -= 1
    return matched, frames + (j if i else 0)


@dataclass(frozen=True, slots=True)
class Rouge:
    """F of unigrams, of bigrams and of the longest common subsequence, each for the best reference."""

    rouge1: float
    rouge2: float
    rouge_l: float


def rouge(prediction: str, references: Sequence[str]) -> Rouge:
    """Compute L-Eval's three ROUGE scores of a prediction. They are 0 without references, or without tokens."""
    predicted = tokenize(prediction, None)
    best = Rouge(0.0, 0.0, 0.0)
    for reference in references:
        expected = tokenize(reference, None)
        best = Rouge(
            max(best.rouge1, _ngram_f(predicted, expected, 1)),
            max(best.rouge2, _ngram_f(predicted, expected, 2)),
            max(best.rouge_l, f_measure(lcs_length(predicted, expected), len(predicted), len(expected))),
        )
    return best


class StemmedRouge(NamedTuple):
    """F and recall of ROUGE-L and of ROUGE-Lsum with the stemmer, each for the best reference."""

    l_f: float
    l_recall: float
    lsum_f: float
    lsum_recall: float


def stemmed_rouge(prediction: str, references: Sequence[str]) -> StemmedRouge:
    """Compute HELMET's scores of a prediction, which are 0 without references or tokens."""
    scores = [(0.0, 0.0, 0.0, 0.0), *(_stemmed_scores(prediction, reference) for reference in references)]
    return StemmedRouge(*map(max, zip(*scores, strict=True)))


def _stemmed_scores(prediction: str, reference: str) -> tuple[float, float, float, float]:
    predicted, expected = (_line_tokens(text, _stemmer()) for text in (prediction, reference))
    words, reference_words = (list(chain.from_iterable(lines)) for lines in (predicted, expected))
    if not words or not reference_words:
        return 0.0, 0.0, 0.0, 0.0
    common = lcs_length(words, reference_words)
    hits = _summary_hits(predicted, expected)
    f_of_l, f_of_lsum = (f_measure(count, len(words), len(reference_words)) for count in (common, hits))
    return f_of_l, common / len(reference_words), f_of_lsum, hits / len(reference_words)


@cache
def _stemmer() -> Any:
    from nltk.stem.porter import PorterStemmer  # slow to import

    return PorterStemmer()


def _summary_hits(lines: Sequence[list[str]], reference_lines: Sequence[list[str]]) -> int:
    """Count the words of the lines' common subsequences, united by line of the reference, each as often as in both."""
    hits = 0
    remaining = Counter(chain.from_iterable(lines)) & Counter(chain.from_iterable(reference_lines))
    for line in reference_lines:
        sentence = _Sentence(tuple(line))
        # Arguments are exchanged: the package moves along the prediction where `_backtrace` does along the reference.
        united = set[int]().union(*(_backtrace(other, sentence)[0] for other in lines))
        for at in sorted(united):
            hits += remaining[line[at]] > 0
            remaining[line[at]] -= 1
    return hits


def _ngram_f(prediction_tokens: Sequence[str], reference_tokens: Sequence[str], n: int) -> float:
    prediction_ngrams, reference_ngrams = _ngrams(prediction_tokens, n), _ngrams(reference_tokens, n)
    return f_measure(
        (prediction_ngrams & reference_ngrams).total(), prediction_ngrams.total(), reference_ngrams.total()
    )


def _ngrams(tokens: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(tokens[start:] for start in range(n)), strict=False))


def rouge_lsum(prediction: str, references: Sequence[str]) -> float:
    """Compute F of ROUGE-Lsum, which compares texts by lines. The score is 0 without references or tokens."""
    predicted = _line_tokens(prediction)
    return max((_lsum_f(predicted, _line_tokens(reference)) for reference in references), default=0.0)


def _line_tokens(text: str, stemmer: Any = None) -> list[list[str]]:
    return [tokenize(line, stemmer) for line in text.split("\n") if line]


def _lsum_f(lines: Sequence[list[str]], reference_lines: Sequence[list[str]]) -> float:
    return f_measure(_summary_hits(lines, reference_lines), sum(map(len, lines)), sum(map(len, reference_lines)))
