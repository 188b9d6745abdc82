"""Results file on a local disk with a copy in a shared folder.

DuckDB locks its file and writes it in place, which shared file systems do slowly or wrong. So a run writes to a local
file, and copies it between two commits every few minutes, and at its end. A copy is atomic: it is written under
another name and renamed.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO

from lbx.base.database import files_of
from lbx.base.errors import StoreError
from lbx.base.inputs import open_input, read_input
from lbx.base.interrupts import defer_signals
from lbx.base.outputs import atomic_file, open_or_create, write_file
from lbx.base.processes import try_lock
from lbx.base.records import sha256_text
from lbx.store.file_users import read_record, this_process
from lbx.store.opening import connect, in_use_error, lock_path
from lbx.store.store import Store

_BLOCK = 1 << 20
_COPY_RECORD = "copied"
"""Name of a file next to the local one that records its last copy, to verify that a killed run's rest continues it."""


class Copies:
    """The file that a run writes (``path``), and its copies; see ``open_copy``."""

    def __init__(self, path: Path, target: Path, every_s: float, say: Callable[[str], None]) -> None:
        self.path = path
        self._target, self._every_s, self._say = target, every_s, say
        self._last = time.monotonic() if target.is_file() else -math.inf  # the first commit shows that a run began
        # Kept open until the end: DuckDB's lock would be released as soon as this process closes the file anywhere.
        self._file: IO[bytes] | None = None

    def when_due(self, store: Store, prepare: Callable[[Store], None] = lambda _store: None) -> None:
        """Copy the file if the last copy is old enough; failures are reported, and the run continues.

        Args:
            store: the open file, between two commits.
            prepare: called with it before the copy.
        """
        if not self._every_s or time.monotonic() - self._last < self._every_s:
            return
        self._last = math.inf  # preparing commits as well
        try:
            prepare(store)
            store.checkpoint()
            self._publish()
        except (OSError, StoreError) as exc:
            self._say(f"{self._target} could not be updated: {exc} The run continues.")
        self._last = time.monotonic()

    def finish(self) -> None:
        """Copy the file of a finished run, and remove the local file.

        Raises:
            StoreError: it cannot be copied; the message gives the path of the results.
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
        shutil.rmtree(self.path.parent, ignore_errors=True)

    def _publish(self) -> None:
        self._file = self._file or open_input(self.path, buffering=0)
        self._file.seek(0)
        with atomic_file(self._target, sync=True) as out:
            shutil.copyfileobj(self._file, out, _BLOCK)
        _note_copy(self.path, self._target)


@contextmanager
def open_copy(target: Path, scratch: Path, every_s: float, say: Callable[[str], None]) -> Iterator[Copies]:
    """Have a run write to a file under ``scratch``, and copy it to ``target``, also if the block fails.

    The rest of a killed run in ``scratch`` is continued if ``target`` is still its last copy, and reported otherwise.

    Args:
        target: the results file; the run continues it if it exists.
        scratch: a folder on a local disk.
        every_s: seconds between copies during the run; 0 to copy only at its end.
        say: called with messages about the rest of a killed run, and about failed copies during the run.

    Raises:
        StoreError: another run has this file open, the folder cannot be written, or the last copy fails.
    """
    target = target.resolve()  # keeps a link
    with exclusive_lock(target):
        if len(files_of(target)) > 1:  # a run that wrote to it directly was killed: its commits are in the log
            Store(target).close()
        try:
            path = _find_leftover(target, scratch, say) or _create_copy(target, scratch)
        except OSError as exc:
            raise StoreError(
                f"The scratch folder {scratch} cannot be used: {exc.strerror or exc}.",
                fix="Pass another folder with --scratch.",
            ) from exc
        copies = Copies(path, target, every_s, say)
        try:
            yield copies
        finally:
            with defer_signals():
                copies.finish()


@contextmanager
def exclusive_lock(target: Path) -> Iterator[None]:
    """Lock a file against other processes that replace it.

    Each would drop the other's additions. The lock ends with the process.

    Raises:
        StoreError: another process has the lock, or the folder cannot be written.
    """
    lock = lock_path(target)
    while True:
        try:
            descriptor = open_or_create(lock, os.O_RDWR)
        except OSError as exc:
            raise StoreError(f"{target.parent} cannot be written: {exc.strerror or exc}.") from exc
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
    """Try to lock a file after a pause, as readers briefly hold the lock to test it (``lbx.store.snapshots``)."""
    time.sleep(pause_s)
    return try_lock(descriptor)


def _prefix(target: Path) -> str:
    return f"lbx-{sha256_text(str(target))[:12]}-"


def _create_copy(target: Path, scratch: Path) -> Path:
    path = Path(tempfile.mkdtemp(prefix=_prefix(target), dir=scratch)) / target.name
    try:
        if target.is_file() and target.stat().st_size:
            with closing(connect(target, read_only=True)[0]):  # locks out writers meanwhile
                copy_database(target, path)
    except BaseException:
        shutil.rmtree(path.parent, ignore_errors=True)
        raise
    _note_copy(path, target)
    return path


def copy_database(path: Path, copy: Path) -> None:
    """Copy a results file and DuckDB's log of its newest commits, while no process writes it. Raises OSError."""
    for part in files_of(path):
        target_part = copy.with_name(copy.name + part.name.removeprefix(path.resolve().name))
        with open_input(part) as file, atomic_file(target_part) as out:
            shutil.copyfileobj(file, out, _BLOCK)


def _find_leftover(target: Path, scratch: Path, say: Callable[[str], None]) -> Path | None:
    leftover = None
    for folder in sorted(scratch.glob(f"{_prefix(target)}*")):
        if folder.lstat().st_uid != os.geteuid():  # anyone can predict its name and contents
            continue
        path, copy = folder / target.name, folder / _COPY_RECORD
        if not path.is_file() or not copy.is_file():
            shutil.rmtree(folder, ignore_errors=True)
        elif leftover is None and read_input(copy, _BLOCK).decode("utf-8", "replace") == _version(target):
            leftover = path
            say(f"A killed run left {path} on this machine; this run continues it.")
        else:
            say(f"A killed run left {path} on this machine, but {target} has changed since. Remove {path}.")
    return leftover


def _note_copy(path: Path, target: Path) -> None:
    write_file(path.with_name(_COPY_RECORD), _version(target))


def _version(target: Path) -> str:
    try:
        status = target.stat()
    except FileNotFoundError:
        return "none"
    return f"{status.st_size} {status.st_mtime_ns}"
