"""DuckDB, locked before it is shown a file. The one place that opens it.

An instance starts in memory. What it could do beyond the files that it is given is taken from it, then its settings
are locked, and only then a file is attached: nothing in a file, no view, no name, no query on it, reaches another file
or the network. DuckDB's sockets and its loader of extensions are native code that Python's audit hooks do not see.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lbx.base.inputs import require_file
from lbx.base.limits import PIVOT_COLUMNS
from lbx.base.resources import data_left_bytes, usable_cpu_count

if TYPE_CHECKING:
    import duckdb

Config = dict[str, str | bool | int | float | list[str]]

RESULTS = "results"
"""What the results file is called inside an instance."""

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
"""A database's file, and what DuckDB writes beside it: commits that are not in the file yet."""
_BATCH = 64
_BLOCK_SIZE = 65_536
"""Bytes: tables, indexes and lists of columns have blocks of their own, and with DuckDB's usual 262,144 a file of six
answers takes 5 to 10 MB. Smaller ones make it smaller, and 300 MB of answers three times as slow to write.
"""


def files_of(path: Path) -> list[Path]:
    """The files that a database is made of, as far as they are there; each is worth nothing without the others."""
    return [part for part in parts_of(path) if part.is_file()]


def parts_of(path: Path) -> list[Path]:
    """Where the files lie that a database may be made of. Where ``path`` is a link, that is where it leads."""
    return [Path(f"{path.resolve()}{suffix}") for suffix in _PARTS]


def open_database(
    path: Path, *, read_only: bool, beside: Sequence[Path] = (), threads: int = 0
) -> duckdb.DuckDBPyConnection:
    """A connection whose database is the file at ``path``, made where it is missing.

    Args:
        path: a plain file, whatever its name looks like (``md:x``, ``postgres:x``): DuckDB is told where it lies.
        beside: other files that the connection may read or write: databases to attach, a file to export to.
        threads: 0 means one for each CPU that this process may use.

    Raises:
        duckdb.Error: it is no database, in use, or cannot be written.
    """
    place = path.resolve()
    others = [one if one.is_relative_to("/proc/self/fd") else one.resolve() for one in beside]  # see ``outputs``
    connection = _locked([place, *others], scratch=f"{place}.tmp", threads=threads)
    try:
        attach(connection, place, RESULTS, read_only=read_only)
        connection.execute(f"USE {RESULTS}")
    except BaseException:
        connection.close()
        raise
    return connection


def attach(connection: duckdb.DuckDBPyConnection, path: Path, name: str, *, read_only: bool) -> None:
    """Attach a database that the connection was given. One that is there keeps the blocks that it was made with."""
    made = "" if path.exists() else f", BLOCK_SIZE {_BLOCK_SIZE}"
    options = "TYPE duckdb, READ_ONLY" if read_only else f"TYPE duckdb{made}"
    connection.execute(f'ATTACH {quoted(str(path.resolve()))} AS "{name}" ({options})')


def memory_database() -> duckdb.DuckDBPyConnection:
    """A connection to an empty database that lies in no file, and may touch none."""
    return _locked([], threads=1)


def attach_nothing(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Attach a database that lies in no file, for views."""
    connection.execute(f'ATTACH {quoted(":memory:")} AS "{name}"')


def parquet_rows(paths: Sequence[Path]) -> Iterator[tuple[Sequence[str], tuple[Any, ...]]]:
    """(column names, values) of every row of parquet files, in order.

    Raises:
        ValueError: a file is damaged; says how.
    """
    return _parquet("SELECT * FROM read_parquet(?, hive_partitioning = false)", paths)


def count_parquet_rows(paths: Sequence[Path]) -> int:
    """How many rows parquet files have. Raises ValueError as ``parquet_rows`` does."""
    ((_, (count,)),) = _parquet("SELECT count(*) FROM read_parquet(?, hive_partitioning = false)", paths)
    return int(count)


def _parquet(sql: str, paths: Sequence[Path]) -> Iterator[tuple[Sequence[str], tuple[Any, ...]]]:
    import duckdb

    try:
        for path in paths:
            require_file(path)
    except OSError as exc:
        raise ValueError(exc.strerror) from exc
    # DuckDB takes *, ? and [ in a name for patterns, unless each stands in brackets.
    places = [re.sub(r"[*?\[]", r"[\g<0>]", str(path.resolve())) for path in paths]
    try:
        with _locked([*(path.resolve() for path in paths), *map(Path, places)], threads=1) as connection:
            rows = connection.execute(sql, [places])
            names = [column[0] for column in rows.description or []]
            while batch := rows.fetchmany(_BATCH):
                for values in batch:
                    yield names, values
    except duckdb.Error as exc:
        raise ValueError(str(exc).partition("\n")[0]) from exc


def _locked(files: Sequence[Path], *, scratch: str = "", threads: int = 0) -> duckdb.DuckDBPyConnection:
    """An empty instance that may touch these files and no others.

    Args:
        scratch: the folder for what does not fit into memory; "" for none.
        threads: 0 means one for each CPU that this process may use.
    """
    import duckdb

    allowed = ", ".join(quoted(f"{file}{suffix}") for file in files for suffix in _PARTS)
    connection = duckdb.connect(config=_CLOSED | _resources(threads))
    connection.execute(
        # With threads of its own for writing, a COPY to parquet whose query fails on the way would wait for ever.
        "SET async_threads = 0; "
        # A bar for a slow query would stand in the midst of what is printed for programs.
        "SET enable_progress_bar = false; SET enable_progress_bar_print = false; "
        f"SET temp_directory = {quoted(scratch)}; SET TimeZone = 'UTC'; SET allowed_paths = [{allowed}]; "
        "SET enable_external_access = false; SET lock_configuration = true"
    )
    return connection


def _resources(threads: int) -> Config:
    """Threads, and within a limit on this process's memory half of that: the rest is for what DuckDB does not count."""
    left = data_left_bytes()
    memory: Config = {} if left is None else {"memory_limit": f"{left // 2}B"}
    return {"threads": threads or usable_cpu_count(), **memory}


def quoted(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"
