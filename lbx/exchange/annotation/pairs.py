"""Lines of a dataset in L-Eval's form: located in a file of any size, and edited in place without other changes.

    {"instructions": ["...", "..."], "outputs": ["...", "..."], "input": "the document", "source": "...", ...}

Questions and answers with the same index are a pair. An edit is a few splices of the line, so that order, spacing,
unknown keys and number formats stay, and undoing the splices restores the line.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

from lbx.base.commands import as_command
from lbx.base.errors import UsageError
from lbx.base.inputs import open_input
from lbx.base.limits import RECORD_BYTES

QUESTIONS, ANSWERS, DOCUMENT = "instructions", "outputs", "input"
_BLANK = " \t\r\n\ufeff"


class _NumberText(str):
    """Number in its original spelling, of any length, unfit for calculations."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_int=_NumberText, parse_float=_NumberText)


class Splice(NamedTuple):
    """Replacement of the text ``gone`` by ``come`` at a character offset of a line."""

    at: int
    gone: str
    come: str


def apply_splices(raw: str, splices: Sequence[Splice]) -> str:
    """Apply splices to a line, in order. Raises ValueError if the text to replace is missing."""
    for at, gone, come in splices:
        if not 0 <= at <= len(raw) or raw[at : at + len(gone)] != gone:
            raise ValueError(f"the line does not contain {gone[:40]!r} at {at}")
        raw = raw[:at] + come + raw[at + len(gone) :]
    return raw


def inverse_splices(splices: Sequence[Splice]) -> list[Splice]:
    """Return the splices that undo the given ones."""
    return [Splice(at, come, gone) for at, gone, come in reversed(splices)]


class _Span(NamedTuple):
    value: Any
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PairField:
    """A question or an answer; ``text`` is None if it is missing, or not a string (explained in ``note``)."""

    text: str | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class DatasetLine:
    """A document's line.

    Attributes:
        raw: original text, without its line feed.
        ascii: whether inserted text is escaped, like the rest of the line or file.
    """

    raw: str
    ascii: bool = True

    def members(self) -> dict[str, _Span]:
        """Return the object's values by key. Raises ValueError if it is not a JSON object, or a key is repeated."""
        return _parse_spans(self.raw)[0]

    def values(self) -> dict[str, Any]:
        """Return the line's values. Raises ValueError if it is not in L-Eval's form, with a reason such as "it ..."."""
        members = self.members()
        if DOCUMENT not in members or type(members[DOCUMENT].value) is not str:
            raise ValueError(f'it has no document: the key "{DOCUMENT}" should be text')
        for key in (QUESTIONS, ANSWERS):
            if key in members and not isinstance(members[key].value, list):
                raise ValueError(f'"{key}" should be a list')
        return {key: span.value for key, span in members.items()}

    def pairs(self) -> list[tuple[PairField, PairField]]:
        """Return questions and answers by index; elements missing from the shorter list have no text."""
        values = self.values()
        questions, answers = values.get(QUESTIONS, []), values.get(ANSWERS, [])
        return [
            (_field(questions, index), _field(answers, index)) for index in range(max(len(questions), len(answers)))
        ]

    def set(self, index: int, key: str, text: str) -> list[Splice]:
        """Set a pair's question (``QUESTIONS``) or answer (``ANSWERS``); [] if it is unchanged.

        Line breaks follow the old text. Raises ValueError if the pair does not exist or the old text is not editable.
        """
        pairs = self.pairs()
        if not 0 <= index < len(pairs):
            raise ValueError(f"there is no pair {index + 1}")
        old = pairs[index][key == ANSWERS]
        if old.note:
            raise ValueError(old.note)
        if old.text is not None and (same := _with_breaks_of(old.text, text)) is not None:
            text = same
        if text == (old.text or ""):
            return []
        spans = self._elements(key)
        if index < len(spans):
            _, start, end = spans[index]
            return [Splice(start, self.raw[start:end], self._as_json(text))]
        return self._append_splices(key, [""] * (index - len(spans)) + [text])

    def add(self, question: str, answer: str) -> list[Splice]:
        """Append a pair; a shorter list is padded with "", so that pairs keep their indices."""
        count = len(self.pairs())
        splices: list[Splice] = []
        raw = self.raw
        for key, text in ((QUESTIONS, question), (ANSWERS, answer)):
            line = DatasetLine(raw, self.ascii)
            new_splices = line._append_splices(key, [""] * (count - len(line._elements(key))) + [text])
            raw = apply_splices(raw, new_splices)
            splices += new_splices
        return splices

    def remove(self, index: int) -> list[Splice]:
        """Remove a pair. Raises ValueError if it does not exist."""
        if not 0 <= index < len(self.pairs()):
            raise ValueError(f"there is no pair {index + 1}")
        splices: list[Splice] = []
        raw = self.raw
        for key in (QUESTIONS, ANSWERS):
            line = DatasetLine(raw, self.ascii)
            spans = line._elements(key)
            if index >= len(spans):
                continue
            start, end = spans[index].start, spans[index].end
            if index:
                start = spans[index - 1].end
            elif len(spans) > 1:
                end = spans[1].start
            splice = Splice(start, raw[start:end], "")
            raw = apply_splices(raw, [splice])
            splices.append(splice)
        return splices

    def _elements(self, key: str) -> list[_Span]:
        members = self.members()
        return _list(self.raw, members[key].start)[0] if key in members else []

    def _append_splices(self, key: str, texts: Sequence[str]) -> list[Splice]:
        """Append elements with the list's separators, or create the list."""
        members = self.members()
        spans = self._elements(key)
        comma = self.raw[spans[0].end : spans[1].start] if len(spans) > 1 else self._comma(members)
        written = comma.join(map(self._as_json, texts))
        if spans:
            return [Splice(spans[-1].end, "", comma + written)]
        if key in members:
            start, end = members[key].start, members[key].end
            return [Splice(start, self.raw[start:end], f"[{written}]")]
        colon = self._colon(members)
        last = max(span.end for span in members.values())
        return [Splice(last, "", f"{self._comma(members)}{self._as_json(key)}{colon}[{written}]")]

    def _comma(self, members: dict[str, _Span]) -> str:
        """Separator of the object's members on this line; ", " if it has a single member."""
        starts = _parse_spans(self.raw)[1]
        ends = [span.end for span in members.values()]
        separator = self.raw[ends[0] : starts[1]] if len(starts) > 1 else ", "
        return separator if "\n" not in separator else ", "

    def _colon(self, members: dict[str, _Span]) -> str:
        first = next(iter(members.values()))
        start = _parse_spans(self.raw)[1][0]
        return self.raw[_value(self.raw, start).end : first.start]

    def _as_json(self, text: str) -> str:
        return json.dumps(text, ensure_ascii=self.ascii)


