"""Adding up as the official scripts do, to the last digit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def ordered_sum(values: Iterable[float]) -> float:
    """Left to right, rounding at each step. (From Python 3.12 on ``sum`` compensates, and gives another last digit.)"""
    total = 0.0
    for value in values:
        total += value
    return total


def mean(values: Sequence[float], scale: float = 1) -> float:
    """scale x sum / n of a list that is not empty, in this order of operations."""
    return scale * ordered_sum(values) / len(values)


def numpy_percent(values: Sequence[float], digits: int) -> float:
    """100 x numpy's mean (pairwise sums), rounded numpy's way: 21.425 becomes 21.42 where Python makes it 21.43."""
    import numpy as np

    return float(np.round(100 * np.mean(values), digits))
