"""Longest common subsequence of two token lists, one table row per big integer.

The usual table T[i, j] (length over the first i tokens of x and the first j of y) grows by 0 or 1 from one
column to the next, so a row is a bit per column: bit j is set where T[i, j + 1] = T[i, j] + 1. Python's integers
compute a whole row in three operations (H. Hyyro, "Bit-parallel LCS-length computation revisited", 2004), and the
bits hold all that a backtrace needs.

Time is proportional to the product of the two lengths over 64. Memory stays under a few times ``MAX_BITS`` at any
length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import isqrt

MAX_BITS = 1 << 29
"""Bits to keep of positions, and again of rows (64 MiB each); the rest is recomputed."""


def positions(tokens: Sequence[str]) -> Mapping[str, int]:
    """Return the positions of each token as bits: bit j is set if ``tokens[j]`` is the token."""
    if len(tokens) ** 2 > MAX_BITS:
        return _ManyPositions(tokens)
    masks: dict[str, int] = {}
    for index, token in enumerate(tokens):
        masks[token] = masks.get(token, 0) | (1 << index)
    return masks


def rows_upwards(tokens: Sequence[str], masks: Mapping[str, int], width: int) -> Iterator[int]:
    """Yield the table's rows as step bits, from the last token of x to the first.

    Args:
        tokens: tokens of x that are also in y: the row of any other token repeats the one above.
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


def length(x: Sequence[str], y: Sequence[str]) -> int:
    """Return the length of the longest common subsequence."""
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
    """``positions`` of a list with too many tokens to keep all as bits.

    Frequently requested tokens are frequent ones, and stay; rare ones are quick to compute.
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
