"""One rule for all intervals: CR2 with Bell and McCaffrey's degrees of freedom, Wilson's near 0 and 1.

A score is a weighted sum of means, with one mean per stratum (a task, or a part of one). Rows of one cluster (a
document) are dependent, also across strata. With h = a cluster's share of a stratum's rows and r = the sum of its
residuals there,

    SE^2 = sum over clusters of (sum over strata of weight / n x r / sqrt(1 - h))^2

which is Bell and McCaffrey's CR2 (Survey Methodology 28, 2002) for means of strata, in closed form; the degrees of
freedom of its Student's t come from the same paper. Without shared documents it is the t interval of a mean. Repeating
every row of a cluster changes no number, so several answers to one question never count as several questions.

If fewer than ten clusters (or, with fewer than ten, not all) have a score above 0, or below 1, the distribution is too
skewed for t: Wilson's interval at the effective number of samples replaces it (Korn and Graubard, same journal 24,
1998).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import count

import numpy as np
import numpy.typing as npt

from lbx.statistics.tails import normal_quantile, t_quantile

FEW = 10
"""Clusters needed above 0 and below 1 for a t interval."""

_END = 1e-6
"""Distance at which a score counts as 0 or 1: the best ROUGE of some scripts is 0.999999995."""

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]


_CODES: defaultdict[Hashable, int] = defaultdict(count().__next__)
"""Labels by code, kept as long as the process lives: integer arrays are fast to sort and compare."""


def encode_labels(labels: Iterable[Hashable]) -> Codes:
    """Integer codes of labels; equal labels have equal codes."""
    return np.fromiter(map(_CODES.__getitem__, labels), np.int64)


def labels_of(codes: Iterable[int]) -> list[Hashable]:
    """Labels of the codes that ``encode_labels`` returned."""
    every = list(_CODES)
    return [every[code] for code in codes]


def number_by_appearance(codes: Codes) -> tuple[Codes, Codes]:
    """Number codes by first appearance: the first row of each code, and the new code of each row.

    Using the codes themselves would make the last digits of sums depend on labels that the process coded before.
    """
    _, first, code = np.unique(codes, return_index=True, return_inverse=True)
    turns = np.argsort(first)
    turn = np.empty_like(turns)
    turn[turns] = np.arange(len(turns))
    return first[turns], turn[code]


@dataclass(frozen=True, slots=True, eq=False)
class Stratum:
    """Rows whose mean is one term of a score.

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

    def at(self, places: Codes | npt.NDArray[np.bool_]) -> Stratum:
        return Stratum(self.weight, self.samples[places], self.clusters[places], self.values[places])

    def by_sample(self) -> Stratum:
        """Average the rows of each sample into one row."""
        first, codes = number_by_appearance(self.samples)
        return replace(self.at(first), values=np.bincount(codes, self.values) / np.bincount(codes))


