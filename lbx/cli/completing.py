"""What shells offer as values of options, by the values that stand before them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lbx.backends.listing import list_models
from lbx.base.layout import Bundle
from lbx.benchmarks import BENCHMARKS, everything, format_names
from lbx.exchange.prediction_files import OPINION_FORMATS
from lbx.store import Store

Given = Mapping[str, Any]


def runs(typed: Given) -> list[str]:
    """The runs of the results file, and the models that they are of."""
    with Store(Path(typed.get("results") or typed["spec_file"]), read_only=True) as store:
        rows = store.query("SELECT run_id, model FROM runs ORDER BY ALL").rows
    return list(dict.fromkeys([*(run for run, _ in rows), *(model for _, model in rows)]))


def tasks(typed: Given) -> list[str]:
    """Benchmarks and their tasks: of the results file, of the bundle, or else all that lbx knows."""
    if results := typed.get("results"):
        with Store(Path(results), read_only=True) as store:
            rows = store.query("SELECT DISTINCT benchmark, task FROM generations ORDER BY ALL").rows
        names = [f"{benchmark}/{task}" for benchmark, task in rows]
    elif bundle := typed.get("bundle"):
        names = [task.full_name for task in everything(Bundle(Path(bundle)))]
    else:
        names = [f"{name}/{task}" for name, family in BENCHMARKS.items() for task in family.catalogue.names]
    return list(dict.fromkeys([*(name.partition("/")[0] for name in names), *names]))


def models(typed: Given) -> list[str]:
    """What --model can name, as ``lbx models`` lists it."""
    bundle = typed.get("bundle")
    return [one.name for one in list_models(Bundle(Path(bundle)) if bundle else None)]


def formats(_typed: Given) -> list[str]:
    """Whose files are imported and exported."""
    return [*format_names(), *OPINION_FORMATS]
