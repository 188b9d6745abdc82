"""Sandboxed DuckDB connections, and untrusted regular expressions. DuckDB is opened in this module only.

An instance starts in memory. Access to other files, extensions and the network is disabled and the settings are locked
before any file is attached, so that no view, name or query in a file can reach another file or the network. DuckDB's
sockets and extension loader are native code, invisible to Python's audit hooks.

Untrusted regular expressions are evaluated in linear time by RE2, which is part of DuckDB: for any expression it reads
each character a bounded number of times, in bounded memory. Python's ``re`` would need a subprocess with a timeout, and
scores would then depend on the speed of the machine. RE2 rejects constructs without a linear-time algorithm (lookahead,
lookbehind, backreferences).
"""

from __future__ import annotations

import contextlib
import os
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lbx.base.inputs import require_file
from lbx.base.limits import PIVOT_COLUMNS
from lbx.base.records import encodable
from lbx.base.resources import free_data_bytes, usable_cpu_count

if TYPE_CHECKING:
    import duckdb


Config = dict[str, str | bool | int | float | list[str]]

RESULTS = "results"
"""Catalog name of the results file within an instance."""

_CLOSED: Config = {
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "allow_extension_repositories": "forbidden",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
    "pivot_limit": PIVOT_COLUMNS,
}
_PARTS = ("", ".wal", ".wal.checkpoint", ".wal.recovery")
"""Suffixes of a database's files: the file itself, and DuckDB's write-ahead logs of commits not yet in it."""
_BATCH = 64
_BLOCK_SIZE = 65_536
"""In bytes. Tables, indexes and column lists occupy separate blocks: with DuckDB's default of 262,144 a file of six
answers takes 5 to 10 MB. Smaller blocks make the file smaller, but writing 300 MB of answers three times as slow.
"""


def files_of(path: Path) -> list[Path]:
    """Existing files of a database. They are only usable together."""
    return [part for part in parts_of(path) if part.is_file()]


def parts_of(path: Path) -> list[Path]:
    """Paths of all files that a database may have, with links resolved."""
    return [Path(f"{path.resolve()}{suffix}") for suffix in _PARTS]


def open_database(
    path: Path, *, read_only: bool, allowed_files: Sequence[Path] = (), threads: int = 0
) -> duckdb.DuckDBPyConnection:
    """Connect to the database file at ``path``, creating it if missing.

    Args:
        path: always a local file, even with a name such as ``md:x`` or ``postgres:x``: DuckDB gets its resolved path.
        allowed_files: other files that the connection may read or write, such as databases to attach or a file to
            export to.
        threads: 0 means one thread per CPU usable by this process.

    Raises:
        duckdb.Error: the file is not a database, is in use, or cannot be written.
    """
    database_path = path.resolve()
    allowed_paths = [
        file if file.is_relative_to("/proc/self/fd") else file.resolve() for file in allowed_files
    ]  # see ``outputs``
    connection = _sandboxed_connection([database_path, *allowed_paths], scratch=f"{database_path}.tmp", threads=threads)
    try:
        attach(connection, database_path, RESULTS, read_only=read_only)
        connection.execute(f"USE {RESULTS}")
    except BaseException:
        connection.close()
        raise
    return connection


def attach(connection: duckdb.DuckDBPyConnection, path: Path, name: str, *, read_only: bool) -> None:
    """Attach a file to which the connection has access. An existing database keeps its block size."""
    block_size = "" if path.exists() else f", BLOCK_SIZE {_BLOCK_SIZE}"
    options = "TYPE duckdb, READ_ONLY" if read_only else f"TYPE duckdb{block_size}"
    connection.execute(f'ATTACH {sql_literal(str(path.resolve()))} AS "{name}" ({options})')


def memory_database() -> duckdb.DuckDBPyConnection:
    """Connect to an empty in-memory database without access to files."""
    return _sandboxed_connection([], threads=1)


