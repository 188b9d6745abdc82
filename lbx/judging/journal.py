"""Journal of ratings: a line per rating, flushed to disk before a page shows it as saved.

Its path is RESULTS.ratings.jsonl, next to the results file. One process at a time can write it, and no other process
can read it meanwhile. Lines shown as saved are complete; a partial line left by a kill is moved to another file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lbx.base.errors import StoreError
from lbx.base.inputs import read_file_or_pipe
from lbx.base.limits import JOURNAL_BYTES
from lbx.base.outputs import open_or_create, sync_folder
from lbx.judging.rating_lines import is_on_scale, line_of, record_of
from lbx.scoring.opinions import write_ratings
from lbx.store import Store
from lbx.store.ratings import RatingItemRow, RatingRow, RatingSetRow
from lbx.store.rows import as_json


def journal_of(results: Path) -> Path:
    return results.with_name(f"{results.name}.ratings.jsonl")


class Journal:
    """A journal opened for exclusive writing, created if missing. Use it as a context manager.

    Attributes:
        records: its lines, including appended ones.
        torn: file with the partial line left by a kill; None without one.

    Raises:
        StoreError: another process writes it, a line is damaged, or it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn: Path | None = None
        self._lock = threading.Lock()
        self._file = _lock_journal(path)
        try:
            data = _read_all(self._file)
            complete_lines = data.rpartition(b"\n")[0] + b"\n" if b"\n" in data else b""
            self.records = _records(complete_lines, path)
            if len(complete_lines) < len(data):
                self._move_partial_line(data[len(complete_lines) :], len(complete_lines))
            self._size = len(complete_lines)
        except BaseException:
            os.close(self._file)
            raise

    def _move_partial_line(self, piece: bytes, size: int) -> None:
        torn = self.path.with_suffix(".torn")
        try:
            with os.fdopen(open_or_create(torn, os.O_WRONLY | os.O_APPEND, 0o600), "wb") as file:
                file.write(piece + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.ftruncate(self._file, size)
            os.fsync(self._file)
        except OSError as exc:
            raise StoreError(
                f"The partial line that a killed process left in {self.path} cannot be moved to {torn}: "
                f"{exc.strerror}.",
                fix="No file has changed. Free space on the disk, then do it again.",
            ) from exc
        self.torn = torn

    def append(self, record: Mapping[str, Any]) -> None:
        """Append a line and flush it to disk.

        Raises:
            StoreError: the line cannot be written; no part of it was.
        """
        try:
            line_of(record)
        except ValueError as exc:
            raise StoreError(
                "This cannot be saved: a number or a date in it is out of range.",
                fix="It was not saved, but everything before it was. Check this machine's clock.",
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
                    fix="This was not saved, but everything before it was. Free space on the disk, then do it again.",
                ) from exc
            self._size += len(line)
            self.records.append(dict(record))

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not any("ratings" in record for record in self.records):
            self.remove()
        os.close(self._file)


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Read the complete lines of a journal from elsewhere, without changing it.

    Raises:
        StoreError: it cannot be read, or a line is damaged.
    """
    try:
        data = read_file_or_pipe(path, JOURNAL_BYTES)
    except OSError as exc:
        raise StoreError(f"{path} cannot be read: {exc.strerror}.") from exc
    return _records(data[: data.rfind(b"\n") + 1], path)


def _lock_journal(path: Path) -> int:
    while True:
        try:
            file = open_or_create(path, os.O_RDWR | os.O_APPEND, 0o600, limit=JOURNAL_BYTES)
        except OSError as exc:
            raise StoreError(
                f"The journal {path} cannot be written: {exc.strerror}.",
                fix="Ratings are stored next to the results file: copy it to a folder that you can write to.",
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
                f"Another `lbx rate` is writing {path}.",
                fix="Stop that one first (Ctrl-C); it moves its ratings itself.",
            ) from exc
        os.close(file)  # another process removed it in the meantime


def _read_all(file: int) -> bytes:
    with os.fdopen(os.dup(file), "rb") as reader:
        reader.seek(0)
        return reader.read()


def _write(file: int, line: bytes) -> None:
    while line:
        line = line[os.write(file, line) :]


def _records(data: bytes, path: Path) -> list[dict[str, Any]]:
    records = []
    for number, line in enumerate(data.splitlines(), 1):
        record = record_of(line)
        if record is None:
            raise StoreError(
                f"Line {number} of {path} was not written by lbx: the file is damaged.",
                fix="Move that line to another file; then all other lines can be moved.",
            )
        records.append(record)
    return records


# Import into the results file


@dataclass(frozen=True, slots=True)
class CollectSummary:
    """Counts of ``collect_ratings``.

    Attributes:
        ratings: number of rows that the file did not have.
        torn: see ``Journal``.
        lines_of_raters: {rater: lines} of each journal from elsewhere, with unverified authorship.
    """

    ratings: int
    torn: Path | None = None
    lines_of_raters: Mapping[Path, Mapping[str, int]] = field(default_factory=dict)


def collect_ratings(results: Path, other_paths: Sequence[Path] = ()) -> CollectSummary:
    """Move a results file's journal into its tables, and copy rows of journals from elsewhere.

    The journal is removed after the file is closed; a kill in between neither loses rows nor duplicates them later.

    Raises:
        StoreError: the file or the journal is in use, or damaged.
    """
    journals = {other: read_journal(other) for other in other_paths}
    elsewhere = [record for records in journals.values() for record in records]
    lines_of_raters = {
        other: Counter(row["rater"] for record in records for row in record.get("ratings", ())[:1])
        for other, records in journals.items()
    }
    path = journal_of(results)
    if not path.exists():
        return CollectSummary(_write_records(results, elsewhere), lines_of_raters=lines_of_raters)
    with Journal(path) as journal:
        return CollectSummary(move_journal(results, journal, elsewhere), journal.torn, lines_of_raters)


def move_journal(results: Path, journal: Journal, extra_records: Iterable[Mapping[str, Any]] = ()) -> int:
    """Write an open journal's rows into the file, and remove it. Returns the number of new rows."""
    moved = _write_records(results, [*journal.records, *extra_records])
    journal.remove()
    return moved


def _write_records(results: Path, records: Iterable[Mapping[str, Any]]) -> int:
    sets: dict[str, RatingSetRow] = {}
    items: list[RatingItemRow] = []
    ratings: list[RatingRow] = []
    for record in records:
        line = line_of(record)
        if line.set:
            sets[line.set.set_id] = line.set
            items += line.items
        ratings += line.ratings
    for row in ratings:
        if row.set_id not in sets:
            raise StoreError(f"A journal does not describe its set {row.set_id}: its first lines are missing.")
        if not is_on_scale(row, sets[row.set_id]):
            raise StoreError(
                f"A journal has a rating of {row.rater!r} outside the scale of {row.set_id}: {row.score:g}.",
                fix="lbx never writes such a line: leave out that journal.",
            )
    if not ratings:
        return 0
    used = {row.set_id for row in ratings}
    with Store(results) as store:
        return write_ratings(
            store,
            [row for name, row in sets.items() if name in used],
            list({(row.set_id, row.item): row for row in items if row.set_id in used}.values()),
            ratings,
        )
