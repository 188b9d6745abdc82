"""The report ``leaderboard``: runs in the order of what they surely have, each with the places that it may have.

A run that answered less than 99% of what its bundle asks stands where it would with the rest counted as wrong. Places
are told from the runs' own intervals, as though they had been asked other questions: ``comparison`` pairs the questions
and tells more of them apart. Where answers are missing no run is surely better than one that they could lift above it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from lbx.report.shapes import ReportQuery
from lbx.statistics.differences import holm
from lbx.statistics.tails import normal_quantile, t_tail
from lbx.store import Store, Table

_ALL_OF_IT = 0.99
_SURELY = 0.05
_Z = normal_quantile(1 - _SURELY / 2)
_NEARLY = 0.999


def table(store: Store, query: ReportQuery) -> Table:
    """The view's rows, ordered, with ``place``: "1", "1-3"; None of a run that no other one did the same tasks as."""
    result = store.query(
        "SELECT l.*, t.scorable_samples, t.done FROM leaderboard l JOIN ("
        "SELECT run_id, benchmark, list(task ORDER BY task) AS done, "
        "CASE WHEN count(scorable_samples) = count(*) THEN sum(scorable_samples)::BIGINT END AS scorable_samples "
        "FROM coverage GROUP BY ALL"
        ") t USING (run_id, benchmark) WHERE len($1) = 0 OR list_contains($1::VARCHAR[], l.run_id)",
        [list(query.runs)],
    )
    rows = result.dicts()
    rows.sort(key=lambda row: (row["benchmark"], -standing(row), row["model"], row["backend"], row["run_id"]))
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["benchmark"], *row.pop("done")), []).append(row)
    for group in groups.values():
        for row, place in zip(group, places(group), strict=True):
            row["place"] = place
    columns = [name for name in result.columns if name != "done"] + ["place"]
    return Table(columns, [tuple(row[name] for name in columns) for row in rows])


def standing(row: Mapping[str, Any]) -> float:
    """What a run is ordered by: its score, or with too many answers missing what it has for sure."""
    if row["score"] is None or math.isnan(row["score"]):
        return -1.0
    return _open_to(row, max(row["asked"] or 0, row["scorable_samples"] or 0))[0]


def _open_to(row: Mapping[str, Any], whole: int) -> tuple[float, float]:
    """From where to where the score may be over so many samples; with nearly all of them answered it is what it is."""
    answered, n_asked = row["answered"] or 0, row["asked"] or 0
    if not n_asked or row["failed_as_0"] is None or answered >= _ALL_OF_IT * whole:
        return float(row["score"]), float(row["score"])
    return row["failed_as_0"] * n_asked / whole, 1 - (1 - row["failed_as_1"]) * n_asked / whole


def places(rows: Sequence[Mapping[str, Any]]) -> list[str | None]:
    """From 1 + the runs that are surely better to all but those that are surely worse (Holm, 5%)."""
    if len(rows) < 2:
        return [None] * len(rows)
    pairs = list(combinations(range(len(rows)), 2))
    apart = _perhaps_apart(rows)
    corrected = holm([_p(rows[a], rows[b]) if apart[a, b] else 1.0 for a, b in pairs])
    better, worse = [0] * len(rows), [0] * len(rows)
    for (a, b), p in zip(pairs, corrected, strict=True):
        if p < _SURELY:
            upper, lower = (a, b) if rows[a]["score"] > rows[b]["score"] else (b, a)
            better[lower] += 1
            worse[upper] += 1
    ends = [(1 + above, len(rows) - below) for above, below in zip(better, worse, strict=True)]
    return [str(first) if first == last else f"{first}-{last}" for first, last in ends]


def _perhaps_apart(rows: Sequence[Mapping[str, Any]]) -> npt.NDArray[np.bool_]:
    """Which of all pairs may be apart after correction: of 1,000 runs there are half a million, and few are.

    No t has less beyond a bound than the normal distribution. And where at most so many of all pairs can be apart, each
    of them is corrected for at least the rest.
    """
    scores = np.array([row["score"] or 0 for row in rows])
    errors = np.array([min(_error(row, end) for end in ("low", "high")) for row in rows])
    with np.errstate(divide="ignore", invalid="ignore"):  # without an error, or of scores that are none
        ratios = np.abs(scores[:, None] - scores) / np.hypot(errors[:, None], errors)
    pairs = len(rows) * (len(rows) - 1) // 2
    left, before = pairs, pairs + 1
    apart = np.ones_like(ratios, bool)
    while left < before:
        apart = ratios >= _NEARLY * normal_quantile(1 - _SURELY / 2 / (pairs - left + 1))
        left, before = int(np.triu(apart, 1).sum()), left
    return apart


def _p(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Welch's test, by the runs' own standard errors and degrees of freedom; 1 where one of them has none, or where
    answers are missing that could turn the two round.
    """
    upper, lower = (one, other) if (one["score"] or 0) > (other["score"] or 0) else (other, one)
    errors = _error(upper, "low"), _error(lower, "high")
    if not all(errors) or not all(row["df"] for row in (one, other)):
        return 1.0
    whole = max(row["asked"] or 0 for row in (one, other))
    if _open_to(upper, whole)[0] <= _open_to(lower, whole)[1]:
        return 1.0
    variances = [error**2 for error in errors]
    df = sum(variances) ** 2 / sum(v**2 / row["df"] for v, row in zip(variances, (upper, lower), strict=True))
    return min(1.0, 2 * t_tail((upper["score"] - lower["score"]) / math.sqrt(sum(variances)), df))


def _error(row: Mapping[str, Any], end: str) -> float:
    """The standard error; near 0 and 1, where it may even be 0, the one that the interval has on this side."""
    if row.get("method") == "wilson" and row[end] is not None:
        return abs(float(row["score"] - row[end])) / _Z
    return row["se"] or 0.0
