"""What raters have said of a set, and what they say next: each thing in the journal before it counts."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from lbx.base.errors import StoreError, UsageError
from lbx.judging.journal import Journal
from lbx.judging.rating_lines import row_of
from lbx.judging.rating_sets import SCORE, VERDICTS, Answer, Item, RatingSet
from lbx.store.ratings import LATEST, RatingRow

_MOST_COMMENT = 20_000
Key = tuple[int, str, str, int, str, int]


@dataclass(frozen=True, slots=True)
class Opinion:
    """What a rater says of one thing: of the answer at a place, or of a pair (place 0).

    Attributes:
        value: a number of the scale; "a", "b" (the place that is better), "tie" or "both_bad"; None to leave open.
        comment: None leaves it as it was.
    """

    place: int
    value: int | str | None
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class HowFar:
    """How far a rater is. ``seconds_left`` is None until there is something to tell it by."""

    done: int
    total: int
    passed: int
    seconds_left: float | None


def row_key(row: RatingRow) -> Key:
    return row.item, row.rater, row.run_id, row.iteration, row.against_run_id, row.against_iteration


class Book:
    """What was said, in memory; the journal has it first.

    Args:
        held: rows of this set that the results file has already.
    """

    def __init__(
        self, rating_set: RatingSet, raters: Sequence[str], journal: Journal, held: Iterable[Mapping[str, Any]] = ()
    ) -> None:
        self.set = rating_set
        self.raters = raters
        self.torn = journal.torn
        self._items = {item.number: item for item in rating_set.items}
        self._journal = journal
        self._lock = threading.RLock()
        self._said: dict[Key, list[RatingRow]] = {}
        self._done: dict[str, list[list[tuple[Key, RatingRow | None]]]] = {}
        self._places: dict[tuple[str, int], list[list[Key]]] = {}
        self._last = datetime.min.replace(tzinfo=UTC)
        try:
            rows = sorted(map(row_of, held), key=lambda one: (one.created_at, one.revision))
        except ValueError as exc:
            raise StoreError(
                f"The results file holds ratings of {rating_set.set_id} that lbx did not write.",
                fix="Rate in a results file that nothing but lbx has written to.",
            ) from exc
        for row in rows:
            self._enter([row])
        self._read(list(journal.records))
        if self._last >= LATEST - timedelta(days=1):  # what is said next must come later
            raise StoreError(
                f"There is a rating of {rating_set.set_id} that is dated {self._last:%Y-%m-%d}.",
                fix="Somebody planted it, or rated on a machine with a wrong clock. Delete it, then rate on.",
            )
        self._queues = {rater: self._queue(rater) for rater in raters}

    def _read(self, records: Iterable[Mapping[str, Any]]) -> None:
        known = {(key, row.created_at) for key, rows in self._said.items() for row in rows}
        present = False
        for record in records:
            present = present or record.get("set", {}).get("set_id") == self.set.set_id
            rows = [row_of(row) for row in record.get("ratings", ()) if row["set_id"] == self.set.set_id]
            if rows := [row for row in rows if (row_key(row), row.created_at) not in known]:
                self._count(rows, undo=bool(record.get("undo")))
        if not present:
            row, items = self.set.rows()
            self._journal.append({"set": row.values(), "items": [item.values() for item in items]})

    def _queue(self, rater: str) -> list[Item]:
        """What is dealt, and what was rated before it was dealt otherwise."""
        queue = self.set.queue(rater, self.raters)
        dealt = {item.number for item in queue}
        return queue + [item for item in self.set.items if item.number not in dealt and any(self.values(rater, item))]

    # What there is

    def queue(self, rater: str) -> list[Item]:
        """A rater's questions, in the rater's order."""
        return self._queues[rater]

    def item(self, rater: str, number: int) -> Item:
        """One of a rater's questions. Raises UsageError: it is not."""
        item = self._items.get(number)
        if item is None or item not in self._queues[rater]:
            raise UsageError("This question is not one of yours.")
        return item

    def latest(self, rater: str, item: Item) -> list[RatingRow | None]:
        """The last thing said at each place; of a pair there is one."""
        return [self._last_of(keys[0]) for keys in self._keys(rater, item)]

    def values(self, rater: str, item: Item) -> list[float | str | None]:
        """The rating or verdict at each place; None where there is none."""
        rows = self.latest(rater, item)
        return [None if row is None else row.score if self.set.kind == SCORE else row.verdict for row in rows]

    def is_done(self, rater: str, item: Item) -> bool:
        return all(value is not None for value in self.values(rater, item))

    def is_passed(self, rater: str, item: Item) -> bool:
        """Whether the rater saw it and left it open."""
        rows = self.latest(rater, item)
        return not self.is_done(rater, item) and any(row is not None for row in rows)

    def next_open(self, rater: str, after: int | None = None) -> Item | None:
        """The next question that the rater has not touched, behind this one and then from the first on."""
        queue = self._queues[rater]
        at = next((i for i, item in enumerate(queue) if item.number == after), -1) + 1
        open_ = (item for item in queue[at:] + queue[:at] if not any(self.latest(rater, item)))
        return next(open_, None)

    def progress(self, rater: str) -> HowFar:
        """Questions done, and how long the rest takes at this rater's own pace."""
        queue = self._queues[rater]
        done = [item for item in queue if self.is_done(rater, item)]
        took = [sum(row.seconds or 0 for row in self.latest(rater, item) if row) for item in done]
        known = [seconds for seconds in took if seconds > 0]
        left = statistics.median(known) * (len(queue) - len(done)) if len(known) >= 3 else None
        return HowFar(len(done), len(queue), sum(self.is_passed(rater, item) for item in queue), left)

    # What is said

    def say(self, rater: str, item: Item, opinions: Sequence[Opinion], *, seconds: float | None = None) -> bool:
        """Save what a rater says, all or nothing. Returns whether anything was new.

        Raises:
            UsageError: not on the scale, or no such answer.
            StoreError: it could not be saved.
        """
        with self._lock:
            rows = [row for one in opinions for row in self._rows(rater, item, one, seconds)]
            if rows:
                self._save(rows, undo=False)
            return bool(rows)

    def undo(self, rater: str) -> tuple[Item, int] | None:
        """Take back what this rater said last, by another revision.

        Returns:
            The question and the place; None where there is nothing that was said since the journal began.
        """
        with self._lock:
            done = self._done.get(rater)
            if not done:
                return None
            now = self._now()
            rows = []
            for key, before in done[-1]:
                last = self._said[key][-1]
                value = before or replace(last, score=None, verdict=None, comment=None, seconds=None)
                rows.append(replace(value, revision=len(self._said[key]), created_at=now))
            self._save(rows, undo=True)
            return self._items[rows[0].item], rows[0].shown_at or 0

    def _keys(self, rater: str, item: Item) -> list[list[Key]]:
        """Of each place, the rows that one thing said there makes."""
        keys = self._places.get((rater, item.number))
        if keys is None:
            keys = self._places[rater, item.number] = self._made_keys(rater, item)
        return keys

    def _made_keys(self, rater: str, item: Item) -> list[list[Key]]:
        if self.set.kind == SCORE:
            shown = self.set.shown(item, rater)
            return [[(item.number, rater, a.run_id, a.iteration, "", 0) for a in group] for group in shown]
        first, second = item.answers
        return [[(item.number, rater, first.run_id, first.iteration, second.run_id, second.iteration)]]

    def _last_of(self, key: Key) -> RatingRow | None:
        rows = self._said.get(key)
        return rows[-1] if rows else None

    def _rows(self, rater: str, item: Item, opinion: Opinion, seconds: float | None) -> list[RatingRow]:
        places = self._keys(rater, item)
        if not 0 <= opinion.place < len(places):
            raise UsageError("There is no such answer.")
        comment = opinion.comment
        if comment is not None and len(comment) > _MOST_COMMENT:
            raise UsageError(f"A comment may have {_MOST_COMMENT:,} characters.")
        score, verdict, shown_at = self._meant(rater, item, opinion)
        now, rows = self._now(), []
        for key in places[opinion.place]:
            last = self._last_of(key)
            held = (last.score, last.verdict, last.comment) if last else None
            text = (comment.strip() or None) if comment is not None else (last.comment if last else None)
            if held == (score, verdict, text):
                continue
            # Not the last one's and one more: a file from elsewhere may have given that the largest number there is.
            revision = len(self._said.get(key, ()))
            rows.append(
                RatingRow(self.set.set_id, *key, revision, score, verdict, shown_at, text, seconds, created_at=now)
            )
        return rows

    def _meant(self, rater: str, item: Item, opinion: Opinion) -> tuple[float | None, str | None, int]:
        """Score, verdict and place as a row has them."""
        value = opinion.value
        if self.set.kind == SCORE:
            if value is None:
                return None, None, opinion.place
            if not isinstance(value, int) or not self.set.low <= value <= self.set.high:
                raise UsageError(f"A rating is a whole number from {self.set.low} to {self.set.high}.")
            return float(value), None, opinion.place
        judged_at = next(at for at, group in enumerate(self.set.shown(item, rater)) if _same(group[0], item.answers[0]))
        if value in ("a", "b"):
            value = VERDICTS[0] if "ab".index(str(value)) == judged_at else VERDICTS[1]
        if value is not None and value not in VERDICTS:
            raise UsageError("A pair is decided by a, b, a tie, or that both are bad.")
        return None, None if value is None else str(value), judged_at

    def _now(self) -> datetime:
        """Later than everything before: what was said at one time is one thing."""
        self._last = max(datetime.now(UTC), self._last + timedelta(microseconds=1))
        return self._last

    def _save(self, rows: Sequence[RatingRow], *, undo: bool) -> None:
        self._journal.append({"ratings": [row.values() for row in rows], **({"undo": True} if undo else {})})
        self._count(rows, undo=undo)

    def _count(self, rows: Sequence[RatingRow], *, undo: bool) -> None:
        done = self._done.setdefault(rows[0].rater, [])
        if undo:
            del done[-1:]
        else:
            done.append([(row_key(row), self._last_of(row_key(row))) for row in rows])
        self._enter(rows)

    def _enter(self, rows: Sequence[RatingRow]) -> None:
        for row in rows:
            self._said.setdefault(row_key(row), []).append(row)
            self._last = max(self._last, row.created_at)


def _same(one: Answer, other: Answer) -> bool:
    return (one.run_id, one.iteration) == (other.run_id, other.iteration)
