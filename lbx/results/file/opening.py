"""Opening of results files, with error messages for all faults of such files.

When a file is opened, its tables are created or checked, and its views are updated.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from weakref import WeakValueDictionary

import duckdb

from lbx.base.database import RESULTS, database_files, database_paths, open_database
from lbx.base.errors import InUseError, NoLocksError, StoreError
from lbx.base.inputs import is_database, open_input
from lbx.base.outputs import refuse_foreign_link
from lbx.base.processes import defer_signals, lock_problem
from lbx.base.records import replace_surrogates
from lbx.results.file.contents import has_current_views, other_version_error, refuse_foreign, schema_version
from lbx.results.file.file_users import FileUser, find_user
from lbx.results.schema import SCHEMA, SCHEMA_VERSION
from lbx.results.views import VIEWS

_START = 12
"""Number of bytes that identify a file's type."""

_PATIENCE_S, _PAUSE_S = 5.0, 0.1
WRITERS: WeakValueDictionary[Path, object] = WeakValueDictionary()
"""{file: writer}, in this process. DuckDB's lock is released as soon as the process closes the file anywhere."""


def check_path(path: Path) -> None:
    """Raise StoreError if the path cannot be that of a results file."""
    if path.name.startswith(":memory:"):
        raise StoreError(
            f"DuckDB treats {path} as a database in memory, so no results would be saved.", fix="Give another name."
        )
    if "?" in str(path.absolute()):
        raise StoreError(f"DuckDB reads the text after the question mark in {path} as options.", fix="Rename it.")
    _refuse_undecodable(path)
    if path.is_dir():
        raise StoreError(
            f"{path} is a folder, not a results file.", fix=f"Give a file in it, e.g. {path}/results.duckdb."
        )
    for part in database_paths(path):
        if part.exists() and not part.is_file():
            raise StoreError(f"{part} is a device or a pipe, not a results file.", fix="Give a file.")
    if not path.parent.is_dir():
        raise StoreError(f"Cannot create {path.name}: the folder {path.parent} does not exist.", fix="Create it first.")
    if not (path.is_file() and path.stat().st_size):
        for log in database_files(path):
            if log.stat().st_size:  # DuckDB would create a new file and delete the log
                raise StoreError(
                    f"{log} contains answers of the results file {path.name}, which is missing or empty.",
                    fix=f"Restore {path.name}, or move the log away (together with the file, if you have it).",
                )


def _refuse_undecodable(path: Path) -> None:
    if str(path.absolute()) != replace_surrogates(str(path.absolute())):
        raise StoreError(f"DuckDB cannot open {path}: its path is not UTF-8.", fix="Rename it.")


def require_file(path: Path) -> None:
    """Raise StoreError if the results file is missing or empty, before a writing command would create it."""
    if not path.exists():
        raise StoreError(
            f"The results file {path} does not exist.", fix="`lbx run -o FILE` writes one.", command="lbx run --help"
        )
    if path.is_file() and not any(part.stat().st_size for part in database_files(path)):
        raise StoreError(f"{path} is an empty file. `lbx run -o FILE` writes a results file.", command="lbx run --help")


def connect(
    path: Path, read_only: bool, allowed_files: Sequence[Path] = (), threads: int = 0
) -> tuple[duckdb.DuckDBPyConnection, bool]:
    """Open a results file (see ``lbx.base.database.open_database``), and return whether the file was just created.

    Writers wait for readers, such as a page of `lbx browse` or a report, which open the file only briefly.

    Raises:
        StoreError: the file cannot be opened.
    """
    if path.resolve() in WRITERS:
        raise StoreError(
            f"{path} cannot be opened twice: this process is writing to it.", fix="Read it in another process."
        )
    if read_only:
        require_file(path)
    check_path(path)
    for other in allowed_files:
        _refuse_undecodable(other)
    if not read_only:
        try:
            refuse_foreign_link(path)
        except OSError as exc:
            raise StoreError(
                f"Refused to write to the link {path}: {exc.strerror}.", fix="Give its target instead."
            ) from exc
    if not read_only and path.is_file() and path.stat().st_size == 0:
        path.unlink()  # left by a process that was killed before DuckDB wrote its header
    is_new = not path.exists()
    _refuse_other_files(path)
    give_up = time.monotonic() + (0 if read_only else _PATIENCE_S)
    while True:
        try:
            return open_database(path, read_only=read_only, allowed_files=allowed_files, threads=threads), is_new
        except duckdb.Error as exc:
            if _is_lock_error(exc) and (reason := lock_problem(path)):
                if is_new:
                    path.unlink(missing_ok=True)  # DuckDB has created an empty file
                raise NoLocksError(path, reason, read_only=read_only) from exc
            if not _is_lock_error(exc) or time.monotonic() >= give_up:
                raise _open_error(path, exc) from exc
            time.sleep(_PAUSE_S)


def lock_path(path: Path) -> Path:
    """Return the path of the lock file that ``lbx.results.whole.commit_copies.exclusive_lock`` uses."""
    return path.with_name(f".{path.name}.lock")


def _refuse_other_files(path: Path) -> None:
    """Raise StoreError for JSON, CSV and SQLite files, which DuckDB would open as databases."""
    try:
        with open_input(path) as file:
            start = file.read(_START)
    except FileNotFoundError:
        return
    except OSError as exc:
        raise StoreError(
            f"{path} cannot be read: {exc.strerror or exc}.", fix="Check its permissions and its disk."
        ) from exc
    if start and not is_database(start):
        raise StoreError(
            f"{path} is not a results file.",
            fix="Give another file, or move this one away. `lbx import` converts predictions and judges' files.",
        )


