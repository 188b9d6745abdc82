"""Readers of prediction files: each row is checked, and its line is kept byte for byte.

Every error in a file becomes a ``UsageError`` that names the file and the line, counted from 1.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lbx.base.errors import UsageError
from lbx.base.inputs import LARGE, is_database, read_input
from lbx.base.limits import RECORD_BYTES
from lbx.base.visible import as_command

_GZIP = b"\x1f\x8b"
_LONGEST = 2**62
_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class PredictionLine:
    """Row of a prediction file, with its line verbatim.

    Attributes:
        location: file and line, for messages.
        number: line number, from 1.
        raw: the line verbatim, without the final line feed. It includes a carriage return, a byte order mark,
            adjacent blank lines and a CSV file's header, so that all ``raw`` joined by the file's separator are the
            file again.
        values: the row's JSON object, or the cells of a CSV file by column.
    """

    location: str
    number: int
    raw: str
    values: dict[str, Any]

    def require(self, name: str) -> Any:
        """Return the value of a required key. Raises UsageError."""
        if name not in self.values:
            raise prediction_file_error(self.location, f"the key {name!r} is missing")
        return self.values[name]

    def text(self, name: str) -> str:
        """Return the text of a required key. Raises UsageError."""
        value = self.require(name)
        if not isinstance(value, str):
            raise prediction_file_error(self.location, f"{name!r} must be text, not {describe_value(value)}")
        return value

    def optional_text(self, name: str) -> str:
        """Return the text of a key that no score depends on, or "" if it is missing or not text."""
        value = self.values.get(name)
        return value if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows of a prediction file.

    Attributes:
        final_newline: whether the last row ends in ``separator``.
        separator: text between the ``raw`` of rows, "" for a JSON array, because its ``raw`` include the commas.
    """

    lines: list[PredictionLine]
    final_newline: bool
    separator: str = "\n"


def row_length(line: PredictionLine, *, needed_by: str = "") -> int:
    """Return the value of "length", or 0 if it is not a number.

    Args:
        needed_by: metric that needs the length, for the UsageError that is then raised instead of returning 0.
    """
    value = line.values.get("length")
    shortest = 0 if needed_by else -_LONGEST
    if isinstance(value, int | float) and not isinstance(value, bool) and shortest <= value < _LONGEST:
        return int(value)
    if needed_by:
        raise prediction_file_error(
            line.location, f"'length' must be a number from 0: the score of {needed_by} depends on it"
        )
    return 0


def require_references(line: PredictionLine, key: str, *, with_numbers: bool = False) -> list[Any]:
    """Return the list of reference answers under a key. Raises UsageError unless it contains texts, at least one.

    Official scripts would read a text as its characters, and score every answer to an empty or nested list as wrong.

    Args:
        with_numbers: whether the metric compares numbers by their text.
    """
    values = line.require(key)
    kinds = str | int | float if with_numbers else str
    if not isinstance(values, list) or not values:
        found = "an empty list" if values == [] else describe_value(values)
        raise prediction_file_error(line.location, f"{key!r} must be a list with a reference answer, not {found}")
    for value in values:
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise prediction_file_error(
                line.location, f"{key!r} must be a list of texts, without {describe_value(value)}"
            )
    return values


def prediction_file_error(location: str, reason: str) -> UsageError:
    """Error for a prediction file that cannot be imported."""
    return UsageError(
        f"{location}: {reason}.", fix="No rows were imported. Correct the file or leave it out, and try again."
    )


def read_bytes(path: Path) -> bytes:
    """Read a prediction file. Raises UsageError if it is missing, a folder, unreadable, empty or compressed."""
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
        raise prediction_file_error(str(path), "the file is empty")
    return data


def parse_document(path: Path, data: bytes) -> dict[str, Any]:
    """Parse a file that must be one JSON object in UTF-8 without repeated keys. Raises UsageError."""
    location = str(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise prediction_file_error(location, f"it is not UTF-8 ({exc.reason})") from exc
    with _translate_json_errors(location):
        return _require_object(location, json.loads(text, object_pairs_hook=_unique_keys))


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} occurs twice")
    return values


