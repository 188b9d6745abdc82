"""Sandboxed DuckDB connections, and untrusted regular expressions. No other module opens DuckDB.

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
from lbx.base.records import replace_surrogates
from lbx.base.resources import free_data_bytes, usable_cpu_count

if TYPE_CHECKING:
    import duckdb


Config = dict[str, str | bool | int | float | list[str]]

RESULTS = "results"
"""Catalog name of the results file within a DuckDB instance."""

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
"""Suffixes of a database's files: the main file, and DuckDB's write-ahead logs of commits not yet in the main file."""
_BATCH = 64
_BLOCK_SIZE = 65_536
"""In bytes. Tables, indexes and column lists occupy separate blocks: with DuckDB's default of 262,144 a file of six
answers takes 5 to 10 MB. Smaller blocks make the file smaller, but writing 300 MB of answers three times as slow.
"""


def database_files(path: Path) -> list[Path]:
    """Existing files of a database: the main file and its write-ahead logs, which are only usable together."""
    return [part for part in database_paths(path) if part.is_file()]


def database_paths(path: Path) -> list[Path]:
    """Paths of a database's main file and possible write-ahead logs, with links resolved."""
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
    """Attach a database file that the connection may access. An existing database keeps its block size."""
    block_size = "" if path.exists() else f", BLOCK_SIZE {_BLOCK_SIZE}"
    options = "TYPE duckdb, READ_ONLY" if read_only else f"TYPE duckdb{block_size}"
    connection.execute(f'ATTACH {sql_literal(str(path.resolve()))} AS "{name}" ({options})')


def in_memory_database() -> duckdb.DuckDBPyConnection:
    """Connect to an empty in-memory database without access to files."""
    return _sandboxed_connection([], threads=1)


def attach_memory(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Attach an in-memory database to a connection, for views."""
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
    """Connect to an in-memory instance that may access ``files``. ``scratch`` is for data that exceeds the memory."""
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
    """DuckDB's threads, and a memory limit of half of the free memory, because DuckDB does not count all its memory."""
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
    """Clause that describes why a regular expression is invalid, or "" if it is valid."""
    import duckdb

    if len(pattern) > _LONGEST:
        return f"it has more than {_LONGEST:,} characters"
    try:
        _connection().execute("SELECT regexp_extract('', ?)", [replace_surrogates(pattern)])
    except duckdb.Error as exc:
        return str(exc).partition("\n")[0].rpartition("Error: ")[2]
    return ""


def extract_match(pattern: str, text: str) -> str | None:
    """Return the text of the group of a pattern's first match, or the whole match for a pattern without groups.

    Returns None without a match, if the match is only white space, if groups matched different texts, or if the
    expression is invalid; never raises.
    """
    n_groups = _group_count(pattern)
    if n_groups is None:
        return None
    group = _group_names(n_groups) if n_groups > 1 else f"{n_groups}::INTEGER"
    sql = f"SELECT regexp_extract(?, ?, {group})"
    ((value,),) = _connection().execute(sql, [replace_surrogates(text), replace_surrogates(pattern)]).fetchall()
    texts = {part for part in (value.values() if isinstance(value, dict) else (value,)) if part.strip()}
    return texts.pop() if len(texts) == 1 else None


@lru_cache(256)
def _group_count(pattern: str) -> int | None:
    """Return the number of groups of a pattern, or None if the pattern is invalid."""
    if expression_error(pattern):
        return None
    return bisect_right(range(pattern.count("(")), False, key=lambda count: not _has_groups(pattern, count + 1))


def _has_groups(pattern: str, count: int) -> bool:
    import duckdb

    try:
        # DuckDB takes at most as many names as there are groups, with one that is added here.
        sql = f"SELECT regexp_extract('', ?, {_group_names(count + 1)})"
        _connection().execute(sql, [f"({replace_surrogates(pattern)})"])
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
    return in_memory_database()
