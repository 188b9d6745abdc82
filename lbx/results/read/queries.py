"""User queries on results files, and exports of query results.

``restrict`` checks every user query: it must be a single read-only query, on a connection locked by
``lbx.base.database``. ``Relations`` returns tables and views as DuckDB relations.
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
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import duckdb

from lbx.base.database import attach_memory, count_parquet_rows, sql_literal
from lbx.base.errors import StoreError, UsageError
from lbx.base.processes import defer_signals
from lbx.base.tables import suggest_names
from lbx.results.file.inserting import column_type, rows_of_json
from lbx.results.file.opening import first_line
from lbx.results.file.sessions import progress_of_runs
from lbx.results.file.store import Store
from lbx.results.rows import Table, as_json
from lbx.results.views import VIEWS

T = TypeVar("T")

_WRITES = re.compile(r'"type":"(?:COPY|INSERT|UPDATE|DELETE|MERGE)\w*_QUERY_NODE"')
_HIDES = ("query", "json_execute_serialized_sql")
"""SQL functions that run a string as a query. The string may be computed at the call."""
_CALLS = re.compile(rf'"function_name":"(?:{"|".join(_HIDES)})"', re.IGNORECASE)
_NAMES = re.compile(rf"copy|\b(?:{'|'.join(_HIDES)})\b", re.IGNORECASE)
_BATCH = 100
"""Number of rows that are fetched at once. It is small because a row may contain a megabyte of text."""
_PARQUET = "FORMAT parquet, USE_TMP_FILE false, ROW_GROUP_SIZE 8192"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_PASSING = re.compile(r"/proc/self/fd/\d+/")  # prefix of a file name that users know
_OFFERED = re.compile(r"^(?:Did you mean|Candidate bindings):?(.*)$", re.MULTILINE)
_TAKEN = ("results", "main", "memory", "system", "temp", "information_schema", "pg_catalog")


def single_query(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    """Return the only query of an SQL text, without a trailing semicolon or comments.

    A file that is open only for reading can still be overwritten: COPY may write to the database's path, also within
    WITH clauses and strings that functions run.

    Raises:
        StoreError: the text is not a query, contains several statements, or writes.
    """
    try:
        statements = connection.extract_statements(sql)
        kinds = [statement.type for statement in statements]
        # A PIVOT is two statements in one; it has no JSON form that could be inspected.
        if kinds == [duckdb.StatementType.MULTI] and not _NAMES.search(sql):
            return _strip_semicolon(sql)
        if kinds == [duckdb.StatementType.SELECT]:
            ((parsed,),) = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()
            if not _WRITES.search(parsed) and not _CALLS.search(parsed):
                return _strip_semicolon(sql)
    except duckdb.Error as exc:
        raise query_error(exc) from exc
    raise StoreError(
        "Only read-only queries are allowed."
        if len(kinds) == 1
        else f"Expected one query, got {len(kinds)} statements.",
        fix="Give one SELECT (or FROM, WITH, PIVOT, DESCRIBE, SUMMARIZE, SHOW).",
    )


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Result of a query with rows that are fetched on demand. Duplicate column names get a suffix: a, a_1."""

    columns: Sequence[str]
    rows: Iterator[tuple[Any, ...]]


@dataclass(slots=True)
class TimeLimit:
    """Limit of DuckDB's time for a query and its rows, excluding the time of the code that reads the rows."""

    seconds: float = math.inf
    left_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.left_s = self.seconds

    @property
    def error(self) -> StoreError:
        return StoreError(
            f"The query took longer than {self.seconds:g} seconds.",
            fix="Query less data at once, or raise the limit with --timeout SECONDS.",
        )


@contextmanager
def open_query(store: Store, sql: str, limit: TimeLimit | None = None) -> Iterator[QueryResult]:
    """Run a query, and fetch rows on demand until the block ends. Ctrl-C stops the query.

    Raises:
        StoreError: the query is not a read-only query, fails, or takes too long, here or while rows are fetched.
        MemoryError: the query exceeds this process's memory limit.
    """
    limit = limit or TimeLimit()
    with defer_signals():
        single_query(store.connection, sql)
    with ThreadPoolExecutor(1) as aside:
        cursor = _interruptibly(aside, store.connection, lambda: store.connection.execute(sql), limit)
        yield QueryResult(
            _unique_names([column[0] for column in cursor.description or []]), _rows(aside, store.connection, limit)
        )


def count_rows(store: Store, sql: str, limit: TimeLimit | None = None) -> int:
    """Count a query's rows by running the query. Raises the errors of ``open_query``."""
    with open_query(store, f"SELECT count(*) FROM ({single_query(store.connection, sql)}\n)", limit) as answer:
        return int(next(answer.rows)[0])


