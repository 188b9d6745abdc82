"""Options of a model card's ``[options]`` table: each backend has a class that checks their values.

The class is in the backend's folder; this module has the common parts.
"""

from __future__ import annotations

from dataclasses import dataclass

from lbx.base.errors import UsageError
from lbx.base.limits import SET_CONTEXT_TOKENS
from lbx.base.resources import usable_cpu_count

AUTO = "auto"
MOST_THREADS = 512  # llama.cpp's own limit
_MOST_FLOAT, _LONGEST_VALUE = 1e18, 40
POOLINGS = ("", "mean", "last", "cls")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOptions:
    """Base of each backend's options. Its docstring documents each field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedOptions(BackendOptions):
    """The scripted backend has no options; its answers are the model."""


def thread_count(threads: int) -> int:
    """Number of threads to compute with; 0 requests one for each CPU that this process may use."""
    return threads or min(usable_cpu_count(), MOST_THREADS)


def check_at_least(options: object, least: int, *names: str) -> None:
    """Raise UsageError for an option that is smaller, or larger than any model or library can use."""
    for name in names:
        if not (value := getattr(options, name)) >= least:
            raise UsageError(f"{name} must be at least {least}, not {value}.")
        if value > (most := _MOST_FLOAT if isinstance(value, float) else SET_CONTEXT_TOKENS):
            raise UsageError(f"{name} must be at most {most:,}, not {f'{value}'[:_LONGEST_VALUE]}.")


def check_choice(options: object, choices: tuple[str, ...], *names: str) -> None:
    """Raise UsageError for an option that is not among the choices."""
    for name in names:
        if (value := getattr(options, name)) not in choices:
            raise UsageError(f"{name} must be {', '.join(c or repr('') for c in choices)}, not {value!r}.")
