"""Journal of ratings: a line per rating, flushed to disk before a page shows it as saved.

The journal is RESULTS.ratings.jsonl, next to the results file. Only one process at a time can write the journal. Other
processes may read the complete lines meanwhile. Lines shown as saved are complete. A partial line left by a kill is
moved to another file.

A journal may come from an untrusted source, so types and bounds of all values are checked. Values that pass can be
compared and stored, and no number, date or revision prevents the next rating from being saved.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from lbx.base.errors import StoreError
from lbx.base.inputs import read_file_or_pipe
from lbx.base.journal_file import JournalFile, split_lines
from lbx.base.limits import JOURNAL_BYTES
from lbx.base.records import TableRow
from lbx.opinions.aggregation import write_ratings
from lbx.opinions.rating_rows import EARLIEST, LATEST, RatingItemRow, RatingRow, RatingSetRow
from lbx.opinions.rating_sets import PAIR, SCORE, VERDICTS
from lbx.results import Store
from lbx.results.rows import as_json

_MAX_COUNT, _MAX_SEED = 2**31, 2**63
"""Limits of integers in the database."""
_MAX_NUMBER = 1e9
"""Limit of scores, scales and seconds."""
_ERRORS = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError)


class RatingLine(NamedTuple):
    """Parsed line of a journal: a set with items, or ratings by a rater at the same time."""

    set: RatingSetRow | None
    items: list[RatingItemRow]
    ratings: list[RatingRow]


def parse_record(line: bytes) -> dict[str, Any] | None:
    """Parse the values of a journal's line. Returns None if lbx never writes such a line."""
    try:
        record = json.loads(line)
        return record if record.keys() & {"set", "ratings"} and parse_line(record) else None
    except _ERRORS:
        return None


def parse_line(record: Mapping[str, Any]) -> RatingLine:
    """Parse the rows in the values of a line. Raises ValueError if lbx never writes such a line."""
    try:
        rating_set = _set_of(record["set"]) if "set" in record else None
        return RatingLine(
            rating_set,
            [_item_of(item) for item in record["items"]] if rating_set else [],
            [parse_rating(row) for row in record.get("ratings", ())],
        )
    except _ERRORS as exc:
        raise ValueError("no line of a journal") from exc


def parse_rating(values: Mapping[str, Any]) -> RatingRow:
    """Parse a rating from a journal or a table. Raises ValueError if a value is invalid."""
    row: RatingRow = _make_row(RatingRow, values)
    shown_at = () if row.shown_at is None else (row.shown_at,)
    if not (
        _are_texts(row.set_id, row.rater, row.run_id, row.against_run_id, row.comment or "", row.source_row or "")
        and _are_counts(row.item, row.iteration, row.against_iteration, row.revision, *shown_at)
        and _are_numbers(row.score, row.seconds)
        and row.verdict in (None, *VERDICTS)
    ):
        raise ValueError("no rating")
    return row


def is_on_scale(row: RatingRow, rating_set: RatingSetRow) -> bool:
    low, high = rating_set.scale_low, rating_set.scale_high
    return row.score is None or (low is not None and high is not None and low <= row.score <= high)


def _set_of(values: Mapping[str, Any]) -> RatingSetRow:
    row: RatingSetRow = _make_row(RatingSetRow, values)
    if not (
        _are_texts(row.set_id, row.question_source, row.bundle_digest or "", *_as_list(row.runs))
        and row.kind in (SCORE, PAIR)
        and _are_numbers(row.scale_low, row.scale_high)
        and type(row.seed) is int
        and abs(row.seed) < _MAX_SEED
        and _are_counts(*(() if row.raters_per_item is None else (row.raters_per_item,)))
    ):
        raise ValueError("no set")
    return row


def _item_of(values: Mapping[str, Any]) -> RatingItemRow:
    row: RatingItemRow = _make_row(RatingItemRow, values)
    if not (
        _are_texts(row.set_id, row.benchmark, row.task, row.sample_id)
        and _are_counts(row.item, row.position)
        and isinstance(row.meta, Mapping)
    ):
        raise ValueError("no question")
    return row


