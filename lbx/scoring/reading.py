"""Results files with the numbers of all their answers: those of a run that goes on, or was killed, are made first."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from lbx.store import Store
from lbx.store.results import Results

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
"""What has scores and no numbers yet: its run goes on, was killed, or was being scored again."""


def add_up_unfinished(store: Store) -> None:
    """Make the numbers of what has scores and none yet; in memory, where the file is only read."""
    unfinished = store.query(_UNFINISHED).rows
    if not unfinished:
        return
    from lbx.scoring.adding_up import add_up_named  # heavy, and most files need none of it

    if store.read_only:
        store.set_numbers_aside()
    for run_id, name, ended in unfinished:
        add_up_named(store, run_id, name, ended=ended)


def say_moment(store: Store) -> None:
    """Log as of when a file is read that is being written."""
    if store.snapshot is not None:
        log.info(f"{store.path} {store.snapshot}.")


def read_added_up(path: Path, *, beside: Sequence[Path] = (), threads: int = 0, numbers: bool = True) -> Store:
    """A results file, open to read, with numbers of all its answers: of those committed, where it is being written.

    Other arguments and errors as of ``Store``.

    Args:
        numbers: whether any are wanted; of a run that goes on they take a while to make.
    """
    store = Store(path, beside_writer=True, beside=beside, threads=threads)
    try:
        say_moment(store)
        if numbers:
            add_up_unfinished(store)
    except BaseException:
        store.close()
        raise
    return store


def open_results(path: str | os.PathLike[str]) -> Results:
    """Open a results file to read; of one that is being written, what is committed. See ``Results``.

    Raises:
        StoreError: it is no results file.
    """
    return Results(read_added_up(Path(path)))
