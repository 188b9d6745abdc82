"""Shell completion of option values, based on the preceding values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lbx.backends.weights import list_models
from lbx.base.bundle_folder import Bundle
from lbx.benchmarks.registry import BENCHMARKS, EXPORT_FORMATS, IMPORT_FORMATS, all_tasks, format_names
from lbx.exchange.prediction_files import OPINION_FORMATS
from lbx.results import Store

GivenValues = Mapping[str, Any]


def runs(values: GivenValues) -> list[str]:
    """List the runs of the results file, and the runs' models."""
    with Store(_results(values) or Path(values["spec_file"]), read_only=True) as store:
        rows = store.query("SELECT run_id, model FROM runs ORDER BY ALL").rows
    return list(dict.fromkeys([*(run for run, _ in rows), *(model for _, model in rows)]))


def _results(values: GivenValues) -> Path | None:
    """Return the results file, the first of several, or None without any."""
    given = values.get("results") or ()
    first = next(iter(given), None) if isinstance(given, (list, tuple)) else given
    return Path(first) if first else None


def tasks(values: GivenValues) -> list[str]:
    """List the benchmarks and tasks of the results file, else of the bundle, else all known to lbx."""
    if results := _results(values):
        with Store(results, read_only=True) as store:
            rows = store.query("SELECT DISTINCT benchmark, task FROM generations ORDER BY ALL").rows
        names = [f"{benchmark}/{task}" for benchmark, task in rows]
    elif bundle := values.get("bundle"):
        names = [task.full_name for task in all_tasks(Bundle(Path(bundle)))]
    else:
        names = [f"{name}/{task}" for name, family in BENCHMARKS.items() for task in family.catalogue.names]
    return list(dict.fromkeys([*(name.partition("/")[0] for name in names), *names]))


def models(values: GivenValues) -> list[str]:
    """List the models that ``lbx models`` lists."""
    bundle = values.get("bundle")
    return [model.name for model in list_models(Bundle(Path(bundle)) if bundle else None)]


def formats(_values: GivenValues) -> list[str]:
    """List the formats of imported files."""
    return [*format_names(), *OPINION_FORMATS, *IMPORT_FORMATS]


def export_formats(_values: GivenValues) -> list[str]:
    """List the formats of exported files."""
    return [*format_names(), *OPINION_FORMATS, *EXPORT_FORMATS]
