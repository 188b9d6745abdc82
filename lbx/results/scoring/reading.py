"""Opening of results files with numbers for all answers. Missing numbers of unfinished runs are computed."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lbx.results import Store
from lbx.results.file.numbers import KEY_COLUMNS
from lbx.results.file.texts import texts_of

log = logging.getLogger("lbx")

_UNFINISHED = """
    WITH scored AS (
        SELECT DISTINCT run_id, benchmark, task FROM scores WHERE benchmark <> 'judge'
    ), unmade AS (
        FROM scored ANTI JOIN task_results USING (run_id, benchmark, task)
        UNION ALL
        FROM scored SEMI JOIN (FROM runs WHERE status <> 'done') USING (run_id)
        ANTI JOIN benchmark_results USING (run_id, benchmark)
    )
    SELECT DISTINCT run_id, benchmark, status <> 'running' AS ended
    FROM unmade JOIN runs USING (run_id) ORDER BY ALL
"""
"""Query for scores without numbers, of runs that are not done or are being rescored."""


def runs_without_numbers(store: Store) -> set[str]:
    """Find the runs with scores that were not aggregated, because the run or a rescoring has not ended."""
    return {run for run, _, _ in store.query(_UNFINISHED).rows}


def add_missing_numbers(store: Store) -> None:
    """Compute missing numbers of scored answers, in memory if the file is open read-only."""
    unfinished = store.query(_UNFINISHED).rows
    if not unfinished or texts_of(store):  # an extracted file has all numbers that its texts gave
        return
    from lbx.results.scoring.aggregation import aggregate_scores_by_name  # slow import, which most files do not need

    if store.read_only:
        store.use_temporary_numbers()
    for run_id, name, ended in unfinished:
        aggregate_scores_by_name(store, run_id, name, is_complete=ended)


_CHECKED_COLUMNS = (
    "score", "official", "n", "low", "high", "answered", "asked", "failed_as_0", "failed_as_1",
)  # fmt: skip
_NUMBER_COLUMNS = ("run_id", "benchmark", *KEY_COLUMNS, "length_unit", "length_up_to")
_RELATIVE_ERROR = 1e-9
"""Other processors and versions of numpy may change the last digits of a sum."""


@dataclass(frozen=True, slots=True)
class NumberDifference:
    """A stored number that differs from the number computed from the scores in the file.

    Attributes:
        key: columns of the number's primary key that are not empty.
        column: first column that differs, or "" if only one of the two numbers exists.
        stored_value, computed_value: values of that column, or of ``score`` if only one number exists. The other
            value is then None.
    """

    key: dict[str, Any]
    column: str
    stored_value: Any
    computed_value: Any


def number_differences(store: Store, runs: Collection[str]) -> tuple[int, list[NumberDifference]]:
    """Compute the numbers of runs again from scores, judgements and ratings, and compare them with the stored numbers.

    Args:
        store: a file that is open read-only. The file's views show the computed numbers afterwards.

    Returns:
        The number of compared numbers, and the differences.
    """
    from lbx.results.scoring.aggregation import aggregate_scores_by_name  # slow import, which most commands do not need

    stored = _numbers(store, runs)
    benchmarks = store.query(
        "SELECT DISTINCT run_id, benchmark, status <> 'running' FROM (FROM (FROM generations SELECT run_id, benchmark) "
        "UNION FROM (FROM numbers SELECT run_id, benchmark)) JOIN runs USING (run_id) ORDER BY ALL"
    ).rows
    store.use_temporary_numbers()
    store.query("DELETE FROM numbers")
    for run_id, benchmark, has_ended in benchmarks:
        aggregate_scores_by_name(store, run_id, benchmark, is_complete=has_ended)
    computed = _numbers(store, runs)
    differences = []
    for key in sorted(stored.keys() | computed.keys()):
        stored_row, computed_row = stored.get(key), computed.get(key)
        columns = [
            name
            for name in _CHECKED_COLUMNS
            if stored_row and computed_row and not _is_close(stored_row[name], computed_row[name])
        ]
        if columns or not (stored_row and computed_row):
            column = columns[0] if columns else ""
            values = [row[column or "score"] if row else None for row in (stored_row, computed_row)]
            names = {name.strip('"'): value for name, value in zip(_NUMBER_COLUMNS, key, strict=True) if value}
            differences.append(NumberDifference(names, column, *values))
    return len(stored.keys() | computed.keys()), differences


def _numbers(store: Store, runs: Collection[str]) -> dict[tuple[Any, ...], dict[str, Any]]:
    columns = [name.strip('"') for name in _NUMBER_COLUMNS]
    rows = store.query("FROM numbers").dicts()
    return {tuple(row[name] for name in columns): row for row in rows if row["run_id"] in runs}


def _is_close(stored: Any, computed: Any) -> bool:
    if isinstance(stored, float) and isinstance(computed, float):
        both_nan = math.isnan(stored) and math.isnan(computed)
        return both_nan or math.isclose(stored, computed, rel_tol=_RELATIVE_ERROR, abs_tol=_RELATIVE_ERROR)
    return bool(stored == computed)


def log_snapshot(store: Store) -> None:
    """Log the time of the snapshot if another process is writing the file."""
    if store.snapshot is not None:
        log.info(f"{store.path} {store.snapshot.describe_state()}.")


def open_with_numbers(
    path: Path, *, allowed_files: Sequence[Path] = (), threads: int = 0, numbers: bool = True
) -> Store:
    """Open a results file for reading, with numbers for all committed answers.

    See ``Store`` for the other arguments and the errors.

    Args:
        numbers: whether to compute missing numbers, which takes a while for a running run.
    """
    store = Store(path, allow_writer=True, allowed_files=allowed_files, threads=threads)
    try:
        log_snapshot(store)
        if numbers:
            add_missing_numbers(store)
    except BaseException:
        store.close()
        raise
    return store
