"""Differences of two runs on the same samples, their uncertainty, and the samples needed to decide them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product

import numpy as np

from lbx.statistics import LEVEL, MIN_T_TEST_CLUSTERS
from lbx.statistics.estimates import (
    MIN_T_INTERVAL_CLUSTERS,
    Codes,
    Estimate,
    Floats,
    Interval,
    Stratum,
    binomial_tail,
    interval_of,
    t_quantile,
    t_tail,
)

_EXACT_EPSILON = 1e-12
_LEAST_CLUSTERS = 8
"""Number of clusters from which on the rule of three is used. Below, the rule would make the interval too wide."""
_POWER = 0.8
_DRAWS, _SEED = 300, 20261128
_MOST_CLUSTERS = 10**9
ASSUMED_VARIANCE = 0.2
"""Variance of the difference between two models' scores of a question: one of them is right on one question in five."""
ASSUMED_CORRELATION = 0.2
"""Correlation of the differences of two questions on one document."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference of two scores on common samples: the second score minus the first.

    Attributes:
        interval: 95% interval of the difference, within -1 and 1.
        low_90, high_90: 90% interval of the difference; it is wider if few clusters differ, so that it is seldom within
            a margin by mistake.
        p: two-sided p value of no difference, or None if it cannot be computed.
        test: test that p comes from: "t", "mcnemar" or "sign flips".
        wins, ties, losses: samples that the second run scores higher, equal, lower on.
        detectable: difference that this number of samples detects in four of five cases, or None without a standard
            error.
        contributions: contribution to the difference of each cluster whose scores differ.
        largest_share: largest weight of a cluster in the scores.
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
    contributions: Floats = field(default_factory=lambda: np.zeros(0), repr=False, compare=False)
    largest_share: float = 1.0


def difference(first: Estimate, second: Estimate) -> Difference:
    """Difference of two estimates over the same samples. Remove samples without a counterpart first.

    Raises:
        ValueError: the samples of the estimates differ.
    """
    a, b = first.by_sample, second.by_sample
    if [stratum.weight for stratum in a.strata] != [stratum.weight for stratum in b.strata]:
        raise ValueError("The strata of the two estimates have different weights.")
    if a.row_key != b.row_key:
        b = replace(b, strata=tuple(_reorder(y, x.samples) for x, y in zip(a.strata, b.strata, strict=True)))
    design = a.design
    with np.errstate(invalid="ignore"):  # scores that a foreign tool wrote may be NaN
        values = b.values - a.values
    estimate = interval_of(design, values, bounded=False)
    if estimate.method == "no number":
        return Difference(estimate, None, None, None, "t", 0, 0, 0, None)
    shares = design.share * values
    contributions = design.sum_by_cluster(shares)
    contributions = contributions[np.abs(contributions) > _EXACT_EPSILON * np.abs(shares).max(initial=_EXACT_EPSILON)]
    each = values  # differences of a sample, summed over its strata
    if len(values) > design.n:
        _, codes = np.unique(np.concatenate([stratum.samples for stratum in a.strata]), return_inverse=True)
        each = np.asarray(np.bincount(codes, shares), float)
    wins, losses = (int(np.count_nonzero(side)) for side in (each > _EXACT_EPSILON, each < -_EXACT_EPSILON))
    independent = len(a.strata) == 1 and design.clusters == design.n
    exact = independent and a.is_binary and b.is_binary
    p, test = (mcnemar(wins, losses), "mcnemar") if exact else _p_value(estimate, contributions)
    low_90 = high_90 = detectable = None
    if (se := estimate.se) and estimate.df:
        # Rule of three: if few clusters differ, that many more might.
        largest = float(np.abs(contributions).max(initial=0)) ** 2
        spread = math.sqrt(
            se**2 + (3 * largest if len(contributions) < min(MIN_T_TEST_CLUSTERS, estimate.clusters) else 0.0)
        )
        half = t_quantile(0.95, estimate.df) * spread
        low_90, high_90 = estimate.value - half, estimate.value + half
        # Differences in one direction are as skewed as scores near an end.
        is_skewed = len(contributions) > 0 and estimate.clusters < MIN_T_INTERVAL_CLUSTERS
        skew = (
            1 + abs(math.fsum(contributions)) / float(np.abs(contributions).sum()) / estimate.df if is_skewed else 1.0
        )
        if estimate.clusters < _LEAST_CLUSTERS:  # the fewer questions a cluster has, the more another one might differ
            spread = math.sqrt(se**2 + largest * estimate.clusters / estimate.n)
        half = t_quantile(0.975, estimate.df) * skew * spread
        estimate = clip_difference(replace(estimate, low=estimate.value - half, high=estimate.value + half), a, b)
        detectable = detectable_difference(estimate)
    return Difference(
        estimate, low_90, high_90, p, test, wins, design.n - wins - losses, losses, detectable, contributions,
        largest_share=float(design.sum_by_cluster(np.abs(design.share)).max()),
    )  # fmt: skip


def clip_difference(interval: Interval, *estimates: Estimate) -> Interval:
    """Interval of a difference, cut at -1 and 1 if all scores are from 0 to 1."""
    if interval.low is None or interval.high is None:
        return interval
    if not all(((stratum.values >= 0) & (stratum.values <= 1)).all() for each in estimates for stratum in each.strata):
        return interval
    return replace(interval, low=max(interval.low, -1.0), high=min(interval.high, 1.0))


def detectable_difference(interval: Interval, clusters: int | None = None, tests: float = 1.0) -> float | None:
    """Smallest difference that a t test finds in four of five cases, or None if the spread is unknown.

    Args:
        interval: interval of a difference.
        clusters: number of similar clusters, or None for the number of the interval.
        tests: factor by which p is corrected (Holm).
    """
    if not interval.se or not interval.df:
        return None
    se, df = _scaled_error(interval, interval.clusters if clusters is None else clusters)
    return (t_quantile(1 - LEVEL / tests / 2, df) + t_quantile(_POWER, df)) * se


def clusters_to_detect(interval: Interval, size: float, tests: float = 1.0) -> int | None:
    """Least number of similar clusters on which a difference of this size is found in four of five cases."""
    if detectable_difference(interval) is None or size <= 0:
        return None
    least = fewest_clusters(tests)
    return _least_number(lambda n: (detectable_difference(interval, n, tests) or math.inf) <= size, least)


def fewest_clusters(tests: float = 1.0) -> int:
    """Least number of clusters on which any difference can be significant.

    Few clusters are compared by an exact test, with p of at least 2^(1 - clusters), which Holm's correction multiplies.
    """
    return next((n for n in range(2, MIN_T_TEST_CLUSTERS) if tests * 2.0 ** (1 - n) < LEVEL), MIN_T_TEST_CLUSTERS)


def assumed_difference(
    sizes: Sequence[tuple[int, int]], *, variance: float = ASSUMED_VARIANCE, correlation: float = ASSUMED_CORRELATION
) -> Interval | None:
    """Assumed spread of the difference between two models' averages, before any answer, or None for one cluster a task.

    Args:
        sizes: (samples, clusters) of each task; the average weighs tasks equally.
        variance: of a sample's difference.
        correlation: of the differences of two samples in one cluster.
    """
    samples, clusters = (sum(size[at] for size in sizes) for at in (0, 1))
    if clusters <= len(sizes) or not all(n for n, _ in sizes):
        return None
    squares = sum(variance * (1 + (n / k - 1) * correlation) / n for n, k in sizes)
    se = math.sqrt(squares) / len(sizes)
    return Interval(0.0, None, None, se, clusters - len(sizes), samples, clusters, "assumed")


def holm(ps: Sequence[float]) -> list[float]:
    """P values corrected for multiple testing (Holm, Scandinavian Journal of Statistics 6, 1979)."""
    adjusted, largest = [0.0] * len(ps), 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[index]))
        adjusted[index] = largest
    return adjusted


@lru_cache(maxsize=1 << 16)  # a simulation asks for the same splits again and again
def mcnemar(wins: int, losses: int) -> float:
    """Exact two-sided p value of a split into ``wins`` and ``losses`` (McNemar's test)."""
    return min(1.0, 2 * binomial_tail(min(wins, losses), wins + losses, 0.5)) if wins + losses else 1.0


def sign_flips(contributions: Sequence[float]) -> float:
    """Exact p value of a sum of few contributions: share of all sign assignments with a sum at least as far from 0."""
    sums = np.zeros(1)
    for part in contributions:
        sums = np.concatenate([sums + part, sums - part])
    size = abs(math.fsum(contributions))
    return float((np.abs(sums) >= size - _EXACT_EPSILON * max(size, 1)).mean())


def required_clusters(difference: Difference, margin: float, tests: float = 1.0) -> int | None:
    """Number of clusters with which a comparison is decided with 80% power, or None if the spread is unknown.

    A comparison is decided if the test finds this difference, or shows that the difference is within the margin,
    whichever takes fewer clusters. The power for few clusters is simulated by draws of the clusters at hand, otherwise
    it is the t test's.

    Args:
        tests: factor by which p is corrected (Holm).
    """
    return _required_clusters(difference, difference.contributions.tobytes(), margin, tests)


@lru_cache(maxsize=4096)  # small tasks of many runs often differ alike
def _required_clusters(difference: Difference, _contributions: bytes, margin: float, tests: float) -> int | None:
    interval, level = difference.interval, LEVEL / tests
    if not interval.se or not interval.df or not math.isfinite(interval.se):
        return None
    start = interval.clusters + 1
    counts = []
    if interval.value:
        counts.append(_least_number(lambda n: _has_power(difference, n, level), start))
    if abs(interval.value) < margin:
        counts.append(_least_number(lambda n: _fits_margin(difference, n, margin), start))
    return min((count for count in counts if count), default=None)


def is_above(difference: Difference, threshold: float) -> bool | None:
    """Whether the difference is above ``threshold``, or None if a one-sided test at the 5% level does not show it.

    If no cluster differs, three might, each by the whole score (rule of three). If all differ alike, the exact test of
    their signs decides.
    """
    interval, gap = difference.interval, difference.interval.value - threshold
    if _has_no_spread(difference):
        is_decided = abs(gap) > _EXACT_EPSILON and difference.p is not None and difference.p < LEVEL
    else:
        is_decided = half_width_90(difference, interval.clusters) <= abs(gap) + _EXACT_EPSILON
    return gap > 0 if is_decided else None


def clusters_to_decide(difference: Difference, threshold: float) -> int | None:
    """Number of clusters with which ``is_above`` is decided with 80% power, or None if no number is known to."""
    interval, gap = difference.interval, abs(difference.interval.value - threshold)
    if _has_no_spread(difference):
        least = math.ceil(fewest_clusters() * interval.clusters / len(difference.contributions))
        return least if gap > _EXACT_EPSILON and least > interval.clusters else None

    def is_enough(clusters: int) -> bool:
        half = half_width_90(difference, clusters)
        if interval.se:
            se, df = _scaled_error(interval, clusters)
            half += t_quantile(_POWER, df) * se
        return half <= gap + _EXACT_EPSILON

    start = interval.clusters + 1
    return _least_number(is_enough, start) if math.isfinite(half_width_90(difference, start)) else None


def _has_no_spread(difference: Difference) -> bool:
    return difference.interval.se == 0 and len(difference.contributions) > 0


def _least_number(is_enough: Callable[[int], bool], start: int) -> int | None:
    """Smallest number from ``start`` on that the monotonic ``is_enough`` accepts, or None above a billion."""
    low, high = start - 1, start
    while not is_enough(high):
        low, high = high, 2 * high
        if high > _MOST_CLUSTERS:
            return None
    while high - low > max(1, low // 200):
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _has_power(difference: Difference, clusters: int, level: float) -> bool:
    """Whether p would be below ``level`` in four of five comparisons on this number of similar clusters."""
    interval, contributions = difference.interval, difference.contributions
    if len(contributions) * clusters < 2 * MIN_T_TEST_CLUSTERS * interval.clusters:
        return bool(_simulate_power(contributions, interval.clusters, clusters, level, difference.test) >= _POWER)
    se, df = _scaled_error(interval, clusters)
    return abs(interval.value) >= (t_quantile(1 - level / 2, df) + t_quantile(_POWER, df)) * se


def _simulate_power(contributions: Floats, n: int, clusters: int, level: float, test: str) -> float:
    """Power by simulation: the share of drawn samples of ``clusters`` clusters with a significant test."""
    if clusters < MIN_T_TEST_CLUSTERS and 2.0 ** (1 - clusters) >= level:
        return 0.0
    spread = math.sqrt(
        len(contributions) / max(len(contributions) - 1, 1)
    )  # a sample varies less than what it was drawn from
    if test == "mcnemar":
        wins, losses = np.random.default_rng(_SEED).multinomial(
            clusters, [(contributions > 0).sum() / n, (contributions < 0).sum() / n, 1 - len(contributions) / n], _DRAWS
        ).T[:2]  # fmt: skip
        return float(np.mean([mcnemar(int(a), int(b)) < level for a, b in zip(wins, losses, strict=True)]))
    pool = np.concatenate(
        [contributions.mean() + (contributions - contributions.mean()) * spread, np.zeros(n - len(contributions))]
    )
    drawn = np.random.default_rng(_SEED).choice(pool, (_DRAWS, clusters))
    differ = np.count_nonzero(drawn, axis=1)
    sums, squares = drawn.sum(axis=1), (drawn**2).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        t = np.abs(sums) / np.sqrt((squares - sums**2 / clusters) * clusters / (clusters - 1))
    significant = (t > t_quantile(1 - level / 2, clusters - 1)) & (differ >= MIN_T_TEST_CLUSTERS)
    few = np.sort(np.abs(drawn[differ < MIN_T_TEST_CLUSTERS]), axis=1)[:, ::-1][:, : MIN_T_TEST_CLUSTERS - 1]
    as_far = np.abs(few @ _signs(few.shape[1])) >= np.abs(sums[differ < MIN_T_TEST_CLUSTERS])[:, None] * (1 - 1e-9)
    significant[differ < MIN_T_TEST_CLUSTERS] = as_far.mean(axis=1) < level
    return float(significant.mean())


@lru_cache
def _signs(count: int) -> Floats:
    """All assignments of signs to ``count`` numbers, as columns."""
    return np.array(list(product((-1.0, 1.0), repeat=count))).T


def _fits_margin(difference: Difference, clusters: int, margin: float) -> bool:
    """Whether the 90% interval would be within the margin in four of five comparisons on this number of clusters."""
    se, df = _scaled_error(difference.interval, clusters)
    half = half_width_90(difference, clusters)
    return half + t_quantile((1 + _POWER) / 2, df) * se <= margin - abs(difference.interval.value)


def half_width_90(difference: Difference, clusters: int) -> float:
    """Half width of the 90% interval on this number of similar clusters, or infinity if the spread is unknown."""
    interval, contributions = difference.interval, difference.contributions
    if not len(contributions) and math.isfinite(interval.value):
        return 3 * difference.largest_share * interval.clusters / clusters
    if not interval.se or not interval.df:
        return math.inf
    se, df = _scaled_error(interval, clusters)
    few = len(contributions) * clusters < min(MIN_T_TEST_CLUSTERS, clusters) * interval.clusters
    unseen = 3 * (np.abs(contributions).max(initial=0) * interval.clusters / clusters) ** 2 if few else 0.0
    return t_quantile(0.95, df) * math.sqrt(se**2 + unseen)


def _scaled_error(interval: Interval, clusters: int) -> tuple[float, float]:
    """Standard error and degrees of freedom of an interval, scaled to another number of similar clusters."""
    assert interval.se is not None and interval.df is not None
    ratio = clusters / interval.clusters
    return interval.se / math.sqrt(ratio), min(interval.df * ratio, 1e5)


def _p_value(interval: Interval, contributions: Floats) -> tuple[float | None, str]:
    """P value of no difference, and the name of the test, from the contribution of each cluster that differs."""
    if len(contributions) < MIN_T_TEST_CLUSTERS:
        return sign_flips(contributions.tolist()), "sign flips"
    if not interval.se and ((contributions > 0).all() or (contributions < 0).all()):
        return 2.0 ** (1 - len(contributions)), "sign flips"  # only two assignments have a sum this large
    if not interval.se or not interval.df:
        return None, "t"
    return min(1.0, 2 * t_tail(abs(interval.value) / interval.se, interval.df)), "t"


def _reorder(stratum: Stratum, samples: Codes) -> Stratum:
    """Reorder a stratum's rows to the order of ``samples``. Orders differ where a sample's best answer was chosen."""
    stratum_samples = stratum.samples
    if np.array_equal(stratum_samples, samples):
        return stratum
    order, other = (
        np.argsort(stratum_samples, kind="stable"),
        np.argsort(np.argsort(samples, kind="stable"), kind="stable"),
    )
    if len(stratum_samples) != len(samples) or not np.array_equal(stratum_samples[order[other]], samples):
        raise ValueError("The two estimates have different samples.")
    return stratum.select(order[other])
