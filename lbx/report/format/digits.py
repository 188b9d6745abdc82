"""Rounding of displayed numbers, shared by tables, charts and the page. JSON, CSV and parquet keep all digits.

- A percentage and the ends of its interval are shown with one decimal, so that a score looks the same everywhere. In
  the tables of the benchmarks' leaderboards percentages are official numbers.
- An official number with an interval has one decimal, or two if the half-width is below 1. On the scale from 0 to 1 of
  some benchmarks: three decimals, or four.
- An official number and the interval are shown with no more decimals than the number was rounded to: 28.9 ± 0.8. No
  decimals are lost: 12.5 is not shown as 12.
- Official numbers without an interval, and other numbers, are shown with up to two decimals (in 0..1: four).
- A ratio of about 1 is shown with four decimals, and from a million on with three digits.
- A quantity (tokens, seconds) is shown as an integer from 100 on, and with three digits below.
"""

from __future__ import annotations

import math

_NO_INTERVAL = {
    "one cluster": ("one {}", "all questions are on one {}"),
    "one cluster in a part": ("one {} in a part", "all questions of a part, such as a task, are on one {}"),
    "all alike": ("all alike", "every {} has the same value"),
    "all alike in a part": ("all alike in a part", "every {} of a part, such as a task, has the same value"),
    "too few clusters": ("too few {}s", "an interval needs more {}s"),
}
"""{method of an interval: reason for a missing interval, in a few words and as a clause}."""


def why_no_interval(method: str | None, cluster_by: str | None, clusters: int | None) -> tuple[str, str] | None:
    """Reason for a missing interval, in a few words and as a clause, or None if the method gives none."""
    if method == "one cluster" and (clusters or 1) > 1:
        method = "one cluster in a part"
    reason = _NO_INTERVAL.get(method or "")
    return reason and (reason[0].format(cluster_by or "document"), reason[1].format(cluster_by or "document"))


PERCENT_DECIMALS = 1
"""Number of decimals of percentages."""


def interval_decimals(half: float, most: int = 2) -> int:
    """Number of decimals for an official number and an interval of half-width ``half``."""
    return most if half < 10.0 ** (2 - most) * 0.995 else most - 1


def number(value: float) -> str:
    """Format a number with up to two decimals, as needed (16.77 for 16.769637, 28.2, 50).

    Below 1 up to four decimals are used, and below 0.0001 two significant digits.
    """
    return f"{value:.2g}" if 0 < abs(value) < 1e-4 else _shortest(value, 2 if abs(value) >= 1 else 4)


def _shortest(value: float, most: int) -> str:
    text = f"{value:,.{most}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def quantity(value: float) -> str:
    """Format a quantity as an integer with commas, or below 100 with three digits."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == round(value) else f"{value:.3g}"


def quantity_with_interval(value: float, low: float | None, high: float | None) -> str:
    """Format a quantity and an interval, with the decimals that ``quantity`` shows of the value."""
    if low is None or high is None:
        return quantity(value)
    decimals = max(0, 2 - math.floor(math.log10(abs(value)))) if 0 < abs(value) < 100 else 0
    return "{:,.{d}f} [{:,.{d}f}, {:,.{d}f}]".format(value, low, high, d=decimals)


def ratio(value: float, low: float | None = None, high: float | None = None) -> str:
    """Format a ratio of about 1, and an interval, with four decimals. From a million on, three digits are shown."""
    decimals = ",.4f" if max(value, high or 0.0) < 1e6 else ".3g"
    if low is None or high is None:
        return f"{value:{decimals}}"
    return f"{value:{decimals}} [{low:{decimals}}, {high:{decimals}}]"


def with_interval(  # noqa: PLR0917 (as a row of a view has them)
    value: float | None,
    low: float | None,
    high: float | None,
    method: str | None,
    scale: float,
    cluster_by: str | None = None,
    clusters: int | None = None,
    *,
    most: int = 2,
    decimals: int = PERCENT_DECIMALS,
) -> str:
    """Format a score and an interval: "44.9 ± 6.3", "1.5 [0.3, 7.9]", "12.5 (one document)", "100.0 (all alike)".

    An unknown score is "-". A score without an interval is a plain number.

    Args:
        low, high: ends of the interval, in the unit of ``value``, or None without an interval.
        method: method of the interval, or the reason why there is none.
        scale: factor for the score and the ends: 100 to show values in 0..1 as percents, or 1 for official numbers.
            These may be rounded, so that a symmetric interval may not be centred on them.
        cluster_by, clusters: noun for a cluster, and their number, for the method "one cluster".
        most: maximum number of decimals, 4 for numbers in 0..1.
        decimals: maximum number of decimals of a percentage.
    """
    if value is None or not math.isfinite(value):
        return "-"
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        why = why_no_interval(method, cluster_by, clusters)
        text = f"{scale * value:.{decimals}f}" if scale != 1 else _shortest(value, most)
        return f"{text} ({why[0]})" if why else text
    own_decimals = decimals if scale != 1 else _decimals(value)
    rounded = 0.0 if scale != 1 else 0.5 * 10.0**-own_decimals
    value, low, high = scale * value, scale * low, scale * high
    half = (high - low) / 2
    decimals = min(interval_decimals(half, most), max(own_decimals, 1))
    least = 10.0**-decimals
    if abs((high + low) / 2 - value) < least / 4 + rounded * 1.001:
        return f"{value:.{decimals}f} ± {max(half, least):.{decimals}f}"
    return f"{value:.{decimals}f} [{low:.{decimals}f}, {high:.{decimals}f}]"


def _decimals(value: float) -> int:
    """Number of decimals to which an official number was rounded."""
    return len(repr(value).removesuffix(".0").partition(".")[2])


def short_length(length: int) -> str:
    """Format a length for a tick: 512, 4k, 1M. Round decimal lengths are written out: 128,000 is not 125k."""
    for size, letter in ((1 << 20, "M"), (1 << 10, "k")):
        if length >= size and length % size == 0 and length % 1000:
            return f"{length // size}{letter}"
    return f"{length:,}"
