"""Digests of the rows of a run, computed inside DuckDB, to find rows that have changed since an attestation.

A digest is the start of the SHA-256 of an encoding that keeps every bit and has one reading: each value with its length
in bytes before it, NULL as a mark of its own, a floating-point number by its 64 bits, JSON as the stored text, a list
of texts as JSON. The digest of a row covers the row in the form of `lbx runs extract --without-texts`, so that it can
be checked in both forms. Texts have digests of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import duckdb

from lbx.base.database import quote_name
from lbx.base.errors import StoreError
from lbx.results.file.contents import COLUMN_TYPES
from lbx.results.file.opening import first_line
from lbx.results.file.store import Store
from lbx.results.file.texts import FACT_COLUMNS, NO_TEXTS, TEXT_COLUMNS, UNCHANGED, add_plain_functions
from lbx.results.schema import SCHEMA
from lbx.results.whole.extracting import plain_columns

_BATCH = 5_000
DIGITS, MARK_DIGITS = 32, 2
"""Hex digits of a digest, and of a mark, the start of a single value's digest, which shows which column changed.

128 bits suffice: the salt is drawn after the data exist, so that no two rows can be prepared with the same digest.
"""
EXTRACTION_COLUMNS = frozenset(
    {("runs", "texts"), ("samples", "text_hashes"), ("generations", "output_sha256"), ("generations", "output_words")}
)
"""Columns that `lbx runs extract --without-texts` fills in place of texts."""
PLAIN = "="
"""Stands for a value that `lbx runs extract --without-texts` keeps, which the digest of the row covers."""

_ANSWERED = "SEMI JOIN (FROM generations WHERE run_id = $run) USING (benchmark, task, sample_id)"
_RATED = "FROM ratings WHERE run_id = $run OR against_run_id = $run"
_JUDGED = """
    LEFT JOIN (
        SELECT 'judge' AS benchmark, rubric AS task, round_id AS sample_id, [run_id, against_run_id] AS about
        FROM rounds
    ) USING (benchmark, task, sample_id)
"""
_ROWS: Mapping[str, str] = {
    "runs": "SELECT *, [] AS about FROM runs WHERE run_id = $run",
    "samples": f"SELECT * FROM samples {_ANSWERED} {_JUDGED}",
    "generations": f"SELECT * FROM generations {_JUDGED} WHERE run_id = $run",
    "rounds": "SELECT *, [run_id, against_run_id] AS about FROM rounds SEMI JOIN ("
    "SELECT task AS rubric, sample_id AS round_id FROM generations WHERE run_id = $run AND benchmark = 'judge'"
    ") USING (rubric, round_id)",
    "scores": f"SELECT * FROM scores {_JUDGED} WHERE run_id = $run",
    "numbers": "SELECT *, [judge, against] AS about FROM numbers WHERE run_id = $run",
    "retrievals": f"SELECT *, [] AS about FROM retrievals {_ANSWERED} "
    "WHERE retriever = (SELECT any_value(TRY(settings->>'retriever')) FROM runs WHERE run_id = $run)",
    "rating_sets": f"SELECT *, [] AS about FROM rating_sets SEMI JOIN ({_RATED}) USING (set_id)",
    "rating_items": f"SELECT *, [] AS about FROM rating_items SEMI JOIN ({_RATED}) USING (set_id, item)",
    "ratings": f"SELECT *, [run_id, against_run_id] AS about {_RATED}",
}
"""{table: query for the rows of a run, with the other runs that a row is about}

