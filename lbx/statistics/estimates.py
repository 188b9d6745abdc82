"""One rule for the interval of every number: CR2 with Bell and McCaffrey's degrees of freedom, Wilson's near 0 and 1.

A number is a weighted sum of means, one a stratum (a task, or a part of one). Rows of one cluster (a document) go
together, also across strata. With h = a cluster's share of a stratum's rows and r = the sum of its residuals there,

    SE^2 = sum over clusters of (sum over strata of weight / n x r / sqrt(1 - h))^2

which is Bell and McCaffrey's CR2 (Survey Methodology 28, 2002) for strata's means, in closed form; so are the degrees
of freedom of its Student's t. Without shared documents it is the t interval of a mean. Repeating every row of a cluster
changes nothing, so that several answers to one question never count as several questions.

Where fewer than ten clusters (or, of fewer than ten, not all) have a score above 0, or below 1, the distribution is too
skew for t: Wilson's interval at the effective number of samples stands there (Korn and Graubard, same journal 24,
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
"""With fewer clusters than these on one side, t's interval is not to be trusted."""

_END = 1e-6
"""As near to 0 or 1 a score counts as being there: the best ROUGE of some scripts is 0.999999995."""

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]


_KNOWN: defaultdict[Hashable, int] = defaultdict(count().__next__)
"""Labels by number, as long as the process lives: arrays of numbers are sorted and compared in no time."""


def coded(labels: Iterable[Hashable]) -> Codes:
    """A number for each label, the same for the same."""
    return np.fromiter(map(_KNOWN.__getitem__, labels), np.int64)


def labels_of(codes: Iterable[int]) -> list[Hashable]:
    """What ``coded`` made the numbers of."""
    every = list(_KNOWN)
    return [every[code] for code in codes]


def _by_turn(codes: Codes) -> tuple[Codes, Codes]:
    """The first row of each code, and each row's code by its turn among them.

    By the codes themselves, sums' last digits would depend on what the process had numbered before.
    """
    _, first, code = np.unique(codes, return_index=True, return_inverse=True)
    turns = np.argsort(first)
    turn = np.empty_like(turns)
    turn[turns] = np.arange(len(turns))
    return first[turns], turn[code]


@dataclass(frozen=True, slots=True, eq=False)
class Stratum:
    """The rows of one mean.

    Attributes:
        samples, clusters: a label a row, kept as ``coded`` has it; rows of one label belong together, in other strata,
            too.
        values: a score a row, whose mean the stratum's is. Of a number that is no mean of scores: its linearisation,
            which has that number for a mean, and a row's influence as its distance from it.
    """

    weight: float
    samples: Codes
    clusters: Codes
    values: Floats

    def __post_init__(self) -> None:
        for name in ("samples", "clusters"):
            labels: object = getattr(self, name)
            if isinstance(labels, (tuple, list)):
                object.__setattr__(self, name, coded(labels))

    def at(self, places: Codes | npt.NDArray[np.bool_]) -> Stratum:
        """Some of the rows."""
        return Stratum(self.weight, self.samples[places], self.clusters[places], self.values[places])

    def of_samples(self) -> Stratum:
        """A row a sample, with the mean of its values."""
        first, codes = _by_turn(self.samples)
        return replace(self.at(first), values=np.bincount(codes, self.values) / np.bincount(codes))


