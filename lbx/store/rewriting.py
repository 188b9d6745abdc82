"""Results files that are written whole or not at all: new ones, and copies without free blocks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import duckdb

from lbx.base.commands import as_command
from lbx.base.database import RESULTS, attach, files_of, open_database
from lbx.base.errors import StoreError, UsageError
from lbx.base.inputs import open_input
from lbx.base.interrupts import defer_signals
from lbx.base.outputs import sync_folder, temporary_folder
from lbx.store.copies import exclusive_lock
from lbx.store.opening import check_path, first_line
from lbx.store.store import Store

_OLD = "lbx_source"


@contextmanager
def new_results_file(path: Path) -> Iterator[Path]:
    """Yield the path of a new results file, which becomes ``path`` at the end of the block.

    Raises:
        UsageError: ``path`` exists.
        StoreError: it cannot be written, or another process is about to write it.
    """
    check_path(path)
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} already exists.", fix="Choose another file with -o, or remove it.")
    target = path.resolve()
    with exclusive_lock(target), temporary_folder(target) as (folder, _):
        part = folder / target.name
        yield part
        Store(part).close()  # checks the new file, and moves the log into it
        replace_file(target, part)


def replace_file(path: Path, copy: Path) -> None:
    """Replace a file by a copy in the same folder, or in one below it, and flush both to the disk."""
    with open_input(copy) as file:
        os.fsync(file.fileno())
    copy.replace(path)
    sync_folder(path.parent)


def rewrite_file(path: Path) -> tuple[int, int]:
    """Replace a results file by a copy of its rows, whole or not at all; returns its sizes before and after, in bytes.

    The copy needs room next to the file. Ctrl-C and SIGTERM wait for the end.

    Raises:
        StoreError: the file is in use, or the disk is full; the file is then unchanged.
    """
    target = path.resolve()
    Store(path, read_only=True).close()  # opening another database for writing would create tables in it
    with exclusive_lock(target):
        size_before = sum(part.stat().st_size for part in files_of(target))
        Store(path).close()  # joins the log of a killed process
        try:
            with defer_signals(), temporary_folder(target) as (folder, _):
                _replace_by_copy(target, folder / target.name)
        except (duckdb.Error, OSError) as exc:
            reason = first_line(exc) if isinstance(exc, duckdb.Error) else exc.strerror or exc
            raise StoreError(
                f"{path} could not be rewritten: {reason}.",
                fix="It has all its rows. The copy needs as much room as these: make room, then rewrite the file.",
                command=as_command("lbx", "runs", "remove", path, "--vacuum"),
            ) from exc
    return size_before, target.stat().st_size


def _replace_by_copy(target: Path, copy: Path) -> None:
    with closing(open_database(copy, read_only=False, allowed_files=[target])) as connection:
        attach(connection, target, _OLD, read_only=True)  # until the end, so that no other process writes the old file
        if files_of(target)[1:]:
            raise StoreError(f"{target} was written by another process meanwhile.", fix="Repeat the command.")
        connection.execute(f"COPY FROM DATABASE {_OLD} TO {RESULTS}")
        connection.execute("CHECKPOINT")
        shutil.copymode(target, copy)
        replace_file(target, copy)
