"""Ratings from journals into the tables of a results file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lbx.errors import StoreError
from lbx.people.journal import Journal, journal_of, read_journal, row_of
from lbx.store import Store
from lbx.store.ratings import write_ratings
from lbx.store.rows import RatingItemRow, RatingRow, RatingSetRow


@dataclass(frozen=True, slots=True)
class Collected:
    """What was moved.

    Attributes:
        ratings: rows that the file did not have.
        torn: where the piece of a line that a kill left was put; None without one.
    """

    ratings: int
    torn: Path | None = None


def collect(results: Path, others: Sequence[Path] = ()) -> Collected:
    """Move a results file's journal into it, and what journals from elsewhere hold.

    A journal goes when the file that took its rows is closed; killed in between, nothing is lost, and nothing doubled
    the next time. Journals from elsewhere stay.

    Raises:
        StoreError: the file or the journal is in use, or damaged.
    """
    elsewhere = [record for other in others for record in read_journal(other)]
    path = journal_of(results)
    if not path.exists():
        return Collected(_moved(results, elsewhere))
    with Journal(path) as journal:
        return Collected(collected(results, journal, elsewhere), journal.torn)


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
        try:
            if "set" in record:
                row = _row(RatingSetRow, record["set"])
                sets[row.set_id] = row
                items += [_row(RatingItemRow, item) for item in record["items"]]
            ratings += [row_of(row) for row in record.get("ratings", ())]
        except (KeyError, TypeError, ValueError) as exc:
            raise StoreError(
                "A journal has a line that this lbx does not know.", fix="Use the lbx that wrote it."
            ) from exc
    used = {row.set_id for row in ratings}
    if missing := used - sets.keys():
        raise StoreError(f"A journal does not say what its set {sorted(missing)[0]} is: its first lines are missing.")
    if not ratings:
        return 0
    with Store(results) as store:
        return write_ratings(
            store,
            [row for name, row in sets.items() if name in used],
            list({(row.set_id, row.item): row for row in items if row.set_id in used}.values()),
            ratings,
        )


def _row(kind: type[Any], values: Mapping[str, Any]) -> Any:
    known = {column.name for column in fields(kind)}
    kept = {name: value for name, value in values.items() if name in known}
    if "created_at" in kept:
        kept["created_at"] = datetime.fromisoformat(kept["created_at"]).replace(tzinfo=UTC)
    return kind(**kept)
