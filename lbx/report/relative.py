"""LongBench's score by length in its authors' first form (the README of July 2023), of plain LongBench and of E.

A task scores x at a length and y at all lengths: its relative score there is x / y - 1, of which the mean over tasks is
moved to 0 at 0-4k. So a point is the mean of (x - x at 0-4k) / y. No script and no figure of the authors' say how their
numbers were rounded: these are made of the scores themselves, and rounded where people read them.

A task counts where it has ``FEWEST`` answers at each length: every task counts alike, and plain LongBench has tasks
with one text below 4,000 words, whose answer alone would move the mean by tens of points.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from lbx.benchmarks.base.columns import ScoredRows
from lbx.benchmarks.longbench.tasks import BUCKETS, TASKS
from lbx.scoring.scored import scored
from lbx.statistics.estimates import Codes, Estimate, Interval, Stratum, interval
from lbx.store import Store

FEWEST = 10
"""Answers that a task needs at each length."""


class Curve(NamedTuple):
    """The curve of a run.

    Attributes:
        tasks: those that count.
        n, fewest: their answers, and how many the fewest are that a task has at a length.
        points: by length, in 0..1; the first is 0 by definition and has no interval.
        clustered: whether the documents of all answers are known.
    """

    tasks: tuple[str, ...]
    n: int
    fewest: int
    points: Mapping[str, Interval]
    clustered: bool


_READ: WeakKeyDictionary[Store, tuple[object, dict[tuple[str, bool], Curve]]] = WeakKeyDictionary()
"""Of files that nobody writes meanwhile: the report paper and a board show the same curves."""


def curves(store: Store, runs: Collection[str] = ()) -> dict[tuple[str, bool], Curve]:
    """{(run, whether in LongBench-E): its curve}, of runs that have a task with enough answers at each length."""
    asked = (sorted(runs), store.query("SELECT getvariable('lbx_metric_versions')::VARCHAR").rows)
    kept = _READ.get(store)
    if kept and kept[0] == asked:
        return kept[1]
    made: dict[tuple[str, bool], Curve] = {}
    for (run, _), tasks in scored(store, runs, ["longbench"]).items():
        for in_e in (False, True):
            held = {name: rows for name, rows in tasks.items() if name.removesuffix("_e") in TASKS}
            if curve := _curve({name: rows for name, rows in held.items() if name.endswith("_e") == in_e}):
                made[run, in_e] = curve
    if store.read_only:
        _READ[store] = (asked, made)
    return made


def _curve(tasks: Mapping[str, ScoredRows]) -> Curve | None:
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
    return Curve(
        tuple(chosen),
        sum(int(counts[name].sum()) for name in chosen),
        min(int(counts[name].min()) for name in chosen),
        points,
        all(bool(lengths[name].column("clustered").all()) for name in chosen),
    )


def _stratum(rows: ScoredRows, places: Codes, at: int) -> Stratum:
    """A task's point, linearised: each answer moves the two lengths' means, and the mean of all that they are over."""
    scores = rows.column("score").astype(float)
    every, first, there = scores.mean(), scores[places == 0].mean(), scores[places == at].mean()
    point = (there - first) / every
    moved = np.where(places == at, (scores - there) / (places == at).sum(), 0.0)
    moved -= np.where(places == 0, (scores - first) / (places == 0).sum(), 0.0)
    values = point + len(scores) * moved / every - point * (scores - every) / every
    return Stratum(1.0, rows.column("samples"), rows.column("clusters"), values)
