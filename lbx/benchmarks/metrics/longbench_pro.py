r"""LongBench Pro's metrics, which never raise on any text.

Source: caskcsg/longcontext, LongBench-Pro/modules/utils.py at 88fbeb85.

An answer states one item per line, after a marker, and is compared in lower case with white space folded. NDCG is
pytrec_eval's. ``ndcg`` describes the rules of trec_eval that affect a score. The metric of summaries is half similarity
by an embedding model, half ROUGE-L, each for the best reference. The whole output is the summary, with any marker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import log2
from typing import NamedTuple

from lbx.benchmarks.metrics import chinese
from lbx.benchmarks.metrics import rouge as rouge_l
from lbx.benchmarks.metrics.f1 import f_measure

_NUL = "\0"


def ndcg(references: Sequence[str], lines: Sequence[str]) -> float:
    """NDCG of an answer's lines at rank len(references): the first reference is worth most, the last is worth 1.

    A repeated item counts once, at its last rank, but every reference adds to the cutoff. Ids end at a NUL, like C
    strings. If two ids differ only after a NUL, trec_eval gives up on the query, and the value is 0.

    Returns:
        Value in 0..1, equal to trec_eval's sum to the last digit, or 0 without references.
    """
    if not references or not lines:
        return 0.0
    worth = {item: len(references) - index for index, item in enumerate(references)}
    rank = {item: len(lines) - index for index, item in enumerate(lines)}
    if _ambiguous(worth) or _ambiguous(rank):
        return 0.0
    gains = {_c_string(item): gain for item, gain in worth.items()}
    ranked = sorted(rank, key=rank.__getitem__, reverse=True)
    ideal = _discounted_gain(sorted(gains.values(), reverse=True), len(references))
    return _discounted_gain((gains.get(_c_string(item), 0) for item in ranked), len(references)) / ideal


def _discounted_gain(gains: Iterable[int], cutoff: int) -> float:
    total = 0.0
    for rank, gain in enumerate(gains):
        if rank == cutoff:
            break
        if gain:
            total += gain / log2(rank + 2)
    return total


def _c_string(item: str) -> str:
    return item.partition(_NUL)[0]


def _ambiguous(items: Mapping[str, int]) -> bool:
    return any(_NUL in item for item in items) and len({_c_string(item) for item in items}) < len(items)


def pairwise_accuracy(references: Sequence[str], lines: Sequence[str]) -> float:
    """Number of pairs of references with lines in the right order, divided by the number of pairs of lines.

    Blank and repeated lines increase the denominator. The last position of a repeated line counts. Repeated references
    count as separate pairs, so the value can exceed 1, which is officially a failure.

    Returns:
        Value of at least 0, which is 0 without pairs.
    """
    if len(references) < 2 or len(lines) < 2:
        return 0.0
    positions = {line: index for index, line in enumerate(lines)}
    right = sum(
        positions[first] < positions[second]
        for first, second in combinations(references, 2)
        if first in positions and second in positions
    )
    return right / (len(lines) * (len(lines) - 1) // 2)


MARKERS = ("[Answer]", "[答案]")


def answer_area(text: str) -> str:
    """Extract the text after the last "[Answer]", or else after the last "[答案]", or else the whole text.

    The English marker wins regardless of the order, also in a Chinese answer.
    """
    for marker in MARKERS:
        _, marker_seen, rest = text.rpartition(marker)
        if marker_seen:
            return rest.strip()
    return text.strip()


def fold(text: str) -> str:
    """Fold a text for comparison: lower case, each run of white space as one space, none at the ends."""
    return " ".join(text.lower().split())


def answer_lines(output: str) -> list[str]:
    """Split the answer area of an output into folded lines, blank ones included. An empty output is one blank line."""
    return [" ".join(line.split()) for line in answer_area(output).lower().split("\n")]


def accuracy(references: Sequence[str], lines: Sequence[str]) -> float:
    """Score the first line of an answer: 1 if it equals the first reference, as folded texts, or else 0."""
    return float(bool(references) and bool(lines) and references[0] == lines[0])


def set_f1(references: Sequence[str], lines: Sequence[str]) -> float:
    """F1 of references and lines as sets: repeated lines count once, and order is ignored."""
    expected, answers = set(references), set(lines)
    return f_measure(len(expected & answers), len(answers), len(expected))


def substring_match(references: Sequence[str], lines: Sequence[str]) -> float:
    """Share of the references that equal one of the lines ("SubEM"). A repeated reference counts each time."""
    if not references:
        return 0.0
    lines_given = set(lines)
    return sum(reference in lines_given for reference in references) / len(references)


FRAMES = 987
"""Deepest recursion of ``rouge`` that works at the depth the official script calls it from, on CPython 3.11 to 3.13."""


class SummaryRouge(NamedTuple):
    """ROUGE-L of a summary for the best reference, in 0..1.

    Attributes:
        official: value of the official run: 0 for all references as soon as one of them is too long for the package's
            recursion or contains no sentence.
        without_limit: value without the recursion limit.
    """

    official: float
    without_limit: float


def summary_rouge(text: str, references: Sequence[str], *, language: str) -> SummaryRouge:
    """ROUGE-L of a folded text against folded references. Chinese ("zh") is split into words first."""
    if not references or any(_no_sentence(piece, language) for piece in (text, *references)):
        return SummaryRouge(0.0, 0.0)
    if language == "zh":
        rouge = rouge_l.rouge_l_zh(text, references, frame_limit=FRAMES)
    else:
        rouge = rouge_l.rouge_l(text, references, frame_limit=FRAMES)
    return SummaryRouge(rouge.without_limit if rouge.frames <= FRAMES else 0.0, rouge.without_limit)


def _no_sentence(text: str, language: str) -> bool:
    """Whether a text contains only dots, which ``rouge`` refuses."""
    if text.strip("."):
        return False
    return language != "zh" or not " ".join(chinese.words(text)).strip(".")


def summary(similarity: float, rouge: float) -> float:
    """Combine similarity and ROUGE-L into the score of a summary.

    The result is outside of 0..1 (officially a failure) if the similarity is far outside of 0..1, or NaN.
    """
    return 0.5 * similarity + 0.5 * rouge
