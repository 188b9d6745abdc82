"""Readers of a benchmark's data files in a bundle: JSON, JSON lines, JSON lines inside a zip, CSV.

Rows come one at a time: the largest file (LongBench v2's data.json) is half a gigabyte of one JSON array. Every
error in a file becomes a ``BundleError`` that names the file and the line.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import json
import mmap
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar, TypeVarTuple

from lbx.base.errors import BundleError
from lbx.base.inputs import open_input, read_input
from lbx.base.limits import RECORD_BYTES, ZIP_RATIO, is_zip_bomb

T = TypeVar("T")
More = TypeVarTuple("More")

_CHUNK = 1 << 22
_BUFFER = 1 << 20
_LIMIT = RECORD_BYTES
_TOO_MUCH = f"more than {ZIP_RATIO} times its size"
_FIX = "The file has changed since it was bundled, or its source has changed: check the archive and unpack it again."
_COMMAND = "lbx verify NAME.tar"
_SPACE = re.compile(r"[ \t\r\n]*")


class DataRow(NamedTuple):
    """Record of a data file, with its file and line (``location``) for messages."""

    location: str
    values: dict[str, Any]

    def get(self, name: str, kind: type[T]) -> T:
        """Return a required field. Raises BundleError if it is missing or of another type."""
        if name not in self.values:
            raise damaged_file_error(self.location, f"the field {name!r} is missing")
        value = self.values[name]
        if not isinstance(value, kind):
            raise damaged_file_error(
                self.location, f"the field {name!r} is {type(value).__name__}, not {kind.__name__}"
            )
        return value

    def identifier(self, name: str) -> str:
        """Return a required id, a text or a whole number, as text. Raises BundleError."""
        value = self.get(name, object)
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise damaged_file_error(self.location, f"the field {name!r} must be text or a whole number")
        return str(value)


def damaged_file_error(location: str, reason: str) -> BundleError:
    """Error for a data file that cannot be used."""
    return BundleError(f"The data file {location} is damaged: {reason}.", fix=_FIX, command=_COMMAND)


@contextmanager
def _translate_errors(source: str) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, KeyError) as exc:
        # zipfile raises KeyError for a missing member, NotImplementedError for an unknown compression.
        raise damaged_file_error(source, str(exc).strip("'\"") or type(exc).__name__) from exc
    except UnicodeDecodeError as exc:
        raise damaged_file_error(source, f"it is not UTF-8 ({exc.reason})") from exc
    except json.JSONDecodeError as exc:
        raise damaged_file_error(f"{source}, line {exc.lineno}", f"{exc.msg} at column {exc.colno}") from exc
    except (ValueError, RecursionError) as exc:  # a number of thousands of digits, brackets within brackets
        raise damaged_file_error(source, f"cannot parse its JSON ({exc})") from exc


def cached_by_mtime(read_file: Callable[[Path, *More], T]) -> Callable[[Path, *More], T]:
    """Cache a function's result for a file until the file's time or size changes. Raises BundleError."""

    @lru_cache(maxsize=256)
    def cached_read(_mtime_ns: int, _size: int, path: Path, *args: *More) -> T:
        return read_file(path, *args)

    @wraps(read_file)
    def wrapper(path: Path, *args: *More) -> T:
        with _translate_errors(str(path)):
            stat = path.stat()
            return cached_read(stat.st_mtime_ns, stat.st_size, path, *args)

    return wrapper


def first_byte(path: Path) -> bytes:
    """Read the first byte of a JSON file that is not white space. Raises BundleError."""
    with _translate_errors(str(path)), open_input(path) as file:
        return file.read(4096).removeprefix(codecs.BOM_UTF8).lstrip()[:1]


@cached_by_mtime
def count_jsonl(path: Path) -> int:
    """Count the lines of a JSON lines file that are not blank, without parsing them. Raises BundleError."""
    with _translate_errors(str(path)), open_input(path) as file:
        return sum(1 for line in _read_lines(file, str(path)) if line.strip())


def read_jsonl(path: Path) -> Iterator[DataRow]:
    """Yield the rows of a JSON lines file. Raises BundleError."""
    with _translate_errors(str(path)), open_input(path) as file:
        yield from _parse_rows(_read_lines(file, str(path)), str(path))


def read_zip_jsonl(path: Path, member: str) -> Iterator[DataRow]:
    """Yield the rows of a JSON lines file inside a zip, unpacked as they are read. Raises BundleError."""
    source = f"{path}, {member}"
    with _translate_errors(source), _open_zip(path) as archive, _open_member(archive, member) as file:
        yield from _parse_rows(_read_lines(file, source), source)


def read_json_array(path: Path) -> Iterator[DataRow]:
    """Yield the objects of a file that is one JSON array, with about one object in memory. Raises BundleError."""
    with _translate_errors(str(path)), open_input(path) as file:
        yield from _Array(file, str(path)).rows()


def count_json_array(path: Path) -> int:
    """Count the objects of a file that is one valid JSON array, by its brackets. Raises BundleError."""
    depth, count, rest = 0, 0, b""
    with _translate_errors(str(path)), open_input(path) as file:
        while chunk := file.read(_CHUNK):
            text = _STRING.sub(b"", rest + chunk)
            start = text.find(b'"')  # of a string that the chunk cuts
            text, rest = (text[:start], text[start:]) if start >= 0 else (text, b"")
            if len(rest) > _LIMIT:
                raise damaged_file_error(str(path), f"a text has more than {_LIMIT:,} bytes")
            for sign in text.translate(None, _NO_BRACKETS):
                if sign in b"]}":
                    depth -= 1
                else:
                    count += depth == 1
                    depth += 1
    return count


_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_NO_BRACKETS = bytes({*range(256)} - {*b"[]{}"})


def read_csv(path: Path) -> Iterator[DataRow]:
    """Yield the rows of a CSV file. The first line names the columns, and may follow a line such as ``sep=;``.

    An empty cell is a missing field. Rows of empty cells and final columns without name or value are skipped.
    A BundleError names file and line, and the spreadsheet's row if that has another number.
    """
    source = str(path)
    number = 1  # of the row: a cell may have several lines

    def location_of(line: int) -> str:
        return f"{source}, line {line}" if line == number else f"{source}, row {number} (line {line})"

    with _translate_errors(source), open_input(path) as file:
        reader, skipped = _csv_reader(file, source, location_of)
        columns: list[str] | None = None
        before, number = skipped, 1 + skipped
        try:
            for cells in reader:
                location, before = location_of(before + 1), skipped + reader.line_num
                if columns is None:
                    columns = _parse_header(cells, location)
                elif any(map(_has_text, cells)):
                    if len(cells) < len(columns) or any(map(_has_text, cells[len(columns) :])):
                        raise damaged_file_error(
                            location, f"it has {len(cells)} cells, but the first line has {len(columns)} columns"
                        )
                    values = {name: cell for name, cell in zip(columns, cells, strict=False) if _has_text(cell)}
                    yield DataRow(location, values)
                number += 1
        except csv.Error as exc:
            raise damaged_file_error(location_of(before + 1), f"it is not valid CSV ({exc})") from exc


def count_csv(path: Path) -> int:
    """Count the rows of a valid CSV file that ``read_csv`` yields. Raises BundleError."""
    source = str(path)
    with _translate_errors(source), open_input(path) as file:
        reader, _ = _csv_reader(file, source, lambda line: f"{source}, line {line}")
        next(reader, None)
        try:
            return sum(1 for cells in reader if any(map(_has_text, cells)))
        except csv.Error as exc:
            raise damaged_file_error(source, f"it is not valid CSV ({exc})") from exc


def _csv_reader(file: IO[bytes], source: str, location_of: Callable[[int], str]) -> tuple[Any, int]:
    """Open a ``csv.reader`` at the line with the column names. Returns it and the number of lines before."""

    def decode_line(line: bytes, position: int) -> str:
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as exc:
            reason = f'it is not UTF-8 ({exc.reason}; spreadsheets save it as "CSV UTF-8")'
            raise damaged_file_error(location_of(position), reason) from exc

    # For the whole process; no other code reads CSV, and a document is longer than Python's own limit.
    csv.field_size_limit(_LIMIT)
    lines = (decode_line(line, position) for position, line in enumerate(_read_lines(file, source), 1))
    header, delimiter, skipped = next(lines, ""), "", 0
    if separator := _SEPARATOR_LINE.fullmatch(header.strip("\r\n")):
        header, delimiter, skipped = next(lines, ""), separator[1], 1
    rows = itertools.chain([header], lines)
    return csv.reader(rows, delimiter=delimiter or _detect_delimiter(header, location_of(1)), strict=True), skipped


def _has_text(cell: str) -> bool:
    return cell != "" and not cell.isspace()


_SEPARATOR_LINE = re.compile(r'"?sep=([^\w\s"]|\t)"?', re.IGNORECASE)
"""First line by which a spreadsheet sets the separator of the cells below."""


def _detect_delimiter(header: str, location: str) -> str:
    """Detect the separator of a header's columns: comma, or semicolon or tab as in other countries' spreadsheets."""
    unquoted = re.sub(r'"(?:[^"]|"")*"?', "", header)
    found = [sign for sign in ",;\t" if sign in unquoted]
    if len(found) > 1:
        names = " or ".join(repr(sign) for sign in found)
        raise damaged_file_error(
            location,
            f'the column separator may be {names}: quote names with a separator, or start the file with "sep=;"',
        )
    return found[0] if found else ","


def _parse_header(names: list[str], location: str) -> list[str]:
    names = [name.strip() for name in names]
    while names and not names[-1]:
        names.pop()
    if not all(names) or len(set(names)) < len(names):
        raise damaged_file_error(location, "every column must have a name, and no two columns the same")
    return names


@cached_by_mtime
def read_json(path: Path) -> dict[str, Any]:
    """Read a small JSON file with one object. Raises BundleError."""
    return _make_row(str(path), _DECODER.decode(_read_small(path))).values


@cached_by_mtime
def read_text(path: Path) -> str:
    """Read a small UTF-8 file. Raises BundleError."""
    return _read_small(path)


def zip_members(path: Path) -> list[str]:
    """List the names of the files in a zip. Raises BundleError."""
    with _translate_errors(str(path)), _open_zip(path) as archive:
        return [info.filename for info in archive.infolist() if not info.is_dir()]


@cached_by_mtime
def read_zip_text(path: Path, member: str) -> str:
    """Read a small UTF-8 file inside a zip. Raises BundleError."""
    location = f"{path}, {member}"
    with _open_zip(path) as archive, _open_member(archive, member) as file:
        content = file.read(_LIMIT + 1)
    if len(content) > _LIMIT:
        raise damaged_file_error(location, f"it has more than {_LIMIT:,} bytes")
    return _decode(content, location)


@cached_by_mtime
def count_zip_lines(path: Path, member: str) -> int:
    """Count the lines of a zip's member that are not blank, without parsing them. Raises BundleError."""
    source = f"{path}, {member}"
    with _translate_errors(source), _open_zip(path) as archive, _open_member(archive, member) as file:
        return sum(1 for line in _read_lines(file, source) if line.strip())


