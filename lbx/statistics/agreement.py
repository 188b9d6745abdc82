"""Agreement of raters: percent, Cohen's kappa, Krippendorff's alpha, Kendall's tau.

Cohen, Educational and Psychological Measurement 20, 1960, and Psychological Bulletin 70, 1968 (weights); Krippendorff,
Content Analysis, chapter 12; Kendall, Biometrika 33, 1945 (tau-b). A value that is undefined is None: if all ratings
are equal, chance could not have produced anything else.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from lbx.statistics.estimates import Floats, t_quantile

Level = Literal["nominal", "ordinal", "interval"]

FEWEST_CLUSTERS = 6
"""Clusters needed for an interval of alpha."""
_FEWEST_ITEMS = 10


def percent_agreement(first: Sequence[Hashable], second: Sequence[Hashable]) -> float | None:
    """Share of the items, in 0..1, that two raters rate equally, or None without items."""
    return sum(a == b for a, b in zip(first, second, strict=True)) / len(first) if first else None


def kappa(first: Sequence[Any], second: Sequence[Any], *, quadratic: bool = False) -> float | None:
    """Cohen's kappa of two raters' ratings of the same items, or None if undefined.

    Args:
        quadratic: ratings are numbers, and a disagreement is weighted by the square of their distance.
    """
    values = sorted({*first, *second})
    if not values:
        return None
    codes = {value: at for at, value in enumerate(values)}
    counts = np.zeros((len(values), len(values)))
    for a, b in zip(first, second, strict=True):
        counts[codes[a], codes[b]] += 1
    weights = np.subtract.outer(values, values).astype(float) ** 2 if quadratic else 1 - np.eye(len(values))
    chance = float((weights * np.outer(counts.sum(1), counts.sum(0))).sum()) / len(first)
    return 1 - float((weights * counts).sum()) / chance if chance else None


class Alpha(NamedTuple):
    """Krippendorff's alpha and its 95% interval, or None for undefined values.

    Attributes:
        method: "jackknife", or the reason for a missing interval: "one cluster", "too few clusters", "all alike" (no
            disagreement), "no number".
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    method: str = "no number"


def alpha(
    items: Sequence[Sequence[Any]], level: Level = "nominal", *, clusters: Sequence[Hashable] | None = None
) -> Alpha:
    """Krippendorff's alpha of the ratings of items.

    Args:
        items: ratings of each item, in any order and by any number of raters; an item with a single rating adds no
            information. Ratings are numbers, except for level "nominal", which only needs them to be sortable.
        clusters: cluster of each item. The interval is Student's on the logarithm of 1 - alpha, with the jackknife's
            standard error over clusters; the factor for few clusters comes from bench/coverage.py.
    """
    pairable = [at for at, ratings in enumerate(items) if len(ratings) > 1]
    values = sorted({rating for at in pairable for rating in items[at]})
    codes = {value: at for at, value in enumerate(values)}
    labels = {label: at for at, label in enumerate(dict.fromkeys(clusters[at] if clusters else at for at in pairable))}
    coincidences = np.zeros((len(labels), len(values), len(values)))
    for at in pairable:
        counts = np.bincount([codes[rating] for rating in items[at]], minlength=len(values)).astype(float)
        coincidences[labels[clusters[at] if clusters else at]] += (np.outer(counts, counts) - np.diag(counts)) / (
            len(items[at]) - 1
        )
    estimate = float(_alphas(coincidences.sum(0)[None], values, level)[0])
    if not math.isfinite(estimate):
        return Alpha(None)
    n = len(labels)
    if n < FEWEST_CLUSTERS or len(pairable) < _FEWEST_ITEMS:
        return Alpha(estimate, method="one cluster" if n == 1 else "too few clusters")
    others = _alphas(coincidences.sum(0) - coincidences, values, level)
    if estimate >= 1 or not (others < 1).all():
        return Alpha(estimate, method="all alike")
    disagreements = np.log(1 - others)
    se = math.sqrt((n - 1) / n * float(((disagreements - disagreements.mean()) ** 2).sum()))
    half = t_quantile(0.975, n - 1) * se * (1 + 2 / (n - 1))
    low, high = (1 - (1 - estimate) * math.exp(min(side, 700.0)) for side in (half, -half))
    return Alpha(estimate, max(low, -1.0), high, "jackknife")


def _alphas(coincidences: Floats, values: Sequence[Any], level: Level) -> Floats:
    """Alpha (1 - observed / expected disagreement) of each coincidence matrix, or NaN if all ratings are equal."""
    totals = coincidences.sum(1)
    n = totals.sum(1)
    if level == "nominal":
        observed = n - np.trace(coincidences, axis1=1, axis2=2)
        expected = n**2 - (totals**2).sum(1)
    else:
        # Squared distance of ranks or of values; the rank of a value counts half of the ratings equal to it.
        places = np.cumsum(totals, 1) - totals / 2 if level == "ordinal" else np.array([values], float) + 0 * totals
        places -= ((totals * places).sum(1) / np.maximum(n, 1))[:, None]
        squares = (totals * places**2).sum(1)
        observed = 2 * (squares - np.einsum("bi,bij,bj->b", places, coincidences, places))
        expected = 2 * n * squares
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where((totals > 0).sum(1) > 1, 1 - (n - 1) * observed / expected, np.nan), np.float64)


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Kendall's tau-b of two rankings of the same items, or None if one of them ties all items."""
    a, b = (np.sign(np.subtract.outer(*[np.asarray(ranks, float)] * 2)) for ranks in (first, second))
    pairs = math.sqrt(float((a != 0).sum()) * float((b != 0).sum()))
    return float((a * b).sum()) / pairs if pairs else None


def majority(verdicts: Sequence[Hashable]) -> Hashable | None:
    """Verdict that more than half of the raters gave, or None without a majority."""
    ((most, count),) = Counter(verdicts).most_common(1) or [(None, 0)]
    return most if 2 * count > len(verdicts) else None
