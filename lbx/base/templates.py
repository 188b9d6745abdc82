"""Jinja environment for the templates of pages: texts are made visible and escaped, undefined names raise an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, UndefinedError

from lbx.base.visible import one_line, visible


class MissingValueError(UndefinedError, LookupError):
    """A template uses a value that is missing, perhaps in the JSON of a results file (``base.errors``)."""


class _Missing(StrictUndefined):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{"exc": MissingValueError, **options})


def template_environment(folder: Path, display: Callable[[str], str] = visible) -> Environment:
    """Create the template environment of a folder.

    Args:
        display: function for texts, called before escaping, except for instances of subclasses of ``str``.
    """
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        auto_reload=False,
        finalize=lambda value: display(value) if type(value) is str else value,
        undefined=_Missing,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["line"] = one_line
    return environment
