"""Exceptions that lbx raises deliberately. Each message is a paragraph for the user.

    LbxError                  exit code 1
    ├── UsageError            exit code 2: the command line, a recipe or a model card is wrong
    ├── BundleError           an archive, an unpacked bundle or an attestation is damaged, incomplete or unsafe
    │   └── NoDataError       an unpacked bundle lacks a task's data or official settings
    ├── FetchError            a source could not be fetched, or differs from the hub's description
    ├── BackendError          a model cannot be loaded, or a library is missing
    ├── EndpointError         a model server is gone or refuses all requests: the run stops, no sample is marked failed
    ├── PromptError           a prompt cannot be shortened to fit; the sample fails, the run continues
    │   └── EmptyPromptError  truncation removed the whole prompt
    ├── StoreError            the results file cannot be opened, read or written
    │   ├── ConflictError     its contents contradict the new rows; another results file (-o) can store them
    │   ├── InUseError        another process writes it; a merge can add another results file (-o) later
    │   └── NoLocksError      its file system has no locks
    └── InterruptedByUserError  exit code 130 (Ctrl-C) or 143 (terminated): everything finished is safe

Every error has a cause, and optionally a fix and the next command. The command line prints the three as one
paragraph. Foreign exceptions are mapped once, by ``raise XError(...) from exc``.

Python errors that may be caused by values in a results file have a message, too. Results files are untrusted. The types
of their columns are checked (``lbx.results.file.contents``), but JSON values are parsed by the code that needs them,
and may be of any type.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

from lbx.base.exit_codes import ExitCode


class LbxError(Exception):
    """Base class of the errors that lbx raises deliberately.

    Args:
        cause: a sentence on the problem that names the file, task or setting concerned.
        fix: a sentence on the remedy, or "" if it is clear from the cause.
        command: the next command to type, from ``lbx.base.visible.as_command``, or "".
    """

    exit_code = ExitCode.FAILED

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
        """Support pickling between processes: ``args`` does not contain the keyword arguments."""
        return _rebuild_error, (type(self), self.args, self.__dict__)


def _rebuild_error(error_class: type[LbxError], arguments: tuple[object, ...], state: dict[str, Any]) -> LbxError:
    error = error_class.__new__(error_class, *arguments)
    error.__dict__.update(state)
    return error


class UsageError(LbxError):
    """The command line, a recipe or a model card is wrong."""

    exit_code = ExitCode.USAGE


class BundleError(LbxError):
    """An archive, an unpacked bundle or an attestation is damaged, incomplete or unsafe."""


class NoDataError(BundleError):
    """An unpacked bundle lacks a task's data or official settings."""


class FetchError(LbxError):
    """A source could not be fetched, or its content does not match the hub or the recipe."""


class BackendError(LbxError):
    """A model cannot be loaded or run, or the library for it is not installed."""


class DoesNotFitError(BackendError):
    """A model or its KV cache needs more memory than is available. Raised before allocation."""


class EndpointError(LbxError):
    """A model server is gone or refuses every request. The next run repeats the pending requests."""


class PromptError(LbxError):
    """A prompt cannot be shortened to fit the context window. Its sample fails and the run continues."""


class EmptyPromptError(PromptError):
    """Truncation removed a whole prompt."""


class StoreError(LbxError):
    """The results file cannot be opened, read or written."""


class ConflictError(StoreError):
    """The results file contradicts the rows to be written. Another results file (-o) can store them."""


class InUseError(StoreError):
    """Another process uses the results file.

    Args:
        path: the file.
        process: id of the process, if the system provides it.
    """

    def __init__(self, cause: str, *, path: Path, process: int | None = None, fix: str = "") -> None:
        super().__init__(cause, fix=fix)
        self.path = path
        self.process = process


class NoLocksError(StoreError):
    """The file system of a results file has no locks.

    Args:
        reason: the system's error.
        read_only: whether the file was only to be read.
    """

    def __init__(self, path: Path, reason: str, *, read_only: bool) -> None:
        super().__init__(
            f"The file system of {path} has no locks ({reason}), but a results file needs them.",
            fix="Copy the file, and its .wal if it has one, to a local disk, and read the copy."
            if read_only
            else "Write to a file on a local disk (-o), or have a run write to a folder on a local disk and copy each "
            "commit here: --scratch DIR.",
        )


class InterruptedByUserError(LbxError):
    """Stopped by a signal. Everything finished is safe, and the same command continues the work."""

    def __init__(self, cause: str, *, exit_code: ExitCode = ExitCode.INTERRUPTED) -> None:
        super().__init__(cause, fix="Run the same command again to continue.")
        self.exit_code = exit_code


VALUE_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_JSON_TYPES = (dict, list, str, int, float, type(None))

files_read: set[Path] = set()
"""Results files read by this process; cleared when a command begins."""


def stored_value_error(error: BaseException) -> LbxError | None:
    """Convert an error that stored values may have caused to a StoreError, or None for other errors: bugs of lbx."""
    if not files_read or not isinstance(error, VALUE_ERRORS) or not _may_come_from_stored_values(error):
        return None
    return StoreError(
        f"{unreadable_values()[:-1]} ({type(error).__name__}: {error}).",
        fix="If only lbx wrote them, this is a bug: please report it with the traceback printed by --debug.",
    )


def unreadable_values() -> str:
    """Message about unreadable values in results files, without the text of the error, which may quote the values."""
    return f"Values in {', '.join(sorted(map(str, files_read)))} cannot be read."


def _may_come_from_stored_values(error: BaseException) -> bool:
    if isinstance(error, AttributeError) and not isinstance(error.obj, _JSON_TYPES):
        return False
    frames = traceback.walk_tb(error.__traceback__)  # backends receive prompts, not stored JSON
    return not any(str(frame.f_globals.get("__name__")).startswith("lbx.backends.") for frame, _ in frames)
