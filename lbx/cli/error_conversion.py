"""Conversion of signals and exceptions to errors of lbx, and the command to repeat.

Otherwise, click would print "Aborted!" after Ctrl-C and exit with 1, and SIGTERM would end lbx without a message.
"""

from __future__ import annotations

import errno
import itertools
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import ClassVar

from lbx.base.crash_report import explain_crashes
from lbx.base.errors import InterruptedByUserError, InUseError, LbxError, stored_value_error
from lbx.base.exit_codes import ExitCode
from lbx.base.processes import is_interruption
from lbx.base.visible import as_command

_OUTPUT_OPTIONS = ("-o", "--output")
_MERGEABLE = ("run", "judge", "import")
"""Commands that write answers to a results file, which a merge can add to another file."""
_SAFE = "Results committed earlier are safe."
_SOON_S = 0.01
"""Seconds after which a signal that came while a lock was acquired is raised again."""


class TerminatedError(KeyboardInterrupt):
    """Exception for SIGTERM, which cluster schedulers send before SIGKILL. It ends a command like Ctrl-C."""

    count: ClassVar[int] = 0
    """Number of SIGTERM signals to this process."""


@contextmanager
def stoppable(*, loads_model: bool) -> Iterator[None]:
    """Run a command, and convert SIGINT and SIGTERM to InterruptedByUserError.

    Args:
        loads_model: whether to explain crashes of a library and lack of memory, too.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not in a background job, which ignores Ctrl-C
        signal.signal(signal.SIGINT, _interrupt)
    explaining = explain_crashes(_SAFE) if loads_model else nullcontext()
    with reporting_interrupts(lambda: "Unfinished work left no partial files."), explaining:
        yield


@contextmanager
def reporting_interrupts(state: Callable[[], str]) -> Iterator[None]:
    """Convert an interruption of the block to an error with a sentence of ``state()`` on the state that remains."""
    terminations = TerminatedError.count
    try:
        yield
    except (KeyboardInterrupt, RuntimeError) as exc:
        if not is_interruption(exc):
            raise
        if TerminatedError.count > terminations:
            raise InterruptedByUserError(f"Terminated. {state()}", exit_code=ExitCode.TERMINATED) from None
        raise InterruptedByUserError(f"Interrupted. {state()}") from None


def _interrupt(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGTERM:
        TerminatedError.count += 1
    # An exception between the acquisition of a lock and the block of ``with`` would leave the lock closed. Locks
    # themselves are safe, and the methods of futures, queues, events and threads use conditions.
    while frame is not None:
        if frame.f_code is threading.Condition.__enter__.__code__:
            signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(number))  # unless deferred by then
            signal.setitimer(signal.ITIMER_REAL, _SOON_S)
            return
        frame = frame.f_back
    # A scheduler may signal all processes of a job, and the job's script passes the signal on: saving continues.
    handled = sys.exception()
    while handled is not None:
        if is_interruption(handled):
            return
        handled = handled.__context__
    raise TerminatedError if number == signal.SIGTERM else KeyboardInterrupt


def as_lbx_error(error: Exception) -> LbxError:
    """Convert an unexpected exception to an error with cause and fix."""
    if isinstance(error, OSError):
        return _from_os_error(error)
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):  # an OSError since Python 3.13
        return LbxError(f"The operating system reported an error: {error}.")
    if isinstance(error, MemoryError):
        return LbxError(
            "There is not enough memory; results committed earlier are safe.",
            fix="Use a smaller file, or more memory; `lbx doctor` shows the limit.",
        )
    if isinstance(error, UnicodeEncodeError) and error.encoding != "utf-8":  # lbx itself writes only UTF-8
        return LbxError(
            f"The encoding of this terminal, {error.encoding}, lacks a character of the output.",
            fix="Set LC_ALL=C.UTF-8, or write to a file with -o.",
        )
    return stored_value_error(error) or LbxError(
        f"lbx did not expect this error: {type(error).__name__}: {error}.",
        fix="Results committed earlier are safe. Please report this error with the traceback that --debug shows.",
    )


def _from_os_error(error: OSError) -> LbxError:
    location = f" ({error.filename})" if error.filename else ""
    if error.errno == errno.ENOSPC:
        return LbxError(f"The disk is full{location}.", fix="Make room, then repeat the same command to continue.")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return LbxError(f"No permission: {error.strerror}{location}.", fix="Choose a location that you can write to.")
    return LbxError(f"The operating system reported an error: {error.strerror or error}{location}.")


def with_other_output(words: Sequence[str]) -> str:
    """Change the output in a command line, program name included, to a file that does not exist yet."""
    return _with_other_output(words, "FILE")[0]


def offer_own_file(error: InUseError, words: Sequence[str]) -> None:
    """Add commands to an error about a file in use: to write to another file, and to merge that file."""
    if len(words) < 2 or words[1] not in _MERGEABLE:
        return
    error.command, own_file = _with_other_output(words, _unused_name(str(error.path)))
    merge = as_command("lbx", "merge", Path(own_file), "-o", error.path, "--update")
    error.fix = f"Wait for it to end, or write to a file of your own, and merge it when both have ended: {merge}"


def _with_other_output(words: Sequence[str], default: str) -> tuple[str, str]:
    """Return the command with another output, and that output. ``default`` is the output that the command implies."""
    arguments = list(words[1:])
    for at, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name == "--output" and equals:
            output = _unused_name(value)
            arguments[at] = f"{name}={output}"
            break
        if word in _OUTPUT_OPTIONS and at + 1 < len(arguments):
            arguments[at + 1] = output = _unused_name(arguments[at + 1])
            break
    else:
        output = default
        arguments += ["-o", output]
    return as_command("lbx", *arguments), output


def _unused_name(name: str) -> str:
    """Append the lowest number from 2 that gives the name of no file."""
    path = Path(name)
    names = (path.with_stem(f"{path.stem}-{number}") for number in itertools.count(2))
    return str(next(candidate for candidate in names if not candidate.exists()))
