"""Commands that messages show, to be pasted into a shell. Who named a file must not have written the command."""

from __future__ import annotations

import os
import shlex
from pathlib import PurePath

from lbx.base.visible import one_line


def as_command(*words: str | PurePath) -> str:
    """The words as a POSIX shell takes them: each one argument, and none of them more than that.

    Args:
        words: paths as paths, so that none is taken for an option; what begins one ("-o"), and names, as texts.
    """
    return " ".join(map(_quoted, words))


def _quoted(word: str | PurePath) -> str:
    text = os.fspath(word)
    if isinstance(word, PurePath) and text.startswith("-"):
        text = f"./{text}"
    if one_line(text) == text:
        # Zsh looks for a program behind an equals sign.
        return f"'{text}'" if text.startswith("=") and "'" not in text else shlex.quote(text)
    # What a terminal must not be shown, or would not give back when it is copied, is spelled out.
    return "$'{}'".format("".join(map(_spelled, text)))


def _spelled(character: str) -> str:
    if character.isascii() and character.isprintable() and character not in "\\'":
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))