Sessions and vectors of texts do not belong to a run's results.
"""


@dataclass(frozen=True, slots=True)
class TableColumns:
    """Columns of a table: of the key, all (``values``), and with texts, which get separate digests."""

    key: Sequence[str]
    values: Sequence[str]
    texts: Sequence[str]


def _read_columns(table: str, key: str) -> TableColumns:
    names = [column for owner, column in COLUMN_TYPES if owner == table]
    facts = FACT_COLUMNS.get(table, ())
    texts = [name for name in names if name in facts or (table, name) in {*TEXT_COLUMNS, *EXTRACTION_COLUMNS}]
    return TableColumns([name.strip().strip('"') for name in key.split(",")], names, texts)


COLUMNS: Mapping[str, TableColumns] = {
    table: _read_columns(table, key)
    for table, key in re.findall(r"CREATE TABLE (\w+) \(.*?PRIMARY KEY \((.*?)\)", SCHEMA, re.DOTALL)
    if table in _ROWS
}


def runs_with_rows(store: Store) -> set[str]:
    """Find the names of all runs with rows in a file, even without a row in ``runs``."""
    tables = ("runs", "generations", "scores", "numbers")
    return {run for (run,) in store.query(" UNION ".join(f"SELECT run_id FROM {table}" for table in tables)).rows}


def is_blank(table: str, column: str, text: str | None) -> bool:
    """Whether the digest of a text in a line is that of a text that `lbx runs extract --without-texts` removed."""
    return text in (None, PLAIN) or (table, column) == ("runs", "texts")


def iterate_row_digests(store: Store, run_id: str, salt: str) -> Iterator[str]:
    """Yield a line of JSON for each row of a run, in ascending order of the lines' UTF-8 bytes.

    A line is a list of the table, the key, the other runs that the row is about, the digest, the marks of the columns,
    and the digests of the texts (null for NULL, or ``PLAIN``).

    Args:
        salt: mixed into every digest.

    Raises:
        StoreError: the file cannot be read.
    """
    try:
        add_plain_functions(store)
        for table in sorted(_ROWS):
            sql = f"SELECT {_line(table)} AS line FROM ({_encoded_rows(table)}) ORDER BY line"
            cursor = store.connection.execute(sql, {"run": run_id, "salt": salt})
            while rows := cursor.fetchmany(_BATCH):
                yield from (line for (line,) in rows)
    except duckdb.Error as exc:
        raise StoreError(
            f"{store.path} cannot be read: {first_line(exc)}", fix="If it is damaged, restore a copy."
        ) from exc


_PLAIN_COLUMNS = plain_columns(NO_TEXTS)


def _encoded_rows(table: str) -> str:
    """Build the SQL for the rows of a table with encoded values without texts, keys, and the start of hashed texts."""
    columns, plain = COLUMNS[table], _PLAIN_COLUMNS.get(table, {})
    values = "".join(f', {plain.get(name, f"r.{quote_name(name)}")} AS "plain_{name}"' for name in columns.values)
    encoded = ", ".join(
        f'{_encode(f"plain_{name}", COLUMN_TYPES[table, name])} AS "encoded_{name}"' for name in columns.values
    )
    key = f"json_array({', '.join(map(quote_name, columns.key))})::VARCHAR"
    return (
        f"SELECT *, {key} AS lbx_key, $salt || '{table}' || {key} AS lbx_start, {encoded} "
        f"FROM (SELECT r.*{values} FROM ({_ROWS[table]}) r)"
    )


def _line(table: str) -> str:
    columns = COLUMNS[table]
    about = "to_json(list_filter(about, lambda name: name NOT IN ('', $run)))::VARCHAR"
    row = " || ".join(f'"encoded_{name}"' for name in columns.values)
    marks = " || ".join(
        f"sha256(lbx_start || '{name}' || \"encoded_{name}\")[:{MARK_DIGITS}]" for name in columns.values
    )
    texts = " || ',' || ".join(_text(table, name) for name in columns.texts) or "''"
    head = f"""'["{table}",' || lbx_key || ',' || coalesce({about}, '[]')"""
    digest = f"sha256(lbx_start || {row})[:{DIGITS}]"
    return f"""{head} || ',"' || {digest} || '","' || {marks} || '",[' || {texts} || ']]'"""


def _text(table: str, column: str) -> str:
    value = quote_name(column)
    is_plain = f'{value}::VARCHAR = "plain_{column}"::VARCHAR'
    if column == "meta":
        is_plain = f"lbx_plain_{table}({value})[1] = '{UNCHANGED}'"
    return (
        f"CASE WHEN {value} IS NULL THEN 'null' WHEN {is_plain} THEN '\"{PLAIN}\"' "
        f"ELSE '\"' || sha256(lbx_start || '{column}' || {_encode(column, 'VARCHAR')})[:{DIGITS}] || '\"' END"
    )


def _encode(column: str, kind: str) -> str:
    """Build the SQL for the encoding of a value, which is never the start of the encoding of another value."""
    value = f"to_json({quote_name(column)})" if kind == "VARCHAR[]" else quote_name(column)
    text = f"{value}::{'BIT::VARCHAR' if kind == 'DOUBLE' else 'VARCHAR'}"
    return f"CASE WHEN {quote_name(column)} IS NULL THEN 'N' ELSE strlen({text}) || ':' || {text} END"