@dataclass(frozen=True, slots=True)
class Interval:
    """A number and how sure it is.

    Attributes:
        low, high: of the 95% interval; None where ``method`` says why there is none.
        se, df: the standard error and its degrees of freedom.
        n, clusters: how many samples and how many clusters the number is made of.
        method: "t", "wilson", or why there is no interval: "one cluster", "all alike", "no number".
        within: the share of se squared that more answers to the same samples would take away; None with one each.
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
    """What an interval depends on beside the values: which row is of which sample, cluster and stratum."""

    def __init__(self, weights: Sequence[float], sizes: Sequence[int], samples: Codes, clusters: Codes) -> None:
        self.stratum: Codes = np.repeat(np.arange(len(sizes)), sizes)
        self.sizes: Floats = np.array(sizes, float)
        self.weights: Floats = np.array(weights)
        self.share: Floats = (self.weights / np.maximum(self.sizes, 1))[self.stratum]
        self.n = len(np.unique(samples))
        held, self.cluster = _by_turn(clusters)
        self.clusters = len(held)
        self._unit: Codes | None = None
        if self.n < len(samples):
            first, unit = _by_turn(samples * len(sizes) + self.stratum)
            self._unit = unit if len(first) < len(unit) else None
        # A cell is what one cluster has of one stratum.
        cells, self.cell = np.arange(self.clusters), self.cluster
        if len(sizes) > 1:
            cells, self.cell = np.unique(self.cluster * len(sizes) + self.stratum, return_inverse=True)
        self.of_cluster, of_stratum = cells // max(len(sizes), 1), cells % max(len(sizes), 1)
        rows = np.bincount(self.cell).astype(float)
        left = 1 - rows / self.sizes[of_stratum]
        self.estimable = bool(len(cells)) and bool((left > 0).all())
        if self.estimable:
            self._factor = self.weights[of_stratum] / (self.sizes[of_stratum] * np.sqrt(left))
            self.df = self._freedom(rows, of_stratum)

    def _freedom(self, rows: Floats, of_stratum: Codes) -> float:
        own = np.bincount(self.of_cluster, (self.weights[of_stratum] / self.sizes[of_stratum]) ** 2 * rows)
        part = self._factor * rows / np.sqrt(self.sizes[of_stratum])
        if len(part) == self.clusters:  # no cluster in several strata
            across = np.bincount(of_stratum, part**2)
            squares = (own**2).sum() + (across**2).sum() - (part**4).sum()
        else:
            shared = np.zeros((self.clusters, len(self.sizes)))
            shared[self.of_cluster, of_stratum] = part
            squares = (own**2).sum() + ((shared.T @ shared) ** 2).sum() - ((shared**2).sum(axis=1) ** 2).sum()
        return float(own.sum() ** 2 / squares)

    @property
    def alone(self) -> bool:
        """Whether no sample has several rows of a stratum."""
        return self._unit is None

    def means(self, values: Floats) -> Floats:
        """The strata's means, whose weighted sum is the number."""
        return np.asarray(np.bincount(self.stratum, values) / self.sizes)

    def variance(self, values: Floats, means: Floats) -> float:
        """SE squared: the sum of the squares of what each cluster adds to the number's error."""
        cells: Floats = np.bincount(self.cell, values - means[self.stratum]) * self._factor
        clusters = cells if len(cells) == self.clusters else np.bincount(self.of_cluster, cells)
        return float((clusters**2).sum())

    def added(self, each: Floats) -> Floats:
        """What each cluster has of the number, from what each row has of it."""
        return each if self.clusters == len(each) else np.asarray(np.bincount(self.cluster, each))

    def clusters_of(self, rows: npt.NDArray[np.bool_]) -> int:
        """How many clusters have any of some rows."""
        held = rows if self.clusters == len(rows) else np.bincount(self.cluster[rows])
        return int(np.count_nonzero(held))

    def within(self, values: Floats) -> float | None:
        """The part of SE squared that comes of answers to one sample differing; None where each has one."""
        if self._unit is None:
            return None
        answers = np.bincount(self._unit)
        spread = values - (np.bincount(self._unit, values) / answers)[self._unit]
        each = self.share**2 * spread**2
        return float((each * (answers / np.maximum(answers - 1, 1))[self._unit]).sum())


@lru_cache(maxsize=1024)
def _design(weights: tuple[float, ...], sizes: tuple[int, ...], samples: bytes, clusters: bytes) -> Design:
    """Runs over the same samples share one."""
    return Design(weights, sizes, np.frombuffer(samples, np.int64), np.frombuffer(clusters, np.int64))


