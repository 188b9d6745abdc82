"""Order metrics of LongBench Pro: trec_eval's NDCG, and the share of pairs in the right order.

Source: caskcsg/longcontext, LongBench-Pro/modules/utils.py at 88fbeb85, which calls pytrec_eval for NDCG; the rules of
trec_eval that show in a score are written out at ``ndcg``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import log2

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