def _make_row(kind: type[TableRow], values: Mapping[str, Any]) -> Any:
    """Make a row of a class from the known columns, with checked times in UTC."""
    try:
        names = {column.name for column in fields(kind)}
        row_values = {name: value for name, value in values.items() if name in names}
        if "created_at" in names:
            created = row_values["created_at"]
            time = created if isinstance(created, datetime) else datetime.fromisoformat(created)
            row_values["created_at"] = (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
            if not EARLIEST <= row_values["created_at"] < LATEST:
                raise ValueError("no time that anybody rates at")
        return kind(**row_values)
    except _ERRORS as exc:
        raise ValueError(f"no row of {kind.__name__}") from exc


def _as_list(values: object) -> list[object]:
    if not isinstance(values, list):
        raise TypeError("no list")
    return values


def _are_texts(*values: object) -> bool:
    return all(type(value) is str for value in values)


def _are_counts(*values: object) -> bool:
    return all(type(value) is int and 0 <= value < _MAX_COUNT for value in values)


def _are_numbers(*values: object) -> bool:
    return all(
        value is None or (isinstance(value, int | float) and type(value) is not bool and abs(value) <= _MAX_NUMBER)
        for value in values
    )


def journal_of(results: Path) -> Path:
    return results.with_name(f"{results.name}.ratings.jsonl")


class Journal:
    """A journal that is open for exclusive writing, created if missing. Use it as a context manager.

    Attributes:
        records: values of all lines, including appended lines.
        torn: file with the partial line left by a kill, or None without such a line.

    Raises:
        StoreError: another process writes the journal, a line is damaged, or the journal cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn: Path | None = None
        self._lock = threading.Lock()
        self._file = _open_journal(path)
        try:
            self.records = _records(self._file.read_lines(), path)
            self._move_partial_line()
        except BaseException:
            self._file.close()
            raise

    def _move_partial_line(self) -> None:
        torn = self.path.with_suffix(".torn")
        try:
            self.torn = torn if self._file.cut_partial_line(torn) else None
        except OSError as exc:
            raise StoreError(
                f"The partial line that a killed process left in {self.path} cannot be moved to {torn}: "
                f"{exc.strerror}.",
                fix="No file has changed. Free space on the disk, then do it again.",
            ) from exc

    def append(self, record: Mapping[str, Any]) -> None:
        """Append a line, and flush the file to disk.

        Raises:
            StoreError: the line cannot be written. The journal then contains no bytes of the line.
        """
        try:
            parse_line(record)
        except ValueError as exc:
            raise StoreError(
                "This cannot be saved: a number or a date in it is out of range.",
                fix="It was not saved, but everything before it was. Check this machine's clock.",
            ) from exc
        with self._lock:
            try:
                self._file.append(as_json(record).encode())
            except OSError as exc:
                raise StoreError(
                    f"{self.path} could not be written: {exc.strerror}.",
                    fix="This was not saved, but everything before it was. Free space on the disk, then do it again.",
                ) from exc
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
        self._file.close()


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Read the complete lines of a journal from elsewhere, and leave the file unchanged.

    Raises:
        StoreError: the journal cannot be read, or a line is damaged.
    """
    try:
        data = read_file_or_pipe(path, JOURNAL_BYTES)
    except OSError as exc:
        raise StoreError(f"{path} cannot be read: {exc.strerror}.", fix="Check the path.") from exc
    return _records(split_lines(data)[0], path)


def _open_journal(path: Path) -> JournalFile:
    try:
        return JournalFile(path, mode=0o600, limit=JOURNAL_BYTES)
    except BlockingIOError as exc:
        raise StoreError(
            f"Another `lbx rate` is writing {path}.",
            fix="Stop that one first (Ctrl-C); it moves its ratings itself.",
        ) from exc
    except OSError as exc:
        raise StoreError(
            f"The journal {path} cannot be written: {exc.strerror}.",
            fix="Ratings are stored next to the results file: copy it to a folder that you can write to.",
        ) from exc


def _records(lines: Iterable[bytes], path: Path) -> list[dict[str, Any]]:
    records = []
    for number, line in enumerate(lines, 1):
        record = parse_record(line)
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
    """Summary of ``collect_ratings``: new ratings, and lines by journal and rater.

    Attributes:
        ratings: number of ratings that the file did not contain before.
        torn: see ``Journal``.
        lines_of_raters: {journal from elsewhere: {rater: number of lines}}, with unverified names of raters.
    """

    ratings: int
    torn: Path | None = None
    lines_of_raters: Mapping[Path, Mapping[str, int]] = field(default_factory=dict)


def collect_ratings(results: Path, other_paths: Sequence[Path] = ()) -> CollectSummary:
    """Move a results file's journal into its tables, and copy rows of journals from elsewhere.

    The journal is removed after the file is closed. A kill in between neither loses nor later duplicates rows.

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
    """Write the rows of an open journal into the results file, remove the journal, and return the count of new rows."""
    moved = _write_records(results, [*journal.records, *extra_records])
    journal.remove()
    return moved


def _write_records(results: Path, records: Iterable[Mapping[str, Any]]) -> int:
    sets: dict[str, RatingSetRow] = {}
    items: list[RatingItemRow] = []
    ratings: list[RatingRow] = []
    for record in records:
        line = parse_line(record)
        if line.set:
            sets[line.set.set_id] = line.set
            items += line.items
        ratings += line.ratings
    for row in ratings:
        if row.set_id not in sets:
            raise StoreError(
                f"A journal does not describe its set {row.set_id}: its first lines are missing.",
                fix="Copy the whole journal again, or leave it out.",
            )
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
