"""Templates of pages: every text is escaped and shown as ``base.visible`` has it; a name that has no value fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from lbx.base.visible import one_line, visible


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
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["line"] = one_line
    return made
