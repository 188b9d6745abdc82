"""Changes of JSON columns, row by row."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import duckdb

from lbx.store.rows import as_json


def change_json(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    column: str,
    change: Callable[[Any], Any],
    *,
    where: str = "true",
) -> None:
    """Replace values of a JSON column, in an open transaction.

    Args:
        change: computes a new value from a parsed one, and leaves values of other types unchanged.
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
