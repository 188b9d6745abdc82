"""The reports by name, and their rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from lbx.base.errors import UsageError
from lbx.base.odd_values import refusing_odd_values
from lbx.report.board_shapes import BOARDS
from lbx.report.opinion_reports import OPINIONS
from lbx.report.score_reports import SCORES
from lbx.report.shapes import ALL, Report, Wanted

if TYPE_CHECKING:  # the command line asks for the names, and is not to load DuckDB
    from pathlib import Path

    from lbx.store import Store, Table

REPORTS: dict[str, Report] = {**SCORES, **OPINIONS, **BOARDS}

BOARD = "board"
"""Every report of that name's family: the boards of the benchmarks that a file has."""


def named(view: str) -> list[str]:
    """The reports that go by a name. Raises UsageError: there is none."""
    if view == BOARD:
        return list(BOARDS)
    if view not in REPORTS:
        raise UsageError(f"There is no report {view!r}.", fix=f"There are: {', '.join(REPORTS)}.")
    return [view]


def summary() -> str:
    """The names of all reports, boards together."""
    return ", ".join([*(name for name in REPORTS if name not in BOARDS), f"{BOARD} (or one table of it)"])


@refusing_odd_values
def read(store: Store | None, name: str, wanted: Wanted = ALL, among: Collection[str] = ()) -> Table:
    """One report's rows, and what the runs that they name are called; ``reference`` can do without a store.

    Args:
        among: runs that are shown beside these, as on a page.

    Raises:
        UsageError: there is no such run, or something else that is asked for.
    """
    from lbx.report import judged, reference
    from lbx.report.cells import without_intervals
    from lbx.report.labels import labelled, labelled_models
    from lbx.report.papers import completed
    from lbx.report.relative import curves
    from lbx.store.runs import check_runs

    report = REPORTS[name]
    if store is None:
        return reference.table(None, wanted)
    check_runs(store, wanted.runs)
    if report.made_by:
        module, _, function = report.made_by.partition(".")
        table: Table = getattr(import_module(f"lbx.report.{module}"), function or "table")(store, wanted)
    else:
        table = _asked(store, name, wanted.runs)
    if name == "paper":
        if wanted.published:
            table = reference.beside(table, reference.published_beside(store, wanted))
        table = judged.doubted(store, completed(table, partial(curves, store, wanted.runs)))
    table = labelled_models(store, table) if name in BOARDS else labelled(store, table, among)
    return without_intervals(report, table) if wanted.alone else table


def _asked(store: Store, name: str, runs: Sequence[str]) -> Table:
    return store.query(*_query(name, runs))


def _query(name: str, runs: Sequence[str]) -> tuple[str, list[object]]:
    report = REPORTS[name]
    where = ""
    if runs:
        marks = ", ".join("?" for _ in runs)
        where = " WHERE " + " AND ".join(f"{column} IN ({marks})" for column in report.run_columns)
    rows = report.rows or f"SELECT * FROM {name}"  # noqa: S608 (our own names)
    return f"{rows}{where} ORDER BY {report.order}", [*runs] * len(report.run_columns)


@refusing_odd_values
def write_parquet(store: Store, name: str, wanted: Wanted, path: Path) -> int:
    """One report's rows in a parquet file, in the types of the view. Returns their number. Raises as ``read`` does."""
    from lbx.report.labels import labels
    from lbx.scoring.scored import named as named_runs
    from lbx.store.queries import export_report, export_rows
    from lbx.store.rows import SURE
    from lbx.store.runs import check_runs

    if REPORTS[name].made_by or name == "paper":
        return export_rows(store, read(store, name, wanted), path)
    check_runs(store, wanted.runs)
    sql, parameters = _query(name, wanted.runs)
    runs = {str(run) for (run,) in store.query(f"SELECT DISTINCT run_id FROM ({sql})", parameters).rows}  # noqa: S608 (our own names)
    shown = labels(row for run, row in named_runs(store).items() if run in runs)
    sql = f"SELECT v.*, map(?::VARCHAR[], ?::VARCHAR[])[run_id] AS label FROM ({sql}) v"  # noqa: S608 (our own names)
    parameters = [list(shown), list(shown.values()), *parameters]
    return export_report(store, sql, parameters, path, SURE if wanted.alone else ())
