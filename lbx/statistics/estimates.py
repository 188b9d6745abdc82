"""Estimates of scores with intervals: CR2 with Bell and McCaffrey's degrees of freedom, or logits for few clusters.

A score is a weighted sum of means, with one mean per stratum (a task or a subset of a task). Rows of one cluster (a
document) are dependent, also across strata. With h = a cluster's share of a stratum's rows and r = the sum of its
residuals there,

    SE^2 = sum over clusters of (sum over strata of weight / n x r / sqrt(1 - h))^2

which is Bell and McCaffrey's CR2 (Survey Methodology 28, 2002) for means of strata, in closed form. The degrees of
freedom for Student's t come from the same paper, or from adding the squared half widths of the strata's own t
intervals if that gives fewer. Without shared documents it is the t interval of a mean. CR2 takes the rows of a document
as independent: for a document larger than most, 1 - 2h + the sum of h^2, which takes them as perfectly correlated,
replaces 1 - h. Repeating every row of a cluster changes no number, so several answers to one question never count as
several questions.

With fewer than thirty clusters (or degrees of freedom + 1), or fewer than thirty clusters above 0, or fewer than thirty
below 1, a score's distribution is too skewed for t. The interval is then computed on the logit scale, wider by |1 - 2
score| / df. It contains Clopper and Pearson's at the effective number of samples (Korn and Graubard, same journal 24,
1998) if not all clusters are above 0 and below 1. With an assumed variance of a stratum whose clusters are all 0 or all
1, it ends where Clopper and Pearson's at the effective number of clusters does: scores in 0..1 vary no more than right
and wrong. bench/coverage.py measures how often all of them contain the true value.

Tails and quantiles of Student's t and the binomial distribution are accurate to at least nine digits up to
100,000 degrees of freedom. SciPy also computes them, but takes seconds to import and would add 100 MB to a container.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import count
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

_TINY = 1e-300
_STEPS = 500


def t_tail(t: float, df: float) -> float:
    """Tail probability P(T > t) of Student's t with ``df`` > 0 degrees of freedom, which may be fractional."""
    if t < 0:
        return 1 - t_tail(-t, df)
    if math.isinf(t):
        return 0.0
    square = t * t
    return 0.5 * _incomplete_beta(df / (df + square), square / (df + square), df / 2, 0.5)


def binomial_tail(k: int, n: int, p: float) -> float:
    """Probability P(X <= k) of at most k successes in n trials with success probability p."""
    if k < 0:
        return 0.0
    return 1.0 if k >= n else _incomplete_beta(1 - p, p, n - k, k + 1)


