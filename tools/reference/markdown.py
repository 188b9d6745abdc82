"""Markdown of the generated pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

MARK = "<!-- Written by docs/generate.py from the code: change it there. -->"
"""First line of a generated page."""
_CODE = re.compile(r"(``.+?``|`[^`]+`)")
_SIGNS = re.compile(r"([\\*<>\[\]|~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")


def page(title: str, *parts: str) -> str:
    """Join the parts of a page below its title."""
    return "\n\n".join([MARK, f"# {title}", *(part for part in parts if part)]) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table; its cells are Markdown without line breaks."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", text)


def code(text: str) -> str:
    """Format a text as code."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def escape(text: str) -> str:
    """Escape the signs of Markdown in a plain text, except in code between grave accents."""
    parts = _CODE.split(text) if text.count("`") % 2 == 0 else [text.replace("`", "\\`")]
    return "".join(part if number % 2 else _SIGNS.sub(r"\\\1", part) for number, part in enumerate(parts))


def sentence(text: str) -> str:
    """Begin a text with a capital letter, and end it with a full stop."""
    text = text.strip()
    return text and f"{text[0].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?', ':')) else '.'}"
