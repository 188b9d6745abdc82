"""How lbx starts other programs: the one place for it, so that nothing in the working folder is ever executed.

A Python process looks for modules where this one does, and never in the folder that it is started in (``safepath``).
Other programs are looked for in the absolute folders of PATH alone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lbx.base.inputs import SMALL, read_input

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

Popen = subprocess.Popen
CompletedProcess = subprocess.CompletedProcess
SubprocessError = subprocess.SubprocessError
TimeoutExpired = subprocess.TimeoutExpired
DEVNULL, PIPE = subprocess.DEVNULL, subprocess.PIPE

_SAFE = {"PYTHONSAFEPATH": "1"}


def python_command(*arguments: str) -> list[str]:
    """This Python, for a program that finds no module in the working folder or beside its own file."""
    return [sys.executable, "-P", *arguments]


def start_python(
    program: str, *arguments: str, env: Mapping[str, str] = os.environ, **options: Any
) -> subprocess.Popen[bytes]:
    """A process that runs a text of Python and finds the modules that this one finds.

    Args:
        program: its text; ``sys.argv[1:]`` there are ``arguments``.
        env: its environment.
        options: as of ``subprocess.Popen``.
    """
    path = [entry for entry in sys.path if os.path.isabs(entry)]
    command = python_command("-c", f"import sys; sys.path[:] = {path!r}\n{program}", *arguments)
    return subprocess.Popen(command, env={**env, **_SAFE}, **options)


def worker_pool(processes: int, *, preload: Sequence[str], initializer: Callable[[], None]) -> ProcessPoolExecutor:
    """Processes that call this one's functions, forked from a server that has nothing of this one.

    A fork of this process would inherit DuckDB's locks without its threads.

    Args:
        preload: modules that the server imports once for all.
    """
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    os.environ.update(_SAFE)  # multiprocessing starts the server itself, with this process's environment
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    return ProcessPoolExecutor(processes, mp_context=context, initializer=initializer)


def run_tool(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[Any]:
    """Run a program of this machine to its end.

    Args:
        command: its name and arguments.
        options: as of ``subprocess.run``.

    Raises:
        FileNotFoundError: there is none of that name.
        OSError, subprocess.SubprocessError: as ``subprocess.run``.
    """
    program = find_tool(command[0])
    if program is None:
        raise FileNotFoundError(2, os.strerror(2), command[0])
    return subprocess.run([program, *command[1:]], **options)  # noqa: PLW1510 (``check`` is the caller's)


def lock(descriptor: int, *, shared: bool = False) -> bool | None:
    """Lock an open file or folder until it is closed; False where another process has it, None where none can.

    Args:
        shared: beside others that lock it so.
    """
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def try_lock(descriptor: int) -> bool:
    """``lock``; True, too, on a file system without locks."""
    return lock(descriptor) is not False


def process_began(process: int | None) -> datetime | None:
    """When a process of this machine was started; None where that is not known."""
    try:
        text = read_input(Path(f"/proc/{process}/stat"), SMALL)
        ticks = int(text.rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return datetime.fromtimestamp(boot + ticks / os.sysconf("SC_CLK_TCK"), UTC)


def find_tool(name: str) -> str | None:
    """The program of that name in an absolute folder of PATH, or None. A path stays as it is."""
    folders = [folder for folder in os.get_exec_path() if os.path.isabs(folder)]
    return shutil.which(name, path=os.pathsep.join(folders))
