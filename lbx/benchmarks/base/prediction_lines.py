"""Lines of imported prediction files: read whole, checked, and kept byte for byte.

Every error in a file becomes a ``UsageError`` that names the file and the line, counted from 1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lbx.base.commands import as_command
from lbx.base.errors import UsageError
from lbx.base.inputs import LARGE, is_database, read_input

_GZIP = b"\x1f\x8b"
_LONGEST = 2**62
_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class PredictionLine:
    """One row of a file.

    Attributes:
        where: file and line, for messages.
        number: line number, from 1.
        raw: the line verbatim, without the final line feed; it includes a carriage return, a byte order mark and
            adjacent blank lines, so that the lines joined by the file's separator are the file again.
        values: the JSON object on it.
    """

    where: str
    number: int
    raw: str
    values: dict[str, Any]

    def need(self, name: str) -> Any:
        """Return a required field. Raises UsageError."""
        if name not in self.values:
            raise wrong(self.where, f"the key {name!r} is missing")
        return self.values[name]

    def text(self, name: str) -> str:
        """Return a required text field. Raises UsageError."""
        value = self.need(name)
        if not isinstance(value, str):
            raise wrong(self.where, f"{name!r} must be text, not {_kind(value)}")
        return value

    def optional_text(self, name: str) -> str:
        """Return a field that no score depends on; "" if it is missing or not text."""
        value = self.values.get(name)
        return value if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True)
class Content:
    """Rows of a file.

    Attributes:
        final_newline: whether the last row ends in ``separator``.
        separator: text between the rows' ``raw``; "" for a JSON array, because its rows include it.
    """

    lines: list[PredictionLine]
    final_newline: bool
    separator: str = "\n"


def row_length(line: PredictionLine, *, needed_by: str = "") -> int:
    """Return the field "length", 0 if it is not a number. With ``needed_by``, that raises UsageError instead."""
    value = line.values.get("length")
    if isinstance(value, int | float) and not isinstance(value, bool) and -_LONGEST < value < _LONGEST:
        return int(value)
    if needed_by:
        raise wrong(line.where, f"'length' must be a number: the score of {needed_by} depends on it")
    return 0


def wrong(where: str, what: str) -> UsageError:
    """Return the error for a prediction file that cannot be imported."""
    return UsageError(
        f"{where}: {what}.", fix="No rows were imported. Correct the file or leave it out, and try again."
    )


def read_bytes(path: Path) -> bytes:
    """Read a file. Raises UsageError: missing, a folder, unreadable, empty or packed."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder, but this format is a single file.", fix="Pass the file in the folder.")
    try:
        data = read_input(path, LARGE)
    except OSError as exc:
        raise UsageError(f"{path} cannot be read: {exc.strerror or exc}.", fix="Check the path.") from exc
    if is_database(data):
        raise UsageError(
            f"{path} is a results file; `lbx import` reads files of other programs.",
            fix="Use `lbx merge` to join results files.",
        )
    if data.startswith(_GZIP):
        raise UsageError(
            f"{path} is compressed with gzip.", fix="Decompress it first.", command=as_command("gunzip", path)
        )
    if not data.strip():
        raise wrong(str(path), "the file is empty")
    return data


def split(
    path: Path, data: bytes, *, array: bool = False, plain: Callable[[str], object] = lambda _text: False
) -> Content:
    """Split a JSON lines file into rows. Raises UsageError: not UTF-8, not JSON, or a line without an object.

    Args:
        array: also accept a file that is one JSON array.
        plain: returns whether a line is not a row, and belongs to the row before it as blank lines do.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as exc:
        number = data.count(b"\n", 0, exc.start) + 1
        raise wrong(f"{path}, line {number}", f"it is not UTF-8 ({exc.reason})") from exc
    if text.lstrip(f"{_BOM} \t\r\n").startswith("["):
        if array:
            return Content(list(_elements(path, text)), final_newline=False, separator="")
        raise UsageError(
            f"{path} is one JSON array, but this format has one object per line.",
            fix="Convert it to one object per line first.",
            command=f"{as_command('jq', '-c', '.[]', path)} > {as_command(Path(f'{path.stem}.jsonl'))}",
        )
    # No string in JSON contains a bare carriage return, so a single one can only end a line, as in Python.
    separator = "\n" if "\n" in text else "\r"
    final_newline = text.endswith(separator)
    pieces = (text[:-1] if final_newline else text).split(separator)
    return Content(list(_lines(path, pieces, separator, plain)), final_newline, separator)


def _elements(path: Path, text: str) -> Iterator[PredictionLine]:
    """Yield the objects of a JSON array; ``raw`` begins after the previous object, and the last one has the rest."""
    spans = []
    at, line, counted = _past(text, 0, f"{_BOM}["), 1, 0
    while at < len(text) and text[at] != "]":
        line, counted = line + text.count("\n", counted, at), at
        values, end = _element(f"{path}, line {line}", text, at)
        spans.append((line, end, values))
        at = _past(text, end, "")
        if text[at : at + 1] == ",":
            at = _past(text, at + 1, "")
        elif text[at : at + 1] != "]":
            break
    if text[at:].strip(" \t\r\n") != "]":
        raise wrong(
            f"{path}, line {text.count(chr(10), 0, at) + 1}", "it is not valid JSON (the array breaks off here)"
        )
    if not spans:
        raise wrong(str(path), "the array is empty")
    begin = 0
    for number, (line, end, values) in enumerate(spans, 1):
        stop = len(text) if number == len(spans) else end
        yield PredictionLine(f"{path}, line {line}", line, text[begin:stop], values)
        begin = stop


def _past(text: str, at: int, signs: str) -> int:
    """Return the index of the first character from ``at`` that is neither white space nor one of the signs."""
    while at < len(text) and text[at] in f" \t\r\n{signs}":
        at += 1
    return at


def _element(where: str, text: str, at: int) -> tuple[dict[str, Any], int]:
    with _json(where):
        values, end = json.JSONDecoder().raw_decode(text, at)
    return _object(where, values), end


@contextmanager
def _json(where: str) -> Iterator[None]:
    try:
        yield
    except json.JSONDecodeError as exc:
        raise wrong(where, f"it is not valid JSON ({exc.msg} at column {exc.colno})") from exc
    except (ValueError, RecursionError) as exc:
        raise wrong(where, f"cannot parse its JSON ({exc})") from exc


def _object(where: str, values: object) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise wrong(where, f"it contains {_kind(values)} instead of an object")
    return values


def _lines(path: Path, pieces: list[str], separator: str, plain: Callable[[str], object]) -> Iterator[PredictionLine]:
    before, at = "", 0
    while at < len(pieces):
        number, raw = at + 1, pieces[at]
        at += 1
        if _is_none(raw, plain):
            before += raw + separator
            continue
        values = _parsed(where := f"{path}, line {number}", _bare(raw))
        while at < len(pieces) and _is_none(pieces[at], plain):
            raw += separator + pieces[at]
            at += 1
        yield PredictionLine(where, number, before + raw, values)
        before = ""


def _is_none(raw: str, plain: Callable[[str], object]) -> bool:
    text = _bare(raw)
    return not text or bool(plain(text))


def _bare(raw: str) -> str:
    return raw.removeprefix(_BOM).strip(" \t\r\n")


def _parsed(where: str, text: str) -> dict[str, Any]:
    with _json(where):
        return _object(where, json.loads(text))


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case str():
            return "text"
        case list():
            bad = next((item for item in value if not isinstance(item, str)), None)
            return f"a list with {_kind(bad)} in it" if bad is not None or None in value else "a list"
        case _:
            return "an object"
