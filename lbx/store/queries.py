"""What a person may ask of a results file: one query that reads."""

from __future__ import annotations

import re

import duckdb

from lbx.errors import StoreError
from lbx.store.opening import first_line

_WRITES = re.compile(r'"type":"(?:COPY|INSERT|UPDATE|DELETE|MERGE)\w*_QUERY_NODE"')


def check_query(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Raise StoreError where the text is not one query, or one that writes.

    A file that is open to read can be overwritten nevertheless: COPY may write where the database lies, and stands in
    WITH clauses, too.
    """
    try:
        statements = connection.extract_statements(sql)
        kinds = [statement.type for statement in statements]
        # A PIVOT is two statements in one; it has no form as JSON to look into.
        if kinds == [duckdb.StatementType.MULTI] and "copy" not in sql.casefold():
            return
        if kinds == [duckdb.StatementType.SELECT]:
            ((parsed,),) = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()
            if not _WRITES.search(parsed):
                return
    except duckdb.Error as exc:
        raise StoreError(f"The query failed: {first_line(exc)}") from exc
    raise StoreError(
        "Queries are read-only here, and this one is not."
        if len(kinds) == 1
        else f"This is {len(kinds)} statements, not one query.",
        fix="Give one SELECT (or FROM, WITH, PIVOT, DESCRIBE, SUMMARIZE, SHOW).",
    )