def split_rows(
    path: Path, data: bytes, *, array: bool = False, is_filler: Callable[[str], object] = lambda _text: False
) -> FileRows:
    """Split a prediction file in JSON lines into rows. Raises UsageError unless each line is an object in UTF-8.

    Args:
        array: also accept a file that is one JSON array.
        is_filler: returns whether a line is no row, and belongs to the ``raw`` of the row before, like a blank line.
    """
    text = decode_text(path, data)
    if text.lstrip(f"{_BOM} \t\r\n").startswith("["):
        if array:
            spans, end = _parse_array(path, text, 0)
            if text[end:].strip(" \t\r\n"):
                raise _broken_array_error(path, text, end)
            return _array_rows(path, text, spans)
        raise UsageError(
            f"{path} is one JSON array, but this format has one object per line.",
            fix="Convert it to one object per line first.",
            command=f"{as_command('jq', '-c', '.[]', path)} > {as_command(Path(f'{path.stem}.jsonl'))}",
        )
    # No string in JSON contains a bare carriage return, so a single one can only end a line, as in Python.
    separator = "\n" if "\n" in text else "\r"
    final_newline = text.endswith(separator)
    pieces = (text[:-1] if final_newline else text).split(separator)
    return FileRows(list(_parse_lines(path, pieces, separator, is_filler)), final_newline, separator)


def split_document_rows(path: Path, data: bytes, key: str) -> FileRows:
    """Split a file that is one JSON object into the rows of its array ``key``. Raises UsageError."""
    text = decode_text(path, data)
    parse_document(path, data)  # which refuses text that the walk over its keys cannot read
    decoder, at = json.JSONDecoder(), _skip(text, 0, f"{_BOM}{{")
    while text[at] == '"':
        name, at = decoder.raw_decode(text, at)
        at = _skip(text, at, ":")
        if name == key and text[at] == "[":
            return _array_rows(path, text, _parse_array(path, text, at)[0])
        at = _skip(text, decoder.raw_decode(text, at)[1], ",")
    raise prediction_file_error(str(path), f"the key {key!r} with a list of objects is missing")


def split_csv_rows(path: Path, data: bytes) -> FileRows:
    """Split a prediction file in CSV into rows. Raises UsageError unless rows and header are of equal length.

    The number of a row is that of the first line.
    """
    text = decode_text(path, data)
    final_newline = text.endswith("\n")
    pieces = text.removesuffix("\n").split("\n")
    csv.field_size_limit(RECORD_BYTES)
    reader = csv.reader((f"{piece}\n" for piece in pieces), strict=True)
    rows: list[PredictionLine] = []
    header: list[str] | None = None
    begin = end = 0
    try:
        for cells in filter(None, reader):
            number, end = end + 1, reader.line_num
            location = f"{path}, line {number}"
            if header is None:
                header = [name.removeprefix(_BOM) for name in cells]
            elif len(cells) != len(header):
                raise prediction_file_error(location, f"it has {len(cells)} cells, but the header has {len(header)}")
            else:
                raw = "\n".join(pieces[begin:end])
                rows.append(PredictionLine(location, number, raw, dict(zip(header, cells, strict=True))))
                begin = end
    except csv.Error as exc:
        raise prediction_file_error(f"{path}, line {end + 1}", f"it is not valid CSV ({exc})") from exc
    if not rows:
        raise prediction_file_error(str(path), "it has no row below the header")
    last = rows[-1]
    rows[-1] = replace(last, raw="\n".join((last.raw, *pieces[begin:])))
    return FileRows(rows, final_newline)


