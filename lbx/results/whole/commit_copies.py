"""Copying of a run's commits from a results file on a local disk to a copy in a shared folder.

DuckDB locks a file and writes it in place, which shared file systems do slowly or wrong. A run therefore writes to a
local file. After each commit, the new bytes of DuckDB's log are appended to the log of the copy and flushed, so that
the copy contains the commits even if the node fails. After DuckDB has moved the log into the local file, that file is
copied under another name, and the copy renamed.

A checkpoint and a copy of the file at every commit would need neither the bytes of the log nor the texts of DuckDB's
errors, but would take far more than 2% of a run, which commits every 2 seconds. A checkpoint rewrites much more than
the new rows.
Median time after a commit of 4 answers of 2,000 characters, on two busy cores (percentages of the 2 seconds):

    file       log's new bytes    checkpoint and copy
    2 MiB      0.6 ms (0.03%)     0.12 s (7%; CPU time 0.9%)
    11 MiB     0.7 ms (0.04%)     0.76 s (38%; CPU time 7%)
    109 MiB    9.8 ms (0.5%)      8.2 s (more than the 2 s; CPU time 92%)
    1 GiB                         the copy alone 4 to 14 s

The version of DuckDB is therefore pinned in pyproject.toml, and a test fails with another version.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO

from lbx.base.database import database_files
from lbx.base.errors import InUseError, NoLocksError, StoreError
from lbx.base.inputs import open_input, read_input
from lbx.base.outputs import atomic_file, open_or_create, sync_folder, write_file
from lbx.base.processes import defer_signals, try_lock
from lbx.base.records import sha256_text
from lbx.results.file.file_users import read_record, this_process
from lbx.results.file.opening import connect, in_use_error, lock_path
from lbx.results.file.store import Store

_BLOCK = 1 << 20
_HEADERS = 3 * 4096
_PAUSE_S = 60.0
"""Seconds without copies after a failed copy."""
_COPY_RECORD = "copied"
"""Name of a file in the local file's folder that records the version of the last copy. It shows whether the local file
of a killed run continues the copy."""
_LOG_OF_OLDER_FILE = "created for an older version of this database"
_DAMAGED_ENTRY = re.compile(r"Corrupt WAL file: entry at byte position (\d{1,18})")
_DAMAGED_SIZE = "Requested allocation size"
_LONGEST_HEADER, _ENTRY_HEAD, _ENTRY_END = 200, 16, b"\xff\xff"
"""Sizes and end of entries in DuckDB's log. The log consists of a header, then entries: 8 bytes with the size, 8 bytes
with a checksum, and the data."""


class CommitCopies:
    """Copier of the local file ``path``, which a run writes, to ``target`` after commits (see ``open_copy``)."""

    def __init__(self, path: Path, target: Path, notify: Callable[[str], None]) -> None:
        self.path = path
        self._target, self._notify = target, notify
        self._pause_end = 0.0
        self._version: object = None
        # Kept open until the end: DuckDB's lock would be released as soon as this process closes the file anywhere.
        self._file: IO[bytes] | None = None
        # Kept open, too: if this run continues on another node, bytes that follow from here reach a replaced file.
        self._log: int | None = None
        self._log_bytes = 0

    def update(self, store: Store) -> None:
        """Copy the commits since the last call. Failures are reported, and the run continues.

        Args:
            store: the open local file, between two commits.
        """
        if time.monotonic() < self._pause_end:
            return
        try:
            if self._version is None:
                store.checkpoint()  # so that the file without its log is one of a run that has begun
            if self._current_version() != self._version:
                self._publish()
            else:
                self._append()
        except (OSError, StoreError) as exc:
            self._version, self._pause_end = None, time.monotonic() + _PAUSE_S
            self._notify(f"{self._target} could not be updated: {exc} The run continues.")

    def finish(self) -> None:
        """Copy the file of a finished run, and remove the local file.

        Raises:
            StoreError: the file cannot be copied. The message contains the path of the local file.
        """
        try:
            if self.path.is_file() and self.path.stat().st_size:
                Store(self.path).close()  # includes the rest of DuckDB's log after a failure
                self._publish()
        except (OSError, StoreError) as exc:
            raise StoreError(
                f"The results could not be copied to {self._target}: {exc}",
                fix=f"They are in {self.path} on this machine; copy that file by hand (and its .wal, if there is "
                "one), then repeat the command.",
            ) from exc
        finally:
            if self._file is not None:
                self._file.close()
            self._close_log()
        shutil.rmtree(self.path.parent, ignore_errors=True)

    def _current_version(self) -> object:
        """Return a value that changes when DuckDB writes to the file itself. Most commits only extend the log."""
        self._file = self._file or open_input(self.path, buffering=0)
        status = os.fstat(self._file.fileno())
        return status.st_size, status.st_mtime_ns, os.pread(self._file.fileno(), _HEADERS, 0)

    def _publish(self) -> None:
        """Copy the file, then the log."""
        version = self._current_version()
        assert self._file is not None
        self._file.seek(0)
        with atomic_file(self._target, sync=True) as out:
            shutil.copyfileobj(self._file, out, _BLOCK)
        log, target_log = wal_path(self.path), wal_path(self._target)
        self._close_log()
        if log.is_file():
            with open_input(log) as file, atomic_file(target_log, sync=True) as out:
                shutil.copyfileobj(file, out, _BLOCK)
                self._log_bytes = out.tell()
        else:
            target_log.unlink(missing_ok=True)
            self._log_bytes = 0
        _note_copy(self.path, self._target)
        self._version = version

    def _append(self) -> None:
        """Append the log's new bytes to the copy's log."""
        try:
            with open_input(wal_path(self.path)) as file:
                file.seek(self._log_bytes)
                added = file.read()
        except FileNotFoundError:
            return
        is_new = not self._log_bytes
        if self._log is None:
            self._log = open_or_create(wal_path(self._target), os.O_WRONLY)
            os.ftruncate(self._log, self._log_bytes)
        written = 0
        while written < len(added):
            written += os.pwrite(self._log, added[written:], self._log_bytes + written)
        os.fsync(self._log)
        if is_new:
            sync_folder(self._target.parent)
        self._log_bytes += len(added)

    def _close_log(self) -> None:
        if self._log is not None:
            os.close(self._log)
        self._log = None


@contextmanager
def open_copy(target: Path, scratch: Path, notify: Callable[[str], None]) -> Iterator[CommitCopies]:
    """Have a run write to a file under ``scratch``, and copy it to ``target``, also if the block fails.

    A local file that a killed run left in ``scratch`` is continued if ``target`` is still its last copy, and reported
    otherwise.
    Pass ``CommitCopies.update`` to the store as its ``after_commit``.

    Args:
        target: results file, which the run continues if it exists.
        scratch: a folder on a local disk.
        notify: called with messages about the file that a killed run left, and about failed copies during the run.

    Raises:
        StoreError: another run has this file open, the folder cannot be written, or the last copy fails.
    """
    target = target.resolve()  # keeps a link
    with exclusive_lock(target):
        try:
            path = _find_leftover(target, scratch, notify)
            if path is None:
                with contextlib.suppress(NoLocksError):
                    _join_wal(target, notify)
                path = _create_copy(target, scratch, notify)
        except OSError as exc:
            raise StoreError(
                f"The scratch folder {scratch} cannot be used: {exc.strerror or exc}.",
                fix="Pass another folder with --scratch.",
            ) from exc
        copies = CommitCopies(path, target, notify)
        try:
            yield copies
        finally:
            with defer_signals():
                copies.finish()


def wal_path(path: Path) -> Path:
    """Return the path of DuckDB's log of a results file."""
    return Path(f"{path.resolve()}.wal")


