"""What a person may ask of results files: one query that reads, whatever its answer becomes.

``restrict`` is the one entrance: every answer, in every format, is of a query that has passed it, on a connection that
``lbx.base.database`` has locked.
"""

from __future__ import annotations

import itertools
import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from lbx.base.database import attach_nothing, count_parquet_rows, quoted
from lbx.base.errors import StoreError, UsageError
from lbx.base.interrupts import uninterrupted
from lbx.store.inserting import column_type, rows_of_json
from lbx.store.opening import first_line
from lbx.store.rows import Table, as_json
from lbx.store.store import Store
from lbx.store.views import VIEWS

T = TypeVar("T")

_WRITES = re.compile(r'"type":"(?:COPY|INSERT|UPDATE|DELETE|MERGE)\w*_QUERY_NODE"')
_HIDES = ("query", "json_execute_serialized_sql")
"""Functions that run a text which is a query itself, and may be put together only as they are called."""
_CALLS = re.compile(rf'"function_name":"(?:{"|".join(_HIDES)})"', re.IGNORECASE)
_NAMES = re.compile(rf"copy|\b(?:{'|'.join(_HIDES)})\b", re.IGNORECASE)
_BATCH = 100
"""Rows: few, as each may hold a megabyte of text."""
_PARQUET = "FORMAT parquet, USE_TMP_FILE false, ROW_GROUP_SIZE 8192"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_PASSING = re.compile(r"/proc/self/fd/\d+/")  # before a name that a person knows
_OFFERED = re.compile(r"^(?:Did you mean|Candidate bindings):?(.*)$", re.MULTILINE)
_TAKEN = ("results", "main", "memory", "system", "temp", "information_schema", "pg_catalog")