@lru_cache(maxsize=4096)
def t_quantile(p: float, df: float) -> float:
    """Quantile of Student's t: the number t with P(T <= t) = p, for 0 < p < 1."""
    if p < 0.5:
        return -t_quantile(1 - p, df)
    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)
    start = z = NormalDist().inv_cdf(p)
    if df > z * z:  # Abramowitz and Stegun 26.7.5
        start += (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
    return _solve_tail(1 - p, start, lambda t: t_tail(t, df), lambda t: scale * (1 + t * t / df) ** (-(df + 1) / 2))


def beta_quantile(p: float, a: float, b: float) -> float:
    """Quantile of the beta distribution: the number x with P(X <= x) = p, for 0 < p < 1."""
    if b == 0 or a == 0:
        return float(b == 0)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    low, high, x = 0.0, 1.0, a / (a + b)
    for _ in range(_STEPS):
        error = _incomplete_beta(x, 1 - x, a, b) - p
        low, high = (x, high) if error < 0 else (low, x)
        slope = math.exp(min(front + (a - 1) * math.log(x) + (b - 1) * math.log1p(-x), 700.0))
        step = x - error / slope if slope else low
        new = step if low < step < high else (low + high) / 2
        if abs(new - x) <= 1e-12 * x:
            return new
        x = new
        if not 0 < x < 1:
            break
    return x


def _solve_tail(p: float, start: float, tail: Callable[[float], float], density: Callable[[float], float]) -> float:
    """Solve tail(x) = p for a tail that is convex beyond ``start``, by Newton's steps from the left."""
    value = start
    for _ in range(_STEPS):
        step = (tail(value) - p) / density(value)
        value += step
        if abs(step) <= 1e-10 * (1 + value):  # the remaining error is of the order of its square
            break
    return value


def _find_root(function: Callable[[float], float], low: float, high: float) -> float:
    """Root of a falling function between ``low`` and ``high``, by the Illinois variant of false position."""
    at_low, at_high, side = function(low), function(high), 0
    for _ in range(_STEPS):
        if at_low <= 0 or at_high >= 0:
            return low if at_low <= 0 else high
        root = (low * at_high - high * at_low) / (at_high - at_low)
        value = function(root)
        if abs(value) < 1e-15 or high - low < 1e-13:
            return root
        if value > 0:
            low, at_low, at_high, side = root, value, at_high / 2 if side > 0 else at_high, 1
        else:
            high, at_high, at_low, side = root, value, at_low / 2 if side < 0 else at_low, -1
    return low


def _incomplete_beta(x: float, complement: float, a: float, b: float) -> float:
    """Regularised incomplete beta function I_x(a, b). Pass 1 - x as ``complement``: it is exact for x near 1."""
    if x <= 0 or complement <= 0:
        return float(x > 0)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(complement, x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(complement))
    return front / a * _continued_fraction(x, a, b)


def _continued_fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of I_x(a, b), by Lentz's method (Abramowitz and Stegun 26.5.8)."""
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or _TINY)
    fraction, both = d, a + b
    for m in range(1, _STEPS):  # a tenth of the time of a large comparison
        even = a + 2 * m
        term = m * (b - m) * x / ((even - 1) * even)
        d = 1 / (1 + term * d or _TINY)
        c = 1 + term / c or _TINY
        fraction *= c * d
        term = -(a + m) * (both + m) * x / (even * (even + 1))
        d = 1 / (1 + term * d or _TINY)
        c = 1 + term / c or _TINY
        fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return fraction


MIN_T_INTERVAL_CLUSTERS = 30
"""Least number of clusters, above 0 and below 1, for a t interval of a score."""

_END = 1e-6
"""Distance at which a score counts as 0 or 1: the best ROUGE of some scripts is 0.999999995."""

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]

_LARGEST_LOGIT = 50.0

_CODES: defaultdict[Hashable, int] = defaultdict(count().__next__)
"""Labels by code, kept as long as the process lives: integer arrays are fast to sort and compare."""


def encode_labels(labels: Iterable[Hashable]) -> Codes:
    """Encode labels as integers. Equal labels get equal codes for as long as the process lives."""
    return np.fromiter(map(_CODES.__getitem__, labels), np.int64)


def decode_labels(codes: Iterable[int]) -> list[Hashable]:
    """Decode the codes that ``encode_labels`` returned."""
    labels = list(_CODES)
    return [labels[code] for code in codes]


def number_by_appearance(codes: Codes) -> tuple[Codes, Codes]:
    """Number codes by first appearance. Returns the first row of each code, and the new code of each row.

    Using the codes themselves would make the last digits of sums depend on labels that the process coded before.
    """
    if len({*codes.tolist()}) == len(codes):  # usual, and many times as fast
        return np.arange(len(codes)), np.arange(len(codes))
    _, first, code = np.unique(codes, return_index=True, return_inverse=True)
    turns = np.argsort(first)
    turn = np.empty_like(turns)
    turn[turns] = np.arange(len(turns))
    return first[turns], turn[code]


