"""Ctrl-C and SIGTERM as errors of ours: click would say "Aborted!" and exit with 1, SIGTERM would say nothing. And a
sentence for the signals that no program can answer."""

from __future__ import annotations

import functools
import inspect
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


def stoppable(command: Callable[..., None], *, loads_model: bool = False) -> Callable[..., None]:
    """The command, with both signals turned into InterruptedByUserError.

    Args:
        loads_model: a library may crash, or memory run out: explain that, too.
    """
    explaining = functools.partial(explained, _SAFE) if loads_model else nullcontext

    @functools.wraps(command)
    def run(**arguments: object) -> None:
        signal.signal(signal.SIGTERM, _terminate)
        with saying(lambda: "What was not finished has left nothing half-written."), explaining():
            command(**arguments)

    # Typer asks four times what the parameters are, and annotations that are texts are compiled each time.
    signature = inspect.signature(command, eval_str=True)
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    return run


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
