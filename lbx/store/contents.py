"""What a results file may hold: tables of plain columns, and views, which nothing binds but lbx's own queries.

A view in the place of a table, a macro under the name of a function or a trigger would have DuckDB do what its author
wanted whenever the file is read or written. Views of other names are their owner's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb

from lbx.base.errors import StoreError
from lbx.base.records import canonical_json, sha256_text
from lbx.store.columns import TYPES, refuse_other_columns
from lbx.store.views import VIEWS

_TABLES = frozenset(table for table, _ in TYPES) | {"lbx_schema"}

_HELD = """
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
    """Raise StoreError where an attached file holds what lbx never makes. Nothing of it is bound or run."""
    for kind, name in connection.execute(_HELD, [database]).fetchall():
        if kind == "view" and name not in _TABLES:
            continue
        what = f"a view in the place of its table {name}" if kind == "view" else f"a {kind}, {name}"
        raise StoreError(
            f"{path} holds {what}, which lbx never makes: reading the file may do more than read it.",
            fix="Do not trust it. Keep what you add in a file of your own, and attach this one to it.",
        )
    refuse_other_columns(connection, database, path)


def schema_version(connection: duckdb.DuckDBPyConnection, database: str) -> int | None:
    """The version of the tables in an attached file; None: it is none of lbx."""
    ((tables,),) = connection.execute(
        "SELECT count(*) FROM duckdb_tables() "
        "WHERE database_name = ? AND schema_name = 'main' AND table_name = 'lbx_schema'",
        [database],
    ).fetchall()
    if not tables:
        return None
    ((version,),) = connection.execute(f"SELECT max(version) FROM {database}.main.lbx_schema").fetchall()
    return version if isinstance(version, int) else None


def has_todays_views(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether the file's views are those that this lbx would make, word for word: then it need not make them."""
    held = connection.execute(
        "SELECT view_name, sql FROM duckdb_views() WHERE database_name = current_database() AND NOT internal"
    ).fetchall()
    if not {name for name, _ in held} >= VIEWS.keys():
        return False
    if views_digest(dict(held)) == VIEWS_DIGEST:
        return True
    if not _KEPT:
        # The way through JSON gives a query the form in which DuckDB keeps it, and binds nothing.
        spelled = connection.execute(
            "SELECT name, 'CREATE VIEW ' || name || ' AS ' || json_deserialize_sql(json_serialize_sql(query)) || ';' "
            "FROM (SELECT unnest(?::VARCHAR[]) AS name, unnest(?::VARCHAR[]) AS query)",
            [list(VIEWS), list(VIEWS.values())],
        )
        _KEPT.update(spelled.fetchall())
    return _KEPT.items() <= set(held)


def views_digest(kept: Mapping[str, str]) -> str:
    """Of today's views, as lbx writes them and as a file keeps them."""
    return sha256_text(canonical_json([VIEWS, {name: kept[name] for name in VIEWS}]))


VIEWS_DIGEST = "d0cac984ba77f8b39b84d22694b33c0d9afbc72bfae2e854dd0e95c77b59f33d"
"""Where it is another one than the file's, as with another DuckDB, views are compared word for word."""
_KEPT: dict[str, str] = {}
"""Today's views as DuckDB keeps them; a process finds that out once."""
