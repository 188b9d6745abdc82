"""Ctrl-C and SIGTERM as errors of ours: click would say "Aborted!" and exit with 1, SIGTERM would say nothing. And a
sentence for the signals that no program can answer."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import NoReturn

from lbx.base.crash_report import explained
from lbx.base.errors import InterruptedByUserError

_SAFE = "Whatever was committed before is safe."


class TerminatedError(KeyboardInterrupt):
    """SIGTERM, which cluster schedulers send before they kill: a command ends as for Ctrl-C."""


@contextmanager
def stoppable(*, loads_model: bool) -> Iterator[None]:
    """A command, in which both signals become InterruptedByUserError.

    Args:
        loads_model: a library may crash, or memory run out: explain that, too.
    """
    signal.signal(signal.SIGTERM, _terminate)
    explaining = explained(_SAFE) if loads_model else nullcontext()
    with saying(lambda: "What was not finished has left nothing half-written."), explaining:
        yield


@contextmanager
def saying(what: Callable[[], str]) -> Iterator[None]:
    """Have an interruption of the block say what it leaves behind, as that is then."""
    try:
        yield
    except TerminatedError:
        raise InterruptedByUserError(f"Terminated. {what()}", exit_code=143) from None
    except KeyboardInterrupt:
        raise InterruptedByUserError(f"Interrupted. {what()}") from None


def _terminate(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise TerminatedError
