"""Why a process died that could not say it itself.

A library's illegal instruction, or the kernel's OOM killer, ends a process between two lines of Python. So a second,
tiny process (this file, run as a script) holds the other end of a pipe: when that closes without a farewell, it says
in a sentence what happened, what is safe, and what to do.
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
_pipes: list[int] = []  # the writing end, while a death is watched

_CRASHED = (
    "A library crashed on this machine: llama.cpp, torch, or one that they use. With `lbx run --workers 1` a crash "
    "costs only the prompt that causes it"
)
_UNSAID = (
    "Exit code 137 is SIGKILL: if nobody killed it, memory ran out, as the kernel's OOM killer says in dmesg, or the "
    "cluster of the job: use a smaller model, a smaller context_window or kv_cells in its card. Any other code is a "
    "library that crashed in several threads at once"
)
_CAUSES = {
    "Illegal instruction": (
        "illegal instruction, SIGILL",
        "A library used an instruction that this processor, or its hypervisor, does not support",
    ),
    "Segmentation fault": ("segmentation fault, SIGSEGV", _CRASHED),
    "Floating-point exception": ("arithmetic error, SIGFPE", _CRASHED),
    "Aborted": ("abort, SIGABRT", _CRASHED),
    "Bus error": (
        "bus error, SIGBUS",
        "A memory-mapped file, such as the model's, was cut off, or its disk failed while it was read",
    ),
}


@contextmanager
def explained(safe: str) -> Iterator[None]:
    """Have the death of this process within the block explained on standard error.

    Args:
        safe: a sentence on what is not lost.
    """
    from lbx.base.processes import (  # not above: the script that this file also is has no lbx
        DEVNULL,
        Popen,
        python_command,
    )

    if faulthandler.is_enabled():  # somebody watches already, and wants the traceback
        yield
        return
    reading, writing = os.pipe()
    command = python_command("-I", "-S", str(Path(__file__)), str(reading), safe)
    with suppress(OSError):  # no process to be had: a death goes unexplained, as everywhere
        # A session of its own: what ends the terminal's processes must not end the one that explains it.
        Popen(command, stdin=DEVNULL, pass_fds=[reading], start_new_session=True)
    os.close(reading)
    _pipes.append(writing)
    faulthandler.enable(writing, all_threads=False)
    try:
        yield
    finally:
        faulthandler.disable()
        farewell()
        _pipes.remove(writing)
        os.close(writing)


def farewell() -> None:
    """This process ends now, and has said why."""
    for pipe in _pipes:
        with suppress(OSError):
            os.write(pipe, _FAREWELL)


def sentence(text: str, safe: str) -> str:
    """What to tell of a process that died.

    Args:
        text: what faulthandler wrote; "" where the process was killed from outside, or by two threads at
            once: the first takes faulthandler's hook away before it writes.
        safe: a sentence on what is not lost.
    """
    # Threads that die together write between each other's words: looked for, and not at one place.
    known = (name for name in _CAUSES if name in text)
    cause = next(known, text.partition("\n")[0].replace(_FATAL, "").strip())
    how, fix = _CAUSES.get(cause, (cause, _CRASHED)) if cause else ("before it could say why", _UNSAID)
    return f"error: lbx was ended by the system ({how}). {safe} {fix}.\n  try: lbx doctor\n"


def _main(pipe: str, safe: str) -> None:
    with os.fdopen(int(pipe), "rb") as stream:
        output = stream.read()
    if output.startswith(_FATAL.encode()) or _FAREWELL not in output:
        sys.stderr.write(sentence(output.decode("utf-8", "replace"), safe))


if __name__ == "__main__":
    _main(*sys.argv[1:])
