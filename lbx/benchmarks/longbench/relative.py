"""LongBench's score by length in its authors' first form (the README of July 2023), of plain LongBench and of E.

A task scores x at a length and y at all lengths: its relative score there is x / y - 1, of which the mean over tasks is
moved to 0 at 0-4k. So a point is the mean of (x - x at 0-4k) / y. No script and no figure of the authors' say how their
numbers were rounded: these are made of the scores themselves, and rounded where people read them.

A task counts where it has ``FEWEST`` answers at each length: every task counts alike, and plain LongBench has tasks
with one text below 4,000 words, whose answer alone would move the mean by tens of points.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lbx.benchmarks.base.columns import ScoredRows
from lbx.benchmarks.base.curves import LengthCurve
from lbx.benchmarks.longbench.paper import RELATIVE, RELATIVE_E
from lbx.benchmarks.longbench.tasks import BUCKETS, TASKS
from lbx.statistics.estimates import Codes, Estimate, Interval, Stratum, interval

FEWEST = 10
"""Answers that a task needs at each length."""


def curves(tasks: Mapping[str, ScoredRows]) -> dict[str, LengthCurve]:
    """LongBench's and E's, of a run that has a task with enough answers at each length."""
    known = {name: rows for name, rows in tasks.items() if name.removesuffix("_e") in TASKS}
    parts = {
        RELATIVE: {name: rows for name, rows in known.items() if not name.endswith("_e")},
        RELATIVE_E: {name: rows for name, rows in known.items() if name.endswith("_e")},
    }
    return {group: curve for group, rows in parts.items() if (curve := _curve(rows))}


def _curve(tasks: Mapping[str, ScoredRows]) -> LengthCurve | None:
    lengths = {name: rows.at(rows.column("length") > 0) for name, rows in tasks.items()}
    placed = {name: np.searchsorted((4_000, 8_000), rows.column("length"), "right") for name, rows in lengths.items()}
    counts = {name: np.bincount(places, minlength=len(BUCKETS)) for name, places in placed.items()}
    chosen = [name for name in tasks if counts[name].min() >= FEWEST and lengths[name].column("score").mean() > 0]
    if not chosen:
        return None
    points = {BUCKETS[0]: Interval(0.0, None, None, None, None, 0, 0, "by definition")}
    for at, bucket in enumerate(BUCKETS[1:], 1):
        parts = [Estimate((_stratum(lengths[name], placed[name], at),), linear=False) for name in chosen]
        points[bucket] = interval(Estimate.average(parts), bounded=False)
    return LengthCurve(
        tuple(chosen),
        sum(int(counts[name].sum()) for name in chosen),
        min(int(counts[name].min()) for name in chosen),
        points,
        all(bool(lengths[name].column("clustered").all()) for name in chosen),
    )


def _stratum(rows: ScoredRows, places: Codes, at: int) -> Stratum:
    """A task's point, linearised: each answer moves the two lengths' means, and the mean of all that they are over."""
    scores = rows.column("score").astype(float)
    every, first, at_place = scores.mean(), scores[places == 0].mean(), scores[places == at].mean()
    point = (at_place - first) / every
    moved = np.where(places == at, (scores - at_place) / (places == at).sum(), 0.0)
    moved -= np.where(places == 0, (scores - first) / (places == 0).sum(), 0.0)
    values = point + len(scores) * moved / every - point * (scores - every) / every
    return Stratum(1.0, rows.column("samples"), rows.column("clusters"), values)
