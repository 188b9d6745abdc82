"""A file that was opened, as today's results file: its tables brought up to date, its views today's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import duckdb

from lbx.base.commands import as_command
from lbx.base.database import RESULTS
from lbx.base.errors import StoreError
from lbx.base.interrupts import uninterrupted
from lbx.store.contents import has_todays_views, refuse_foreign, schema_version
from lbx.store.migrations import MIGRATIONS
from lbx.store.opening import first_line
from lbx.store.views import VIEWS


def prepare(connection: duckdb.DuckDBPyConnection, path: Path, *, made: bool, read_only: bool) -> None:
    """Make the tables of a file that was ``made`` just now, or hold the file's against today's.

    Raises:
        StoreError: it is no results file, holds what lbx never makes, or is of another lbx and only read.
    """
    try:
        try:
            if made:  # there is nothing in it to look for
                _migrate(connection, path, 0)
                return
        except StoreError:
            pass  # unless another process made it, too
        _hold_against_todays(connection, path, read_only=read_only)
    except duckdb.Error as exc:
        raise StoreError(f"{path} is not a whole results file: {first_line(exc)}") from exc


def _hold_against_todays(connection: duckdb.DuckDBPyConnection, path: Path, *, read_only: bool) -> None:
    version = schema_version(connection, RESULTS)
    empty = version is None and not connection.execute("FROM duckdb_tables()").fetchone()
    if empty and read_only:
        raise StoreError(f"{path} holds nothing yet.", fix="If a run has just begun, look again in a moment.")
    if version is None and not empty:
        raise StoreError(
            f"{path} is a DuckDB file, but not a results file of lbx.",
            fix="Give another file; lbx does not add its tables to a database it did not make.",
        )
    if version is not None and version > len(MIGRATIONS):
        raise StoreError(
            f"{path} was written by a newer lbx: its tables are version {version}, and this lbx knows up to "
            f"{len(MIGRATIONS)}.",
            fix="Use that newer lbx, or write to another file.",
        )
    refuse_foreign(connection, RESULTS, path)
    todays = version == len(MIGRATIONS) and has_todays_views(connection)
    if not read_only:
        if not todays:
            _migrate(connection, path, version or 0)
    elif version is not None and version < len(MIGRATIONS):
        raise StoreError(
            f"{path} was written by an older lbx (tables version {version} of {len(MIGRATIONS)}).",
            fix="Bring it up to date once; nothing in it is lost.",
            command=as_command("lbx", "score", path),
        )
    elif not todays:
        _make_views(connection, "TEMP ")  # the file's own may be an older lbx's


def _migrate(connection: duckdb.DuckDBPyConnection, path: Path, version: int) -> None:
    with transaction(connection, path):
        if version == 0:
            connection.execute("CREATE TABLE IF NOT EXISTS lbx_schema (version INTEGER, applied_at TIMESTAMP)")
        for script in MIGRATIONS[version:]:
            connection.execute(script)
        connection.execute(
            "INSERT INTO lbx_schema SELECT unnest(range(?, ?)), current_localtimestamp()",
            [version + 1, len(MIGRATIONS) + 1],
        )
        _make_views(connection)


def _make_views(connection: duckdb.DuckDBPyConnection, kind: str = "") -> None:
    """Make today's views; of ``kind`` "TEMP " in memory."""
    for name, query in VIEWS.items():
        connection.execute(f"CREATE OR REPLACE {kind}VIEW {name} AS {query}")


@contextlib.contextmanager
def transaction(connection: duckdb.DuckDBPyConnection, path: Path) -> Iterator[None]:
    """All of a block's changes or none. Ctrl-C and SIGTERM wait for its end.

    Raises:
        StoreError: the file cannot be written.
    """
    with uninterrupted():
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
