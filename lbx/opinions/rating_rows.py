"""People's ratings in a results file, added from journals and other files without losses or duplicates.

Rows with equal content and time are the same row. Imported rows, which two files may have read at different times, are
identified by their original line. Revisions are renumbered if rows of one question and rater come from two places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from lbx.base.errors import StoreError
from lbx.base.records import TableRow
from lbx.results.file.inserting import as_parameter, insert, rows_of_json
from lbx.results.file.store import Store
from lbx.results.rows import Table

EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
"""Bounds of a rating's time: at or after the first, before the second."""

TABLES = ("rating_sets", "rating_items", "ratings")
_KEYS = {"rating_sets": ("set_id",), "rating_items": ("set_id", "item")}
_MAY_DIFFER = ("created_at", "bundle_digest")
"""Columns of a set that may differ between machines: when it was first opened, and whether documents were shown."""
_SAID_OF = "set_id, item, rater, run_id, iteration, against_run_id, against_iteration"


@dataclass(frozen=True, slots=True)
class RatingSetRow(TableRow):
    """Row of ``rating_sets``: answers for people to rate, and how.

    Attributes:
        kind: "score" on a scale, or "pair".
        question_source: selection of the questions: "human", "llm", "both", "open", or the file that they came from.
        seed: seed of the order that each rater sees.
        raters_per_item: None if everyone rates everything.
    """

    set_id: str
    kind: str
    question_source: str
    runs: Sequence[str]
    scale_low: float | None = None
    scale_high: float | None = None
    seed: int = 0
    raters_per_item: int | None = None
    bundle_digest: str | None = None
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class RatingItemRow(TableRow):
    """Row of ``rating_items``: a question of a set. ``position`` orders them, ``meta`` comes from the set's creator."""

    set_id: str
    item: int
    benchmark: str
    task: str
    sample_id: str
    position: int
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RatingRow(TableRow):
    """Row of ``ratings``: a rater's verdict on an answer, or on two. The last revision counts.

    Attributes:
        against_run_id: run of the other answer of a pair; "" for a single answer.
        revision: from 0; a changed rating is another row.
        score: on the set's scale; None for a pair, or if the rater withdrew the rating or passed.
        verdict: for a pair: "answer", "against", "tie" or "both_bad".
        shown_at: index from 0 at which the rater saw the answer.
        seconds: from display to rating.
        source_row: original text of an imported rating, verbatim.
    """

    set_id: str
    item: int
    rater: str
    run_id: str
    iteration: int = 0
    against_run_id: str = ""
    against_iteration: int = 0
    revision: int = 0
    score: float | None = None
    verdict: str | None = None
    shown_at: int | None = None
    comment: str | None = None
    seconds: float | None = None
    source_row: str | None = None
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))


def ratings_of(store: Store, set_id: str) -> Table:
    """All ratings in a set, each rater's in the order of rating."""
    return store.query("SELECT * FROM ratings WHERE set_id = ? ORDER BY created_at, revision", [set_id])


def insert_ratings(
    store: Store,
    sets: Sequence[RatingSetRow],
    items: Sequence[RatingItemRow],
    ratings: Sequence[RatingRow],
    *,
    replace: bool = False,
) -> int:
    """Commit new ratings, all or none, and return their number.

    Args:
        replace: replace rows of the same key and revision; otherwise a new rating gets a revision of its own.

    Raises:
        StoreError: the disk is full or the file cannot be written; nothing of this batch is in it then.
    """
    with store.transaction() as connection:
        insert(connection, "rating_sets", sets, replace=replace)
        insert(connection, "rating_items", items, replace=replace)
        before = _count(connection)
        if replace:
            insert(connection, "ratings", ratings)
        elif ratings:
            _add(connection, rows_of_json(connection, "ratings"), [as_parameter(ratings)])
        return _count(connection) - before


def merge_ratings(connection: duckdb.DuckDBPyConnection, source: str, path: Path) -> None:
    """Add the ratings of the results file attached as ``source``, in an open transaction.

    Raises:
        StoreError: the file has another set of the same name.
    """
    for table, key in _KEYS.items():
        _refuse_other(connection, source, table, key, path)
        connection.execute(f"INSERT OR IGNORE INTO {table} BY NAME SELECT * FROM {source}.{table}")
    connection.execute(
        "UPDATE rating_sets old SET created_at = least(old.created_at, new.created_at), "
        f"bundle_digest = coalesce(old.bundle_digest, new.bundle_digest) FROM {source}.rating_sets new "
        "WHERE old.set_id = new.set_id"
    )
    _add(connection, f"SELECT * FROM {source}.ratings", [])


def _refuse_other(
    connection: duckdb.DuckDBPyConnection, source: str, table: str, key: Sequence[str], path: Path
) -> None:
    columns = [row[0] for row in connection.execute(f"SELECT column_name FROM (DESCRIBE {table})").fetchall()]
    unequal = [f"new.{name} IS DISTINCT FROM old.{name}" for name in columns if name not in (*key, *_MAY_DIFFER)]
    rows = connection.execute(
        f"SELECT set_id FROM {source}.{table} new JOIN {table} old USING ({', '.join(key)}) "
        f"WHERE {' OR '.join(unequal)} LIMIT 1"
    ).fetchone()
    if rows:
        raise StoreError(
            f"{path} and an earlier file contain different sets of ratings named {rows[0]} ({table}).",
            fix=f"Another program changed one of the two. Leave out {path}, or the other one.",
        )


def _add(connection: duckdb.DuckDBPyConnection, rows: str, parameters: Sequence[object]) -> None:
    connection.execute(f"CREATE OR REPLACE TEMP TABLE lbx_said AS {rows}", list(parameters))
    odd = connection.execute(
        "SELECT rater, set_id, created_at::VARCHAR FROM lbx_said WHERE created_at < ? OR created_at >= ? LIMIT 1",
        [time.replace(tzinfo=None) for time in (EARLIEST, LATEST)],
    ).fetchone()
    if odd:
        raise StoreError(
            "A rating of {!r} in the set {} is dated {}, which is impossible.".format(*odd),
            fix="lbx never writes such a row; omit the file.",
        )
    # The union has every old row of these questions, so that new revision numbers replace all old ones.
    connection.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE lbx_numbered AS
        SELECT * EXCLUDE (had, said), row_number() OVER (PARTITION BY {_SAID_OF} ORDER BY created_at, had) - 1
                   AS revision
        FROM (
            SELECT * EXCLUDE (revision, created_at), min(revision) AS had, min(created_at) AS created_at
            FROM (SELECT *, CASE WHEN source_row IS NULL THEN created_at END AS said FROM (
                FROM lbx_said UNION ALL BY NAME
                SELECT * FROM ratings WHERE ({_SAID_OF}) IN (SELECT ({_SAID_OF}) FROM lbx_said)
            ))
            GROUP BY ALL
        )
        """
    )
    connection.execute("INSERT OR REPLACE INTO ratings BY NAME FROM lbx_numbered")
    # Rows after a gap in the numbers are not replaced, and the last would count; lbx leaves no gaps.
    connection.execute(
        f"DELETE FROM ratings WHERE ({_SAID_OF}) IN (SELECT ({_SAID_OF}) FROM lbx_said) "
        f"AND ({_SAID_OF}, revision) NOT IN (SELECT ({_SAID_OF}, revision) FROM lbx_numbered)"
    )
    connection.execute("DROP TABLE lbx_said; DROP TABLE lbx_numbered")


def _count(connection: duckdb.DuckDBPyConnection) -> int:
    (count,) = connection.execute("SELECT count(*) FROM ratings").fetchone() or (0,)
    return int(count)
