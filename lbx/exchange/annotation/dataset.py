"""Editing of datasets in L-Eval's format of JSON lines. Edits are on disk before they are shown as saved.

FILE            never written to
OUT.edits.jsonl one edit per line, each fsynced: a header that identifies FILE, then splices of its lines, and undos
OUT             FILE with the edits, written atomically on request and at the end

Lines are located in a file of any size, and edited in place without other changes.

    {"instructions": ["...", "..."], "outputs": ["...", "..."], "input": "the document", "source": "...", ...}

Questions and answers with the same index are a pair. An edit is a few splices of the line, so that order, spacing,
unknown keys and number formats stay, and undoing the splices restores the line.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

from lbx.base.errors import LbxError, StoreError, UsageError
from lbx.base.inputs import open_input
from lbx.base.journal_file import JournalFile
from lbx.base.limits import EDITS_BYTES, RECORD_BYTES
from lbx.base.outputs import atomic_file
from lbx.base.visible import as_command

QUESTIONS, ANSWERS, DOCUMENT = "instructions", "outputs", "input"
_BLANK = " \t\r\n\ufeff"


class _NumberText(str):
    """Number in the original spelling, of any length, for output but not for calculations."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_int=_NumberText, parse_float=_NumberText)


class Splice(NamedTuple):
    """Replacement of ``old_text`` by ``new_text`` at a character offset of a line."""

    at: int
    old_text: str
    new_text: str


def apply_splices(raw: str, splices: Sequence[Splice]) -> str:
    """Apply splices to a line, in order. Raises ValueError if the text to replace is missing."""
    for at, old_text, new_text in splices:
        if not 0 <= at <= len(raw) or raw[at : at + len(old_text)] != old_text:
            raise ValueError(f"the line does not contain {old_text[:40]!r} at {at}")
        raw = raw[:at] + new_text + raw[at + len(old_text) :]
    return raw


def inverse_splices(splices: Sequence[Splice]) -> list[Splice]:
    """Return splices that undo the given splices."""
    return [Splice(at, new_text, old_text) for at, old_text, new_text in reversed(splices)]


class _Span(NamedTuple):
    value: Any
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PairField:
    """A question or an answer. ``text`` is None if it is missing, or if it is no string (see ``explanation``)."""

    text: str | None
    explanation: str = ""


@dataclass(frozen=True, slots=True)
class DatasetLine:
    """Line of a dataset: a document with questions and answers.

    Attributes:
        raw: original text, without line feed.
        ascii: whether inserted text is escaped, like the rest of the line or file.
    """

    raw: str
    ascii: bool = True

    def members(self) -> dict[str, _Span]:
        """Parse the line's values by key. Raises ValueError if the line is not a JSON object, or a key is repeated."""
        return _parse_spans(self.raw)[0]

    def values(self) -> dict[str, Any]:
        """Parse the line's values. Raises ValueError, with a reason "it ...", if the line is not in L-Eval's format."""
        members = self.members()
        if DOCUMENT not in members or type(members[DOCUMENT].value) is not str:
            raise ValueError(f'it has no document: the key "{DOCUMENT}" should be text')
        for key in (QUESTIONS, ANSWERS):
            if key in members and not isinstance(members[key].value, list):
                raise ValueError(f'"{key}" should be a list')
        return {key: span.value for key, span in members.items()}

    def pairs(self) -> list[tuple[PairField, PairField]]:
        """Return questions and answers by index. The ``text`` of elements beyond the shorter list is None."""
        values = self.values()
        questions, answers = values.get(QUESTIONS, []), values.get(ANSWERS, [])
        return [
            (_make_field(questions, index), _make_field(answers, index))
            for index in range(max(len(questions), len(answers)))
        ]

    def set(self, index: int, key: str, text: str) -> list[Splice]:
        """Build the splices that set a pair's question (``QUESTIONS``) or answer (``ANSWERS``), or [] without a change.

        Line breaks follow the old text. Raises ValueError if the pair does not exist or the old text is not editable.
        """
        pairs = self.pairs()
        if not 0 <= index < len(pairs):
            raise ValueError(f"there is no pair {index + 1}")
        old = pairs[index][key == ANSWERS]
        if old.explanation:
            raise ValueError(old.explanation)
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
        """Build the splices that append a pair. A shorter list is padded with "", so that pairs keep their indices."""
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
        """Build the splices that remove a pair. Raises ValueError if the pair does not exist."""
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
        return _parse_list(self.raw, members[key].start)[0] if key in members else []

    def _append_splices(self, key: str, texts: Sequence[str]) -> list[Splice]:
        """Build the splices that append elements with the list's separators, or create the list."""
        members = self.members()
        spans = self._elements(key)
        comma = self.raw[spans[0].end : spans[1].start] if len(spans) > 1 else self._comma(members)
        written = comma.join(map(self._as_json, texts))
        if spans:
            return [Splice(spans[-1].end, "", comma + written)]
        if key in members:
            start, end = members[key].start, members[key].end
            return [Splice(start, self.raw[start:end], f"[{written}]")]
        first = next(iter(members.values()))
        start = _parse_spans(self.raw)[1][0]
        colon = self.raw[_parse_value(self.raw, start).end : first.start]
        last = max(span.end for span in members.values())
        return [Splice(last, "", f"{self._comma(members)}{self._as_json(key)}{colon}[{written}]")]

    def _comma(self, members: dict[str, _Span]) -> str:
        """Return the separator of the object's members on this line, or ", " for a single member."""
        starts = _parse_spans(self.raw)[1]
        ends = [span.end for span in members.values()]
        separator = self.raw[ends[0] : starts[1]] if len(starts) > 1 else ", "
        return separator if "\n" not in separator else ", "

    def _as_json(self, text: str) -> str:
        return json.dumps(text, ensure_ascii=self.ascii)


