"""How sure a number is, by the formulas of docs/intervals.md and in matrices, which lbx does without."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats
from scipy.optimize import brentq


@dataclass(frozen=True)
class Part:
    """The rows of one mean, each (sample, cluster, value), and the weight of the mean."""

    weight: float
    rows: Sequence[tuple[str, str, float]]

    @property
    def of_one_cluster(self) -> bool:
        return len(self.rows) > 1 and len({cluster for _, cluster, _ in self.rows}) == 1


def sureness(parts: Sequence[Part]) -> dict[str, Any]:
    """The interval: CR2 with the degrees of freedom of Bell and McCaffrey, the logit scale for few."""
    rows = [(at, *row) for at, part in enumerate(parts) for row in part.rows]
    clusters = list(dict.fromkeys(cluster for _, _, cluster, _ in rows))
    values = np.array([row[-1] for row in rows])
    sizes = [len(part.rows) for part in parts]
    means = [sum(v for *_, v in part.rows) / len(part.rows) for part in parts]
    value = sum(part.weight * one for part, one in zip(parts, means, strict=True))
    none = {"low": None, "high": None, "se": None, "df": None, "clusters": len(clusters), "within": None}
    shares = Counter((at, cluster) for at, _, cluster, _ in rows)
    if any(count == sizes[at] for (at, _), count in shares.items()):
        return none | {"method": "one cluster"}
    # Each cluster's part of the error as a linear form of the rows: a line of this matrix.
    stratum, codes = np.array([row[0] for row in rows]), {cluster: code for code, cluster in enumerate(clusters)}
    code_of = np.array([codes[cluster] for _, _, cluster, _ in rows])
    forms, factors = np.zeros((len(clusters), len(rows))), {}
    for (at, cluster), count in shares.items():
        share, even = count / sizes[at], sum((n / sizes[at]) ** 2 for (of, _), n in shares.items() if of == at)
        factors[at, cluster] = parts[at].weight / sizes[at] / math.sqrt(min(1 - share, 1 - 2 * share + even))
        here = (stratum == at) & (code_of == codes[cluster])
        forms[codes[cluster]] += factors[at, cluster] * (here - (stratum == at) * share)
    totals = {(at, cluster): values[(stratum == at) & (code_of == codes[cluster])].sum() for at, cluster in shares}
    own = np.zeros(len(parts))
    for (at, cluster), factor in factors.items():
        own[at] += (factor * (totals[at, cluster] - shares[at, cluster] * values[stratum == at].mean())) ** 2
    variance, df = _error(forms, values, np.zeros(len(parts)), stratum, own)
    has_spread = variance > (1e-12 * max(abs(value), 1e-3)) ** 2
    unseen: list[float | None] = []
    if has_spread and len(parts) > 1:
        unseen = [_unseen(part) for part in parts]
        if None in unseen:
            return none | {"method": "all alike in a part"}
        variance, df = _error(forms, values, np.array(unseen, float), stratum, own)
    units: dict[tuple[int, str], list[float]] = {}
    for at, sample, _, v in rows:
        units.setdefault((at, sample), []).append(v)
    inside = None
    if any(len(some) > 1 for some in units.values()):
        spread = sum(
            (parts[at].weight / sizes[at]) ** 2 * len(some) * sum((v - np.mean(some)) ** 2 for v in some)
            / max(len(some) - 1, 1)
            for (at, _), some in units.items()
        )  # fmt: skip
        inside = min(spread / variance, 1.0) if has_spread else 0.0
    se = math.sqrt(variance) if has_spread else 0.0
    found = none | {"se": se, "df": df, "within": inside}
    above = len({cluster for _, _, cluster, v in rows if v > 1e-6})
    below = len({cluster for _, _, cluster, v in rows if v < 1 - 1e-6})
    bounded = values.min() >= 0 and value <= 1 + 1e-12
    weights = [sum(parts[at].weight / sizes[at] for at, _, of, _ in rows if of == cluster) for cluster in clusters]
    effective = sum(weights) ** 2 / sum(weight**2 for weight in weights)
    if se == 0 and bounded and (values.max() <= 1e-6 or values.min() >= 1 - 1e-6):
        low, high = _binomial(round(value), effective)
        return found | {"low": low, "high": high, "method": "exact"}
    if se == 0:
        return found | {"method": "all alike"}
    samples = {sample for _, sample, _, _ in rows}
    if bounded and 0 < value < 1 and (df < 29 - 1e-9 or min(above, below) < 30):
        if len(parts) == 1 and len(clusters) == len(rows) and set(values.tolist()) <= {0.0, 1.0}:
            low, high = _binomial(value, len(samples))
            return found | {"low": low, "high": high, "method": "exact"}
        ends = _logit(value, se, df, min(above, below), len(clusters), len(samples))
        if any(unseen):
            low, high = _binomial(value, effective)
            ends |= {"low": max(low, ends["low"]), "high": min(high, ends["high"])}
        return found | ends
    half = float(stats.t.ppf(0.975, df)) * se
    low, high = value - half, value + half
    if bounded:
        low, high = max(low, 0.0), min(high, 1.0)
    return found | {"low": low, "high": high, "method": "t"}


def _error(forms: Any, values: Any, unseen: Any, stratum: Any, own: Any) -> tuple[float, float]:
    """Squared error with unseen variances of the parts, and its degrees of freedom; ``own`` is that of each part."""
    expected = np.array([((forms * (stratum == at)) ** 2).sum() for at in range(len(unseen))])

    # Products of all clusters' forms, by parts, of which each has few of the clusters: the whole matrix takes minutes.
    grams = []
    for at in range(len(unseen)):
        lines = np.flatnonzero(np.abs(forms[:, stratum == at]).any(axis=1))
        some = forms[np.ix_(lines, stratum == at)]
        grams.append((lines, some @ some.T))
    traces, squares = np.array([np.trace(gram) for _, gram in grams]), np.zeros((len(grams), len(grams)))
    for a, (lines_a, gram_a) in enumerate(grams):
        for b, (lines_b, gram_b) in enumerate(grams):
            _, in_a, in_b = np.intersect1d(lines_a, lines_b, return_indices=True)
            squares[a, b] = (gram_a[np.ix_(in_a, in_a)] * gram_b[np.ix_(in_b, in_b)]).sum()

    def df_of(spreads: Any) -> float:
        return float((spreads @ traces) ** 2 / (spreads @ squares @ spreads))

    variance, df = float(((forms @ values) ** 2).sum() + expected @ unseen), df_of(np.ones(len(unseen)))
    spreads = own / expected + unseen
    if len(unseen) > 1 and spreads.any():
        # Cochran: the half width of the parts' own t intervals together, by as many degrees of freedom as have this t.
        shares = expected * spreads / (expected @ spreads)
        t = math.sqrt(sum(
            share * stats.t.ppf(0.975, df_of(np.arange(len(unseen)) == at)) ** 2 for at, share in enumerate(shares)
        ))  # fmt: skip
        least, most = min(df, 1.0), df_of(spreads)
        if t > stats.t.ppf(0.975, most):
            most = least if t >= stats.t.ppf(0.975, least) else brentq(
                lambda df: stats.t.ppf(0.975, df) - t, least, most, xtol=1e-13
            )  # fmt: skip
        df = min(df, most)
    return variance, df


def _unseen(part: Part) -> float | None:
    """Variance of the rows of a part whose clusters are all alike: Agresti and Coull's of 0 or 1, None of another."""
    by_cluster: dict[str, list[float]] = {}
    for _, cluster, value in part.rows:
        by_cluster.setdefault(cluster, []).append(value)
    means, mean, n = (
        [np.mean(some) for some in by_cluster.values()],
        np.mean([row[2] for row in part.rows]),
        len(by_cluster),
    )
    if max(abs(one - mean) for one in means) > 1e-12 * max(abs(mean), 1e-3):
        return 0.0
    return (n + 1) / (n + 2) ** 2 * len(part.rows) / n if mean <= 1e-6 or mean >= 1 - 1e-6 else None


def _logit(value: float, se: float, df: float, least: int, clusters: int, samples: int) -> dict[str, Any]:
    at = float(stats.t.ppf(0.975, df))
    half = min(at * se / (value * (1 - value)) * (1 + abs(1 - 2 * value) / df), 50.0)
    low, high = (1 / (1 + (1 - value) / value * math.exp(-side)) for side in (-half, half))
    if least < min(30, clusters):
        ratio = float(stats.t.ppf(0.975, max(samples - 1, 1))) / at
        exact = _binomial(value, min(value * (1 - value) / se**2 * ratio**2, samples))
        low, high = min(low, exact[0]), max(high, exact[1])
    return {"low": low, "high": high, "method": "logit"}


def _binomial(p: float, n: float) -> tuple[float, float]:
    """Clopper and Pearson's interval."""
    low = float(stats.beta.ppf(0.025, n * p, n - n * p + 1)) if p > 0 else 0.0
    return low, float(stats.beta.ppf(0.975, n * p + 1, n - n * p)) if p < 1 else 1.0
