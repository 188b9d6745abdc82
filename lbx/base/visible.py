r"""Escaping of untrusted text for display, and quoting of commands in messages for the shell.

A model's name, an answer or a file's name may contain escape sequences (titles, colours, the cursor), C1 controls,
which some terminals obey as well, bidirectional overrides and zero-width characters. They are shown as Python escapes:
``\x1b``, ``\u202e``. Readable characters, of every script and emoji, are unchanged.

Commands in messages are quoted for the shell, so that a file's name cannot inject code when they are pasted.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import PurePath

_JOINED = "\u0600-\u0fff\u1000-\u109f\u1780-\u17ff\u1800-\u18af\u200c\u200d\U00010a00-\U00011fff"
"""Scripts that use joiners in their spelling: Arabic, Persian, the scripts of India, Burmese, Khmer, Mongolian ..."""
_PICTURES = "\u00a9\u00ae\u2030-\u205f\u2100-\u2bff\u3000-\u303f\u3297\u3299\ufe0f\U0001f000-\U0001faff"
_IDEOGRAPHS = "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"

_ALWAYS = (
    # Controls: C0 except tab and line feed, DEL, C1; line and paragraph separators; lone surrogates, not encodable.
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
    # Text direction: marks, embeddings, overrides and isolates.
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f"
    # Invisible: zero-width characters, fillers, invisible operators, annotations, musical format controls, tags.
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b\u2060-\u2065\u2800\u3164\ufeff\uffa0\ufff0-\ufffb"
    "\U0001d173-\U0001d17a\U000e0000-\U000e00ff"
)
_HIDDEN = re.compile(
    f"[{_ALWAYS}]"
    # Joiners outside scripts that need them, and variation selectors after characters without variants.
    f"|(?<![{_JOINED}{_PICTURES}\U0001f3fb-\U0001f3ff])[\u200c\u200d]|[\u200c\u200d](?![{_JOINED}{_PICTURES}])"
    f"|(?<![0-9#*{_PICTURES}{_IDEOGRAPHS}])[\u180b-\u180d\ufe00-\ufe0f]|(?<![{_IDEOGRAPHS}])[\U000e0100-\U000e01ef]"
)
_PERHAPS = re.compile(f"[{_ALWAYS}\u200c\u200d\u180b-\u180d\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""All characters that ``_HIDDEN`` can match, as a single class: ten times as fast to search for."""

_BREAKS = re.compile("[\t\n]")


def visible(text: str) -> str:
    """Escape control and invisible characters of a text, except line feeds and tabs."""
    if _is_plain(text):
        return text
    return _HIDDEN.sub(_as_escape, text)


def one_line(text: str) -> str:
    """Escape a text like ``visible``, and also line feeds and tabs, so that a name cannot imitate another line."""
    if text.isascii() and text.isprintable():  # fast path for nearly all cells of a table
        return text
    return _BREAKS.sub(_as_escape, visible(text))


def escape_json(text: str) -> str:
    """Replace hidden characters in JSON text by JSON escapes, which leaves the values unchanged."""
    return text if _is_plain(text) else _HIDDEN.sub(_as_json, text)


def _is_plain(text: str) -> bool:
    # The check for printable ASCII is ten times as fast as the regular expression.
    return (text.isascii() and text.isprintable()) or not _PERHAPS.search(text)


def _as_escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def _as_json(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


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
