"""Audit of the texts in a results file, by the values of its columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lbx.base.database import RESULTS, quote_name, sql_literal
from lbx.store.contents import COLUMN_TYPES
from lbx.store.store import Store
from lbx.store.texts import (
    CHANGED,
    FACT,
    FACT_COLUMNS,
    IS_VERDICT,
    JUDGE,
    LABEL_FORMS,
    LONGEST_LABEL,
    MODEL,
    REMOVED_MESSAGE,
    TEXT_COLUMNS,
    add_plain_functions,
    plain_function,
)

UNKNOWN = "unknown"
"""Origin of texts in columns that lbx does not fill with texts, and in tables of other programs."""
_NO_TEXT = ("", "[]", "{}", REMOVED_MESSAGE)
_PLAIN_TYPES = r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DOUBLE|FLOAT|BOOLEAN|DECIMAL.*|DATE|TIME.*|INTERVAL|UUID"


@dataclass(frozen=True, slots=True)
class ColumnTexts:
    """Texts of one origin in a column.

    Attributes:
        rows: number of rows with a text.
        size_bytes: their bytes in UTF-8, before compression.
    """

    table: str
    column: str
    origin: str
    rows: int
    size_bytes: int


def text_columns(store: Store) -> list[ColumnTexts]:
    """Columns that hold texts, in the order of the schema; columns of other programs follow."""
    add_plain_functions(store)
    found = [
        text
        for column in COLUMN_TYPES
        for text in (_texts if column in TEXT_COLUMNS else _texts_in_names)(store, *column)
    ]
    return found + [text for column in _other_columns(store) for text in _count(store, *column, UNKNOWN)]


def _texts(store: Store, table: str, column: str) -> Iterator[ColumnTexts]:
    origin = TEXT_COLUMNS[table, column]
    if column == "meta":
        yield from _count(store, table, column, origin, f"lbx_plain_{table}(meta)[1] = '{CHANGED}'")
    elif origin == MODEL:
        yield from _count(store, table, column, MODEL, "benchmark <> 'judge'")
        verdicts = f" AND NOT {IS_VERDICT.format(row=table)}" if column == "extracted" else ""
        yield from _count(store, table, column, JUDGE, f"benchmark = 'judge'{verdicts}")
    else:
        yield from _count(store, table, column, origin)


def _texts_in_names(store: Store, table: str, column: str) -> Iterator[ColumnTexts]:
    """Values without the known form of their column: sentences among facts, and others, which lbx never writes."""
    name = quote_name(column)
    if column in FACT_COLUMNS.get(table, ()):
        yield from _count(store, table, column, FACT, f"{plain_function(table, column)}({name})[1] = '{CHANGED}'")
    elif form := LABEL_FORMS.get((table, column)):
        is_text = f"NOT regexp_full_match({name}::VARCHAR, {sql_literal(form)})"
        if COLUMN_TYPES[table, column] == "VARCHAR":
            is_text = f"({is_text} OR length({name}) > {LONGEST_LABEL})"
        yield from _count(store, table, column, UNKNOWN, is_text)


def _other_columns(store: Store) -> list[tuple[str, str]]:
    """Columns of other programs that may hold a text."""
    rows = store.query(
        "SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = ? AND schema_name = 'main' "
        "AND table_name IN (SELECT table_name FROM duckdb_tables() WHERE database_name = $1) "
        "AND NOT regexp_full_match(data_type, $2) ORDER BY table_name, column_index",
        [RESULTS, _PLAIN_TYPES],
    ).rows
    return [(table, column) for table, column in rows if (table, column) not in COLUMN_TYPES]


def _count(store: Store, table: str, column: str, origin: str, condition: str = "true") -> Iterator[ColumnTexts]:
    value = f"{quote_name(column)}::VARCHAR"
    no_text = ", ".join(f"'{text}'" for text in _NO_TEXT)
    ((rows, size_bytes),) = store.query(
        f"SELECT count(*), coalesce(sum(strlen({value})), 0)::BIGINT FROM {RESULTS}.main.{quote_name(table)} "
        f"WHERE {condition} AND {value} NOT IN ({no_text})"
    ).rows
    if rows:
        yield ColumnTexts(table, column, origin, rows, size_bytes)