def _field(values: list[Any], index: int) -> PairField:
    if index >= len(values):
        return PairField(None)
    value = values[index]
    if type(value) is not str:
        return PairField(None, "it is not text, and is kept unchanged")
    if "\0" in value or any("\ud800" <= sign <= "\udfff" for sign in value):
        return PairField(
            value, "it contains characters that no page can send (NUL, or half of a pair), and is kept unchanged"
        )
    return PairField(value)


def _with_breaks_of(old: str, new: str) -> str | None:
    """Restore the old text's line breaks in a new text from a form; None if they are plain line feeds or mixed."""
    if "\r" not in old:
        return None
    if old.replace("\r\n", "\n").replace("\r", "\n") == new:
        return old
    return new.replace("\n", "\r\n") if old.count("\r\n") == old.count("\r") == old.count("\n") else None


def _skip_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at


def _value(text: str, at: int) -> _Span:
    value, end = _DECODER.raw_decode(text, at)
    return _Span(value, at, end)


def _items(text: str, at: int, close: str, item: Callable[[int], int]) -> int:
    """Parse the items between brackets; returns the offset after the closing bracket."""
    at = _skip_blanks(text, at + 1)
    if text[at : at + 1] == close:
        return at + 1
    while True:
        at = _skip_blanks(text, item(at))
        if text[at : at + 1] == close:
            return at + 1
        if text[at : at + 1] != ",":
            raise ValueError(f"it is not JSON (expected ',' or '{close}' at column {at + 1})")
        at = _skip_blanks(text, at + 1)


