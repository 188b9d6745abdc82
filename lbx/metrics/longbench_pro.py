r"""LongBench Pro's metrics. Nothing here fails on any text.

Source: caskcsg/longcontext, LongBench-Pro/modules/utils.py at 88fbeb85.

Answers are one item a line, after a marker, compared in lower case with white space folded. NDCG is pytrec_eval's; the
rules of trec_eval that show in a score are written out at ``ndcg``. A summary's metric is half similarity by an
embedding model, half ROUGE-L, each of the best reference; the marker does not matter there: the whole output is the
summary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import log2
from typing import NamedTuple

from lbx.metrics import chinese, rouge_l
from lbx.metrics.f1 import f_measure

_NUL = "\0"


def ndcg(references: Sequence[str], lines: Sequence[str]) -> float:
    """NDCG at len(references): the first reference is worth most, the last is worth 1.

    An item that repeats counts once, at its last place, and still takes part in the count of references, which is the
    cutoff. Ids end at a NUL, as C strings do; two that differ only behind it make trec_eval give up on the query: 0.

    Returns:
        In 0..1, to the last digit as trec_eval adds it up; 0 where there are no references.
    """
    if not references or not lines:
        return 0.0
    worth = {item: len(references) - place for place, item in enumerate(references)}
    rank = {item: len(lines) - place for place, item in enumerate(lines)}
    if _ambiguous(worth) or _ambiguous(rank):
        return 0.0
    gains = {_c_string(item): gain for item, gain in worth.items()}
    ranked = sorted(rank, key=rank.__getitem__, reverse=True)
    ideal = _discounted(sorted(gains.values(), reverse=True), len(references))
    return _discounted((gains.get(_c_string(item), 0) for item in ranked), len(references)) / ideal


def _discounted(gains: Iterable[int], cutoff: int) -> float:
    total = 0.0
    for place, gain in enumerate(gains):
        if place == cutoff:
            break
        if gain:
            total += gain / log2(place + 2)
    return total


def _c_string(item: str) -> str:
    return item.partition(_NUL)[0]


def _ambiguous(items: Mapping[str, int]) -> bool:
    return any(_NUL in item for item in items) and len({_c_string(item) for item in items}) < len(items)


def pairwise_accuracy(references: Sequence[str], lines: Sequence[str]) -> float:
    """Pairs of references that stand in their order among the lines, over all pairs of lines.

    Blank and repeated lines swell the denominator; of a repeated line the last place counts. Repeated references
    count as pairs of their own, so that the value can exceed 1, which is officially a failure.

    Returns:
        At least 0; 0 where there is no pair.
    """
    if len(references) < 2 or len(lines) < 2:
        return 0.0
    places = {line: place for place, line in enumerate(lines)}
    right = sum(
        places[first] < places[second]
        for first, second in combinations(references, 2)
        if first in places and second in places
    )
    return right / (len(lines) * (len(lines) - 1) // 2)


MARKERS = ("[Answer]", "[答案]")


def answer_area(text: str) -> str:
    """What follows the last "[Answer]", or where there is none the last "[答案]"; the whole text without either.

    The English marker wins wherever the two stand, also in a Chinese answer.
    """
    for marker in MARKERS:
        _, marker_seen, rest = text.rpartition(marker)
        if marker_seen:
            return rest.strip()
    return text.strip()


def folded(text: str) -> str:
    """In lower case, each run of white space as one space, none at the ends."""
    return " ".join(text.lower().split())


def answer_lines(output: str) -> list[str]:
    """The answer area's lines, folded; blank ones stay, and count. An output without any text is one blank line."""
    return [" ".join(line.split()) for line in answer_area(output).lower().split("\n")]


def accuracy(references: Sequence[str], lines: Sequence[str]) -> float:
    """Whether the first line is the first reference; both folded."""
    return float(bool(references) and bool(lines) and references[0] == lines[0])


def set_f1(references: Sequence[str], lines: Sequence[str]) -> float:
    """F1 of the two as sets: repeated lines count once, in no order."""
    expected, answers = set(references), set(lines)
    return f_measure(len(expected & answers), len(answers), len(expected))


def substring_match(references: Sequence[str], lines: Sequence[str]) -> float:
    """The share of references that are a line of their own ("SubEM"). A reference that repeats counts each time."""
    if not references:
        return 0.0
    lines_given = set(lines)
    return sum(reference in lines_given for reference in references) / len(references)


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
