"""Letters of items without significant differences, as in tables of statistics papers: "a", "ab", "b"."""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain
from string import ascii_lowercase, ascii_uppercase

LETTERS = ascii_lowercase + ascii_uppercase


def group_letters(count: int, differ: Collection[tuple[int, int]], first: int = 0) -> list[str]:
    """Letters of ``count`` items, such that two items share a letter if and only if the items do not differ.

    The groups come from inserting each difference and absorbing groups in other groups (Piepho, Journal of
    Computational and Graphical Statistics 13, 2004).

    Args:
        differ: Pairs of items that differ.
        first: Number of letters that are already in use.

    Returns:
        The letters of each item, or [] if there are more groups than letters.
    """
    groups = [frozenset(range(count))]
    for pair in differ:
        halves = chain.from_iterable([group - {item} for item in pair] for group in groups if group.issuperset(pair))
        groups = _without_subsets([*(group for group in groups if not group.issuperset(pair)), *halves])
        if first + len(groups) > len(LETTERS):
            return []
    ordered = sorted(groups, key=sorted)
    return ["".join(LETTERS[first + at] for at, group in enumerate(ordered) if item in group) for item in range(count)]


def _without_subsets(groups: Collection[frozenset[int]]) -> list[frozenset[int]]:
    kept: list[frozenset[int]] = []
    for group in sorted(groups, key=len, reverse=True):
        if not any(group <= other for other in kept):
            kept.append(group)
    return kept