def _is_lock_error(exc: duckdb.Error) -> bool:
    return "set lock" in str(exc).lower()


def _open_error(path: Path, exc: duckdb.Error) -> StoreError:
    text = str(exc)
    if _is_lock_error(exc):
        process = re.search(r"PID (\d+)", text)
        return in_use_error(path, int(process[1]) if process else None)
    if "replaying WAL" in text or "WAL was created" in text:
        return StoreError(
            f"{path}.wal is not the log of {path.name}: {first_line(exc)}",
            fix="Move the log away, or restore the file it belongs to.",
        )
    if "not a valid DuckDB" in text or "serializ" in text.lower() or "checksum" in text.lower():
        return StoreError(
            f"{path} is not a results file: {first_line(exc)}", fix="Give another file, or move this one away."
        )
    if "not read enough bytes" in text:
        return StoreError(
            f"{path} is truncated: {first_line(exc)}", fix="Copy the complete file again from its original location."
        )
    return StoreError(f"{path} cannot be opened: {first_line(exc)}", fix="Check its permissions and its disk.")


def in_use_error(path: Path, process: int | None = None, user: FileUser | None = None) -> InUseError:
    """Build the error that describes the process that uses a file.

    Args:
        process: id of the process according to DuckDB.
        user: description of the process, if it is known otherwise.
    """
    user = user or (find_user(path, process) if process else None)
    number = f" (PID {process})" if process else ""
    unknown = f"another process{number}, which may run on another machine: this machine has no description of it"
    return InUseError(
        f"{path} is in use by {user or unknown}.",
        path=path,
        process=process,
        fix="Wait for it to end. `lbx report`, `show`, `sql`, `browse`, `runs`, `runs extract`, `attest`, `verify` and "
        "`judge -o OTHER_FILE` can read its committed answers.",
    )


def first_line(exc: BaseException) -> str:
    return str(exc).strip().split("\n", maxsplit=1)[0]


def prepare(connection: duckdb.DuckDBPyConnection, path: Path, *, is_new: bool, read_only: bool) -> None:
    """Create the tables of a new file (``is_new``), or check the tables of an existing file.

    Raises:
        StoreError: the file is not a results file, is of another version of lbx, or contains objects that lbx never
            creates.
    """
    try:
        try:
            if is_new:  # a new file is empty
                _create_tables(connection, path)
                return
        except StoreError:
            pass  # unless another process created it too
        _check_tables(connection, path, read_only=read_only)
    except duckdb.Error as exc:
        raise StoreError(
            f"{path} is not a complete results file: {first_line(exc)}", fix="Restore a copy, or give another file."
        ) from exc


def _check_tables(connection: duckdb.DuckDBPyConnection, path: Path, *, read_only: bool) -> None:
    version = schema_version(connection, RESULTS)
    empty = version is None and not connection.execute("FROM duckdb_tables()").fetchone()
    if empty and read_only:
        raise StoreError(
            f"{path} is still empty.",
            fix="If a run has just started, try again in a moment; otherwise give another file.",
        )
    if version is None and not empty:
        raise StoreError(
            f"{path} is a DuckDB file, but not a results file of lbx.",
            fix="Give another file; lbx adds tables only to its own databases.",
        )
    if version is not None and version != SCHEMA_VERSION:
        raise other_version_error(path, f"its schema is {version}, and this version uses {SCHEMA_VERSION}")
    if empty:
        _create_tables(connection, path)
        return
    refuse_foreign(connection, RESULTS, path)
    if has_current_views(connection):
        return
    if read_only:
        _create_views(connection, "TEMP ")  # the file's own views are not trusted
    else:
        with transaction(connection, path):
            _create_views(connection)


def _create_tables(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    with transaction(connection, path):
        connection.execute("CREATE TABLE lbx_schema (version INTEGER, created_at TIMESTAMP)")
        connection.execute("INSERT INTO lbx_schema VALUES (?, current_localtimestamp())", [SCHEMA_VERSION])
        connection.execute(SCHEMA)
        _create_views(connection)


def _create_views(connection: duckdb.DuckDBPyConnection, modifier: str = "") -> None:
    """Create the views of this version, in memory if ``modifier`` is "TEMP "."""
    for name, query in VIEWS.items():
        connection.execute(f"CREATE OR REPLACE {modifier}VIEW {name} AS {query}")


@contextlib.contextmanager
def transaction(connection: duckdb.DuckDBPyConnection, path: Path) -> Iterator[None]:
    """Run a block as a transaction. Ctrl-C and SIGTERM take effect after the transaction.

    Raises:
        StoreError: the file cannot be written.
    """
    with defer_signals():
        try:
            connection.begin()
            yield
            connection.commit()
        except BaseException as exc:
            with contextlib.suppress(duckdb.Error):
                connection.rollback()
            if isinstance(exc, duckdb.Error):
                raise StoreError(
                    f"{path} could not be written: {first_line(exc)}",
                    fix="Rows committed before this are safe. Fix the cause (a full disk?), then repeat the same "
                    "command to continue.",
                ) from exc
            raise
