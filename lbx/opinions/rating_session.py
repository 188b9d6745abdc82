"""Rating session: questions of a rating set for each rater, and ratings, written to the journal before they count."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from lbx.base.errors import StoreError, UsageError
from lbx.opinions.journal import Journal, parse_rating
from lbx.opinions.rating_rows import LATEST, RatingRow
from lbx.opinions.rating_sets import SCORE, VERDICTS, Item, RatingAnswer, RatingSet

_MAX_COMMENT_LENGTH = 20_000
RatingKey = tuple[int, str, str, int, str, int]
"""(item, rater, run, iteration, opponent's run, opponent's iteration)"""


@dataclass(frozen=True, slots=True)
class Opinion:
    """A rater's opinion of the answer at a position, or of a pair (position 0).

    Attributes:
        value: number on the scale, or for a pair "a", "b", "tie" or "both_bad", or None to leave the question open.
        comment: new comment, or None to keep the previous comment.
    """

    position: int
    value: int | str | None
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class RaterProgress:
    """Counts of a rater's questions. ``seconds_left`` is None until three questions are done."""

    done: int
    total: int
    passed: int
    seconds_left: float | None


def rating_key(row: RatingRow) -> RatingKey:
    return row.item, row.rater, row.run_id, row.iteration, row.against_run_id, row.against_iteration


