"""Curves by length of a run's answers as defined by benchmarks (``ScoringRules.curves``), read from a results file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from weakref import WeakKeyDictionary

from lbx.benchmarks.base.layout import LengthCurve
from lbx.benchmarks.registry import BENCHMARKS
from lbx.scoring.score_columns import read_scores
from lbx.store import Store

Curves = Mapping[tuple[str, str], LengthCurve]
"""Curves by (run, group of lines)."""

_READ: WeakKeyDictionary[Store, tuple[object, Curves]] = WeakKeyDictionary()
"""Curves of read-only files, cached because the report ``paper`` and boards share them."""


def curves(store: Store, benchmark: str, runs: Collection[str] = ()) -> Curves:
    """Curves of a benchmark for the given runs, or for all."""
    key = (benchmark, sorted(runs))
    if (cached := _READ.get(store)) and cached[0] == key:
        return cached[1]
    result = {
        (run, group): curve
        for (run, _), tasks in read_scores(store, runs, [benchmark]).items()
        for group, curve in BENCHMARKS[benchmark].scoring.curves(tasks).items()
    }
    if store.read_only:
        _READ[store] = (key, result)
    return result
