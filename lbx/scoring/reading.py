"""Reading of results files with numbers for all answers; missing ones of running or killed runs are computed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from lbx.store import Store
from lbx.store.texts import texts_of

log = logging.getLogger("lbx")

_UNFINISHED = """
    WITH scored AS (
        SELECT DISTINCT run_id, benchmark, task FROM scores WHERE benchmark <> 'judge'
    ), unmade AS (
        FROM scored ANTI JOIN task_results USING (run_id, benchmark, task)
        UNION ALL
        FROM scored SEMI JOIN (FROM runs WHERE status = 'running') USING (run_id)
        ANTI JOIN benchmark_results USING (run_id, benchmark)
    )
    SELECT DISTINCT run_id, benchmark, status <> 'running' AS ended
    FROM unmade JOIN runs USING (run_id) ORDER BY ALL
"""
"""Scores without numbers: the run is running, was killed, or was being rescored."""


def runs_without_numbers(store: Store) -> set[str]:
    """Runs with scores that were not added up, because the run or a rescoring has not ended."""
    return {run for run, _, _ in store.query(_UNFINISHED).rows}


def add_missing_numbers(store: Store) -> None:
    """Compute missing numbers of scored answers; in memory if the file is open read-only."""
    unfinished = store.query(_UNFINISHED).rows
    if not unfinished or texts_of(store):  # an extracted file has all numbers that its texts gave
        return
    from lbx.scoring.adding_up import add_up_by_name  # slow import, which most files do not need

    if store.read_only:
        store.use_temporary_numbers()
    for run_id, name, ended in unfinished:
        add_up_by_name(store, run_id, name, is_complete=ended)


def log_snapshot(store: Store) -> None:
    """Log the time of the snapshot, if another process is writing the file."""
    if store.snapshot is not None:
        log.info(f"{store.path} {store.snapshot}.")


def open_with_numbers(
    path: Path, *, allowed_files: Sequence[Path] = (), threads: int = 0, numbers: bool = True
) -> Store:
    """Open a results file to read, with numbers for all of its answers (all committed answers of a file being written).

    Other arguments and errors: see ``Store``.

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