@dataclass(frozen=True, slots=True, eq=False)
class Stratum:
    """Rows with a mean that is one term of a score.

    Attributes:
        samples, clusters: codes of each row (see ``encode_labels``); equal codes belong together, also across strata.
        values: scores of the rows; their mean is the mean of the stratum. If the number is no mean of scores, its
            linearisation: values with this number as mean, and each row's influence as distance from it.
    """

    weight: float
    samples: Codes
    clusters: Codes
    values: Floats

    def __post_init__(self) -> None:
        for name in ("samples", "clusters"):
            labels: object = getattr(self, name)
            if isinstance(labels, (tuple, list)):
                object.__setattr__(self, name, encode_labels(labels))

    def select(self, rows: Codes | npt.NDArray[np.bool_]) -> Stratum:
        return Stratum(self.weight, self.samples[rows], self.clusters[rows], self.values[rows])

    def by_sample(self) -> Stratum:
        """Stratum with one row per sample: the average of the sample's rows."""
        first, codes = number_by_appearance(self.samples)
        return replace(self.select(first), values=np.bincount(codes, self.values) / np.bincount(codes))


@dataclass(frozen=True, slots=True)
class Interval:
    """Value of an estimate with its 95% interval.

    Attributes:
        low, high: bounds of the 95% interval, or None if ``method`` gives a reason.
        se, df: standard error and its degrees of freedom.
        n, clusters: number of samples and of clusters.
        method: "t", "logit", "exact" (all scores are 0, or 1), or the reason for a missing interval: "one cluster",
            "all alike", "all alike in a part", "no number".
        within: share of se squared that more answers to the same samples would remove, or None with one answer
            each.
    """

    value: float
    low: float | None
    high: float | None
    se: float | None
    df: float | None
    n: int
    clusters: int
    method: str
    within: float | None = None


