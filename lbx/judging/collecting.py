"""Ratings from journals into the tables of a results file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lbx.base.errors import StoreError
from lbx.judging.journal import Journal, journal_of, read_journal
from lbx.judging.rating_lines import is_on_scale, line_of
from lbx.store import Store
from lbx.store.ratings import RatingItemRow, RatingRow, RatingSetRow, write_ratings


@dataclass(frozen=True, slots=True)
class Collected:
    """What was moved.

    Attributes:
        ratings: rows that the file did not have.
        torn: where the piece of a line that a kill left was put; None without one.
        spoke_for: of each journal from elsewhere, {rater: lines}. Nothing shows that they are that rater's own.
    """

    ratings: int
    torn: Path | None = None
    spoke_for: Mapping[Path, Mapping[str, int]] = field(default_factory=dict)


def collect(results: Path, others: Sequence[Path] = ()) -> Collected:
    """Move a results file's journal into it, and what journals from elsewhere hold.

    A journal goes when the file that took its rows is closed; killed in between, nothing is lost, and nothing doubled
    the next time. Journals from elsewhere stay.

    Raises:
        StoreError: the file or the journal is in use, or damaged.
    """
    read = {other: read_journal(other) for other in others}
    elsewhere = [record for records in read.values() for record in records]
    spoke_for = {
        other: Counter(row["rater"] for record in records for row in record.get("ratings", ())[:1])
        for other, records in read.items()
    }
    path = journal_of(results)
    if not path.exists():
        return Collected(_moved(results, elsewhere), spoke_for=spoke_for)
    with Journal(path) as journal:
        return Collected(collected(results, journal, elsewhere), journal.torn, spoke_for)


def collected(results: Path, journal: Journal, elsewhere: Iterable[Mapping[str, Any]] = ()) -> int:
    """The rows of an open journal into the file, and the journal away. Returns how many were new."""
    moved = _moved(results, [*journal.records, *elsewhere])
    journal.remove()
    return moved


def _moved(results: Path, records: Iterable[Mapping[str, Any]]) -> int:
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
            raise StoreError(f"A journal does not say what its set {row.set_id} is: its first lines are missing.")
        if not is_on_scale(row, sets[row.set_id]):
            raise StoreError(
                f"A journal has a rating of {row.rater!r} that is not on the scale of {row.set_id}: {row.score:g}.",
                fix="lbx never writes such a line: leave that journal out.",
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