def _make_field(values: list[Any], index: int) -> PairField:
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
    """Restore the old text's line breaks in a new text from a form. Returns None for line feeds or mixed breaks."""
    if "\r" not in old:
        return None
    if old.replace("\r\n", "\n").replace("\r", "\n") == new:
        return old
    return new.replace("\n", "\r\n") if old.count("\r\n") == old.count("\r") == old.count("\n") else None


def _skip_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at


def _parse_value(text: str, at: int) -> _Span:
    value, end = _DECODER.raw_decode(text, at)
    return _Span(value, at, end)


def _parse_items(text: str, at: int, close: str, item: Callable[[int], int]) -> int:
    """Parse the items between brackets, and return the offset after the closing bracket."""
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
    """Parse the object in a line to values by key, and the offset of each key."""
    members: dict[str, _Span] = {}
    starts: list[int] = []

    def member(at: int) -> int:
        if text[at : at + 1] != '"':
            raise ValueError(f"it is not JSON (expected a key at column {at + 1})")
        key, _, end = _parse_value(text, at)
        end = _skip_blanks(text, end)
        if text[end : end + 1] != ":":
            raise ValueError(f"it is not JSON (expected ':' at column {end + 1})")
        if key in members:
            raise ValueError(f"it has the key {key!r} twice, and other programs read only the last")
        members[key] = _parse_value(text, _skip_blanks(text, end + 1))
        starts.append(at)
        return members[key].end

    start = _skip_blanks(text, 0)
    try:
        if text[start : start + 1] != "{":
            _parse_value(text, start)
            raise ValueError("it contains no object")
        end = _skip_blanks(text, _parse_items(text, start, "}", member))
    except json.JSONDecodeError as exc:
        raise ValueError(f"it is not JSON ({exc.msg} at column {exc.colno})") from exc
    except RecursionError as exc:
        raise ValueError("it is not JSON that can be read (too deep)") from exc
    if end < len(text):
        raise ValueError(f"it is not JSON (text follows the object, at column {end + 1})")
    return members, starts


def _parse_list(text: str, at: int) -> tuple[list[_Span], int]:
    spans: list[_Span] = []

    def element(start: int) -> int:
        spans.append(_parse_value(text, start))
        return spans[-1].end

    return spans, _parse_items(text, at, "]", element)


_BOM = b"\xef\xbb\xbf"
_PIECE, _ENDLESS = 1 << 20, 1 << 62
_CORRECT = "No file was changed. Correct the line first."


@dataclass(frozen=True, slots=True)
class DatasetEntry:
    """Location of a document in a dataset file.

    Attributes:
        number: line number, from 1.
        start, end: byte offsets of the line, without the line feed.
        pairs: number of the document's pairs in the original file.
    """

    number: int
    start: int
    end: int
    pairs: int