class Design:
    """Sampling design of an estimate: sample, cluster and stratum of each row, and the weights of the strata."""

    def __init__(self, weights: Sequence[float], sizes: Sequence[int], samples: Codes, clusters: Codes) -> None:
        self.stratum: Codes = np.repeat(np.arange(len(sizes)), sizes)
        self.sizes: Floats = np.array(sizes, float)
        self.weights: Floats = np.array(weights)
        self.share: Floats = (self.weights / np.maximum(self.sizes, 1))[self.stratum]
        self.n = len(np.unique(samples))
        first_rows, self.cluster = number_by_appearance(clusters)
        self.clusters = len(first_rows)
        self._unit: Codes | None = None
        if self.n < len(samples):
            first, unit = number_by_appearance(samples * len(sizes) + self.stratum)
            self._unit = unit if len(first) < len(unit) else None
        # A cell has the rows of one cluster in one stratum.
        cells, self.cell = np.arange(self.clusters), self.cluster
        if len(sizes) > 1:
            cells, self.cell = np.unique(self.cluster * len(sizes) + self.stratum, return_inverse=True)
        self.of_cluster, of_stratum = cells // max(len(sizes), 1), cells % max(len(sizes), 1)
        rows = np.bincount(self.cell).astype(float)
        shares = rows / self.sizes[of_stratum]
        # Documents of unequal size: whichever of no and full correlation within a document gives the larger error.
        complement = np.minimum(1 - shares, 1 - 2 * shares + np.bincount(of_stratum, shares**2)[of_stratum])
        self.estimable = bool(len(cells)) and bool((complement > 0).all())
        if self.estimable:
            self._of_stratum = of_stratum
            self._factor = self.weights[of_stratum] / (self.sizes[of_stratum] * np.sqrt(complement))
            self._variances, self._squares = self._moments(rows, of_stratum)
            self.df = self.degrees_of_freedom(np.ones(len(sizes)))

    def _moments(self, rows: Floats, of_stratum: Codes) -> tuple[Floats, Floats]:
        """Linear and quadratic form of the strata's variances, for the expected squared error and for its variance."""
        variances = self._factor**2 * rows * (1 - rows / self.sizes[of_stratum])
        parts = self._factor * rows / np.sqrt(self.sizes[of_stratum])
        if len(parts) == self.clusters:  # no cluster in several strata
            across = np.bincount(of_stratum, parts**2)
            squares = np.diag(np.bincount(of_stratum, variances**2 - parts**4) + across**2)
        else:
            own, shared = (np.zeros((self.clusters, len(self.sizes))) for _ in range(2))
            own[self.of_cluster, of_stratum], shared[self.of_cluster, of_stratum] = variances, parts
            squares = own.T @ own + (shared.T @ shared) ** 2 - (shared**2).T @ shared**2
        return np.asarray(np.bincount(of_stratum, variances)), squares

    def degrees_of_freedom(self, spreads: Floats) -> float:
        """Bell and McCaffrey's degrees of freedom for the variances ``spreads`` of the strata's rows."""
        return float((self._variances @ spreads) ** 2 / (spreads @ self._squares @ spreads))

    @cached_property
    def effective_clusters(self) -> float:
        """Number of clusters of equal weight that would give the same information as the design's clusters."""
        return float(np.abs(self.share).sum() ** 2 / (self.sum_by_cluster(np.abs(self.share)) ** 2).sum())

    @property
    def has_single_rows(self) -> bool:
        """Whether each sample occurs once per stratum."""
        return self._unit is None

    def means(self, values: Floats) -> Floats:
        """Mean of each stratum. The weighted sum of the means is the score."""
        return np.asarray(np.bincount(self.stratum, values) / self.sizes)

    def variance(self, values: Floats, means: Floats, unseen: Floats | None = None) -> tuple[float, float]:
        """Squared standard error (the sum of squares of the clusters' contributions), and the degrees of freedom.

        Args:
            unseen: additional variance to assume for the rows of each stratum.
        """
        cells: Floats = np.bincount(self.cell, values - means[self.stratum]) * self._factor
        clusters = cells if len(cells) == self.clusters else np.bincount(self.of_cluster, cells)
        variance = float((clusters**2).sum())
        if len(self.sizes) == 1:
            return variance, self.df
        more = np.zeros(len(self.sizes)) if unseen is None else unseen
        spreads = np.bincount(self._of_stratum, cells**2) / self._variances + more
        df = min(self.df, self._combined_df(spreads)) if spreads.any() else self.df
        return variance + float(self._variances @ more), df

    def _combined_df(self, spreads: Floats) -> float:
        """Degrees of freedom with which t gives the root of the summed squares of the strata's half widths.

        The standard error of few clusters may be small by chance, so that Welch's degrees of freedom are too many.
        """
        parts = self._variances * spreads
        squares = [t_quantile(0.975, float(df)) ** 2 for df in self._variances**2 / self._squares.diagonal()]
        t = math.sqrt(float(parts @ squares) / float(parts.sum()))
        low, high = min(self.df, 1.0), self.degrees_of_freedom(spreads)
        if t <= t_quantile(0.975, high):
            return high
        return math.exp(_find_root(lambda log: t_tail(t, math.exp(log)) - 0.025, math.log(low), math.log(high)))

    def cell_means(self, values: Floats) -> tuple[Floats, Codes, Floats]:
        """Mean and stratum of each cell (a cluster in a stratum), and the number of clusters per stratum."""
        means = np.bincount(self.cell, values) / np.bincount(self.cell)
        return np.asarray(means), self._of_stratum, np.bincount(self._of_stratum).astype(float)

    def sum_by_cluster(self, contributions: Floats) -> Floats:
        """Sum the contributions of rows by cluster."""
        if self.clusters == len(contributions):
            return contributions
        return np.asarray(np.bincount(self.cluster, contributions))

    def count_clusters(self, rows: npt.NDArray[np.bool_]) -> int:
        """Number of clusters that contain at least one of ``rows``."""
        counts = rows if self.clusters == len(rows) else np.bincount(self.cluster[rows])
        return int(np.count_nonzero(counts))

    def answer_variance(self, values: Floats) -> float | None:
        """Variance, within the squared standard error, of answers to one sample, or None with one answer per sample."""
        if self._unit is None:
            return None
        answers = np.bincount(self._unit)
        spread = values - (np.bincount(self._unit, values) / answers)[self._unit]
        each = self.share**2 * spread**2
        return float((each * (answers / np.maximum(answers - 1, 1))[self._unit]).sum())


@lru_cache(maxsize=1024)
def _cached_design(weights: tuple[float, ...], sizes: tuple[int, ...], samples: bytes, clusters: bytes) -> Design:
    """Cached design, from hashable arguments: runs over the same samples share it."""
    return Design(weights, sizes, np.frombuffer(samples, np.int64), np.frombuffer(clusters, np.int64))


