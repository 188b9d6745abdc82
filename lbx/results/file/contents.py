"""Check of a results file's contents. Allowed are lbx's tables with lbx's column types, other plain tables, and views.

A view under a table's name, a macro under a function's name, or a trigger would make DuckDB run its author's code
whenever the file is read or written. Views under other names are allowed: only their owner's queries use them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import duckdb

from lbx.base.errors import StoreError
from lbx.base.inputs import SMALL, read_input
from lbx.base.records import canonical_json, sha256_text
from lbx.results.schema import SCHEMA
from lbx.results.views import VIEWS

_TYPE = r"((?:VARCHAR|JSON|INTEGER|BIGINT|DOUBLE|BOOLEAN|TIMESTAMP|BLOB)\b(?:\[\])?)"
COLUMN_TYPES: Mapping[tuple[str, str], str] = {
    (table, column): kind
    for table, body in re.findall(r"CREATE TABLE (\w+) \((.*?)\n\);", SCHEMA, re.DOTALL)
    for column, kind in re.findall(rf'"?(\w+)"? {_TYPE}', body)
}
"""{(table, column): type}"""
_TABLES = frozenset(table for table, _ in COLUMN_TYPES) | {"lbx_schema"}

_FOREIGN_OBJECTS = """
    SELECT 'view', view_name FROM duckdb_views() WHERE database_name = $1 AND NOT internal
    UNION ALL SELECT 'macro', function_name FROM duckdb_functions() WHERE database_name = $1 AND NOT internal
    UNION ALL SELECT 'trigger', trigger_name FROM duckdb_triggers() WHERE database_name = $1
    UNION ALL SELECT 'sequence', sequence_name FROM duckdb_sequences() WHERE database_name = $1
    UNION ALL SELECT 'type', type_name FROM duckdb_types() WHERE database_name = $1 AND NOT internal
    UNION ALL SELECT 'schema', schema_name FROM duckdb_schemas() WHERE database_name = $1 AND NOT internal
    UNION ALL SELECT 'computed column in the table', table_name FROM duckdb_tables()
              WHERE database_name = $1 AND sql ILIKE '%GENERATED ALWAYS%'
"""


def refuse_foreign(connection: duckdb.DuckDBPyConnection, database: str, path: Path) -> None:
    """Raise StoreError if an attached file contains objects that lbx never creates. None of their code is run."""
    for kind, name in connection.execute(_FOREIGN_OBJECTS, [database]).fetchall():
        if kind == "view" and name not in _TABLES:
            continue
        what = f"a view instead of its table {name}" if kind == "view" else f"a {kind}, {name}"
        raise StoreError(
            f"{path} contains {what}. lbx never creates one, and reading the file may execute code in it.",
            fix="Do not trust this file. Keep your own additions in another file, and attach this one to it.",
        )
    _refuse_other_columns(connection, database, path)


def _refuse_other_columns(connection: duckdb.DuckDBPyConnection, database: str, path: Path) -> None:
    """Raise StoreError if a column is missing or of another type."""
    missing = dict(COLUMN_TYPES)
    for table, column, kind in connection.execute(
        "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE database_name = ? "
        "AND schema_name = 'main' ORDER BY ALL",
        [database],
    ).fetchall():
        expected = missing.pop((table, column), kind)
        if kind != expected:
            raise StoreError(
                f"{path}: the column {column} of the table {table} has type {kind} instead of {expected}.",
                fix="Do not trust the file; ask its author. lbx read no data from it.",
            )
    if missing:
        raise other_version_error(path, f"it has no column {'.'.join(next(iter(missing)))}")


def other_version_error(path: Path, reason: str) -> StoreError:
    """Build the error for a results file of another version of lbx."""
    return StoreError(
        f"{path} was written by another version of lbx: {reason}.",
        fix="Read it with that version, or write to another file.",
    )


def schema_version(connection: duckdb.DuckDBPyConnection, database: str) -> int | None:
    """Return the schema version of an attached file, or None if the file is not a results file."""
    ((tables,),) = connection.execute(
        "SELECT count(*) FROM duckdb_tables() "
        "WHERE database_name = ? AND schema_name = 'main' AND table_name = 'lbx_schema'",
        [database],
    ).fetchall()
    if not tables:
        return None
    ((version,),) = connection.execute(f"SELECT max(version) FROM {database}.main.lbx_schema").fetchall()
    return version if isinstance(version, int) else None


def has_current_views(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether the file contains exactly the views of this version, so that they need not be recreated."""
    stored = dict(
        connection.execute(
            "SELECT view_name, sql FROM duckdb_views() WHERE database_name = current_database() AND NOT internal"
        ).fetchall()
    )
    if not stored.keys() >= VIEWS.keys():
        return False
    if views_digest(stored) == read_input(_GENERATED_DIGEST, SMALL).decode().strip():
        return True
    if not _normal_views:  # another release of DuckDB: JSON serialization normalizes a query without binding it
        normalised = connection.execute(
            "SELECT name, 'CREATE VIEW ' || name || ' AS ' || json_deserialize_sql(json_serialize_sql(query)) || ';' "
            "FROM (SELECT unnest(?::VARCHAR[]) AS name, unnest(?::VARCHAR[]) AS query)",
            [list(VIEWS), list(VIEWS.values())],
        )
        _normal_views.update(normalised.fetchall())
    return _normal_views.items() <= stored.items()


def views_digest(stored_views: Mapping[str, str]) -> str:
    """Compute the digest of the views' SQL as written here and as DuckDB stores it. It saves 30 ms per opening."""
    return sha256_text(canonical_json([VIEWS, {name: stored_views[name] for name in VIEWS}]))


_GENERATED_DIGEST = Path(__file__).parents[1] / "views.sha256"
"""Written by ``docs/generate.py``."""
_normal_views: dict[str, str] = {}
"""{view: SQL as DuckDB stores it}, computed once per process."""
