"""Snapshots of the committed data of a results file while another process writes it.

DuckDB does not allow readers during a write. But committed data stays unchanged until the next checkpoint: the WAL
grows only at the end, the file changes only in free space, and the file's headers change last. A copy of the WAL, and
then of the file, is therefore what DuckDB would find after a power cut, if the headers are equal before and after the
copying. The writer neither helps nor waits, so that snapshots are free unless they are read.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO

import duckdb

from lbx.base.database import database_files, open_database
from lbx.base.errors import InUseError, StoreError
from lbx.base.inputs import open_input
from lbx.base.outputs import new_file, temporary_folder
from lbx.base.processes import lock, process_start_time
from lbx.base.units import format_size
from lbx.results.file.opening import connect, first_line, lock_path

_HEADERS = 3 * 4096
_ATTEMPTS, _PAUSE_S = 12, 0.05
_REST = 20
"""Lifetime of a copy as a multiple of the copying time, so that frequent readers copy for a twentieth of the time."""
_ROOM = 1 << 26
_SAME_PROCESS = timedelta(seconds=1)
"""Precision of the start times of processes. The boot time is computed from two clocks."""
_BLOCK = 1 << 20
_CLONE = 0x40049409
"""FICLONE: the copy shares the file's blocks, on file systems such as btrfs and XFS."""


@dataclass(frozen=True)
class Snapshot:
    """State of a results file at a moment of a run.

    Attributes:
        path: path of the copy.
        taken_at: time up to which all commits are included.
        writer: id of the process that writes the file, or None if unknown.
        began: start time of that process, or None if unknown.
        cost_s: duration of the copying.
        state: see ``_state``.
    """

    path: Path
    taken_at: datetime
    writer: int | None = None
    began: datetime | None = None
    cost_s: float = 0.0
    state: object = None

    def describe_state(self) -> str:
        writer = f" (PID {self.writer})" if self.writer else ""
        return f"is being written{writer}: data committed before {self.taken_at:%Y-%m-%d %H:%M:%S} UTC"


_newest: dict[Path, Snapshot] = {}
_copying = threading.Lock()


def connect_reader(
    path: Path, allowed_files: Sequence[Path] = (), threads: int = 0
) -> tuple[duckdb.DuckDBPyConnection, Snapshot | None]:
    """Connect to a results file for reading, or to a snapshot of a file that is being written.

    A file to which a run copies its commits from another disk (``lbx.results.whole.commit_copies``) is itself a
    snapshot.

    Raises:
        StoreError: the file cannot be opened (see ``connect``) or copied.
    """
    try:
        connection = connect(path, True, allowed_files, threads)[0]
    except InUseError as in_use:
        with _copying:
            return _connect_to_copy(path.resolve(), in_use, allowed_files, threads)
    except StoreError:
        if not _has_lock(path.resolve()):
            raise
        time.sleep(_PAUSE_S)  # a run has replaced its copy, and not yet the copy's log
        connection = connect(path, True, allowed_files, threads)[0]
    with _copying:
        _newest.pop(path.resolve(), None)
    if not _has_lock(path.resolve()):
        return connection, None
    return connection, Snapshot(path, datetime.fromtimestamp(path.stat().st_mtime, UTC))


def has_writer(path: Path) -> bool:
    """Whether the process that wrote the file at the newest snapshot still runs, or a run locks the file.

    No database is opened. A process of another machine is unknown and counts as ended.
    """
    snapshot = _newest.get(path.resolve())
    if snapshot is None or snapshot.began is None:
        return _has_lock(path.resolve())
    began = process_start_time(snapshot.writer)
    return began is not None and abs(began - snapshot.began) < _SAME_PROCESS