@dataclass(frozen=True)
class Estimate:
    """Score as a weighted sum of means over strata.

    Attributes:
        clustered: whether every row's cluster is known; a row without a known cluster is its own cluster.
        linear: whether the score of a subset of samples is the sum over that subset; false for linearised values.
    """

    strata: tuple[Stratum, ...]
    clustered: bool = True
    linear: bool = True

    @cached_property
    def row_key(self) -> tuple[tuple[int, ...], bytes]:
        """Key of the estimate's rows: number of rows of each stratum, and the samples of all rows as bytes."""
        return tuple(len(stratum.values) for stratum in self.strata), b"".join(
            stratum.samples.tobytes() for stratum in self.strata
        )

    @cached_property
    def design(self) -> Design:
        clusters = b"".join(stratum.clusters.tobytes() for stratum in self.strata)
        return _cached_design(tuple(stratum.weight for stratum in self.strata), *self.row_key, clusters)

    @cached_property
    def values(self) -> Floats:
        if len(self.strata) == 1:
            return self.strata[0].values
        return np.concatenate([stratum.values for stratum in self.strata]) if self.strata else np.zeros(0)

    @cached_property
    def is_binary(self) -> bool:
        """Whether every value is 0 or 1."""
        return bool(((self.values == 0) | (self.values == 1)).all())

    @cached_property
    def by_sample(self) -> Estimate:
        """Estimate with one row per sample: the average of the sample's answers."""
        return (
            self
            if self.design.has_single_rows
            else replace(self, strata=tuple(stratum.by_sample() for stratum in self.strata))
        )

    @classmethod
    def average(cls, estimates: Sequence[Estimate]) -> Estimate:
        """Average estimates with equal weights."""
        strata = (
            Stratum(stratum.weight / len(estimates), stratum.samples, stratum.clusters, stratum.values)
            for estimate in estimates
            for stratum in estimate.strata
        )
        return cls(
            tuple(strata),
            all(estimate.clustered for estimate in estimates),
            all(estimate.linear for estimate in estimates),
        )


def interval(estimate: Estimate, level: float = 0.95, *, bounded: bool = True) -> Interval:
    """Confidence interval of an estimate.

    Args:
        level: probability that the interval covers the score on all questions of this kind.
        bounded: whether scores are in 0..1, if none of them shows the contrary; true for everything except differences.
    """
    return interval_of(estimate.design, estimate.values, level, bounded=bounded, linear=estimate.linear)


def interval_of(
    design: Design, values: Floats, level: float = 0.95, *, bounded: bool = True, linear: bool = True
) -> Interval:
    """Confidence interval of the weighted mean of ``values`` under a sampling design. Arguments as in ``interval``.

    Args:
        linear: whether values are scores (``Estimate.linear``): linearised ones may exceed 1 where no score does.
    """
    means = design.means(values)
    value = float(design.weights @ means) if design.n else math.nan
    if not math.isfinite(value):
        return Interval(value, None, None, None, None, design.n, design.clusters, "no number")
    if not design.estimable:
        return Interval(value, None, None, None, None, design.n, design.clusters, "one cluster")
    nonnegative = bounded and bool(values.min() >= 0) and value >= -1e-12
    largest = max(value, float(values.max())) if linear else value
    bounded = nonnegative and largest <= 1 + 1e-12
    variance, df = design.variance(values, means)
    has_spread = variance > (1e-12 * max(abs(value), 1e-3)) ** 2
    unseen: Floats | None = None
    if has_spread and len(design.sizes) > 1:
        unseen = _unseen_variances(design, values, means, are_scores=bounded or bool((design.weights < 0).any()))
        if unseen is None:
            return Interval(value, None, None, None, None, design.n, design.clusters, "all alike in a part")
        variance, df = design.variance(values, means, unseen)
    inside = design.answer_variance(values)
    se = math.sqrt(variance) if has_spread else 0.0
    share = None if inside is None else min(inside / variance, 1.0) if se else 0.0
    low: float | None
    high: float | None
    if bounded and not se and (values.max() <= _END or values.min() >= 1 - _END):
        low, high = binomial_interval(round(value), design.effective_clusters, level)
        method = "exact"
    elif not se:
        low, high, method = None, None, "all alike"
    elif bounded and 0 < value < 1 and _is_skewed(design, values, df):
        if len(design.sizes) == 1 and design.clusters == len(values) and np.isin(values, (0.0, 1.0)).all():
            low, high = binomial_interval(value, design.n, level)  # one question a document, right or wrong
            method = "exact"
        else:
            low, high = _logit_interval(design, values, (value, se, df), level)
            if unseen is not None and unseen.any():  # assumed, so that no more than that of right and wrong is due
                least, most = binomial_interval(value, design.effective_clusters, level)
                low, high = max(low, least), min(high, most)
            method = "logit"
    else:
        half = t_quantile(0.5 + level / 2, df) * se
        low, high, method = value - half, value + half, "t"
        low = max(low, 0.0) if nonnegative else low
        high = min(high, 1.0) if bounded else high
    return Interval(value, low, high, se, df, design.n, design.clusters, method, share)


