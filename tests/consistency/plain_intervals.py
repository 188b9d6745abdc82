"""How sure a number is, by the formulas of docs/intervals.md and in matrices, which lbx does without."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Part:
    """The rows of one mean, each (sample, cluster, value), and the weight of the mean."""

    weight: float
    rows: Sequence[tuple[str, str, float]]

    @property
    def of_one_cluster(self) -> bool:
        return len(self.rows) > 1 and len({cluster for _, cluster, _ in self.rows}) == 1


def sureness(parts: Sequence[Part]) -> dict[str, Any]:
    """The interval: CR2 with the degrees of freedom of Bell and McCaffrey, Wilson's near 0 and 1."""
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
    forms = np.zeros((len(clusters), len(rows)))
    stratum = np.array([row[0] for row in rows])
    for (at, cluster), count in shares.items():
        of_stratum = stratum == at
        here = np.array([row[0] == at and row[2] == cluster for row in rows])
        factor = parts[at].weight / sizes[at] / math.sqrt(1 - count / sizes[at])
        forms[clusters.index(cluster)] += factor * (here - of_stratum * count / sizes[at])
    variance = float(((forms @ values) ** 2).sum())
    gram = forms @ forms.T
    df = float(np.trace(gram) ** 2 / (gram**2).sum())
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
        inside = min(spread / variance, 1.0) if variance else 0.0
    se = math.sqrt(variance) if variance > (1e-12 * max(abs(value), 1e-3)) ** 2 else 0.0
    found = none | {"se": se, "df": df, "within": inside if inside is None or se else 0.0}
    few = min(10, len(clusters))
    above = {cluster for _, _, cluster, v in rows if v > 1e-6}
    below = {cluster for _, _, cluster, v in rows if v < 1 - 1e-6}
    if values.min() >= 0 and value <= 1 + 1e-12 and (len(above) < few or len(below) < few):
        n = _effective(value, se, df, len({sample for _, sample, _, _ in rows}), len(clusters))
        p, z = min(max(value, 0.0), 1.0), float(stats.norm.ppf(0.975))
        middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        low, high = (
            max(min((middle - half) / (1 + z * z / n), p), 0.0),
            min(max((middle + half) / (1 + z * z / n), p), 1.0),
        )
        return found | {"low": low, "high": high, "method": "wilson"}
    if se == 0:
        return found | {"method": "all alike"}
    half = float(stats.t.ppf(0.975, df)) * se
    low, high = value - half, value + half
    if values.min() >= 0 and value <= 1 + 1e-12:
        low, high = max(low, 0.0), min(high, 1.0)
    return found | {"low": low, "high": high, "method": "t"}


def _effective(value: float, se: float, df: float, samples: int, clusters: int) -> float:
    if se == 0 or not 0 < value < 1:
        return clusters
    ratio = stats.t.ppf(0.975, samples - 1) / stats.t.ppf(0.975, df) if samples > 1 else 1.0
    return float(min(value * (1 - value) / se**2 * ratio**2, samples))