@cached_by_mtime
def count_keys(path: Path, key: str) -> int:
    """Count the objects of a JSON file that contain a key, without parsing. Raises BundleError."""
    if not path.stat().st_size:
        return 0
    needle, count = f'"{key}"'.encode(), 0
    with open_input(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        # Exact for valid JSON: inside a string a quotation mark always follows a backslash.
        # find, not a pattern: over half a gigabyte it is many times faster.
        at = view.find(needle)
        while at >= 0:
            end = at + len(needle)
            count += view[max(at - 1, 0) : at] != b"\\" and view[end : end + 64].lstrip()[:1] == b":"
            at = view.find(needle, end)
    return count


def _read_small(path: Path) -> str:
    """Read a whole file as text. Raises BundleError if it is too large."""
    size = path.stat().st_size
    if size > _LIMIT:
        raise damaged_file_error(str(path), f"it has {size:,} bytes; the limit for such a file is {_LIMIT:,}")
    return read_input(path, _LIMIT).decode("utf-8")


@contextmanager
def _open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    with open_input(path) as file, zipfile.ZipFile(file) as archive:
        declared, size = sum(info.file_size for info in archive.infolist()), path.stat().st_size
        if is_zip_bomb(declared, size):
            raise damaged_file_error(
                str(path), f"its {size:,} bytes would unpack to {declared:,}, a zip bomb ({_TOO_MUCH})"
            )
        yield archive


def _open_member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """Open a zip's member with a larger buffer, because zipfile would read a long line in steps of 4 KiB."""
    return io.BufferedReader(archive.open(name), _BUFFER)  # type: ignore[type-var]


def _read_lines(file: IO[bytes], source: str) -> Iterator[bytes]:
    """Yield the lines of a file, without the byte order mark that some programs write before the first line."""
    number = 0
    while line := file.readline(_LIMIT + 1):
        number += 1
        if len(line) > _LIMIT:
            raise damaged_file_error(f"{source}, line {number}", f"the line has more than {_LIMIT:,} bytes")
        yield line.removeprefix(codecs.BOM_UTF8) if number == 1 else line


def _decode(line: bytes, location: str) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise damaged_file_error(location, f"it is not UTF-8 ({exc.reason})") from exc


def _parse_rows(file: Iterable[bytes], source: str) -> Iterator[DataRow]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        location = f"{source}, line {number}"
        try:
            values = _DECODER.decode(_decode(line, location))
        except json.JSONDecodeError as exc:
            raise damaged_file_error(location, f"{exc.msg} at column {exc.colno}") from exc
        except (ValueError, RecursionError) as exc:
            raise damaged_file_error(location, f"cannot parse its JSON ({exc})") from exc
        yield _make_row(location, values)


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object. Raises ValueError if a key occurs twice: Python would silently keep the last value."""
    values = dict(pairs)
    if len(values) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        repeated = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"the field {repeated!r} appears twice in one object")
    return values


_DECODER = json.JSONDecoder(object_pairs_hook=_build_object)


def _make_row(location: str, values: object) -> DataRow:
    if not isinstance(values, dict):
        raise damaged_file_error(location, f"it contains a JSON {type(values).__name__} instead of an object")
    return DataRow(location, values)


class _Array:
    """Reader of a file that is one JSON array, which decodes a window of the file at a time."""

    def __init__(self, file: IO[bytes], source: str) -> None:
        self._file = file
        self._source = source
        self._text = ""
        self._at = 0
        self._line = 1
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._at_end = False

    def rows(self) -> Iterator[DataRow]:
        if self._peek() != "[":
            raise self._error("it must start with '[' and be one array of objects; name JSON lines files *.jsonl")
        self._at += 1
        sign = ","
        if self._peek() == "]":
            sign, self._at = "]", self._at + 1
        while sign != "]":
            self._peek()
            location = f"{self._source}, line {self._line}"
            yield _make_row(location, self._read_value())
            sign = self._peek()
            self._at += 1
            if sign not in ("]", ","):
                raise self._error("it ends too early" if not sign else "',' or ']' should follow an object")
        if self._peek():
            raise self._error("text follows the array and would be ignored: put all objects into one array")

    def _peek(self) -> str:
        """Next character that is not white space, not consumed, or "" at the end."""
        while True:
            match = _SPACE.match(self._text, self._at)
            assert match is not None  # the pattern matches the empty string
            self._line += match.group().count("\n")
            self._at = match.end()
            if self._at < len(self._text) or not self._read_more():
                return self._text[self._at : self._at + 1]

    def _read_value(self) -> object:
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as exc:
                if self._read_more():
                    continue
                line = self._line + self._text.count("\n", self._at, exc.pos)
                raise damaged_file_error(f"{self._source}, line {line}", exc.msg) from exc
            except (ValueError, RecursionError) as exc:
                raise self._error(f"cannot parse its JSON ({exc})") from exc
            self._line += self._text.count("\n", self._at, end)
            self._at = end
            return value

    def _read_more(self) -> bool:
        if self._at_end:
            return False
        rest = self._text[self._at :]
        if len(rest) > _LIMIT:
            raise self._error(f"an object has more than {_LIMIT:,} characters")
        # Double the window: a long object is then tried a few times, not once per chunk.
        read = self._file.read(max(_CHUNK, len(rest)))
        self._at_end = not read
        self._text, self._at = rest + self._decode(read, final=self._at_end), 0
        return not self._at_end

    def _error(self, reason: str) -> BundleError:
        return damaged_file_error(f"{self._source}, line {self._line}", reason)
