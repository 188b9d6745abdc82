"""The journal of ratings: a line for each thing that was said, on the disk before anybody is told that it is saved.

It lies beside the results file, RESULTS.ratings.jsonl, because that file has room for one process that writes, and none
that reads meanwhile. A line is whole or it was never shown as saved: what a kill left of one is set aside.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lbx.base.errors import StoreError
from lbx.base.inputs import read_handed
from lbx.base.limits import JOURNAL_BYTES
from lbx.base.outputs import open_kept, sync_folder
from lbx.judging.rating_lines import line_of, record_of
from lbx.store.rows import as_json


def journal_of(results: Path) -> Path:
    """Where the journal of a results file lies."""
    return results.with_name(f"{results.name}.ratings.jsonl")


class Journal:
    """A journal, open for writing by this process alone. Use it as a context manager.

    Args:
        path: made where there is none.

    Attributes:
        records: its lines, what was appended included.
        torn: where the piece of a line that a kill left was put; None without one.

    Raises:
        StoreError: another process writes it; a line is damaged; it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn: Path | None = None
        self._lock = threading.Lock()
        self._file = _locked(path)
        try:
            held = _all_of(self._file)
            whole = held.rpartition(b"\n")[0] + b"\n" if b"\n" in held else b""
            self.records = _records(whole, path)
            if len(whole) < len(held):
                self._set_aside(held[len(whole) :], len(whole))
            self._size = len(whole)
        except BaseException:
            os.close(self._file)
            raise

    def _set_aside(self, piece: bytes, size: int) -> None:
        torn = self.path.with_suffix(".torn")
        try:
            with os.fdopen(open_kept(torn, os.O_WRONLY | os.O_APPEND, 0o600), "wb") as file:
                file.write(piece + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.ftruncate(self._file, size)
            os.fsync(self._file)
        except OSError as exc:
            raise StoreError(
                f"The part of a line that a kill left in {self.path} cannot be moved to {torn}: {exc.strerror}.",
                fix="Nothing has changed. Make room on the disk, then do it again.",
            ) from exc
        self.torn = torn

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a line. When this returns, it is on the disk, and will be read again.

        Raises:
            StoreError: it is not, and no piece of it.
        """
        try:
            line_of(record)
        except ValueError as exc:
            raise StoreError(
                "This cannot be saved: a number or a date in it is out of range.",
                fix="Nothing of it was saved; everything before it was. Check this machine's clock.",
            ) from exc
        line = as_json(record).encode() + b"\n"
        with self._lock:
            try:
                _write(self._file, line)
                os.fsync(self._file)
            except OSError as exc:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, self._size)
                raise StoreError(
                    f"{self.path} could not be written: {exc.strerror}.",
                    fix="Nothing of this was saved; everything before it was. Make room on the disk, then do it again.",
                ) from exc
            self._size += len(line)
            self.records.append(dict(record))

    def remove(self) -> None:
        """Away with it: what it holds is elsewhere."""
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not any("ratings" in record for record in self.records):
            self.remove()  # nobody said anything
        os.close(self._file)


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a journal from elsewhere, which is left as it is.

    Raises:
        StoreError: it cannot be read, or a line is damaged.
    """
    try:
        held = read_handed(path, JOURNAL_BYTES)
    except OSError as exc:
        raise StoreError(f"{path} cannot be read: {exc.strerror}.") from exc
    return _records(held[: held.rfind(b"\n") + 1], path)


def _locked(path: Path) -> int:
    while True:
        try:
            file = open_kept(path, os.O_RDWR | os.O_APPEND, 0o600, limit=JOURNAL_BYTES)
        except OSError as exc:
            raise StoreError(
                f"The journal {path} cannot be written: {exc.strerror}.",
                fix="Ratings are kept beside the results file: copy it to a folder that you may write to.",
            ) from exc
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            sync_folder(path.parent)
            if path.exists() and os.fstat(file).st_ino == path.stat().st_ino:
                return file
        except OSError as exc:
            os.close(file)
            if exc.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise StoreError(
                f"Another `lbx rate` writes {path}.", fix="End that one first (Ctrl-C); it moves its ratings itself."
            ) from exc
        os.close(file)  # somebody removed it between the two


def _all_of(file: int) -> bytes:
    with os.fdopen(os.dup(file), "rb") as reader:
        reader.seek(0)
        return reader.read()


def _write(file: int, line: bytes) -> None:
    while line:
        line = line[os.write(file, line) :]


def _records(held: bytes, path: Path) -> list[dict[str, Any]]:
    records = []
    for number, line in enumerate(held.splitlines(), 1):
        record = record_of(line)
        if record is None:
            raise StoreError(
                f"Line {number} of {path} is not a line that lbx wrote: the file is damaged.",
                fix="Put that line into another file; all other lines can be moved then.",
            )
        records.append(record)
    return records