def export_parquet(store: Store, sql: str, path: Path, limit: TimeLimit | None = None) -> int:
    """Write a query's result to a parquet file, and return the number of rows.

    Args:
        store: results file, open with one thread. Each further thread would keep some 100,000 rows in memory.
        path: a new file, which is in the ``allowed_files`` of the store.

    Raises:
        StoreError: the query is not a read-only query, fails or takes too long, or the file cannot be written.
        MemoryError: see ``open_query``.
    """
    with defer_signals():
        query = single_query(store.connection, sql)
    copy = f"COPY ({query}\n) TO {sql_literal(str(path))} ({_PARQUET})"

    def write() -> list[tuple[Any, ...]]:
        return store.connection.execute(copy).fetchall()

    with ThreadPoolExecutor(1) as aside:
        copied = _interruptibly(aside, store.connection, write, limit or TimeLimit())
    return int(copied[0][0]) if copied else count_parquet_rows([path])  # a PIVOT does not report it


def export_report(store: Store, sql: str, parameters: Sequence[object], path: Path, without: Sequence[str]) -> int:
    """Write the result of a query of lbx to a parquet file, without some columns. Raises StoreError."""
    store.query(f"CREATE OR REPLACE TEMP TABLE exported AS {sql}", parameters)
    columns = f"COLUMNS(lambda name: name NOT IN {tuple(without)})" if without else "*"
    return export_parquet(store, f"SELECT {columns} FROM exported", path)


def export_rows(store: Store, table: Table, path: Path) -> int:
    """Write a table with rows from other sources than a query to a parquet file. Raises StoreError."""
    types = [column_type([row[at] for row in table.rows]) for at in range(len(table.columns))]
    column_types = ", ".join(f'"{name}" {kind}' for name, kind in zip(table.columns, types, strict=True))
    store.query(f"CREATE OR REPLACE TEMP TABLE exported ({column_types})")
    rows = as_json([dict(zip(table.columns, row, strict=True)) for row in table.rows])
    store.query(f"INSERT INTO exported BY NAME {rows_of_json(store.connection, 'exported')}", [rows])
    return export_parquet(store, "FROM exported", path)


def parse_attachments(texts: Sequence[str], results: Path) -> dict[str, Path]:
    """Parse "other=b.duckdb" to {"other": Path("b.duckdb")}.

    Raises:
        UsageError: a text is malformed, a name is not a valid qualifier of tables, or a file is given twice.
    """
    files: dict[str, Path] = {}
    open_files = [results.resolve()]
    for text in texts:
        name, _, path_text = text.partition("=")
        if not _NAME.fullmatch(name) or not path_text:
            raise UsageError(
                f"--attach must be NAME=FILE, with a name of letters, digits and _, not {text!r}.",
                fix="For example, pass --attach other=b.duckdb and query other.runs, other.scores ...",
            )
        if name.lower() in (*_TAKEN, *map(str.lower, files)):
            raise UsageError(f"The name {name} of --attach is taken.", fix="Give the file another name.")
        if Path(path_text).resolve() in open_files:
            raise UsageError(f"{path_text} is already open.", fix="Give each file once.")
        files[name] = Path(path_text)
        open_files.append(files[name].resolve())
    return files


_INNER = "lbx_"
"""Prefix of names in the views of an attached file. DuckDB first looks for a name among the temporary tables and views
of the store, even if a view of another database uses the name.
"""


def _open_read_only(path: Path) -> Store:
    return Store(path, read_only=True)


