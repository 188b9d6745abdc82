"""Preparation of an opened file: create or check its tables, and update its views."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import duckdb

from lbx.base.database import RESULTS
from lbx.base.errors import StoreError
from lbx.base.interrupts import defer_signals
from lbx.store.contents import has_current_views, other_version_error, refuse_foreign, schema_version
from lbx.store.opening import first_line
from lbx.store.schema import SCHEMA, SCHEMA_VERSION
from lbx.store.views import VIEWS


def prepare(connection: duckdb.DuckDBPyConnection, path: Path, *, is_new: bool, read_only: bool) -> None:
    """Create the tables of a new file (``is_new``), or check those of an existing file.

    Raises:
        StoreError: the file is not a results file, is of another version of lbx, or has contents that lbx never
            creates.
    """
    try:
        try:
            if is_new:  # a new file is empty
                _create_tables(connection, path)
                return
        except StoreError:
            pass  # unless another process created it too
        _check_tables(connection, path, read_only=read_only)
    except duckdb.Error as exc:
        raise StoreError(f"{path} is not a complete results file: {first_line(exc)}") from exc


def _check_tables(connection: duckdb.DuckDBPyConnection, path: Path, *, read_only: bool) -> None:
    version = schema_version(connection, RESULTS)
    empty = version is None and not connection.execute("FROM duckdb_tables()").fetchone()
    if empty and read_only:
        raise StoreError(f"{path} is still empty.", fix="If a run has just started, try again in a moment.")
    if version is None and not empty:
        raise StoreError(
            f"{path} is a DuckDB file, but not a results file of lbx.",
            fix="Give another file; lbx adds tables only to its own databases.",
        )
    if version is not None and version != SCHEMA_VERSION:
        raise other_version_error(path, f"its schema is {version}, and this version uses {SCHEMA_VERSION}")
    if empty:
        _create_tables(connection, path)
        return
    refuse_foreign(connection, RESULTS, path)
    if has_current_views(connection):
        return
    if read_only:
        _create_views(connection, "TEMP ")  # the file's own views are not trusted
    else:
        with transaction(connection, path):
            _create_views(connection)


def _create_tables(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    with transaction(connection, path):
        connection.execute("CREATE TABLE lbx_schema (version INTEGER, created_at TIMESTAMP)")
        connection.execute("INSERT INTO lbx_schema VALUES (?, current_localtimestamp())", [SCHEMA_VERSION])
        connection.execute(SCHEMA)
        _create_views(connection)


def _create_views(connection: duckdb.DuckDBPyConnection, modifier: str = "") -> None:
    """Create the current views, in memory if ``modifier`` is "TEMP "."""
    for name, query in VIEWS.items():
        connection.execute(f"CREATE OR REPLACE {modifier}VIEW {name} AS {query}")


@contextlib.contextmanager
def transaction(connection: duckdb.DuckDBPyConnection, path: Path) -> Iterator[None]:
    """Run a block as a transaction. Ctrl-C and SIGTERM wait for its end.

    Raises:
        StoreError: the file cannot be written.
    """
    with defer_signals():
        try:
            connection.begin()
            yield
            connection.commit()
        except BaseException as exc:
            with contextlib.suppress(duckdb.Error):
                connection.rollback()
            if isinstance(exc, duckdb.Error):
                raise StoreError(
                    f"{path} could not be written: {first_line(exc)}",
                    fix="Rows committed before this are safe. Fix the cause (a full disk?), then repeat the same "
                    "command to continue.",
                ) from exc
            raise