@dataclass(frozen=True, slots=True)
class Interval:
    """Value with its interval.

    Attributes:
        low, high: bounds of the 95% interval; None if ``method`` gives a reason.
        se, df: standard error and its degrees of freedom.
        n, clusters: number of samples and of clusters.
        method: "t", "wilson", or the reason for a missing interval: "one cluster", "all alike", "no number".
        within: share of se squared that more answers to the same samples would remove; None with one answer each.
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
    """Sample, cluster and stratum of each row: all that an interval depends on besides the values."""

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
        complement = 1 - rows / self.sizes[of_stratum]
        self.estimable = bool(len(cells)) and bool((complement > 0).all())
        if self.estimable:
            self._factor = self.weights[of_stratum] / (self.sizes[of_stratum] * np.sqrt(complement))
            self.df = self._degrees_of_freedom(rows, of_stratum)

    def _degrees_of_freedom(self, rows: Floats, of_stratum: Codes) -> float:
        cluster_sums = np.bincount(self.of_cluster, (self.weights[of_stratum] / self.sizes[of_stratum]) ** 2 * rows)
        part = self._factor * rows / np.sqrt(self.sizes[of_stratum])
        if len(part) == self.clusters:  # no cluster in several strata
            across = np.bincount(of_stratum, part**2)
            squares = (cluster_sums**2).sum() + (across**2).sum() - (part**4).sum()
        else:
            shared = np.zeros((self.clusters, len(self.sizes)))
            shared[self.of_cluster, of_stratum] = part
            squares = (cluster_sums**2).sum() + ((shared.T @ shared) ** 2).sum() - ((shared**2).sum(axis=1) ** 2).sum()
        return float(cluster_sums.sum() ** 2 / squares)

    @property
    def has_single_rows(self) -> bool:
        """Whether each sample has a single row per stratum."""
        return self._unit is None

    def means(self, values: Floats) -> Floats:
        """Means of the strata; their weighted sum is the score."""
        return np.asarray(np.bincount(self.stratum, values) / self.sizes)

    def variance(self, values: Floats, means: Floats) -> float:
        """Squared standard error: sum of squares of each cluster's contribution to the error."""
        cells: Floats = np.bincount(self.cell, values - means[self.stratum]) * self._factor
        clusters = cells if len(cells) == self.clusters else np.bincount(self.of_cluster, cells)
        return float((clusters**2).sum())

    def sum_by_cluster(self, each: Floats) -> Floats:
        """Sum the contributions of rows by cluster."""
        return each if self.clusters == len(each) else np.asarray(np.bincount(self.cluster, each))

    def count_clusters(self, rows: npt.NDArray[np.bool_]) -> int:
        """Number of clusters with at least one of these rows."""
        counts = rows if self.clusters == len(rows) else np.bincount(self.cluster[rows])
        return int(np.count_nonzero(counts))

    def within(self, values: Floats) -> float | None:
        """Part of the squared standard error from differing answers to one sample; None with one answer each."""
        if self._unit is None:
            return None
        answers = np.bincount(self._unit)
        spread = values - (np.bincount(self._unit, values) / answers)[self._unit]
        each = self.share**2 * spread**2
        return float((each * (answers / np.maximum(answers - 1, 1))[self._unit]).sum())


@lru_cache(maxsize=1024)
def _design(weights: tuple[float, ...], sizes: tuple[int, ...], samples: bytes, clusters: bytes) -> Design:
    """Design from hashable parts, cached: runs over the same samples share it."""
    return Design(weights, sizes, np.frombuffer(samples, np.int64), np.frombuffer(clusters, np.int64))


@dataclass(frozen=True)
class Estimate:
    """Score as a weighted sum of means.

    Attributes:
        clustered: whether every row's cluster is known; a row without a known cluster is its own cluster.
        linear: whether the score of a subset of samples is the sum over that subset; false for linearised values.
    """

    strata: tuple[Stratum, ...]
    clustered: bool = True
    linear: bool = True

    @cached_property
    def rows(self) -> tuple[tuple[int, ...], bytes]:
        """Number of rows of each stratum, and the samples of all rows: equal for two estimates over the same rows."""
        return tuple(len(stratum.values) for stratum in self.strata), b"".join(
            stratum.samples.tobytes() for stratum in self.strata
        )

    @cached_property
    def design(self) -> Design:
        clusters = b"".join(stratum.clusters.tobytes() for stratum in self.strata)
        return _design(tuple(stratum.weight for stratum in self.strata), *self.rows, clusters)

    @cached_property
    def values(self) -> Floats:
        if len(self.strata) == 1:
            return self.strata[0].values
        return np.concatenate([stratum.values for stratum in self.strata]) if self.strata else np.zeros(0)

    @cached_property
    def right_or_wrong(self) -> bool:
        """Whether all values are 0 or 1."""
        return bool(((self.values == 0) | (self.values == 1)).all())

    @cached_property
    def by_sample(self) -> Estimate:
        """Average the answers of each sample into one row."""
        return (
            self
            if self.design.has_single_rows
            else replace(self, strata=tuple(stratum.by_sample() for stratum in self.strata))
        )

    @property
    def has_single_cluster(self) -> bool:
        """Whether a stratum has several rows, all in one cluster."""
        return any(
            len(stratum.clusters) > 1 and (stratum.clusters == stratum.clusters[0]).all() for stratum in self.strata
        )

    def with_sample_clusters(self) -> Estimate:
        """Make every sample its own cluster."""
        strata = tuple(
            Stratum(stratum.weight, stratum.samples, stratum.samples, stratum.values) for stratum in self.strata
        )
        return Estimate(strata, clustered=False, linear=self.linear)

    @classmethod
    def average(cls, parts: Sequence[Estimate]) -> Estimate:
        """Average estimates with equal weights.

        A part with a single cluster has no spread between clusters: its samples become their own clusters, so that the
        average has an interval, which may be too narrow. If all parts have the same single cluster, the average has no
        interval, like the parts.
        """
        cluster_codes = [stratum.clusters for part in parts for stratum in part.strata if len(stratum.clusters)]
        if any((clusters != cluster_codes[0][0]).any() for clusters in cluster_codes):
            parts = [part.with_sample_clusters() if part.has_single_cluster else part for part in parts]
        strata = (
            Stratum(stratum.weight / len(parts), stratum.samples, stratum.clusters, stratum.values)
            for part in parts
            for stratum in part.strata
        )
        return cls(tuple(strata), all(part.clustered for part in parts), all(part.linear for part in parts))


