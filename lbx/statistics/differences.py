"""Differences of two runs on the same samples, their uncertainty, and the samples needed to decide them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lbx.statistics.estimates import FEW, Codes, Estimate, Floats, Interval, Stratum, interval_of
from lbx.statistics.tails import binomial_tail, t_quantile, t_tail

_EXACT_EPSILON = 1e-12


@dataclass(frozen=True, slots=True)
class Difference:
    """Second score minus the first, on common samples.

    Attributes:
        interval: 95% interval of the difference.
        low_90, high_90: 90% interval of the difference; it is wider if few clusters differ, so that it is seldom within
            a margin by mistake.
        p: two-sided p value of no difference; None if it cannot be computed.
        test: test that p comes from: "t", "mcnemar" or "sign flips".
        wins, ties, losses: samples that the second run scores higher, equal, lower on.
        detectable: difference that this number of samples detects in four of five cases; None without a standard error.
    """

    interval: Interval
    low_90: float | None
    high_90: float | None
    p: float | None
    test: str
    wins: int
    ties: int
    losses: int
    detectable: float | None


def difference(first: Estimate, second: Estimate) -> Difference:
    """Compare two estimates sample by sample; samples without a counterpart must be removed before.

    Raises:
        ValueError: the estimates have different samples.
    """
    a, b = first.by_sample, second.by_sample
    if [stratum.weight for stratum in a.strata] != [stratum.weight for stratum in b.strata]:
        raise ValueError("The strata of the two estimates have different weights.")
    if a.rows != b.rows:
        b = replace(b, strata=tuple(_reorder(y, x.samples) for x, y in zip(a.strata, b.strata, strict=True)))
    design = a.design
    with np.errstate(invalid="ignore"):  # scores that a foreign tool wrote may be NaN
        values = b.values - a.values
    estimate = interval_of(design, values, bounded=False)
    if estimate.method == "no number":
        return Difference(estimate, None, None, None, "t", 0, 0, 0, None)
    shares = design.share * values
    parts = design.sum_by_cluster(shares)
    parts = parts[np.abs(parts) > _EXACT_EPSILON * np.abs(shares).max(initial=_EXACT_EPSILON)]
    each = values  # differences of a sample, summed over its strata
    if len(values) > design.n:
        _, codes = np.unique(np.concatenate([stratum.samples for stratum in a.strata]), return_inverse=True)
        each = np.asarray(np.bincount(codes, shares), float)
    wins, losses = (int(np.count_nonzero(side)) for side in (each > _EXACT_EPSILON, each < -_EXACT_EPSILON))
    independent = len(a.strata) == 1 and design.clusters == design.n
    exact = independent and a.right_or_wrong and b.right_or_wrong
    p, test = (mcnemar(wins, losses), "mcnemar") if exact else _p_value(estimate, parts)
    low_90 = high_90 = detectable = None
    if estimate.se and estimate.df:
        # Rule of three: if few clusters differ, that many more might.
        unseen = 3 * np.abs(parts).max(initial=0) ** 2 if len(parts) < min(FEW, estimate.clusters) else 0.0
        half = t_quantile(0.95, estimate.df) * math.sqrt(estimate.se**2 + unseen)
        low_90, high_90 = estimate.value - half, estimate.value + half
        detectable = (t_quantile(0.975, estimate.df) + t_quantile(0.8, estimate.df)) * estimate.se
    return Difference(estimate, low_90, high_90, p, test, wins, design.n - wins - losses, losses, detectable)


def holm(ps: Sequence[float]) -> list[float]:
    """Correct p values for multiple testing (Holm, Scandinavian Journal of Statistics 6, 1979)."""
    adjusted, largest = [0.0] * len(ps), 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[index]))
        adjusted[index] = largest
    return adjusted


def mcnemar(wins: int, losses: int) -> float:
    """Exact two-sided p value of a split of wins and losses that is at least this uneven."""
    return min(1.0, 2 * binomial_tail(min(wins, losses), wins + losses, 0.5)) if wins + losses else 1.0


def sign_flips(parts: Sequence[float]) -> float:
    """Exact p value for few parts: share of all assignments of signs with a sum at least as far from 0."""
    sums = np.zeros(1)
    for part in parts:
        sums = np.concatenate([sums + part, sums - part])
    size = abs(math.fsum(parts))
    return float((np.abs(sums) >= size - _EXACT_EPSILON * max(size, 1)).mean())


def required_samples(difference: Difference, margin: float) -> int | None:
    """Number of similar samples at which a comparison decides with 80% power; None if the spread is unknown.

    Deciding means detecting this difference or showing that any difference is within the margin, whichever takes fewer.
    """
    se, value, n = difference.interval.se, abs(difference.interval.value), difference.interval.n
    if not se:
        return None
    spread = se * math.sqrt(n)
    for_difference = (1.959964 + 0.841621) * spread / value if value else math.inf
    for_margin = (1.644854 + 1.281552) * spread / (margin - value) if value < margin else math.inf
    least = min(for_difference, for_margin)
    return max(math.ceil(least**2), n + 1) if math.isfinite(least) else None


def _p_value(interval: Interval, parts: Floats) -> tuple[float | None, str]:
    """p value of no difference, and its test, from the contribution of each cluster that differs."""
    if len(parts) < FEW:
        return sign_flips(parts.tolist()), "sign flips"
    if not interval.se and ((parts > 0).all() or (parts < 0).all()):
        return 2.0 ** (1 - len(parts)), "sign flips"  # only two assignments have a sum this large
    if not interval.se or not interval.df:
        return None, "t"
    return min(1.0, 2 * t_tail(abs(interval.value) / interval.se, interval.df)), "t"


def _reorder(stratum: Stratum, samples: Codes) -> Stratum:
    """Reorder a stratum's rows to another's samples: orders differ where a sample's best answer was chosen."""
    stratum_samples = stratum.samples
    if np.array_equal(stratum_samples, samples):
        return stratum
    order, other = (
        np.argsort(stratum_samples, kind="stable"),
        np.argsort(np.argsort(samples, kind="stable"), kind="stable"),
    )
    if len(stratum_samples) != len(samples) or not np.array_equal(stratum_samples[order[other]], samples):
        raise ValueError("The two estimates have different samples.")
    return stratum.at(order[other])
