"""The exceptions that lbx raises on purpose, each one paragraph for the person at the keyboard.

    LbxError                  exit code 1
    ├── UsageError            exit code 2: the command line, a recipe or a model card is wrong
    ├── BundleError           an archive or an unpacked bundle is damaged, incomplete or unsafe
    │   └── NoDataError       it does not hold a task's data or official settings
    ├── FetchError            a source could not be fetched, or is not what the hub says it is
    ├── BackendError          a model cannot be loaded, or a library is missing
    ├── EndpointError         a model server is gone or refuses everybody: the run stops, nothing is marked as failed
    ├── PromptError           one prompt cannot be made to fit; the sample fails, the run goes on
    │   └── EmptyPromptError  truncation left nothing of it
    ├── StoreError            the results file cannot be opened, read or written
    │   └── ConflictError     it holds what contradicts this; another results file (-o) can take it
    └── InterruptedByUserError  exit code 130 (Ctrl-C) or 143 (terminated): everything finished is safe

Every error carries its cause, and where there is one, the fix and the next command. The command line
prints the three as one paragraph; foreign exceptions are mapped once, ``raise XError(...) from exc``.
"""

from __future__ import annotations

from typing import Any


class LbxError(Exception):
    """Something went wrong that lbx understands.

    Args:
        cause: what happened, a sentence, naming the file, task or setting concerned.
        fix: what to do about it, a sentence, or "" when the cause already says it.
        command: the next command to type, of ``lbx.base.commands.as_command``, or "".
    """

    exit_code = 1

    def __init__(self, cause: str, *, fix: str = "", command: str = "") -> None:
        super().__init__(cause)
        self.cause = cause
        self.fix = fix
        self.command = command

    def __str__(self) -> str:
        text = self.cause
        if self.fix:
            text += f" {self.fix}"
        if self.command:
            text += f" Try: {self.command}"
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        """For the way from one process to another: keyword arguments are no part of ``args``."""
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[LbxError], arguments: tuple[object, ...], state: dict[str, Any]) -> LbxError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(state)
    return error


class UsageError(LbxError):
    """The command line, a recipe or a model card asks for something that does not exist."""

    exit_code = 2


class BundleError(LbxError):
    """An archive or an unpacked bundle is damaged, incomplete or unsafe."""


class NoDataError(BundleError):
    """An unpacked bundle does not hold the data of a task, or its official settings."""


class FetchError(LbxError):
    """A source could not be fetched, or its content is not what the hub or the recipe says."""


class BackendError(LbxError):
    """A model cannot be loaded or run, or the library that would do it is not installed."""


class DoesNotFitError(BackendError):
    """A model or its cache needs more memory than there is, found out before it was taken."""


class EndpointError(LbxError):
    """A model server is gone, or refuses every request; what was being asked is asked again by the next run."""


class PromptError(LbxError):
    """One prompt cannot be made to fit the context window; its sample fails and the run goes on."""


class EmptyPromptError(PromptError):
    """Truncation left nothing of a prompt."""


class StoreError(LbxError):
    """The results file cannot be opened, read or written."""


class ConflictError(StoreError):
    """The results file holds what contradicts the rows to be written; another results file (-o) can take them."""


class InterruptedByUserError(LbxError):
    """Stopped from outside; everything finished before is safe, and the same command goes on."""

    def __init__(self, cause: str, *, exit_code: int = 130) -> None:
        super().__init__(cause, fix="The same command continues.")
        self.exit_code = exit_code
