"""Starting of other programs, locks, and deferred signals.

All programs are started by this module, so that files in the working folder are never executed. A Python subprocess
searches the same folders for modules as this process, and never its working folder (``safepath``). Other programs are
searched only in the absolute folders of PATH.

Signals are deferred, because Ctrl-C would make DuckDB abandon a commit, and free llama.cpp's buffers during a forward
pass.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lbx.base.inputs import SMALL, open_input, read_input

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor


Popen = subprocess.Popen
CompletedProcess = subprocess.CompletedProcess
SubprocessError = subprocess.SubprocessError
TimeoutExpired = subprocess.TimeoutExpired
DEVNULL, PIPE = subprocess.DEVNULL, subprocess.PIPE

_SAFE = {"PYTHONSAFEPATH": "1"}
_SET_DEATH_SIGNAL = 1


def python_command(*arguments: str) -> list[str]:
    """Command line that runs this Python without the working folder and the script's folder in ``sys.path``."""
    return [sys.executable, "-P", *arguments]


def start_python(
    program: str, *arguments: str, env: Mapping[str, str] = os.environ, **options: Any
) -> subprocess.Popen[bytes]:
    """Start a process that runs Python source code with this process's module search path.

    Args:
        arguments: ``sys.argv[1:]`` of the program.
        options: keyword arguments of ``subprocess.Popen``.
    """
    path = [entry for entry in sys.path if os.path.isabs(entry)]
    command = python_command("-c", f"import sys; sys.path[:] = {path!r}\n{program}", *arguments)
    return subprocess.Popen(command, env={**env, **_SAFE}, **options)


def worker_pool(processes: int, *, preload: Sequence[str], initializer: Callable[[], None]) -> ProcessPoolExecutor:
    """Create a process pool, forked from a fork server instead of this process.

    A fork of this process would inherit DuckDB's locks without its threads.

    Args:
        preload: modules that the server imports once for all workers.
    """
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    os.environ.update(_SAFE)  # multiprocessing starts the server itself, with this process's environment
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    return ProcessPoolExecutor(processes, mp_context=context, initializer=initializer)


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends (Linux only), and exit now if it has ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def run_tool(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[Any]:
    """Run an installed program to completion.

    Args:
        options: keyword arguments of ``subprocess.run``.

    Raises:
        FileNotFoundError: the program is not in PATH.
        OSError, subprocess.SubprocessError: see ``subprocess.run``.
    """
    program = find_tool(command[0])
    if program is None:
        raise FileNotFoundError(2, os.strerror(2), command[0])
    return subprocess.run([program, *command[1:]], **options)  # noqa: PLW1510 (``check`` is the caller's)


def lock(descriptor: int, *, shared: bool = False) -> bool | None:
    """Lock an open file or folder until the descriptor is closed.

    Args:
        shared: allow other shared locks at the same time.

    Returns:
        False if another process has locked it, None if the file system does not support locks.
    """
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def try_lock(descriptor: int) -> bool:
    """Lock a file like ``lock``, and also return True on a file system without locks."""
    return lock(descriptor) is not False


def lock_problem(path: Path) -> str:
    """Return why the file system of an unlocked file supports no locks, or "" if it does."""
    try:
        with open_input(path) as file:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as exc:
        if exc.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            return os.strerror(exc.errno)
    return ""


def process_start_time(process: int | None) -> datetime | None:
    """Start time of a process on this machine, or None if it is unknown or the process has ended."""
    try:
        state, *fields = read_input(Path(f"/proc/{process}/stat"), SMALL).rpartition(b")")[2].split()
        ticks = int(fields[18])
    except (OSError, ValueError, IndexError):
        return None
    if state == b"Z":
        return None
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return datetime.fromtimestamp(boot + ticks / os.sysconf("SC_CLK_TCK"), UTC)


def find_tool(name: str) -> str | None:
    """Find a program in the absolute folders of PATH, or None if missing. A path is returned unchanged."""
    folders = [folder for folder in os.get_exec_path() if os.path.isabs(folder)]
    return shutil.which(name, path=os.pathsep.join(folders))


_SIGNALS = (signal.SIGINT, signal.SIGTERM)

POLL_INTERVAL_S = 0.5
"""Seconds after which a long wait is restarted, because a signal that arrives just before a wait does not end it."""


def is_interruption(error: BaseException) -> bool:
    """Whether an exception comes from a signal's handler."""
    # During a query, DuckDB replaces the exception of a signal's handler by its own, without a cause.
    return isinstance(error, KeyboardInterrupt) or (
        isinstance(error, RuntimeError) and str(error) == "Query interrupted"
    )


@contextlib.contextmanager
def defer_signals() -> Iterator[Sequence[int]]:
    """Defer SIGINT and SIGTERM until the end of the block. Yields the signals that wait. May be nested."""
    waiting: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield waiting  # signals never reach other threads
        return
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    try:  # a signal between two of these statements raises, and the handlers are restored
        for number in _SIGNALS:
            signal.signal(number, lambda number, _: waiting.append(number))
        yield waiting
    finally:
        try:
            signal.signal(signal.SIGINT, handlers[signal.SIGINT])
        finally:
            signal.signal(signal.SIGTERM, handlers[signal.SIGTERM])
        if waiting:
            # The first signal to raise is the last that is seen, and SIGTERM decides the exit code.
            signal.raise_signal(signal.SIGTERM if signal.SIGTERM in waiting else signal.SIGINT)
