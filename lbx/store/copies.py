"""A results file on a disk of this machine, and its copy in a shared place.

DuckDB's file is locked and written in place, which shared file systems are slow or wrong at. So a run writes to a file
of its own, and copies it, between two commits when some minutes have passed, and when it ends. A copy is complete or
not there: it is made under another name and renamed.
"""

from __future__ import annotations

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
from lbx.base.interrupts import uninterrupted
from lbx.base.outputs import open_kept, whole_file, write_whole
from lbx.base.processes import try_lock
from lbx.base.records import sha256_text
from lbx.store.opening import connect, lock_beside
from lbx.store.store import Store

_BLOCK = 1 << 20
_COPIED = "copied"
"""Beside the file: which copy was made of it last, so that what a killed run has left is known to follow that copy."""


class Copies:
    """The file that a run writes, and its copying. See ``copied``.

    Attributes:
        path: where to write.
    """

    def __init__(self, path: Path, target: Path, every_s: float, say: Callable[[str], None]) -> None:
        self.path = path
        self._target, self._every_s, self._say = target, every_s, say
        self._last = time.monotonic() if target.is_file() else -math.inf  # the first commit shows that a run began
        # Open until the end: DuckDB's lock on the file would go as soon as this process closes it anywhere.
        self._file: IO[bytes] | None = None

    def when_due(self, store: Store, prepare: Callable[[Store], None] = lambda _store: None) -> None:
        """Copy the file if the last copy is old enough; what goes wrong is told, and the run goes on.

        Args:
            store: the open file, between two commits.
            prepare: what to do with it before.
        """
        if not self._every_s or time.monotonic() - self._last < self._every_s:
            return
        self._last = math.inf  # preparing commits, too
        try:
            prepare(store)
            store.checkpoint()
            self._publish()
        except (OSError, StoreError) as exc:
            self._say(f"{self._target} could not be brought up to date: {exc} The run goes on.")
        self._last = time.monotonic()

    def finish(self) -> None:
        """Copy the file of a run that has ended, and remove it here.

        Raises:
            StoreError: it cannot be copied; says where the results are.
        """
        try:
            if self.path.is_file() and self.path.stat().st_size:
                Store(self.path).close()  # takes in what a failure has left in DuckDB's log
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
        with whole_file(self._target, sync=True) as out:
            shutil.copyfileobj(self._file, out, _BLOCK)
        _note_copy(self.path, self._target)


@contextmanager
def copied(target: Path, scratch: Path, every_s: float, say: Callable[[str], None]) -> Iterator[Copies]:
    """Have a run write to a file under ``scratch``, and ``target`` be its copy, also however the block ends.

    What a killed run has left there is taken up where ``target`` is still its last copy, else it is told.

    Args:
        target: the results file; where it is there already, the run continues it.
        scratch: a folder on a disk of this machine.
        every_s: how often the file is copied while the run goes on; 0: only at its end.
        say: told what a killed run has left, and what went wrong with a copy while the run went on.

    Raises:
        StoreError: another run keeps this file, the folder cannot be written, or the last copy fails.
    """
    target = target.resolve()  # a link stays one
    with alone(target):
        if len(files_of(target)) > 1:  # a run that wrote to it itself was killed: what it has committed is in its log
            Store(target).close()
        try:
            path = _left_behind(target, scratch, say) or _begun(target, scratch)
        except OSError as exc:
            raise StoreError(
                f"The scratch folder {scratch} cannot be used: {exc.strerror or exc}.",
                fix="Name another with --scratch.",
            ) from exc
        copies = Copies(path, target, every_s, say)
        try:
            yield copies
        finally:
            with uninterrupted():
                copies.finish()


@contextmanager
def alone(target: Path) -> Iterator[None]:
    """Be the only process that replaces a file: two would each take away what the other added. Ends with the process.

    Raises:
        StoreError: another one does, or the folder cannot be written.
    """
    lock = lock_beside(target)
    while True:
        try:
            descriptor = open_kept(lock, os.O_RDWR)
        except OSError as exc:
            raise StoreError(f"{target.parent} cannot be written: {exc.strerror or exc}.") from exc
        if not any(map(_lock_after, (0.0, 0.05, 0.1), [descriptor] * 3)):
            os.close(descriptor)
            raise StoreError(
                f"{target} is in use by another run, or being merged into.",
                fix="Wait for it to end, or stop it.",
            )
        if os.fstat(descriptor).st_nlink:
            break
        os.close(descriptor)  # who had it before has removed it between the two
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def _lock_after(pause_s: float, descriptor: int) -> bool:
    """Lock a file; who reads results looks for a moment whether it is locked (``lbx.store.snapshots``)."""
    time.sleep(pause_s)
    return try_lock(descriptor)


def _prefix(target: Path) -> str:
    return f"lbx-{sha256_text(str(target))[:12]}-"


def _begun(target: Path, scratch: Path) -> Path:
    path = Path(tempfile.mkdtemp(prefix=_prefix(target), dir=scratch)) / target.name
    try:
        if target.is_file() and target.stat().st_size:
            with closing(connect(target, read_only=True)[0]):  # nobody writes to it meanwhile
                copy_database(target, path)
    except BaseException:
        shutil.rmtree(path.parent, ignore_errors=True)
        raise
    _note_copy(path, target)
    return path


def copy_database(path: Path, copy: Path) -> None:
    """Copy a results file and DuckDB's log of its newest commits, which nobody writes meanwhile. Raises OSError."""
    for part in files_of(path):
        made = copy.with_name(copy.name + part.name.removeprefix(path.resolve().name))
        with open_input(part) as file, whole_file(made) as out:
            shutil.copyfileobj(file, out, _BLOCK)


def _left_behind(target: Path, scratch: Path, say: Callable[[str], None]) -> Path | None:
    leftover = None
    for folder in sorted(scratch.glob(f"{_prefix(target)}*")):
        if folder.lstat().st_uid != os.geteuid():  # anybody can work out its name, and what is in it
            continue
        path, copy = folder / target.name, folder / _COPIED
        if not path.is_file() or not copy.is_file():
            shutil.rmtree(folder, ignore_errors=True)
        elif leftover is None and read_input(copy, _BLOCK).decode("utf-8", "replace") == _version(target):
            leftover = path
            say(f"A killed run left its file on this machine, {path}; this run continues it.")
        else:
            say(f"A run that was killed has left {path} on this machine; {target} has gone on without it. Remove it.")
    return leftover


def _note_copy(path: Path, target: Path) -> None:
    write_whole(path.with_name(_COPIED), _version(target))


def _version(target: Path) -> str:
    try:
        status = target.stat()
    except FileNotFoundError:
        return "none"
    return f"{status.st_size} {status.st_mtime_ns}"