def restrict(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    """The one query that a text is, without the semicolon and comments behind it.

    A file that is open to read can be overwritten nevertheless: COPY may write where the database lies, and stands in
    WITH clauses and in texts that functions run, too.

    Raises:
        StoreError: it is no query, more than one, or one that writes.
    """
    try:
        statements = connection.extract_statements(sql)
        kinds = [statement.type for statement in statements]
        # A PIVOT is two statements in one; it has no form as JSON to look into.
        if kinds == [duckdb.StatementType.MULTI] and not _NAMES.search(sql):
            return _bare(sql)
        if kinds == [duckdb.StatementType.SELECT]:
            ((parsed,),) = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()
            if not _WRITES.search(parsed) and not _CALLS.search(parsed):
                return _bare(sql)
    except duckdb.Error as exc:
        raise failed_query(exc) from exc
    raise StoreError(
        "Only read-only queries are allowed here."
        if len(kinds) == 1
        else f"This is {len(kinds)} statements, not one query.",
        fix="Give one SELECT (or FROM, WITH, PIVOT, DESCRIBE, SUMMARIZE, SHOW).",
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """A query's answer, while it comes. Columns of one name are told apart: a, a_1."""

    columns: Sequence[str]
    rows: Iterator[tuple[Any, ...]]


@dataclass(slots=True)
class TimeLimit:
    """Seconds that DuckDB may still work on a query and its rows; whoever reads them may take any time."""

    seconds: float = math.inf
    left_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.left_s = self.seconds

    @property
    def error(self) -> StoreError:
        return StoreError(
            f"The query takes more than {self.seconds:g} seconds.",
            fix="Ask for less of it at a time, or give it more with --timeout SECONDS.",
        )


@contextmanager
def asked(store: Store, sql: str, limit: TimeLimit | None = None) -> Iterator[Answer]:
    """Ask one query; its rows come as they are taken, and end with the block. Ctrl-C ends the query.

    Raises:
        StoreError: the query is none that reads, is wrong, or takes too long; here or as its rows are taken.
        MemoryError: it takes more memory than this process may.
    """
    limit = limit or TimeLimit()
    with uninterrupted():
        restrict(store.connection, sql)
    with ThreadPoolExecutor(1) as aside:
        cursor = _interruptibly(aside, store.connection, lambda: store.connection.execute(sql), limit)
        yield Answer(_apart([column[0] for column in cursor.description or []]), _rows(aside, store.connection, limit))


def count_rows(store: Store, sql: str, limit: TimeLimit | None = None) -> int:
    """How many rows a query has, which is asked again for that. Raises as ``asked`` does."""
    with asked(store, f"SELECT count(*) FROM ({restrict(store.connection, sql)}\n)", limit) as answer:
        return int(next(answer.rows)[0])


def export_parquet(store: Store, sql: str, path: Path, limit: TimeLimit | None = None) -> int:
    """Write a query's answer to a parquet file. Returns the number of rows.

    Args:
        store: on one thread; each further one would hold some 100,000 rows until it has written them.
        path: a file that is not there yet, and that the store was given beside its own (``outputs.whole_place``).

    Raises:
        StoreError: the query is none that reads, is wrong or takes too long, or the file cannot be written.
        MemoryError: as ``asked``.
    """
    with uninterrupted():
        query = restrict(store.connection, sql)
    copy = f"COPY ({query}\n) TO {quoted(str(path))} ({_PARQUET})"

    def write() -> list[tuple[Any, ...]]:
        return store.connection.execute(copy).fetchall()

    with ThreadPoolExecutor(1) as aside:
        copied = _interruptibly(aside, store.connection, write, limit or TimeLimit())
    return int(copied[0][0]) if copied else count_parquet_rows([path])  # a PIVOT does not tell


def export_report(store: Store, sql: str, parameters: Sequence[object], path: Path, without: Sequence[str]) -> int:
    """``export_parquet`` of a query of lbx's own, in its types; but for the columns ``without``. Raises StoreError."""
    store.query(f"CREATE OR REPLACE TEMP TABLE exported AS {sql}", parameters)
    kept = f"COLUMNS(lambda name: name NOT IN {tuple(without)})" if without else "*"
    return export_parquet(store, f"SELECT {kept} FROM exported", path)


def export_rows(store: Store, table: Table, path: Path) -> int:
    """``export_parquet`` of rows that no query gives. Raises StoreError."""
    types = [column_type([row[at] for row in table.rows]) for at in range(len(table.columns))]
    named = ", ".join(f'"{name}" {kind}' for name, kind in zip(table.columns, types, strict=True))
    store.query(f"CREATE OR REPLACE TEMP TABLE exported ({named})")
    rows = as_json([dict(zip(table.columns, row, strict=True)) for row in table.rows])
    store.query(f"INSERT INTO exported BY NAME {rows_of_json(store.connection, 'exported')}", [rows])
    return export_parquet(store, "FROM exported", path)


def named_files(texts: Sequence[str], results: Path) -> dict[str, Path]:
    """{"other": Path("b.duckdb")} from "other=b.duckdb".

    Raises:
        UsageError: a text has another form, a name cannot stand before a table's, or a file is named twice.
    """
    files: dict[str, Path] = {}
    known = [results.resolve()]
    for text in texts:
        name, _, place = text.partition("=")
        if not _NAME.fullmatch(name) or not place:
            raise UsageError(
                f"--attach is NAME=FILE, a name of letters, digits and _, not {text!r}.",
                fix="Give e.g. --attach other=b.duckdb; its tables are other.runs, other.scores ...",
            )
        if name.lower() in (*_TAKEN, *map(str.lower, files)):
            raise UsageError(f"The name {name} of --attach is taken.", fix="Give the file another name.")
        if Path(place).resolve() in known:
            raise UsageError(f"{place} is open already.", fix="Name each file once.")
        files[name] = Path(place)
        known.append(files[name].resolve())
    return files


_INNER = "lbx_"
"""What names of an attached file begin with in its views: DuckDB looks for a name among the store's own temporary
tables and views first, even where another database's view names it.
"""


def _to_read(path: Path) -> Store:
    return Store(path, read_only=True)


def attach_files(store: Store, files: Mapping[str, Path], opened: Callable[[Path], Store] = _to_read) -> None:
    """Have other results files beside the store's own, to read: ``other.runs``, and views as this lbx makes them.

    Args:
        files: by their names (``named_files``); the store was given them beside its own.
        opened: opens each to read, with numbers of all its answers.

    Raises:
        StoreError: one cannot be read, is of another version of the tables, or holds more than lbx puts into it.
    """
    for name, path in files.items():
        hidden = f"{name}_file"
        with opened(path) as other:  # which says what is wrong with a file better than ATTACH would, too
            made = other.query("SELECT table_name FROM duckdb_tables() WHERE temporary").rows
            aside = {table: other.query(f"FROM {table}") for (table,) in made}
        store.attach(path, hidden)
        # Its own views may be a stranger's.
        attach_nothing(store.connection, name)
        held = store.query("SELECT table_name FROM duckdb_tables() WHERE database_name = ?", [hidden]).rows
        tables = [table for (table,) in held]
        for table in tables:
            inner = f'"{name}".{_INNER}{table}'
            if table not in aside:
                store.query(f'CREATE VIEW {inner} AS FROM "{hidden}".main.{table}')
            else:
                store.query(f'CREATE TABLE {inner} AS FROM "{hidden}".main.{table} LIMIT 0')
                rows = rows_of_json(store.connection, inner)
                store.query(f"INSERT INTO {inner} BY NAME {rows}", [as_json(aside[table].dicts())])
        # Keywords are upper case there, aliases lower.
        sources = re.compile(rf"\b(FROM|JOIN)\s+({'|'.join([*VIEWS, *tables])})\b(\s+[a-z]\w*)?")
        for view, query in VIEWS.items():
            inner = sources.sub(lambda at: f"{at[1]} {_INNER}{at[2]} {at[3] or at[2]}", query)
            store.query(f'CREATE VIEW "{name}".{_INNER}{view} AS {inner}')
        for shown in (*tables, *VIEWS):
            store.query(f'CREATE VIEW "{name}".{shown} AS FROM "{name}".{_INNER}{shown}')


def _rows(
    aside: ThreadPoolExecutor, connection: duckdb.DuckDBPyConnection, limit: TimeLimit
) -> Iterator[tuple[Any, ...]]:
    def batch() -> list[tuple[Any, ...]]:
        return connection.fetchmany(_BATCH)

    while rows := _interruptibly(aside, connection, batch, limit):
        yield from rows


def _interruptibly(
    aside: ThreadPoolExecutor, connection: duckdb.DuckDBPyConnection, ask: Callable[[], T], limit: TimeLimit
) -> T:
    """Ask in another thread: this one looks for signals and the time meanwhile."""
    answer = aside.submit(ask)
    began = time.monotonic()
    try:
        return answer.result(None if limit.left_s == math.inf else limit.left_s)
    except duckdb.OutOfMemoryException as exc:
        raise MemoryError from exc
    except duckdb.Error as exc:
        raise failed_query(exc) from exc
    except (KeyboardInterrupt, TimeoutError) as exc:
        with uninterrupted():
            while not answer.done():  # DuckDB forgets an interruption that comes before it has begun
                connection.interrupt()
                wait([answer], 0.1)
        if isinstance(exc, TimeoutError):
            raise limit.error from exc
        raise
    finally:
        limit.left_s = max(0.0, limit.left_s - (time.monotonic() - began))


def _bare(sql: str) -> str:
    ends = [at for at, kind in duckdb.tokenize(sql) if kind == duckdb.token_type.operator]
    text = sql.encode()
    return text[: next((at for at in ends if text[at : at + 1] == b";"), None)].decode()


def _apart(names: Sequence[str]) -> list[str]:
    known, numbers = {*names}, defaultdict[str, Iterator[int]](lambda: itertools.count(1))
    seen: set[str] = set()
    apart = []
    for name in names:
        numbered = (f"{name}_{number}" for number in numbers[name])
        apart.append(next(one for one in numbered if one not in known) if name in seen else name)
        known.add(apart[-1])
        seen.add(name)
    return apart


def failed_query(exc: duckdb.Error) -> StoreError:
    """What to say of a query that failed, with the nearest names that there are."""
    offered = _OFFERED.search(str(exc))
    names = " or ".join(re.findall(r'"([^"]+)"', offered[1])[:3]) if offered else ""
    return StoreError(
        f"The query failed: {_PASSING.sub('', first_line(exc))}", fix=f"Did you mean {names}?" if names else ""
    )
