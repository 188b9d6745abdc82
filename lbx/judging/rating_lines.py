"""What a line of a journal may say, and a row of ratings: types and bounds, looked at here and nowhere else.

A journal may come from anybody. What passes here can be counted with, compared, and stored: no number, no date and no
revision in it is such that what is said next could not be saved.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, NamedTuple

from lbx.judging.rating_sets import PAIR, SCORE, VERDICTS
from lbx.store.ratings import EARLIEST, LATEST, RatingItemRow, RatingRow, RatingSetRow
from lbx.store.rows import TableRow

_MOST, _MOST_SEED = 2**31, 2**63
"""Of the database's whole numbers."""
_FARTHEST = 1e9
"""Of scores, scales and seconds."""
_WRONG = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError)


class RatingLine(NamedTuple):
    """What one line of a journal says: what a set is, or what somebody said of it at one time."""

    set: RatingSetRow | None
    items: list[RatingItemRow]
    ratings: list[RatingRow]


def record_of(line: bytes) -> dict[str, Any] | None:
    """A line's values; None: lbx never writes such a line."""
    try:
        record = json.loads(line)
        return record if record.keys() & {"set", "ratings"} and line_of(record) else None
    except _WRONG:
        return None


def line_of(record: Mapping[str, Any]) -> RatingLine:
    """A line's rows. Raises ValueError: lbx never writes such a line."""
    try:
        made = _set_of(record["set"]) if "set" in record else None
        return RatingLine(
            made,
            [_item_of(item) for item in record["items"]] if made else [],
            [row_of(row) for row in record.get("ratings", ())],
        )
    except _WRONG as exc:
        raise ValueError("no line of a journal") from exc


def row_of(values: Mapping[str, Any]) -> RatingRow:
    """A row as a journal or a table has it. Raises ValueError: it is none."""
    row: RatingRow = _made(RatingRow, values)
    shown_at = () if row.shown_at is None else (row.shown_at,)
    if not (
        _are_texts(row.set_id, row.rater, row.run_id, row.against_run_id, row.comment or "", row.source_row or "")
        and _are_counts(row.item, row.iteration, row.against_iteration, row.revision, *shown_at)
        and _are_numbers(row.score, row.seconds)
        and row.verdict in (None, *VERDICTS)
    ):
        raise ValueError("no rating")
    return row


def is_on_scale(row: RatingRow, of: RatingSetRow) -> bool:
    """Whether a rating's set has such a score."""
    low, high = of.scale_low, of.scale_high
    return row.score is None or (low is not None and high is not None and low <= row.score <= high)


def _set_of(values: Mapping[str, Any]) -> RatingSetRow:
    row: RatingSetRow = _made(RatingSetRow, values)
    if not (
        _are_texts(row.set_id, row.question_source, row.bundle_digest or "", *_listed(row.runs))
        and row.kind in (SCORE, PAIR)
        and _are_numbers(row.scale_low, row.scale_high)
        and type(row.seed) is int
        and abs(row.seed) < _MOST_SEED
        and _are_counts(*(() if row.raters_per_item is None else (row.raters_per_item,)))
    ):
        raise ValueError("no set")
    return row


def _item_of(values: Mapping[str, Any]) -> RatingItemRow:
    row: RatingItemRow = _made(RatingItemRow, values)
    if not (
        _are_texts(row.set_id, row.benchmark, row.task, row.sample_id)
        and _are_counts(row.item, row.position)
        and isinstance(row.meta, Mapping)
    ):
        raise ValueError("no question")
    return row


def _made(kind: type[TableRow], values: Mapping[str, Any]) -> Any:
    """A row of the columns that this lbx knows; its time aware, and one that others can follow."""
    try:
        names = {column.name for column in fields(kind)}
        kept = {name: value for name, value in values.items() if name in names}
        if "created_at" in names:
            created = kept["created_at"]
            time = created if isinstance(created, datetime) else datetime.fromisoformat(created)
            kept["created_at"] = (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
            if not EARLIEST <= kept["created_at"] < LATEST:
                raise ValueError("no time that anybody rates at")
        return kind(**kept)
    except _WRONG as exc:
        raise ValueError(f"no row of {kind.__name__}") from exc


def _listed(values: object) -> list[object]:
    if not isinstance(values, list):
        raise TypeError("no list")
    return values


def _are_texts(*values: object) -> bool:
    return all(type(one) is str for one in values)


def _are_counts(*values: object) -> bool:
    return all(type(one) is int and 0 <= one < _MOST for one in values)


def _are_numbers(*values: object) -> bool:
    return all(
        one is None or (isinstance(one, int | float) and type(one) is not bool and abs(one) <= _FARTHEST)
        for one in values
    )
