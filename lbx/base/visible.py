r"""Text from elsewhere as it may be shown: what would steer a terminal, or deceive its reader, is spelled out.

A model's name, an answer or a file's name may hold escape sequences (titles, colours, the cursor), C1 controls, which
some terminals obey as well, bidirectional overrides and characters without width. They are shown as Python would write
them: ``\x1b``, ``\u202e``. Everything that people can read stays, every script and emoji.
"""

from __future__ import annotations

import re

_JOINED = "\u0600-\u0fff\u1000-\u109f\u1780-\u17ff\u1800-\u18af\u200c\u200d\U00010a00-\U00011fff"
"""Scripts whose spelling needs joiners: Arabic, Persian, the scripts of India, Burmese, Khmer, Mongolian ..."""
_PICTURES = "\u00a9\u00ae\u2030-\u205f\u2100-\u2bff\u3000-\u303f\u3297\u3299\ufe0f\U0001f000-\U0001faff"
_IDEOGRAPHS = "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"

_ALWAYS = (
    # Steers: C0 but tab and line feed, DEL, C1; line and paragraph separators; lone surrogates cannot even be written.
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
    # Turns: marks, embeddings, overrides and isolates of direction.
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f"
    # Hides: no width, fillers, invisible operators, annotations, notes of music, tags.
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b\u2060-\u2065\u2800\u3164\ufeff\uffa0\ufff0-\ufffb"
    "\U0001d173-\U0001d17a\U000e0000-\U000e00ff"
)
_HIDDEN = re.compile(
    f"[{_ALWAYS}]"
    # Joiners where no script needs them, variation selectors behind nothing that varies.
    f"|(?<![{_JOINED}{_PICTURES}\U0001f3fb-\U0001f3ff])[\u200c\u200d]|[\u200c\u200d](?![{_JOINED}{_PICTURES}])"
    f"|(?<![0-9#*{_PICTURES}{_IDEOGRAPHS}])[\u180b-\u180d\ufe00-\ufe0f]|(?<![{_IDEOGRAPHS}])[\U000e0100-\U000e01ef]"
)
_PERHAPS = re.compile(f"[{_ALWAYS}\u200c\u200d\u180b-\u180d\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""What ``_HIDDEN`` is about, in one class: ten times as fast to look for."""

_BREAKS = re.compile("[\t\n]")
_FORMULA = re.compile(r"\t|\s*[=+\-@\uff1d\uff0b\uff0d\uff20]")
"""Spreadsheets pass over white space before a formula."""


def visible(text: str) -> str:
    """The text with everything spelled out that steers or hides; line feeds and tabs stay."""
    if _is_plain(text):
        return text
    return _HIDDEN.sub(_spelled, text)


def one_line(text: str) -> str:
    """``visible``, and line feeds and tabs spelled out, too: a name must not look like another line."""
    if text.isascii() and text.isprintable():  # nearly all cells of a table
        return text
    return _BREAKS.sub(_spelled, visible(text))


def cell(text: str) -> str:
    """``visible``, with an apostrophe before what a spreadsheet would take for a formula; numbers are left alone."""
    shown = visible(text)
    return f"'{shown}" if _FORMULA.match(shown) and not _is_number(shown) else shown


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def json_escaped(text: str) -> str:
    """JSON with the same characters as JSON's own escapes: the values stay what they are."""
    return text if _is_plain(text) else _HIDDEN.sub(_as_json, text)


def _is_plain(text: str) -> bool:
    # ASCII on one line is ten times as fast to be sure of as anything else.
    return (text.isascii() and text.isprintable()) or not _PERHAPS.search(text)


def _spelled(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def _as_json(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
