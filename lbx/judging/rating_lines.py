"""Types and bounds of journal lines and rating rows.

A journal may come from an untrusted source. Values that pass can be computed with, compared and stored: no number, date
or revision prevents the next rating from being saved.
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

_MAX_COUNT, _MAX_SEED = 2**31, 2**63
"""Limits of the database's integers."""
_MAX_NUMBER = 1e9
"""Limit of scores, scales and seconds."""
_ERRORS = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError)


class RatingLine(NamedTuple):
    """A set with its items, or ratings by one rater at one time."""

    set: RatingSetRow | None
    items: list[RatingItemRow]
    ratings: list[RatingRow]


def record_of(line: bytes) -> dict[str, Any] | None:
    """Parse a line's values; None if lbx never writes such a line."""
    try:
        record = json.loads(line)
        return record if record.keys() & {"set", "ratings"} and line_of(record) else None
    except _ERRORS:
        return None


def line_of(record: Mapping[str, Any]) -> RatingLine:
    """Parse a line's rows. Raises ValueError if lbx never writes such a line."""
    try:
        rating_set = _set_of(record["set"]) if "set" in record else None
        return RatingLine(
            rating_set,
            [_item_of(item) for item in record["items"]] if rating_set else [],
            [row_of(row) for row in record.get("ratings", ())],
        )
    except _ERRORS as exc:
        raise ValueError("no line of a journal") from exc


def row_of(values: Mapping[str, Any]) -> RatingRow:
    """Parse a row of a journal or a table. Raises ValueError if it is invalid."""
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
    """Make a row from the known columns; its time has a zone and is early enough for later ratings."""
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
