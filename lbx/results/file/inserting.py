"""Writing of rows: bulk insertion, and changes of JSON columns row by row."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import duckdb

from lbx.base.records import TableRow
from lbx.results.rows import as_json


def insert(
    connection: duckdb.DuckDBPyConnection, table: str, rows: Sequence[TableRow], *, replace: bool = True
) -> None:
    """Insert rows into a table. A row with an existing key replaces the old row, or without ``replace`` is skipped."""
    # A single JSON parameter instead of a statement per row: executemany is some 200 times slower here.
    if not rows:
        return
    verb = "INSERT OR REPLACE" if replace else "INSERT OR IGNORE"
    connection.execute(f"{verb} INTO {table} BY NAME {rows_of_json(connection, table)}", [as_parameter(rows)])


def rows_of_json(connection: duckdb.DuckDBPyConnection, table: str) -> str:
    """Build the SQL that converts a JSON parameter, an array of objects, to rows of a table."""
    columns = connection.execute(f"SELECT column_name, column_type FROM (DESCRIBE {table})").fetchall()
    return json_rows(dict(columns))


def json_rows(columns: Mapping[str, str]) -> str:
    """Build the SQL that converts a JSON parameter, an array of objects, to rows with columns {name: type}."""
    return f"SELECT unnest(from_json(?::JSON, '[{as_json(columns)}]'), recursive := true)"


def as_parameter(rows: Sequence[TableRow]) -> str:
    """Build the JSON parameter of ``rows_of_json`` from rows."""
    return as_json([row.values() for row in rows])


def column_type(values: Sequence[object]) -> str:
    """Return the SQL type of a column with these values."""
    kinds = {type(value) for value in values if value is not None}
    for kind, name in (
        (frozenset({bool}), "BOOLEAN"),
        (frozenset({int}), "BIGINT"),
        (frozenset({int, float}), "DOUBLE"),
    ):
        if kinds <= kind:
            return name if kinds else "VARCHAR"
    return "VARCHAR"


def update_json(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    column: str,
    change: Callable[[Any], Any],
    *,
    where: str = "true",
) -> None:
    """Update the values of a JSON column, in an open transaction.

    Args:
        change: function from a parsed value to the new value. It returns values of unexpected types unchanged.
        where: SQL condition on the rows.
    """
    rows = connection.execute(
        f"SELECT rowid, {column} FROM {table} WHERE {column} IS NOT NULL AND ({where})"
    ).fetchall()
    parsed = [(row_id, json.loads(text)) for row_id, text in rows]
    changed = [(row_id, as_json(new)) for row_id, value in parsed if (new := change(value)) != value]
    if changed:
        connection.execute(
            f"UPDATE {table} SET {column} = changed.value FROM "
            "(SELECT unnest(?::BIGINT[]) AS id, unnest(?::VARCHAR[]) AS value) changed "
            f"WHERE {table}.rowid = changed.id",
            [*map(list, zip(*changed, strict=True))],
        )
