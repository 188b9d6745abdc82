"""Longest common subsequence of two token lists, one table row per big integer.

The usual table T[i, j] (length over the first i tokens of x and the first j of y) grows by 0 or 1 from one
column to the next, so a row is a bit per column: bit j is set where T[i, j + 1] = T[i, j] + 1. Python's integers
compute a whole row in three operations (H. Hyyro, "Bit-parallel LCS-length computation revisited", 2004), and the
bits hold all that a backtrace needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def positions(tokens: Sequence[str]) -> dict[str, int]:
    """Each token's places as bits: bit j is set where ``tokens[j]`` is the token."""
    masks: dict[str, int] = {}
    for place, token in enumerate(tokens):
        masks[token] = masks.get(token, 0) | (1 << place)
    return masks


def rows(matches: Iterable[int], width: int) -> list[int]:
    """The table's rows as step bits, one for each token down its side.

    Args:
        matches: the token's bits in ``positions(y)``, 0 where y has none of it (such a row repeats the one above).
        width: len(y).
    """
    full = (1 << width) - 1
    flat = full  # bits where the row does NOT grow
    steps = []
    for mask in matches:
        hits = flat & mask
        flat = ((flat + hits) | (flat - hits)) & full
        steps.append(full ^ flat)
    return steps


def length(x: Sequence[str], y: Sequence[str]) -> int:
    """Length of the longest common subsequence."""
    if len(x) < len(y):
        x, y = y, x
    if not y:
        return 0
    full = (1 << len(y)) - 1
    flat, masks = full, positions(y)
    for token in x:
        if mask := masks.get(token, 0):
            hits = flat & mask
            flat = ((flat + hits) | (flat - hits)) & full
    return (full ^ flat).bit_count()