def _parse_spans(text: str) -> tuple[dict[str, _Span], list[int]]:
    """Parse a line's object to its values by key, and the offset of each key."""
    members: dict[str, _Span] = {}
    starts: list[int] = []

    def member(at: int) -> int:
        if text[at : at + 1] != '"':
            raise ValueError(f"it is not JSON (expected a key at column {at + 1})")
        key, _, end = _value(text, at)
        end = _skip_blanks(text, end)
        if text[end : end + 1] != ":":
            raise ValueError(f"it is not JSON (expected ':' at column {end + 1})")
        if key in members:
            raise ValueError(f"it has the key {key!r} twice, and other programs read only the last")
        members[key] = _value(text, _skip_blanks(text, end + 1))
        starts.append(at)
        return members[key].end

    start = _skip_blanks(text, 0)
    try:
        if text[start : start + 1] != "{":
            _value(text, start)
            raise ValueError("it contains no object")
        end = _skip_blanks(text, _items(text, start, "}", member))
    except json.JSONDecodeError as exc:
        raise ValueError(f"it is not JSON ({exc.msg} at column {exc.colno})") from exc
    except RecursionError as exc:
        raise ValueError("it is not JSON that can be read (too deep)") from exc
    if end < len(text):
        raise ValueError(f"it is not JSON (text follows the object, at column {end + 1})")
    return members, starts


def _list(text: str, at: int) -> tuple[list[_Span], int]:
    spans: list[_Span] = []

    def element(start: int) -> int:
        spans.append(_value(text, start))
        return spans[-1].end

    return spans, _items(text, at, "]", element)


_BOM = b"\xef\xbb\xbf"
_PIECE, _ENDLESS = 1 << 20, 1 << 62
_CORRECT = "No file was changed. Correct the line first."


@dataclass(frozen=True, slots=True)
class DatasetEntry:
    """A document of the file.

    Attributes:
        number: line number, from 1.
        start, end: byte offsets, without the line feed.
        pairs: number of pairs in the original file.
    """

    number: int
    start: int
    end: int
    pairs: int


def open_dataset(path: Path) -> BufferedReader:
    """Open a dataset. Raises UsageError if it does not exist or cannot be read."""
    try:
        return open_input(path)
    except OSError as exc:
        raise UsageError(f"{path} cannot be read: {exc.strerror or exc}.", fix="Check the path.") from exc


def scan_dataset(path: Path, file: BufferedReader) -> tuple[list[DatasetEntry], bool, str]:
    """Return documents, whether the file is ASCII only, and its SHA-256. Raises UsageError that names a bad line."""
    entries: list[DatasetEntry] = []
    digest, at, only_ascii = hashlib.sha256(), 0, True
    lines = iter(lambda: file.readline(RECORD_BYTES + 1), b"")
    for number, data in enumerate(lines, 1):
        if len(data) > RECORD_BYTES:
            why = f"it has more than {RECORD_BYTES:,} bytes, too many for a document"
            raise UsageError(f"{path}, line {number}: {why}.", fix=_CORRECT)
        digest.update(data)
        line = data.removesuffix(b"\n")
        only_ascii = only_ascii and line.removeprefix(_BOM).isascii()
        if line.removeprefix(_BOM).strip():
            entries.append(DatasetEntry(number, at, at + len(line), _count_pairs(path, number, line)))
        at += len(data)
    if not entries:
        raise UsageError(
            f"{path} contains no document.", fix="Give a file with one JSON object per line, like L-Eval's."
        )
    return entries, only_ascii, digest.hexdigest()


def _count_pairs(path: Path, number: int, data: bytes) -> int:
    try:
        line = DatasetLine(data.decode())
        if number == 1 and line.raw.lstrip("\ufeff \t\r").startswith("["):
            why = "it begins a JSON array, but a dataset has one object per line"
            command = f"{as_command('jq', '-c', '.[]', path)} > {as_command(Path(f'{path.stem}.lines.jsonl'))}"
            raise UsageError(f"{path}, line 1: {why}.", fix=_CORRECT, command=command)
        return len(line.pairs())
    except UnicodeDecodeError as exc:
        why = f"it is not UTF-8 ({exc.reason} at byte {exc.start + 1})"
        raise UsageError(f"{path}, line {number}: {why}.", fix=_CORRECT) from exc
    except ValueError as exc:
        raise UsageError(f"{path}, line {number}: {exc}.", fix=_CORRECT) from exc


def read_range(file: BufferedReader, start: int, end: int | None) -> Iterator[bytes]:
    """Yield a file's bytes from ``start`` to ``end`` in pieces; None for the rest of the file."""
    while start != end and (piece := os.pread(file.fileno(), min(_PIECE, (end or _ENDLESS) - start), start)):
        yield piece
        start += len(piece)


def sha256(path: Path) -> str:
    """SHA-256 of a file, hex."""
    with open_dataset(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