def open_dataset(path: Path) -> BufferedReader:
    """Open a dataset file. Raises UsageError if the file does not exist or cannot be read."""
    try:
        return open_input(path)
    except OSError as exc:
        raise UsageError(f"{path} cannot be read: {exc.strerror or exc}.", fix="Check the path.") from exc


def scan_dataset(path: Path, file: BufferedReader) -> tuple[list[DatasetEntry], bool, str]:
    """Scan a file for documents, non-ASCII bytes, and the SHA-256. Raises UsageError for a malformed line."""
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
    """Yield a file's bytes from ``start`` to ``end``, or to the end of the file, in pieces."""
    while start != end and (piece := os.pread(file.fileno(), min(_PIECE, (end or _ENDLESS) - start), start)):
        yield piece
        start += len(piece)


def sha256(path: Path) -> str:
    """Compute the SHA-256 of a file, in hex."""
    with open_dataset(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_SAME_EDIT_S = 10
"""Maximum pause in seconds between changes of a field that count as a single edit for undo."""
_FORMAT = "lbx annotate"


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit in the log.

    Attributes:
        index: index of the document, from 0.
        what: description for users, which is equal for edits of the same field.
        more: whether the edit continues the previous edit.
    """

    index: int
    splices: tuple[Splice, ...]
    what: str
    more: bool = False


class Dataset:
    """An open dataset, usable as a context manager.

    Args:
        out: path of the edited file, or None for read-only use.

    Raises:
        UsageError: a line is not in L-Eval's format, ``out`` is the file itself or belongs to another program, another
            process edits it, or the file differs from the file to which the logged edits belong.
    """

    def __init__(self, path: Path, out: Path | None = None) -> None:
        self.path, self.out = path, out
        self._lock = threading.RLock()
        self._file = open_dataset(path)
        self._edited_lines: dict[int, str] = {}
        self._edits: list[Edit] = []
        self._undone = 0
        self._last = ("", 0.0)
        self._log: JournalFile | None = None
        self._written_hashes: set[str] = set()
        self._shapes: dict[int, int] = {}
        try:
            self._opened_state = self._file_state()
            self.entries, self._ascii, self.sha256 = scan_dataset(path, self._file)
            if out is not None:
                self._open_log(out)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files without writing the edits to ``out``."""
        self._file.close()
        if self._log:
            self._log.close()

    def __len__(self) -> int:
        return len(self.entries)

    def line(self, index: int) -> DatasetLine:
        """Return a document's current line."""
        with self._lock:
            raw = self._edited_lines.get(index)
            return DatasetLine(self._base(index) if raw is None else raw, self._ascii)

    def _base(self, index: int) -> str:
        if self._file_state() != self._opened_state:
            raise self._changed_file_error()
        entry = self.entries[index]
        return os.pread(self._file.fileno(), entry.end - entry.start, entry.start).decode()

    def original(self, index: int) -> DatasetLine:
        """Return a document's line in the original file."""
        return DatasetLine(self._base(index), self._ascii)

    def is_changed(self, index: int) -> bool:
        """Whether a document differs from the original file."""
        return index in self._edited_lines

    @property
    def changed_count(self) -> int:
        """Number of documents that differ from the original file."""
        return len(self._edited_lines)

    @property
    def undoable(self) -> str:
        """Description of the edit that ``undo`` reverts next, or "" without edits."""
        return self._edits[-1].what if self._edits else ""

    def shape(self, index: int) -> int:
        """Count a document's removals and undone edits, by which forms of outdated pages are rejected."""
        return self._shapes.get(index, 0)

    def search(self, query: str) -> Iterator[int]:
        """Yield the indices of documents that contain a text in any value, ignoring case."""
        folded_query = query.casefold()
        for index in range(len(self)):
            values = self.line(index).values()
            if any(folded_query in text.casefold() for text in _texts(values)):
                yield index

    def set(self, index: int, pair: int, key: str, text: str, shape: int) -> bool:
        """Set and save a pair's question or answer, or append a pair if ``pair`` is the index after the last.

        Args:
            key: ``QUESTIONS`` or ``ANSWERS``.
            shape: result of ``shape`` when the text was shown.

        Returns whether the text changed.

        Raises:
            UsageError: the pair does not exist, the text cannot be edited, or pairs have been added or removed since.
            LbxError: the disk is full, or read only. The dataset is then unchanged.
        """
        what = f"the {'question' if key == QUESTIONS else 'answer'} of pair {pair + 1}"
        new = (text, "") if key == QUESTIONS else ("", text)

        def splices(line: DatasetLine) -> list[Splice]:
            behind = pair == len(line.pairs())
            return (line.add(*new) if text else []) if behind else line.set(pair, key, text)

        return self._edit(index, splices, what, shape)

    def add(self, index: int, question: str, answer: str) -> bool:
        """Append a pair to a document. Raises the LbxError of ``set``."""
        return self._edit(index, lambda line: line.add(question, answer), "a new pair", None)

    def remove(self, index: int, pair: int, shape: int) -> bool:
        """Remove a pair from a document. Raises the errors of ``set``."""
        return self._edit(index, lambda line: line.remove(pair), f"the removal of pair {pair + 1}", shape, moves=True)

    def _edit(
        self,
        index: int,
        make: Callable[[DatasetLine], list[Splice]],
        what: str,
        shape: int | None,
        *,
        moves: bool = False,
    ) -> bool:
        with self._lock:
            if shape is not None and shape != self.shape(index):
                raise UsageError(
                    "Pairs of this document were added or removed since this page was loaded.",
                    fix="This change was not saved. Load the page again.",
                )
            if self._file_state() != self._opened_state:
                raise self._changed_file_error()
            try:
                splices = make(self.line(index))
            except ValueError as exc:
                raise UsageError(f"This cannot be edited: {exc}.", fix="The edit was not saved.") from exc
            if not splices:
                return False
            now = time.monotonic()
            more = shape is not None and self._last[0] == f"{index} {what}" and now - self._last[1] < _SAME_EDIT_S
            more = more and not moves
            edit = Edit(index, tuple(splices), what, more)
            raw = apply_splices(self.line(index).raw, splices)
            record = {"line": self.entries[index].number, "what": what, "splices": splices, "more": more}
            self._append({**record, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())})
            self._last = (f"{index} {what}", now)
            self._apply(edit, raw)
            self._shapes[index] = self.shape(index) + moves
            return True

    def undo(self) -> int | None:
        """Revert the last edit, and return its document, or None without edits. Raises the LbxError of ``set``."""
        with self._lock:
            if not self._edits:
                return None
            count = 1
            while self._edits[-count].more and count < len(self._edits):
                count += 1
            self._append({"undo": count})
            return self._revert(count)

    def _apply(self, edit: Edit, raw: str) -> None:
        self._edits.append(edit)
        self._set_line(edit.index, raw)

    def _revert(self, count: int) -> int:
        for _ in range(count):
            edit = self._edits.pop()
            self._set_line(edit.index, apply_splices(self.line(edit.index).raw, inverse_splices(edit.splices)))
            self._shapes[edit.index] = self.shape(edit.index) + 1
        self._last = ("", 0.0)
        return edit.index

    def _set_line(self, index: int, raw: str) -> None:
        if raw == self._base(index):
            self._edited_lines.pop(index, None)
        else:
            self._edited_lines[index] = raw

    def _file_state(self) -> tuple[int, int]:
        status = os.fstat(self._file.fileno())
        return status.st_size, status.st_mtime_ns

    def _changed_file_error(self) -> UsageError:
        return UsageError(
            f"{self.path} has changed since it was opened here. No file was written.",
            fix="All earlier edits are safe. Restore the original file, then repeat the same command.",
        )

    def _read_only_error(self) -> UsageError:
        return UsageError(f"{self.path} is open read-only.", fix="Leave out --read-only to edit.")

    def _append(self, record: dict[str, Any]) -> None:
        if self._log is None:
            raise self._read_only_error()
        try:
            self._log.append(json.dumps(record).encode())
        except OSError as exc:
            raise LbxError(
                f"{self._log.path} cannot be written: {exc.strerror or exc}. This edit is not saved; those before are.",
                fix="Free space on the disk, then do it again.",
            ) from exc

    def _open_log(self, out: Path) -> None:
        log = out.with_name(f"{out.name}.edits.jsonl")
        if out.exists() and (out.samefile(self.path) or not log.exists()):
            why = "is the file itself" if out.samefile(self.path) else "already exists and was not written from it here"
            raise UsageError(
                f"{out} {why}; {self.path} is never overwritten.", fix="Choose another output file: -o OUT."
            )
        on_local_disk = "Choose an output file on a local disk that is not in use: -o OUT."
        try:
            self._log = JournalFile(log, mode=self._mode(), limit=EDITS_BYTES)
        except BlockingIOError as exc:
            raise UsageError(f"Another lbx is editing {out}.", fix=on_local_disk) from exc
        except OSError as exc:
            if exc.errno == errno.ENOLCK:
                raise UsageError(f"The file system of {out} has no locks.", fix=on_local_disk) from exc
            raise UsageError(
                f"{log} cannot be written: {exc.strerror}.", fix="Choose a location that you can write to: -o OUT."
            ) from exc
        self._replay_log(self._log)

    def _replay_log(self, log: JournalFile) -> None:
        """Replay the log. An incomplete last line was never shown as saved, and is dropped."""
        lines, path = log.read_lines(), log.path
        log.cut_partial_line()
        header = {"made_by": _FORMAT, "version": 1, "file": self.path.name, "sha256": self.sha256}
        if not lines:
            self._append(header)
            return
        by_number = {entry.number: index for index, entry in enumerate(self.entries)}
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
                if number == 1:
                    self._check(path, record)
                else:
                    self._replay_record(record, by_number)
                if number == len(lines):
                    for index in self._edited_lines:
                        self.line(index).values()
            except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as exc:
                raise StoreError(
                    f"{path}, line {number}: lbx did not write this line ({type(exc).__name__}: {exc}).",
                    fix="No file was changed. Move this file away to start over, or restore the earlier one.",
                ) from exc

    def _check(self, path: Path, header: dict[str, Any]) -> None:
        if header["made_by"] != _FORMAT or header["version"] != 1:
            raise ValueError("another header")
        if header["sha256"] != self.sha256:
            raise UsageError(
                f"{path} contains edits of {header['file']} at an earlier state; {self.path} has other bytes.",
                fix="Restore the original file, or choose another output file for this one: -o OUT.",
            )

    def _replay_record(self, record: dict[str, Any], by_number: dict[int, int]) -> None:
        if "written" in record:
            self._written_hashes.add(str(record["written"]))
        elif "undo" in record:
            if not 0 < record["undo"] <= len(self._edits):
                raise ValueError("it undoes an edit that is not there")
            self._revert(record["undo"])
        else:
            index = by_number[record["line"]]
            edit = Edit(
                index, tuple(Splice(*splice) for splice in record["splices"]), str(record["what"]), bool(record["more"])
            )
            self._apply(edit, apply_splices(self.line(index).raw, edit.splices))

    def _mode(self) -> int:
        """Return the file mode of the edited copy and the log: readable for readers of FILE, writable for the owner."""
        return os.fstat(self._file.fileno()).st_mode & 0o666 | 0o600

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes of the edited file in pieces. Raises UsageError at the end if FILE has changed meanwhile."""
        digest, at = hashlib.sha256(), 0

        def read_to(end: int | None) -> Iterator[bytes]:
            for piece in read_range(self._file, at, end):
                digest.update(piece)
                yield piece

        for index in sorted(self._edited_lines):
            entry = self.entries[index]
            yield from read_to(entry.start)
            yield self._edited_lines[index].encode()
            at = entry.start
            deque(read_to(entry.end), 0)
            at = entry.end
        yield from read_to(None)
        if digest.hexdigest() != self.sha256:
            raise self._changed_file_error()

    def write(self) -> Path:
        """Write the edited file atomically. Raises LbxError if another program changed it, or the disk is full."""
        if self.out is None:
            raise self._read_only_error()
        with self._lock:
            if self.out.exists() and sha256(self.out) not in self._written_hashes:
                raise UsageError(
                    f"{self.out} is not as lbx wrote it, and was not overwritten.",
                    fix="All edits are safe. Move that file away, then run the same command with --write.",
                )
            digest = hashlib.sha256()
            try:
                with atomic_file(self.out, mode=self._mode(), sync=True) as file:
                    for piece in self.pieces():
                        file.write(piece)
                        digest.update(piece)
                    self._append({"written": digest.hexdigest()})
                self._written_hashes.add(digest.hexdigest())
            except OSError as exc:
                raise LbxError(
                    f"{self.out} cannot be written: {exc.strerror or exc}.",
                    fix="All edits are safe. Free space on the disk, then run the same command with --write.",
                ) from exc
        return self.out


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