def repair_wal(path: Path, notify: Callable[[str], None]) -> None:
    """Repair the log of a copy after the node failed during an update. All complete updates are kept.

    The node may have failed between the replacement of the file and that of the log, or when only some bytes of the
    last update of the log had reached the disk.

    Raises:
        StoreError: the file cannot be opened for another reason, or a run locks it.
    """
    if wal_path(path).is_file():
        try:
            Store(path, read_only=True).close()
        except InUseError:
            raise
        except StoreError:
            with exclusive_lock(path.resolve()):
                _repair_wal(path, notify)


def _repair_wal(path: Path, notify: Callable[[str], None]) -> None:
    log = wal_path(path)
    try:
        Store(path, read_only=True).close()
    except StoreError as exc:
        if _LOG_OF_OLDER_FILE in str(exc):
            log.unlink()
            notify(f"Removed {log}: the newer {path.name} has its commits.")
            return
        damaged = _DAMAGED_ENTRY.search(str(exc))
        end = int(damaged[1]) if damaged else _find_damaged_size(log) if _DAMAGED_SIZE in str(exc) else None
        size = log.stat().st_size
        if end is None or end >= size:
            raise
        os.truncate(log, end)
        notify(f"Cut off {size - end:,} damaged bytes at the end of {log}: a node failed while it wrote them.")


