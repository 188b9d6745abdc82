"""Templates of pages: every text is escaped and shown as ``base.visible`` has it; a name that has no value fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, UndefinedError

from lbx.base.visible import one_line, visible


class MissingValueError(UndefinedError, LookupError):
    """A template asks for a value that there is not, perhaps of JSON in a results file (``base.stored_values``)."""


class _Missing(StrictUndefined):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{"exc": MissingValueError, **options})


def templates(folder: Path, shown: Callable[[str], str] = visible) -> Environment:
    """The templates of a folder.

    Args:
        shown: what becomes of each text before it is escaped. A subclass of ``str`` says itself what is to be shown.
    """
    made = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        auto_reload=False,
        finalize=lambda value: shown(value) if type(value) is str else value,
        undefined=_Missing,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["line"] = one_line
    return made
