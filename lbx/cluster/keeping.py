"""A run that writes on a node's own disk, and a copy of its file in a shared place.

DuckDB's file is locked and written in place, which shared file systems are slow or wrong at. So the run is a process
of its own with a file of its own, and the one that watches it copies that file to the shared place: whenever some
minutes have passed, and when the run ends, however it ends. The copy is complete or not there: it is made under
another name and renamed. While the file of a living run is copied the run is stopped (SIGSTOP), so that what is copied
is what a kill at that moment would leave; DuckDB makes a whole file of that.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from lbx.errors import LbxError, StoreError

_PR_SET_PDEATHSIG = 1
_TICK_S = 0.2
_WAL = ".wal"

Told = Callable[[str], None]


def run_beside_copies(target: Path, scratch: Path, every_s: float, say: Told) -> Path:
    """Continue in a process of its own that writes to a file under ``scratch``.

    Args:
        target: the results file; where it is there already, the run continues it.
        scratch: a folder on a disk of this machine.
        every_s: how often the file is copied while the run goes on; 0: only at its end.
        say: told what went wrong with a copy while the run went on.

    Returns:
        In the new process: where it is to write. The process that called waits, copies, and leaves by SystemExit
        with the run's exit code (128 + the signal's number where it was killed).

    Raises:
        StoreError: another run keeps this file, or the folder cannot be written.
    """
    lock = _lock(target)
    try:
        folder = Path(tempfile.mkdtemp(prefix="lbx-", dir=scratch))
        local = folder / target.name
        if target.is_file():
            shutil.copyfile(target, local)
    except OSError as exc:
        raise StoreError(
            f"The scratch folder {scratch} cannot be used: {exc.strerror or exc}.", fix="Name another with --scratch."
        ) from exc
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(lock)
        _end_with(parent)
        return local
    with _passing_signals_on(child):
        keeper = _Keeper(child, local, target, every_s, say)
        code = keeper.wait()
        keeper.copy()
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)
    if code == 128 + signal.SIGKILL:
        say("The run was killed (SIGKILL). What was copied so far is safe. If nobody killed it, memory ran out.")
    sys.exit(code)


def _lock(target: Path) -> int:
    """Two runs of one shard would each replace the other's answers. The lock ends with the process."""
    try:
        descriptor = os.open(target.with_name(f".{target.name}.lock"), os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as exc:
        raise StoreError(f"{target.parent} cannot be written: {exc.strerror or exc}.") from exc
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        raise StoreError(
            f"{target} is kept by another run that is still going.", fix="Wait for it to end, or stop it."
        ) from exc
    except OSError:
        pass  # a file system without locks
    return descriptor


def _end_with(parent: int) -> None:
    """A run that nobody copies for must not go on."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


@contextlib.contextmanager
def _passing_signals_on(child: int) -> Iterator[None]:
    """SIGTERM is for the run, once; Ctrl-C reaches it by itself, as it does every process at the terminal."""
    told = False

    def pass_on(number: int, _frame: FrameType | None) -> None:
        nonlocal told
        if not told:
            told = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)

    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, pass_on),
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Keeper:
    """Waits for the run and copies its file."""

    def __init__(self, child: int, local: Path, target: Path, every_s: float, say: Told) -> None:
        self._child, self._local, self._target = child, local, target
        self._every_s, self._say = every_s, say

    def wait(self) -> int:
        """Until the run ends; its exit code."""
        copied = time.monotonic()
        while True:
            ended, status = os.waitpid(self._child, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            if self._every_s and time.monotonic() - copied >= self._every_s:
                try:
                    self._copy_while_stopped()
                except (OSError, LbxError) as exc:
                    self._say(f"{self._target} could not be brought up to date: {exc} The run goes on.")
                copied = time.monotonic()
            time.sleep(_TICK_S)

    def copy(self) -> None:
        """Copy the file of a run that has ended."""
        if not self._local.is_file() or not self._local.stat().st_size:
            return
        try:
            _fold(self._local)
            _publish(self._local, self._target)
        except (OSError, LbxError) as exc:
            raise StoreError(
                f"The results could not be copied to {self._target}: {exc}",
                fix=f"They are in {self._local} on this machine; copy that file by hand, then repeat the command.",
            ) from exc

    def _copy_while_stopped(self) -> None:
        frozen = self._local.with_name(f"frozen-{self._local.name}")
        os.kill(self._child, signal.SIGSTOP)
        try:
            seen = os.waitid(os.P_PID, self._child, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            if seen is None or seen.si_code != os.CLD_STOPPED:
                return  # it has just ended
            for suffix in ("", _WAL):
                source = self._local.with_name(self._local.name + suffix)
                if source.is_file():
                    shutil.copyfile(source, frozen.with_name(frozen.name + suffix))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGCONT)
        try:
            if frozen.is_file() and frozen.stat().st_size:
                _fold(frozen)
                _publish(frozen, self._target)
        finally:
            for suffix in ("", _WAL):
                frozen.with_name(frozen.name + suffix).unlink(missing_ok=True)


def _fold(path: Path) -> None:
    """Take DuckDB's log of the newest commits into the file, and see that it is whole."""
    from lbx.store import Store

    Store(path).close()
    if path.with_name(path.name + _WAL).exists():
        raise StoreError(f"{path} could not be closed.")


def _publish(source: Path, target: Path) -> None:
    """Copy a file to its place, complete or not at all."""
    part = target.with_name(f".{target.name}.part")
    try:
        shutil.copyfile(source, part)
        descriptor = os.open(part, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