def _find_damaged_size(log: Path) -> int | None:
    """Find the first entry of a log that is longer than the rest of the log. Returns the position, or None."""
    with open_input(log) as file:
        content = file.read()

    def next_entry(at: int) -> int:
        """Return the end of the entry at a position, or 0 if the entry is longer than the rest."""
        end = at + _ENTRY_HEAD + int.from_bytes(content[at : at + 8], "little")
        return end if end <= len(content) and content[at:end].endswith(_ENTRY_END) else 0

    at = next((start for start in range(8, _LONGEST_HEADER) if next_entry(start)), 0)
    if not at:
        return None
    while end := next_entry(at):
        at = end
    return at


@contextmanager
def exclusive_lock(target: Path) -> Iterator[None]:
    """Lock a file against other processes that replace it.

    Without a lock, each process would drop the other's commits. The lock ends with the process.

    Raises:
        StoreError: another process holds the lock, or the folder cannot be written.
    """
    lock = lock_path(target)
    while True:
        try:
            descriptor = open_or_create(lock, os.O_RDWR)
        except OSError as exc:
            raise StoreError(
                f"{target.parent} cannot be written: {exc.strerror or exc}.",
                fix="Choose a folder that you can write to: -o FILE.",
            ) from exc
        if not any(map(_try_lock_after, (0.0, 0.05, 0.1), [descriptor] * 3)):
            os.close(descriptor)
            raise in_use_error(target, user=read_record(lock))
        if os.fstat(descriptor).st_nlink:
            break
        os.close(descriptor)  # the previous owner removed it between opening and locking
    try:
        with contextlib.suppress(OSError):  # a full disk, which the lock does not need
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, this_process().record(), 0)
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def _try_lock_after(pause_s: float, descriptor: int) -> bool:
    """Try to lock a file after a pause: readers hold the lock briefly to test it (``lbx.results.file.snapshots``)."""
    time.sleep(pause_s)
    return try_lock(descriptor)


def _join_wal(target: Path, notify: Callable[[str], None]) -> None:
    """Move the log that a killed run left into the results file."""
    if len(database_files(target)) > 1:
        _repair_wal(target, notify)
        Store(target).close()


def _prefix(target: Path) -> str:
    return f"lbx-{sha256_text(str(target))[:12]}-"


def _create_copy(target: Path, scratch: Path, notify: Callable[[str], None]) -> Path:
    path = Path(tempfile.mkdtemp(prefix=_prefix(target), dir=scratch)) / target.name
    try:
        if target.is_file() and target.stat().st_size:
            with contextlib.ExitStack() as stack:
                with contextlib.suppress(NoLocksError):
                    stack.enter_context(closing(connect(target, read_only=True)[0]))  # locks out writers meanwhile
                copy_database(target, path)
            _join_wal(path, notify)  # of a file system without locks
    except BaseException:
        shutil.rmtree(path.parent, ignore_errors=True)
        raise
    _note_copy(path, target)
    return path


def copy_database(path: Path, copy: Path) -> None:
    """Copy a results file and DuckDB's log of its newest commits, while no process writes it. Raises OSError."""
    for part in database_files(path):
        target_part = copy.with_name(copy.name + part.name.removeprefix(path.resolve().name))
        with open_input(part) as file, atomic_file(target_part) as out:
            shutil.copyfileobj(file, out, _BLOCK)


def _find_leftover(target: Path, scratch: Path, notify: Callable[[str], None]) -> Path | None:
    leftover = None
    for folder in sorted(scratch.glob(f"{_prefix(target)}*")):
        if folder.lstat().st_uid != os.geteuid():  # anyone can predict its name and contents
            continue
        path, copy = folder / target.name, folder / _COPY_RECORD
        if not path.is_file() or not copy.is_file():
            shutil.rmtree(folder, ignore_errors=True)
        elif (
            leftover is None
            and read_input(copy, _BLOCK).decode("utf-8", "replace") == _version(target)
            and _has_same_start(wal_path(path), wal_path(target))
        ):
            leftover = path
            notify(f"A killed run left {path} on this machine; this run continues it.")
        else:
            notify(f"A killed run left {path} on this machine, but {target} has changed since. Remove {path}.")
    return leftover


def _has_same_start(log: Path, copy: Path) -> bool:
    """Whether a log begins with all bytes of the log's copy."""
    if not copy.is_file():
        return True
    if not log.is_file():
        return False
    with open_input(log) as file, open_input(copy) as other:
        return all(file.read(len(block)) == block for block in iter(lambda: other.read(_BLOCK), b""))


def _note_copy(path: Path, target: Path) -> None:
    write_file(path.with_name(_COPY_RECORD), _version(target))


def _version(target: Path) -> str:
    try:
        status = target.stat()
    except FileNotFoundError:
        return "none"
    return f"{status.st_size} {status.st_mtime_ns}"