@lru_cache(maxsize=4096)
def binomial_interval(p: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's exact interval of a share ``p`` of ``n`` trials, which may be fractional."""
    tail = 0.5 - level / 2
    low = 0.0 if p <= 0 else 1 - beta_quantile(1 - tail, n - n * p + 1, n * p)
    high = 1.0 if p >= 1 else beta_quantile(1 - tail, n * p + 1, n - n * p)
    return min(low, p), max(high, p)


def _unseen_variances(design: Design, values: Floats, means: Floats, *, are_scores: bool) -> Floats | None:
    """Variances to assume for the rows of strata whose clusters are all alike, or None if a stratum's is unknown.

    A score of 0 or 1 gets Agresti and Coull's variance of a share; a difference of 0 that of the rule of three, with
    the largest difference of a cluster.
    """
    cell_means, stratum, clusters = design.cell_means(values)
    spreads = np.zeros(len(means))
    np.maximum.at(spreads, stratum, np.abs(cell_means - means[stratum]))
    unseen = np.zeros(len(means))
    alike = spreads <= 1e-12 * np.maximum(np.abs(means), 1e-3)
    if are_scores:
        known, each = (means <= _END) | (means >= 1 - _END), (clusters + 1) / (clusters + 2) ** 2
    else:
        known, each = np.abs(means) <= 1e-12, 3 * np.abs(cell_means).max(initial=0) ** 2 / clusters
    if (alike & ~known).any():
        return None
    unseen[alike] = (each * design.sizes / clusters)[alike]
    return unseen


def _is_skewed(design: Design, values: Floats, df: float) -> bool:
    """Whether a score's distribution is too skewed for a t interval: few clusters, or few above 0 or below 1."""
    counts = design.count_clusters(values > _END), design.count_clusters(values < 1 - _END)
    return df < MIN_T_INTERVAL_CLUSTERS - 1 - 1e-9 or min(counts) < MIN_T_INTERVAL_CLUSTERS


def _logit_interval(
    design: Design, values: Floats, estimate: tuple[float, float, float], level: float
) -> tuple[float, float]:
    value, se, df = estimate
    at = t_quantile(0.5 + level / 2, df)
    half = min(at * se / (value * (1 - value)) * (1 + abs(1 - 2 * value) / df), _LARGEST_LOGIT)
    odds = value / (1 - value)
    low, high = (odds * math.exp(side) / (1 + odds * math.exp(side)) for side in (-half, half))
    clusters = min(MIN_T_INTERVAL_CLUSTERS, design.clusters)
    if min(design.count_clusters(values > _END), design.count_clusters(values < 1 - _END)) < clusters:
        ratio = t_quantile(0.5 + level / 2, max(design.n - 1, 1)) / at
        exact = binomial_interval(value, min(value * (1 - value) / se**2 * ratio**2, design.n), level)
        low, high = min(low, exact[0]), max(high, exact[1])
    return low, high
