"""The curves by length that benchmarks make of a run's answers (``ScoringRules.curves``), read of a results file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from weakref import WeakKeyDictionary

from lbx.benchmarks import BENCHMARKS
from lbx.benchmarks.base.layout import LengthCurve
from lbx.scoring.scored import scored
from lbx.store import Store

Curves = Mapping[tuple[str, str], LengthCurve]
"""{(run, group of lines): its curve}"""

_READ: WeakKeyDictionary[Store, tuple[object, Curves]] = WeakKeyDictionary()
"""Of files that nobody writes meanwhile: the report paper and a board show the same curves."""


def curves(store: Store, benchmark: str, runs: Collection[str] = ()) -> Curves:
    """Those of a benchmark's runs: of all runs without any named."""
    key = (benchmark, sorted(runs))
    if (kept := _READ.get(store)) and kept[0] == key:
        return kept[1]
    made = {
        (run, group): curve
        for (run, _), tasks in scored(store, runs, [benchmark]).items()
        for group, curve in BENCHMARKS[benchmark].scoring.curves(tasks).items()
    }
    if store.read_only:
        _READ[store] = (key, made)
    return made