def attach_nothing(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Attach an in-memory database, for views."""
    connection.execute(f'ATTACH {sql_literal(":memory:")} AS "{name}"')


def parquet_rows(paths: Sequence[Path]) -> Iterator[tuple[Sequence[str], tuple[Any, ...]]]:
    """Yield (column names, values) of every row of parquet files, in order.

    Raises:
        ValueError: a file cannot be read or is damaged; the message gives the reason.
    """
    return _parquet("SELECT * FROM read_parquet(?, hive_partitioning = false)", paths)


def count_parquet_rows(paths: Sequence[Path]) -> int:
    """Count the rows of parquet files. Raises ValueError like ``parquet_rows``."""
    ((_, (count,)),) = _parquet("SELECT count(*) FROM read_parquet(?, hive_partitioning = false)", paths)
    return int(count)


def _parquet(sql: str, paths: Sequence[Path]) -> Iterator[tuple[Sequence[str], tuple[Any, ...]]]:
    import duckdb

    try:
        for path in paths:
            require_file(path)
    except OSError as exc:
        raise ValueError(exc.strerror) from exc
    # DuckDB treats *, ? and [ in a file name as wildcards unless they are in brackets.
    patterns = [re.sub(r"[*?\[]", r"[\g<0>]", str(path.resolve())) for path in paths]
    try:
        with _sandboxed_connection(
            [*(path.resolve() for path in paths), *map(Path, patterns)], threads=1
        ) as connection:
            rows = connection.execute(sql, [patterns])
            names = [column[0] for column in rows.description or []]
            while batch := rows.fetchmany(_BATCH):
                for values in batch:
                    yield names, values
    except duckdb.Error as exc:
        raise ValueError(str(exc).partition("\n")[0]) from exc


def _sandboxed_connection(files: Sequence[Path], *, scratch: str = "", threads: int = 0) -> duckdb.DuckDBPyConnection:
    """Create an empty instance with access to these files; data that exceeds memory goes to ``scratch``, if any."""
    import duckdb

    allowed = ", ".join(sql_literal(f"{file}{suffix}") for file in files for suffix in _PARTS)
    connection = duckdb.connect(config=_CLOSED | _resources(threads))
    # A progress bar of a slow query would corrupt machine-readable output. DuckDB refuses the setting in a notebook
    # without ipywidgets, where it has no bar.
    with contextlib.suppress(duckdb.InvalidInputException):
        connection.execute("SET enable_progress_bar = false; SET enable_progress_bar_print = false")
    connection.execute(
        # With asynchronous writer threads, a COPY to parquet hangs forever if its query fails midway.
        "SET async_threads = 0; "
        f"SET temp_directory = {sql_literal(scratch)}; SET TimeZone = 'UTC'; SET allowed_paths = [{allowed}]; "
        "SET enable_external_access = false; SET lock_configuration = true"
    )
    return connection


def _resources(threads: int) -> Config:
    """Thread count and, under a memory limit, half of the memory left: DuckDB does not count all it uses."""
    free_bytes = free_data_bytes()
    memory: Config = {} if free_bytes is None else {"memory_limit": f"{free_bytes // 2}B"}
    return {"threads": threads or usable_cpu_count(), **memory}


def sql_literal(text: str) -> str:
    """Quote a text as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def quote_name(name: str) -> str:
    """Quote the name of a table or column for SQL."""
    return '"' + name.replace('"', '""') + '"'


_LONGEST = 1000


def expression_error(pattern: str) -> str:
    """Describe why an expression is invalid, as a clause; "" if it is valid."""
    import duckdb

    if len(pattern) > _LONGEST:
        return f"it has more than {_LONGEST:,} characters"
    try:
        _connection().execute("SELECT regexp_extract('', ?)", [encodable(pattern)])
    except duckdb.Error as exc:
        return str(exc).partition("\n")[0].rpartition("Error: ")[2]
    return ""


def extract(pattern: str, text: str) -> str | None:
    """Return the group that took part in the first match, or the whole match for an expression without groups.

    Returns None without a match, if it is only white space, if groups with different texts took part, or if the
    expression is invalid; never raises.
    """
    n_groups = _group_count(pattern)
    if n_groups is None:
        return None
    group = _group_names(n_groups) if n_groups > 1 else f"{n_groups}::INTEGER"
    sql = f"SELECT regexp_extract(?, ?, {group})"
    ((value,),) = _connection().execute(sql, [encodable(text), encodable(pattern)]).fetchall()
    texts = {part for part in (value.values() if isinstance(value, dict) else (value,)) if part.strip()}
    return texts.pop() if len(texts) == 1 else None


@lru_cache(256)
def _group_count(pattern: str) -> int | None:
    """Return the number of groups of an expression; None if it is invalid."""
    if expression_error(pattern):
        return None
    return bisect_right(range(pattern.count("(")), False, key=lambda count: not _has_groups(pattern, count + 1))


def _has_groups(pattern: str, count: int) -> bool:
    import duckdb

    try:
        # DuckDB takes at most as many names as there are groups, with one that is added here.
        sql = f"SELECT regexp_extract('', ?, {_group_names(count + 1)})"
        _connection().execute(sql, [f"({encodable(pattern)})"])
    except duckdb.Error:
        return False
    return True


def _group_names(count: int) -> str:
    return str([f"group{number}" for number in range(count)])


def _connection() -> duckdb.DuckDBPyConnection:
    """Open a cursor per call, because calls may come from several threads."""
    return _database(os.getpid()).cursor()


@lru_cache(1)
def _database(_process: int) -> duckdb.DuckDBPyConnection:
    return memory_database()
