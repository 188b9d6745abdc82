"""Shell-safe rendering of the commands in messages, so that a file's name cannot inject code when they are pasted."""

from __future__ import annotations

import os
import shlex
from pathlib import PurePath

from lbx.base.visible import one_line


def as_command(*words: str | PurePath) -> str:
    """Quote words for a POSIX shell, each as exactly one argument.

    Args:
        words: paths as path objects, so that they are never read as options; options ("-o") and names as strings.
    """
    return " ".join(map(_quote, words))


def _quote(word: str | PurePath) -> str:
    text = os.fspath(word)
    if isinstance(word, PurePath) and text.startswith("-"):
        text = f"./{text}"
    if one_line(text) == text:
        # Zsh expands =NAME to the path of a program.
        return f"'{text}'" if text.startswith("=") and "'" not in text else shlex.quote(text)
    # Escape characters that are unsafe to print, or would not survive copying from a terminal.
    return "$'{}'".format("".join(map(_escape, text)))


def _escape(character: str) -> str:
    if character.isascii() and character.isprintable() and character not in "\\'":
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))