def decode_text(path: Path, data: bytes) -> str:
    """Decode a file in UTF-8. Raises UsageError naming the line."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        number = data.count(b"\n", 0, exc.start) + 1
        raise prediction_file_error(f"{path}, line {number}", f"it is not UTF-8 ({exc.reason})") from exc


def _parse_array(path: Path, text: str, begin: int) -> tuple[list[tuple[int, int, dict[str, Any]]], int]:
    """Parse the array of objects at an index of a text: (line, end, values) of each, and the end of the array."""
    spans = []
    at = _skip(text, begin, f"{_BOM}[")
    line, counted = 1, 0
    while at < len(text) and text[at] != "]":
        line, counted = line + text.count("\n", counted, at), at
        values, end = _parse_element(f"{path}, line {line}", text, at)
        spans.append((line, end, values))
        at = _skip(text, end, "")
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1, "")
        elif text[at : at + 1] != "]":
            break
    if text[at : at + 1] != "]":
        raise _broken_array_error(path, text, at)
    if not spans:
        raise prediction_file_error(str(path), "the array is empty")
    return spans, at + 1


def _broken_array_error(path: Path, text: str, end: int) -> UsageError:
    line = text.count("\n", 0, end) + 1
    return prediction_file_error(f"{path}, line {line}", "it is not valid JSON (the array breaks off here)")


def _array_rows(path: Path, text: str, spans: list[tuple[int, int, dict[str, Any]]]) -> FileRows:
    """Make rows of the objects of an array. ``raw`` is the source text from the end of the previous object.

    The last ``raw`` includes the end of the file.
    """
    lines, begin = [], 0
    for number, (line, end, values) in enumerate(spans, 1):
        stop = len(text) if number == len(spans) else end
        lines.append(PredictionLine(f"{path}, line {line}", line, text[begin:stop], values))
        begin = stop
    return FileRows(lines, final_newline=False, separator="")


def _skip(text: str, at: int, signs: str) -> int:
    """Index of the first character from ``at`` on that is neither white space nor in ``signs``."""
    while at < len(text) and text[at] in f" \t\r\n{signs}":
        at += 1
    return at


def _parse_element(location: str, text: str, at: int) -> tuple[dict[str, Any], int]:
    with _translate_json_errors(location):
        values, end = json.JSONDecoder(object_pairs_hook=_unique_keys).raw_decode(text, at)
    return _require_object(location, values), end


@contextmanager
def _translate_json_errors(location: str) -> Iterator[None]:
    try:
        yield
    except json.JSONDecodeError as exc:
        raise prediction_file_error(location, f"it is not valid JSON ({exc.msg} at column {exc.colno})") from exc
    except (ValueError, RecursionError) as exc:
        raise prediction_file_error(location, f"cannot parse its JSON ({exc})") from exc


def _require_object(location: str, values: object) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise prediction_file_error(location, f"it contains {describe_value(values)} instead of an object")
    return values


def _parse_lines(
    path: Path, pieces: list[str], separator: str, is_filler: Callable[[str], object]
) -> Iterator[PredictionLine]:
    before, at = "", 0
    while at < len(pieces):
        number, raw = at + 1, pieces[at]
        at += 1
        if _is_blank(raw, is_filler):
            before += raw + separator
            continue
        values = _parse_object(location := f"{path}, line {number}", _strip(raw))
        while at < len(pieces) and _is_blank(pieces[at], is_filler):
            raw += separator + pieces[at]
            at += 1
        yield PredictionLine(location, number, before + raw, values)
        before = ""


def _is_blank(raw: str, is_filler: Callable[[str], object]) -> bool:
    text = _strip(raw)
    return not text or bool(is_filler(text))


def _strip(raw: str) -> str:
    return raw.removeprefix(_BOM).strip(" \t\r\n")


def _parse_object(location: str, text: str) -> dict[str, Any]:
    with _translate_json_errors(location):
        return _require_object(location, json.loads(text, object_pairs_hook=_unique_keys))


def describe_value(value: object) -> str:
    """Describe a JSON value by its type, or a number by its value, for messages."""
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
            return f"a list with {describe_value(bad)} in it" if bad is not None or None in value else "a list"
        case _:
            return "an object"
