"""Numbers as people read them: one rule of digits for tables, charts and the page. JSON, CSV and parquet have them all.

- A score beside its interval has one decimal, two where half the interval is below 1, and so have the interval's ends.
  In 0..1, as some benchmarks' official numbers are, these are three and four.
- An official number has no more decimals than it was rounded to, and neither has its interval: 28.9 ± 0.8. It never
  loses one: 12.5 is not 12.
- A score alone has two decimals; an official number, or another, as many of two (in 0..1: four) as it needs.
- A quantity (tokens, seconds) is whole from 100 on, below that of three digits.
"""

from __future__ import annotations

import math

WHY_NONE = {"one cluster": "one {}", "all alike": "all alike"}
"""Why a score has no interval, by its method."""


def decimals_beside(half: float, most: int = 2) -> int:
    """Of a score and of its interval, half of which is so wide."""
    return most if half < 10.0 ** (2 - most) * 0.995 else most - 1


def number(value: float) -> str:
    """As many decimals as it needs of two: 16.77 of 16.769637, 28.2, 50. Below 1 of four, below these two digits."""
    return f"{value:.2g}" if 0 < abs(value) < 1e-4 else _shortest(value, 2 if abs(value) >= 1 else 4)


def _shortest(value: float, most: int) -> str:
    text = f"{value:,.{most}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def quantity(value: float) -> str:
    """Whole, with commas, or of three digits."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == round(value) else f"{value:.3g}"


def quantity_with_interval(value: float, low: float | None, high: float | None) -> str:
    """All three of as many decimals as the middle one has as a quantity."""
    if low is None or high is None:
        return quantity(value)
    decimals = max(0, 2 - math.floor(math.log10(abs(value)))) if 0 < abs(value) < 100 else 0
    return "{:,.{d}f} [{:,.{d}f}, {:,.{d}f}]".format(value, low, high, d=decimals)


def with_interval(  # noqa: PLR0917 (as a row of a view has them)
    value: float | None,
    low: float | None,
    high: float | None,
    method: str | None,
    scale: float,
    cluster_by: str = "document",
    *,
    most: int = 2,
) -> str:
    """A score and how sure it is: "44.9 ± 6.3", "1.5 [0.3, 7.9]", "12.50 (one document)", "100.00 (all alike)".

    A score that nothing is known of is "-", one without an interval stands alone.

    Args:
        low: the interval's end, in the unit of ``value``; None where there is none.
        method: how the interval was made, or why there is none.
        scale: what all three are multiplied with: 100 where the unit is 0..1 and percents are shown; 1 for official
            numbers, which may be rounded, so that an even interval lies around something else.
        cluster_by: what ``method`` "one cluster" means one of.
        most: decimals: 4 for numbers in 0..1.
    """
    if value is None or not math.isfinite(value):
        return "-"
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        why = WHY_NONE.get(method or "", "").format(cluster_by)
        alone = f"{scale * value:.2f}" if scale != 1 else _shortest(value, most)
        return f"{alone} ({why})" if why else alone
    own_decimals = most if scale != 1 else _decimals(value)
    rounded = 0.0 if scale != 1 else 0.5 * 10.0**-own_decimals
    value, low, high = scale * value, scale * low, scale * high
    half = (high - low) / 2
    decimals = min(decimals_beside(half, most), max(own_decimals, 1))
    least = 10.0**-decimals
    if abs((high + low) / 2 - value) < least / 4 + rounded * 1.001:
        return f"{value:.{decimals}f} ± {max(half, least):.{decimals}f}"
    return f"{value:.{decimals}f} [{low:.{decimals}f}, {high:.{decimals}f}]"


def _decimals(value: float) -> int:
    """Those that an official number was rounded to."""
    return len(repr(value).removesuffix(".0").partition(".")[2])