def interval(estimate: Estimate, level: float = 0.95, *, bounded: bool = True) -> Interval:
    """Confidence interval of an estimate.

    Args:
        level: probability that the interval covers the score on all questions of this kind.
        bounded: whether scores are in 0..1; true for everything except differences.
    """
    return interval_of(estimate.design, estimate.values, level, bounded=bounded)


def interval_of(design: Design, values: Floats, level: float = 0.95, *, bounded: bool = True) -> Interval:
    """Confidence interval of the score that these values have in a design."""
    means = design.means(values)
    value = float(design.weights @ means) if design.n else math.nan
    if not math.isfinite(value):
        return Interval(value, None, None, None, None, design.n, design.clusters, "no number")
    if not design.estimable:
        return Interval(value, None, None, None, None, design.n, design.clusters, "one cluster")
    variance = design.variance(values, means)
    inside = design.within(values)
    se = math.sqrt(variance) if variance > (1e-12 * max(abs(value), 1e-3)) ** 2 else 0.0
    share = None if inside is None else min(inside / variance, 1.0) if se else 0.0
    bounded = bounded and bool(values.min() >= 0) and -1e-12 <= value <= 1 + 1e-12
    low: float | None
    high: float | None
    if bounded and _is_skewed(design, values):
        low, high = wilson(min(max(value, 0.0), 1.0), _effective_size(value, se, design, level), level)
        method = "wilson"
    elif se == 0:
        low, high, method = None, None, "all alike"
    else:
        half = t_quantile(0.5 + level / 2, design.df) * se
        low, high, method = value - half, value + half, "t"
        if bounded:
            low, high = max(low, 0.0), min(high, 1.0)
    return Interval(value, low, high, se, design.df, design.n, design.clusters, method, share)


def wilson(p: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Wilson's interval of a share p of n, which may be fractional."""
    z = normal_quantile(0.5 + level / 2)
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)
    return max(min(low, p), 0.0), min(max(high, p), 1.0)  # rounding could leave p outside at 0 and 1


def _is_skewed(design: Design, values: Floats) -> bool:
    few = min(FEW, design.clusters)
    return design.count_clusters(values > _END) < few or design.count_clusters(values < 1 - _END) < few


def _effective_size(value: float, se: float, design: Design, level: float) -> float:
    if se == 0 or not 0 < value < 1:  # a foreign tool may write scores above 1, with a mean of 1
        return design.clusters
    at = 0.5 + level / 2
    ratio = t_quantile(at, design.n - 1) / t_quantile(at, design.df) if design.n > 1 else 1.0
    return min(value * (1 - value) / se**2 * ratio**2, design.n)
