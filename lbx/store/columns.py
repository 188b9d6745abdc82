"""What the columns of a results file hold: each its own type, and JSON of the form that lbx writes there.

A file may come from anybody. Whatever reads it afterwards, SQL or Python, can take it at its word: it was looked
through here when it was opened, and nobody writes to it meanwhile.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

from lbx.base.errors import StoreError
from lbx.store.schema import SCHEMA

_TYPE = r"((?:VARCHAR|JSON|INTEGER|BIGINT|DOUBLE|BOOLEAN|TIMESTAMP|BLOB)\b(?:\[\])?)"


TYPES: Mapping[tuple[str, str], str] = {
    (table, column): kind
    for table, body in re.findall(r"CREATE TABLE (\w+) \((.*?)\n\);", SCHEMA, re.DOTALL)
    for column, kind in re.findall(rf'"?(\w+)"? {_TYPE}', body)
}
"""{(table, column): its type}"""
_TABLES = frozenset(table for table, _ in TYPES)

_KEYS: Mapping[str, tuple[str, ...]] = {
    "runs": ("run_id",),
    "samples": ("benchmark", "task", "sample_id"),
    "generations": ("run_id", "benchmark", "task", "sample_id", "iteration"),
    "sessions": ("run_id", "session"),
    "rating_sets": ("set_id",),
    "rating_items": ("set_id", "item"),
}
"""What names a row of the tables that have columns of JSON."""

_OBJECT = "json_type({0}) = 'OBJECT'"
_WITHIN = "len(list_filter(json_type({0}, '{1}'), lambda kind: kind NOT IN ({2}))) = 0"
_COUNTS = f"{_OBJECT} AND {_WITHIN.format('{0}', '$.*', repr('UBIGINT'))}"
_LIST = f"json_type({{0}}) = 'ARRAY' AND {_WITHIN}"
_TEXTS = _LIST.format("{0}", "$[*]", repr("VARCHAR"))
_STEPS = " AND ".join(
    (
        _LIST.format("{0}", "$[*]", repr("OBJECT")),
        _WITHIN.format("{0}", "$[*].output", "'VARCHAR', 'NULL'"),
        _WITHIN.format("{0}", "$[*].output_tokens", "'UBIGINT', 'NULL'"),
    )
)
_FORMS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("settings", "hardware", "metadata", "meta", "spec"), ("an object", _OBJECT)),
    **dict.fromkeys(("benchmark_versions", "task_samples", "unscored_samples"), ("an object of counts", _COUNTS)),
    **dict.fromkeys(("references", "runs"), ("a list of texts", _TEXTS)),
    "steps": ("a list of objects with texts", _STEPS),
}
"""{column of JSON: its form in words, and as a condition}. A column of one name has one form, whatever its table."""

_DEEPEST, _MOST_DIGITS = 100, 4000
_PERHAPS = f"""
    (strlen({{text}}) > {_DEEPEST} AND strlen({{text}}) - strlen(replace({{text}}, '[', ''))
                                   + strlen({{text}}) - strlen(replace({{text}}, '{{{{', '')) > {_DEEPEST})
    OR (strlen({{text}}) >= {_MOST_DIGITS}
        AND contains(translate({{text}}, '123456789', '000000000'), repeat('0', {_MOST_DIGITS})))
"""
"""What may be nested too deeply, or hold a number too long, for Python: brackets and digits of texts count along.

Whoever opens a file waits for this. A regular expression of so many digits takes longer to compile than the texts of a
usual file to read; ``translate`` of every text takes six times as long as ``replace``.
"""
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def refuse_other_columns(connection: duckdb.DuckDBPyConnection, database: str, path: Path) -> None:
    """Raise StoreError if a column of an attached file is missing, or holds what lbx never writes there."""
    held: dict[str, list[str]] = {}
    missing = dict(TYPES)
    for table, column, kind in connection.execute(
        "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE database_name = ? "
        "AND schema_name = 'main' ORDER BY ALL",
        [database],
    ).fetchall():
        wanted = missing.pop((table, column), kind)
        if kind != wanted:
            raise _other(path, f"the column {column} of the table {table} is of type {kind}, and not {wanted}")
        if kind == "JSON" and column in _FORMS and table in _TABLES:
            held.setdefault(table, []).append(column)
    if missing:
        raise another_version(path, f"it has no column {'.'.join(next(iter(missing)))}")
    for table, columns in held.items():
        place = f"{database}.main.{table}"
        suspected = " OR ".join(f"({_suspected(column)})" for column in columns)
        if connection.execute(f"SELECT 1 FROM {place} WHERE {suspected} LIMIT 1").fetchone():
            for column in columns:
                _refuse_other_json(connection, place, table, column, path)


def another_version(path: Path, reason: str) -> StoreError:
    """The error for a results file of another version of lbx."""
    return StoreError(
        f"{path} was made by another version of lbx: {reason}.",
        fix="Read it with the version that made it, or write to another file.",
    )


def _odd(column: str) -> str:
    return f"NOT ({_FORMS[column][1].format(_name(column))})"


def _suspected(column: str) -> str:
    name = _name(column)
    perhaps = _PERHAPS.format(text=f"{name}::VARCHAR")
    return f"{name} IS NOT NULL AND ({_odd(column)} OR {perhaps})"


def _name(column: str) -> str:
    return f'"{column}"'


def _refuse_other_json(connection: duckdb.DuckDBPyConnection, place: str, table: str, column: str, path: Path) -> None:
    key = ", ".join(_KEYS.get(table, ("'?'",)))
    rows = connection.execute(
        f"SELECT {_odd(column)}, {_name(column)}::VARCHAR, {key} FROM {place} WHERE {_suspected(column)}"
    )
    while row := rows.fetchone():
        is_odd, text, *of = row
        problem = f"is not {_FORMS[column][0]}" if is_odd else _problem(text)
        if problem:
            raise _other(path, f"{column} of the row {'/'.join(map(str, of))} in the table {table} {problem}")


def _problem(text: str) -> str:
    depth = deepest = 0
    for character in re.sub(r"[^\[\]{}]", "", _STRING.sub("", text)):
        depth += 1 if character in "[{" else -1
        deepest = max(deepest, depth)
    if deepest > _DEEPEST:
        return "is nested too deeply"
    try:
        json.loads(text)
    except ValueError:
        return "holds a number that is too long"
    return ""


def _other(path: Path, what: str) -> StoreError:
    return StoreError(
        f"{path} holds what lbx never writes: {what}.",
        fix="Do not trust the file; ask whoever made it. Nothing was read from it.",
    )
