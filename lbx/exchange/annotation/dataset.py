"""Editing of datasets in L-Eval's JSON lines form; edits are on disk before they are shown as saved.

FILE            never written to
OUT.edits.jsonl one edit per line, each fsynced: a header that identifies FILE, then splices of its lines, and undos
OUT             FILE with the edits, written atomically on request and at the end
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from lbx.base.errors import LbxError, StoreError, UsageError
from lbx.base.limits import EDITS_BYTES
from lbx.base.outputs import atomic_file, open_or_create, sync_folder
from lbx.base.processes import lock
from lbx.exchange.annotation.pairs import (
    QUESTIONS,
    DatasetLine,
    Splice,
    apply_splices,
    inverse_splices,
    open_dataset,
    read_range,
    scan_dataset,
    sha256,
)

_SAME_EDIT_S = 10
"""Maximum pause while typing in a field for the text to count as one edit for undo."""
_FORMAT = "lbx annotate"


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit in the log.

    Attributes:
        index: index of the document, from 0.
        what: description for users; identical for edits of the same field.
        more: whether it continues the previous edit.
    """

    index: int
    splices: tuple[Splice, ...]
    what: str
    more: bool = False


class Dataset:
    """An open dataset, usable as a context manager.

    Args:
        out: path of the edited file; None for read-only use.

    Raises:
        UsageError: a line is not in L-Eval's form, ``out`` is the file itself or belongs to another program, another
            process edits it, or the file differs from the one that was edited before.
    """

    def __init__(self, path: Path, out: Path | None = None) -> None:
        self.path, self.out = path, out
        self._lock = threading.RLock()
        self._file = open_dataset(path)
        self._edited_lines: dict[int, str] = {}
        self._edits: list[Edit] = []
        self._undone = 0
        self._last = ("", 0.0)
        self._log: FileIO | None = None
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
        """Description of the edit that ``undo`` reverts next; "" without edits."""
        return self._edits[-1].what if self._edits else ""

    def shape(self, index: int) -> int:
        """Counter of a document's removals and undone edits, to reject forms of outdated pages."""
        return self._shapes.get(index, 0)

    def search(self, query: str) -> Iterator[int]:
        """Yield the indices of documents that contain a text in any value, ignoring case."""
        folded_query = query.casefold()
        for index in range(len(self)):
            values = self.line(index).values()
            if any(folded_query in text.casefold() for text in _texts(values)):
                yield index

    def set(self, index: int, pair: int, key: str, text: str, shape: int) -> bool:
        """Set a pair's question or answer, or append a pair at the index after the last; it is saved when this returns.

        Args:
            key: ``pairs.QUESTIONS`` or ``pairs.ANSWERS``.
            shape: the document's shape when the text was shown.

        Returns whether the text changed.

        Raises:
            UsageError: the text does not exist, it cannot be edited, or pairs have been added or removed since.
            LbxError: the disk is full, or read only; the dataset is unchanged then.
        """
        what = f"the {'question' if key == QUESTIONS else 'answer'} of pair {pair + 1}"
        new = (text, "") if key == QUESTIONS else ("", text)

        def splices(line: DatasetLine) -> list[Splice]:
            behind = pair == len(line.pairs())
            return (line.add(*new) if text else []) if behind else line.set(pair, key, text)

        return self._edit(index, splices, what, shape)

    def add(self, index: int, question: str, answer: str) -> bool:
        """Append a pair to a document, with the LbxError of ``set``."""
        return self._edit(index, lambda line: line.add(question, answer), "a new pair", None)

    def remove(self, index: int, pair: int, shape: int) -> bool:
        """Remove a pair, with the errors of ``set``."""
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
        """Revert the last edit; returns its document, or None without edits. Raises LbxError like ``set``."""
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
        before = self._log.seek(0, os.SEEK_END)
        try:
            remaining = memoryview(json.dumps(record).encode() + b"\n")
            while remaining:
                remaining = remaining[self._log.write(remaining) :]
            os.fsync(self._log.fileno())
        except OSError as exc:
            os.ftruncate(self._log.fileno(), before)
            raise LbxError(
                f"{self._log.name} cannot be written: {exc.strerror or exc}. This edit is not saved; those before are.",
                fix="Free space on the disk, then do it again.",
            ) from exc

    def _open_log(self, out: Path) -> None:
        log = out.with_name(f"{out.name}.edits.jsonl")
        if out.exists() and (out.samefile(self.path) or not log.exists()):
            why = "is the file itself" if out.samefile(self.path) else "already exists and was not written from it here"
            raise UsageError(
                f"{out} {why}; {self.path} is never overwritten.", fix="Choose another output file: -o OUT."
            )
        try:
            handle = open_or_create(log, os.O_RDWR, self._mode(), limit=EDITS_BYTES)
        except OSError as exc:
            raise UsageError(
                f"{log} cannot be written: {exc.strerror}.", fix="Choose a location that you can write to: -o OUT."
            ) from exc
        self._log = FileIO(handle, "r+b")
        is_locked = lock(handle)
        if not is_locked:
            cause = f"The file system of {out} has no locks" if is_locked is None else f"Another lbx is editing {out}"
            raise UsageError(f"{cause}.", fix="Choose an output file on a local disk that is not in use: -o OUT.")
        self._replay_log(log, self._log)

    def _replay_log(self, path: Path, log: FileIO) -> None:
        """Replay the log. An incomplete last line was never shown as saved, and is dropped."""
        lines = log.read().split(b"\n")
        if lines[-1]:
            os.ftruncate(log.fileno(), sum(len(line) + 1 for line in lines[:-1]))
        header = {"made_by": _FORMAT, "version": 1, "file": self.path.name, "sha256": self.sha256}
        if len(lines) < 2:
            self._append(header)
            sync_folder(path.parent)
            return
        by_number = {entry.number: index for index, entry in enumerate(self.entries)}
        for number, line in enumerate(lines[:-1], 1):
            try:
                record = json.loads(line)
                if number == 1:
                    self._check(path, record)
                else:
                    self._replay_record(record, by_number)
                if number == len(lines) - 1:
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
        """Mode of the edited copy and its log: readable only by those who may read FILE, writable by the owner."""
        return os.fstat(self._file.fileno()).st_mode & 0o666 | 0o600

    def pieces(self) -> Iterator[bytes]:
        """Yield the edited file. Raises UsageError at the end if FILE has changed meanwhile."""
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