def query_committed(path: Path, sql: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
    """Run a query over the committed data of a results file. Raises StoreError like ``connect_reader``."""
    connection, _snapshot = connect_reader(path)  # the copy exists as long as this variable
    with closing(connection):
        try:
            return connection.execute(sql, parameters).fetchall()
        except duckdb.Error as exc:
            raise StoreError(
                f"{path} cannot be read: {first_line(exc)}.", fix="If it is damaged, restore a copy."
            ) from exc


def _connect_to_copy(
    path: Path, in_use: InUseError, allowed_files: Sequence[Path], threads: int
) -> tuple[duckdb.DuckDBPyConnection, Snapshot]:
    reason = "it changes faster than it can be copied"
    for attempt in range(_ATTEMPTS):
        time.sleep(_PAUSE_S * attempt)
        try:
            snapshot = _newest_snapshot(path, in_use.process)
            if snapshot is not None:
                return open_database(
                    snapshot.path, read_only=True, allowed_files=allowed_files, threads=threads
                ), snapshot
        except FileNotFoundError:
            continue  # a checkpoint has just removed the log
        except OSError as exc:
            reason = exc.strerror or str(exc)
            break
        except duckdb.Error as exc:
            reason = first_line(exc)
        _newest.pop(path, None)
    raise StoreError(f"{in_use.cause} Its committed answers cannot be copied: {reason}.", fix="Wait for it to end.")


def _newest_snapshot(path: Path, writer: int | None) -> Snapshot | None:
    """Return the newest copy if it is recent enough, else a new copy, or None if a checkpoint interfered."""
    state, now = _state(path), datetime.now(UTC)
    if (cached := _newest.get(path)) and (
        cached.state == state or now < cached.taken_at + timedelta(seconds=_REST * cached.cost_s)
    ):
        return cached
    _newest.pop(path, None)
    start = time.monotonic()
    with ExitStack() as stack:
        copy = _copy_files(path, stack)
        if _state(path, state[1]) != state:
            return None
        snapshot = Snapshot(copy, now, writer, process_start_time(writer), time.monotonic() - start, state)
        weakref.finalize(snapshot, stack.pop_all().close)
    _newest[path] = snapshot
    return snapshot


def _state(path: Path, previous_logs: Sequence[tuple[str, int, int]] = ()) -> tuple[bytes, list[tuple[str, int, int]]]:
    """Read the headers of a file, and (name, inode, size) of its logs.

    For a log that only grew, the size is that in ``previous_logs``.
    """
    with open_input(path) as file:
        headers = file.read(_HEADERS)
    sizes = {(name, inode): size for name, inode, size in previous_logs}
    logs = [(log.name, log.stat()) for log in database_files(path)[1:]]
    return headers, [
        (name, status.st_ino, min(status.st_size, sizes.get((name, status.st_ino), status.st_size)))
        for name, status in logs
    ]


def _copy_files(path: Path, stack: ExitStack) -> Path:
    """Copy a file and its logs to a folder next to it, or else among temporary files. Closing the stack removes it.

    Raises:
        OSError: neither disk has enough free space.
    """
    for target in (path, Path(tempfile.gettempdir(), path.name)):
        with ExitStack() as trial:
            try:
                folder, handle = trial.enter_context(temporary_folder(target))
                for part in reversed(database_files(path)):
                    with open_input(part) as file, new_file(Path(f"/proc/self/fd/{handle}/{part.name}"), 0o600) as copy:
                        _copy(file, copy)
            except FileNotFoundError:
                raise
            except OSError as exc:
                reason = exc
                continue
            stack.push(trial.pop_all())
            return folder / path.name
    raise reason


def _copy(file: BinaryIO, copy: BinaryIO) -> None:
    try:
        fcntl.ioctl(copy, _CLONE, file.fileno())
    except OSError:
        needed, disk = os.fstat(file.fileno()).st_size, os.fstatvfs(copy.fileno())
        if disk.f_bavail * disk.f_frsize < 2 * needed + _ROOM:  # free space is reserved for the run
            raise OSError(
                errno.ENOSPC, f"a copy of {format_size(needed)} would leave too little disk space for the run"
            ) from None
        shutil.copyfileobj(file, copy, _BLOCK)


def _has_lock(path: Path) -> bool:
    """Whether a run locks the file with ``lbx.results.whole.commit_copies.exclusive_lock``."""
    try:
        with open_input(lock_path(path)) as file:
            return lock(file.fileno(), shared=True) is False
    except OSError:
        return False