class RatingSession:
    """Ratings of a set in memory. Each rating is first written to the journal.

    Args:
        stored_rows: ratings of this set in the results file.
    """

    def __init__(
        self,
        rating_set: RatingSet,
        raters: Sequence[str],
        journal: Journal,
        stored_rows: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        self.set = rating_set
        self.raters = raters
        self.torn = journal.torn
        self._items = {item.number: item for item in rating_set.items}
        self._journal = journal
        self._lock = threading.RLock()
        self._revisions: dict[RatingKey, list[RatingRow]] = {}
        self._undo_steps: dict[str, list[list[tuple[RatingKey, RatingRow | None]]]] = {}
        self._keys_of_items: dict[tuple[str, int], list[list[RatingKey]]] = {}
        self._last_time = datetime.min.replace(tzinfo=UTC)
        try:
            rows = sorted(map(parse_rating, stored_rows), key=lambda row: (row.created_at, row.revision))
        except ValueError as exc:
            raise StoreError(
                f"The results file contains ratings of {rating_set.set_id} that lbx did not write.",
                fix="Use a results file that only lbx has written to.",
            ) from exc
        self._add(rows)
        self._replay(list(journal.records))
        if self._last_time >= LATEST - timedelta(days=1):  # the next rating must come later
            raise StoreError(
                f"A rating of {rating_set.set_id} is dated {self._last_time:%Y-%m-%d}.",
                fix="It was added by hand, or rated on a machine with a wrong clock. Delete it, then continue.",
            )
        self._queues = {rater: self._make_queue(rater) for rater in raters}

    def _replay(self, records: Iterable[Mapping[str, Any]]) -> None:
        stored = {(key, row.created_at) for key, rows in self._revisions.items() for row in rows}
        has_set = False
        for record in records:
            has_set = has_set or record.get("set", {}).get("set_id") == self.set.set_id
            rows = [parse_rating(row) for row in record.get("ratings", ()) if row["set_id"] == self.set.set_id]
            if rows := [row for row in rows if (rating_key(row), row.created_at) not in stored]:
                self._count(rows, undo=bool(record.get("undo")))
        if not has_set:
            row, items = self.set.rows()
            self._journal.append({"set": row.values(), "items": [item.values() for item in items]})

    def _make_queue(self, rater: str) -> list[Item]:
        """List the items assigned to the rater, and items that the rater rated under another assignment."""
        queue = self.set.queue(rater, self.raters)
        assigned_numbers = {item.number for item in queue}
        return queue + [
            item for item in self.set.items if item.number not in assigned_numbers and any(self.values(rater, item))
        ]

    def queue(self, rater: str) -> list[Item]:
        """List a rater's questions, in the rater's order."""
        return self._queues[rater]

    def item(self, rater: str, number: int) -> Item:
        """Return a question by number. Raises UsageError if the question is not in the rater's queue."""
        item = self._items.get(number)
        if item is None or item not in self._queues[rater]:
            raise UsageError("This question is not assigned to you.")
        return item

    def latest(self, rater: str, item: Item) -> list[RatingRow | None]:
        """Return the last revision at each position. A pair occupies a single position."""
        return [self._last_revision(keys[0]) for keys in self._keys(rater, item)]

    def values(self, rater: str, item: Item) -> list[float | str | None]:
        """Return the rating or verdict at each position, or None."""
        rows = self.latest(rater, item)
        return [None if row is None else row.score if self.set.kind == SCORE else row.verdict for row in rows]

    def is_done(self, rater: str, item: Item) -> bool:
        return all(value is not None for value in self.values(rater, item))

    def is_passed(self, rater: str, item: Item) -> bool:
        """Whether the rater saw the question and left it open."""
        return not self.is_done(rater, item) and any(row is not None for row in self.latest(rater, item))

    def next_open(self, rater: str, number: int | None = None) -> Item | None:
        """Find the next question without any input of the rater, after question ``number`` and then from the first."""
        queue = self._queues[rater]
        at = next((i for i, item in enumerate(queue) if item.number == number), -1) + 1
        return next((item for item in queue[at:] + queue[:at] if not any(self.latest(rater, item))), None)

    def progress(self, rater: str) -> RaterProgress:
        """Count the rater's finished questions, and predict the time for the rest at the rater's pace."""
        queue = self._queues[rater]
        done = [item for item in queue if self.is_done(rater, item)]
        seconds = [sum(row.seconds or 0 for row in self.latest(rater, item) if row) for item in done]
        timed = [item_seconds for item_seconds in seconds if item_seconds > 0]
        seconds_left = statistics.median(timed) * (len(queue) - len(done)) if len(timed) >= 3 else None
        return RaterProgress(len(done), len(queue), sum(self.is_passed(rater, item) for item in queue), seconds_left)

    def save(self, rater: str, item: Item, opinions: Sequence[Opinion], *, seconds: float | None = None) -> bool:
        """Save all of a rater's opinions or none. Returns whether an opinion was new.

        Raises:
            UsageError: a value is not on the scale, or an answer does not exist.
            StoreError: the opinions could not be saved.
        """
        with self._lock:
            rows = [row for opinion in opinions for row in self._rows(rater, item, opinion, seconds)]
            if rows:
                self._append(rows, undo=False)
            return bool(rows)

    def undo(self, rater: str) -> tuple[Item, int] | None:
        """Undo the rater's last opinions by adding a revision.

        Returns:
            The question and the position, or None if the rater has saved no opinion since the journal began.
        """
        with self._lock:
            steps = self._undo_steps.get(rater)
            if not steps:
                return None
            now = self._next_time()
            rows = []
            for key, before in steps[-1]:
                last = self._revisions[key][-1]
                value = before or replace(last, score=None, verdict=None, comment=None, seconds=None)
                rows.append(replace(value, revision=len(self._revisions[key]), created_at=now))
            self._append(rows, undo=True)
            return self._items[rows[0].item], rows[0].shown_at or 0

    def _keys(self, rater: str, item: Item) -> list[list[RatingKey]]:
        """Return the keys of the rows that store an opinion, by position. They are cached."""
        keys = self._keys_of_items.get((rater, item.number))
        if keys is None:
            keys = self._keys_of_items[rater, item.number] = self._make_keys(rater, item)
        return keys

    def _make_keys(self, rater: str, item: Item) -> list[list[RatingKey]]:
        if self.set.kind == SCORE:
            groups = self.set.answer_groups(item, rater)
            return [[(item.number, rater, a.run_id, a.iteration, "", 0) for a in group] for group in groups]
        first, second = item.answers
        return [[(item.number, rater, first.run_id, first.iteration, second.run_id, second.iteration)]]

    def _last_revision(self, key: RatingKey) -> RatingRow | None:
        rows = self._revisions.get(key)
        return rows[-1] if rows else None

    def _rows(self, rater: str, item: Item, opinion: Opinion, seconds: float | None) -> list[RatingRow]:
        places = self._keys(rater, item)
        if not 0 <= opinion.position < len(places):
            raise UsageError("This answer does not exist.")
        comment = opinion.comment
        if comment is not None and len(comment) > _MAX_COMMENT_LENGTH:
            raise UsageError(f"A comment can have at most {_MAX_COMMENT_LENGTH:,} characters.")
        score, verdict, shown_at = self._row_values(rater, item, opinion)
        now, rows = self._next_time(), []
        for key in places[opinion.position]:
            last = self._last_revision(key)
            text = (comment.strip() or None) if comment is not None else (last.comment if last else None)
            if last and (last.score, last.verdict, last.comment) == (score, verdict, text):
                continue
            # Not the last revision plus one: a file from elsewhere may contain the largest possible number.
            revision = len(self._revisions.get(key, ()))
            rows.append(
                RatingRow(self.set.set_id, *key, revision, score, verdict, shown_at, text, seconds, created_at=now)
            )
        return rows

    def _row_values(self, rater: str, item: Item, opinion: Opinion) -> tuple[float | None, str | None, int]:
        value = opinion.value
        if self.set.kind == SCORE:
            if value is None:
                return None, None, opinion.position
            if not isinstance(value, int) or not self.set.low <= value <= self.set.high:
                raise UsageError(f"A rating must be a whole number from {self.set.low} to {self.set.high}.")
            return float(value), None, opinion.position
        groups = self.set.answer_groups(item, rater)
        judged_at = next(position for position, group in enumerate(groups) if _is_same(group[0], item.answers[0]))
        if value in ("a", "b"):
            value = VERDICTS[0] if "ab".index(str(value)) == judged_at else VERDICTS[1]
        if value is not None and value not in VERDICTS:
            raise UsageError("A pair must be rated a, b, tie or both bad.")
        return None, None if value is None else str(value), judged_at

    def _next_time(self) -> datetime:
        """Return a time later than all ratings, because ratings with the same time belong together."""
        self._last_time = max(datetime.now(UTC), self._last_time + timedelta(microseconds=1))
        return self._last_time

    def _append(self, rows: Sequence[RatingRow], *, undo: bool) -> None:
        self._journal.append({"ratings": [row.values() for row in rows], **({"undo": True} if undo else {})})
        self._count(rows, undo=undo)

    def _count(self, rows: Sequence[RatingRow], *, undo: bool) -> None:
        steps = self._undo_steps.setdefault(rows[0].rater, [])
        if undo:
            del steps[-1:]
        else:
            steps.append([(rating_key(row), self._last_revision(rating_key(row))) for row in rows])
        self._add(rows)

    def _add(self, rows: Iterable[RatingRow]) -> None:
        for row in rows:
            self._revisions.setdefault(rating_key(row), []).append(row)
            self._last_time = max(self._last_time, row.created_at)


def _is_same(answer: RatingAnswer, other: RatingAnswer) -> bool:
    return (answer.run_id, answer.iteration) == (other.run_id, other.iteration)