def attach_files(
    store: Store, files: Mapping[str, Path], open_store: Callable[[Path], Store] = _open_read_only
) -> None:
    """Attach other results files for reading: tables such as ``other.runs``, and the views of this version of lbx.

    Args:
        files: {name: path} of ``parse_attachments``. The paths are in the ``allowed_files`` of the store.
        open_store: opens a file for reading, with numbers for all answers in the file.

    Raises:
        StoreError: a file cannot be read, is of another schema version, or contains objects that lbx never creates.
    """
    for name, path in files.items():
        hidden = f"{name}_file"
        with open_store(path) as other:  # its messages are more specific than ATTACH's, too
            temporary_tables = other.query("SELECT table_name FROM duckdb_tables() WHERE temporary").rows
            aside = {table: other.query(f"FROM {table}") for (table,) in temporary_tables}
        store.attach(path, hidden)
        # The file's own views are not trusted.
        attach_memory(store.connection, name)
        table_rows = store.query("SELECT table_name FROM duckdb_tables() WHERE database_name = ?", [hidden]).rows
        tables = [table for (table,) in table_rows]
        for table in tables:
            inner = f'"{name}".{_INNER}{table}'
            if table not in aside:
                store.query(f'CREATE VIEW {inner} AS FROM "{hidden}".main.{table}')
            else:
                store.query(f'CREATE TABLE {inner} AS FROM "{hidden}".main.{table} LIMIT 0')
                rows = rows_of_json(store.connection, inner)
                store.query(f"INSERT INTO {inner} BY NAME {rows}", [as_json(aside[table].dicts())])
        # In lbx's views, keywords are upper case and aliases lower case.
        sources = re.compile(rf"\b(FROM|JOIN)\s+({'|'.join([*VIEWS, *tables])})\b(\s+[a-z]\w*)?")
        for view, query in VIEWS.items():
            inner = sources.sub(lambda at: f"{at[1]} {_INNER}{at[2]} {at[3] or at[2]}", query)
            store.query(f'CREATE VIEW "{name}".{_INNER}{view} AS {inner}')
        for object_name in (*tables, *VIEWS):
            store.query(f'CREATE VIEW "{name}".{object_name} AS FROM "{name}".{_INNER}{object_name}')


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
    """Call ``ask`` in another thread, while this thread waits for signals and the time limit."""
    began = time.monotonic()
    with defer_signals():
        answer = aside.submit(ask)
    try:
        return answer.result(None if limit.left_s == math.inf else limit.left_s)
    except duckdb.OutOfMemoryException as exc:
        raise MemoryError from exc
    except duckdb.Error as exc:
        raise query_error(exc) from exc
    except (KeyboardInterrupt, TimeoutError) as exc:
        with defer_signals():
            while not answer.done():  # DuckDB ignores an interruption that comes before the query has begun
                connection.interrupt()
                wait([answer], 0.1)
        if isinstance(exc, TimeoutError):
            raise limit.error from exc
        raise
    finally:
        limit.left_s = max(0.0, limit.left_s - (time.monotonic() - began))


def _strip_semicolon(sql: str) -> str:
    ends = [at for at, kind in duckdb.tokenize(sql) if kind == duckdb.token_type.operator]
    text = sql.encode()
    return text[: next((at for at in ends if text[at : at + 1] == b";"), None)].decode()


def _unique_names(names: Sequence[str]) -> list[str]:
    taken, numbers = {*names}, defaultdict[str, Iterator[int]](lambda: itertools.count(1))
    seen: set[str] = set()
    apart = []
    for name in names:
        numbered = (f"{name}_{number}" for number in numbers[name])
        apart.append(next(candidate for candidate in numbered if candidate not in taken) if name in seen else name)
        taken.add(apart[-1])
        seen.add(name)
    return apart


def query_error(exc: duckdb.Error) -> StoreError:
    """Build the error for a failed query, with the existing names that DuckDB suggests."""
    offered = _OFFERED.search(str(exc))
    names = " or ".join(re.findall(r'"([^"]+)"', offered[1])[:3]) if offered else ""
    return StoreError(
        f"The query failed: {_PASSING.sub('', first_line(exc))}", fix=f"Did you mean {names}?" if names else ""
    )


class Relations:
    """Relations of a results file that is open for reading, by table or view name.

    Relations are lazy, and invalid once the file is closed.

    Args:
        store: results file, which ``close`` closes.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def as_of(self) -> datetime | None:
        """Time (UTC) of the last included commits if a process is writing the file, else None."""
        return self._store.snapshot.taken_at if self._store.snapshot else None

    @property
    def running(self) -> dict[str, str]:
        """{run: progress} of the active runs, such as {"a": "running, 212 of 643"}."""
        return progress_of_runs(self._store)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of all tables and views."""
        rows = self._store.query(
            "SELECT DISTINCT table_name FROM information_schema.tables WHERE table_schema = 'main' "
            "AND table_catalog IN (current_database(), 'temp') ORDER BY table_name"  # current views: see Store
        ).rows
        return (str(name) for (name,) in rows)

    def __getitem__(self, name: str) -> duckdb.DuckDBPyRelation:
        """Return a table or view as a relation. Raises KeyError."""
        if name not in set(self):
            raise KeyError(f"{self._store.path} has no table or view {name!r}. {suggest_names(name, self)}")
        return self._store.connection.table(name)

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """Return a query as a relation.

        Raises:
            StoreError: the text is not a single query.
        """
        import duckdb

        single_query(self._store.connection, query)
        try:
            relation = self._store.connection.sql(query)
        except duckdb.Error as exc:
            raise query_error(exc) from exc
        if relation is None:
            raise StoreError("This statement returns no rows.", fix="Give one SELECT.")
        return relation

    def close(self) -> None:
        """Close the file, which invalidates all relations."""
        self._store.close()