@dataclass(frozen=True)
class Estimate:
    """A number as a weighted sum of means.

    Attributes:
        clustered: whether every row's cluster is known; where it is not, the row stands alone.
        linear: whether the same number over a part of the samples is the sum over that part; it is not, where values
            are linearised.
    """

    strata: tuple[Stratum, ...]
    clustered: bool = True
    linear: bool = True

    @cached_property
    def rows(self) -> tuple[tuple[int, ...], bytes]:
        """The strata's sizes and all rows' samples: what is the same where two numbers are made of the same."""
        return tuple(len(one.values) for one in self.strata), b"".join(one.samples.tobytes() for one in self.strata)

    @cached_property
    def design(self) -> Design:
        clusters = b"".join(one.clusters.tobytes() for one in self.strata)
        return _design(tuple(one.weight for one in self.strata), *self.rows, clusters)

    @cached_property
    def values(self) -> Floats:
        if len(self.strata) == 1:
            return self.strata[0].values
        return np.concatenate([one.values for one in self.strata]) if self.strata else np.zeros(0)

    @cached_property
    def right_or_wrong(self) -> bool:
        """Whether all values are 0 or 1."""
        return bool(((self.values == 0) | (self.values == 1)).all())

    @cached_property
    def of_samples(self) -> Estimate:
        """The same with a row a sample: the mean of its answers."""
        return self if self.design.alone else replace(self, strata=tuple(one.of_samples() for one in self.strata))

    @property
    def of_one_cluster(self) -> bool:
        """Whether a mean is over several rows of one cluster alone."""
        return any(len(one.clusters) > 1 and (one.clusters == one.clusters[0]).all() for one in self.strata)

    def alone(self) -> Estimate:
        """The same with every sample as its own cluster."""
        strata = tuple(Stratum(one.weight, one.samples, one.samples, one.values) for one in self.strata)
        return Estimate(strata, clustered=False, linear=self.linear)

    @classmethod
    def average(cls, parts: Sequence[Estimate]) -> Estimate:
        """The mean of some numbers, each counting alike.

        A part that is all about one cluster says nothing of others: its samples stand alone there, so that the
        average has an interval, which may be too narrow. Where all parts are about the same one it has none, as they.
        """
        held = [one.clusters for part in parts for one in part.strata if len(one.clusters)]
        if any((clusters != held[0][0]).any() for clusters in held):
            parts = [part.alone() if part.of_one_cluster else part for part in parts]
        strata = (
            Stratum(one.weight / len(parts), one.samples, one.clusters, one.values)
            for part in parts
            for one in part.strata
        )
        return cls(tuple(strata), all(part.clustered for part in parts), all(part.linear for part in parts))


def interval(estimate: Estimate, level: float = 0.95, *, bounded: bool = True) -> Interval:
    """The interval of a number.

    Args:
        level: how often such an interval holds the number of all questions of the kind.
        bounded: whether scores lie in 0..1, as all but differences do.
    """
    return interval_of(estimate.design, estimate.values, level, bounded=bounded)


def interval_of(made: Design, values: Floats, level: float = 0.95, *, bounded: bool = True) -> Interval:
    """The interval of the number that these values have in a design."""
    means = made.means(values)
    value = float(made.weights @ means) if made.n else math.nan
    if not math.isfinite(value):
        return Interval(value, None, None, None, None, made.n, made.clusters, "no number")
    if not made.estimable:
        return Interval(value, None, None, None, None, made.n, made.clusters, "one cluster")
    variance = made.variance(values, means)
    inside = made.within(values)
    se = math.sqrt(variance) if variance > (1e-12 * max(abs(value), 1e-3)) ** 2 else 0.0
    share = None if inside is None else min(inside / variance, 1.0) if se else 0.0
    bounded = bounded and bool(values.min() >= 0) and -1e-12 <= value <= 1 + 1e-12
    low: float | None
    high: float | None
    if bounded and _one_sided(made, values):
        low, high = wilson(min(max(value, 0.0), 1.0), _effective(value, se, made, level), level)
        method = "wilson"
    elif se == 0:
        low, high, method = None, None, "all alike"
    else:
        half = t_quantile(0.5 + level / 2, made.df) * se
        low, high, method = value - half, value + half, "t"
        if bounded:
            low, high = max(low, 0.0), min(high, 1.0)
    return Interval(value, low, high, se, made.df, made.n, made.clusters, method, share)


def wilson(p: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Wilson's interval of a share p of n, which need not be whole."""
    z = normal_quantile(0.5 + level / 2)
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)
    return max(min(low, p), 0.0), min(max(high, p), 1.0)  # rounding alone could leave p outside at 0 and at 1


def _one_sided(made: Design, values: Floats) -> bool:
    few = min(FEW, made.clusters)
    return made.clusters_of(values > _END) < few or made.clusters_of(values < 1 - _END) < few


def _effective(value: float, se: float, made: Design, level: float) -> float:
    if se == 0 or not 0 < value < 1:  # scores above 1, as a foreign tool may write, can have a mean of 1
        return made.clusters
    at = 0.5 + level / 2
    ratio = t_quantile(at, made.n - 1) / t_quantile(at, made.df) if made.n > 1 else 1.0
    return min(value * (1 - value) / se**2 * ratio**2, made.n)
