"""Explanation of a crash of this process, printed by a second process.

A library's illegal instruction, or the kernel's OOM killer, ends a process between two lines of Python. A second,
tiny process (this file, run as a script) reads the other end of a pipe: if it closes without a farewell message, the
process prints a sentence on the cause, on the data that is safe, and on the next step.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FAREWELL = b"farewell"
_FATAL = "Fatal Python error: "  # how faulthandler begins
_pipes: list[int] = []  # writing ends of the active watchers

_CRASHED = (
    "A library crashed on this machine: llama.cpp, torch, or one of their dependencies. With `lbx run --workers 1` a "
    "crash loses only the prompt that caused it"
)
_UNKNOWN_CAUSE = (
    "Exit code 137 is SIGKILL: unless a user sent it, memory ran out, as dmesg or the cluster's job log reports. Use a "
    "smaller model, or a smaller context_window or kv_cells in its card. Any other code means that a library crashed "
    "in several threads at once"
)
_CAUSES = {
    "Illegal instruction": (
        "illegal instruction, SIGILL",
        "A library used an instruction that this processor or its hypervisor does not support",
    ),
    "Segmentation fault": ("segmentation fault, SIGSEGV", _CRASHED),
    "Floating-point exception": ("arithmetic error, SIGFPE", _CRASHED),
    "Aborted": ("abort, SIGABRT", _CRASHED),
    "Bus error": (
        "bus error, SIGBUS",
        "A memory-mapped file, such as the model's, was truncated, or its disk failed during a read",
    ),
}


@contextmanager
def explain_crashes(safe: str) -> Iterator[None]:
    """Print an explanation to standard error if this process crashes within the block.

    Args:
        safe: a sentence on the data that is not lost.
    """
    from lbx.base.processes import (  # imported here because lbx is not importable when this file runs as a script
        DEVNULL,
        Popen,
        defer_signals,
        python_command,
    )

    if faulthandler.is_enabled():  # already watched, or enabled by a user who wants the traceback
        yield
        return
    reading, writing = os.pipe()
    _pipes.append(writing)
    command = python_command("-I", "-S", str(Path(__file__)), str(reading), safe)
    try:
        with defer_signals(), suppress(OSError):  # without the second process a crash is not explained
            # A separate session, so that signals to the terminal's processes do not end the watcher.
            Popen(command, stdin=DEVNULL, pass_fds=[reading], start_new_session=True)
        os.close(reading)
        faulthandler.enable(writing, all_threads=False)
        yield
    finally:
        with defer_signals():
            faulthandler.disable()
            announce_exit()
            _pipes.remove(writing)
            os.close(writing)


def announce_exit() -> None:
    """Notify the watcher that this process ends regularly and has reported any error itself."""
    for pipe in _pipes:
        with suppress(OSError):
            os.write(pipe, _FAREWELL)


def crash_message(text: str, safe: str) -> str:
    """Compose the message about a crash.

    Args:
        text: output of faulthandler, or "" if the process was killed from outside, or crashed in two threads at
            once: the first removes faulthandler's hook before it writes.
        safe: a sentence on the data that is not lost.
    """
    # Threads that crash together interleave their output, so the cause is searched for anywhere in it.
    matches = (name for name in _CAUSES if name in text)
    cause = next(matches, text.partition("\n")[0].replace(_FATAL, "").strip())
    how, fix = _CAUSES.get(cause, (cause, _CRASHED)) if cause else ("without an error message", _UNKNOWN_CAUSE)
    return f"error: lbx was ended by the system ({how}). {safe} {fix}.\n  try: lbx doctor\n"


def _main(pipe: str, safe: str) -> None:
    with os.fdopen(int(pipe), "rb") as stream:
        output = stream.read()
    if output.startswith(_FATAL.encode()) or _FAREWELL not in output:
        sys.stderr.write(crash_message(output.decode("utf-8", "replace"), safe))


if __name__ == "__main__":
    _main(*sys.argv[1:])
