"""One name, one sample: what two rows of a sample may differ in, and how they complete each other.

An imported file may not know a sample's document, its references or its question. What is not known differs from
nothing, and is taken from a row that knows it. Both functions take new rows as SQL, a SELECT of ``samples``' columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

_NEWLY_KNOWN = {
    '"references"': 'CASE new."references"::VARCHAR WHEN \'[]\' THEN old."references" ELSE new."references" END',
    "question": "CASE new.question WHEN '' THEN old.question ELSE new.question END",
}
"""What a row that knows more of a sample may yet not know of it."""

_ALL_OF_A_SAMPLE = (
    "language",
    "length",
    "length_unit",
    '"references"',
    "question",
    "context_sha256",
    "meta",
    "position",
)


def _own(row: str) -> str:
    """What makes a sample of a benchmark of one's own what it is, beside its columns; NULL for any other sample."""
    more = ", ".join(f"{row}.meta->>'{key}'" for key in ("extract", "choices", "turns"))
    return f"({row}.meta->>'metrics' || concat_ws(chr(10), '', {more}))"


def other_sample(
    connection: duckdb.DuckDBPyConnection, new_rows: str, parameters: Sequence[object] = ()
) -> tuple[str, ...] | None:
    """The name of a sample that the file holds with another document, question or references; None: there is none.

    Rows of another data revision under the same names would be scored against these. A benchmark of one's own that has
    other metrics, choices or turns now is another revision, too.
    """
    return connection.execute(
        f"""
        SELECT new.benchmark, new.task, new.sample_id
        FROM ({new_rows}) new
        JOIN samples old USING (benchmark, task, sample_id)
        WHERE old.context_sha256 <> new.context_sha256
           OR (old.question <> new.question AND '' NOT IN (old.question, new.question))
           OR (old."references"::VARCHAR <> new."references"::VARCHAR
               AND '[]' NOT IN (old."references"::VARCHAR, new."references"::VARCHAR))
           OR {_own("old")} <> {_own("new")}
        LIMIT 1
        """,
        list(parameters),
    ).fetchone()


def complete_samples(
    connection: duckdb.DuckDBPyConnection, new_rows: str, parameters: Sequence[object] = ()
) -> set[tuple[str, str]]:
    """Take what the file does not know of its samples from rows that do. Returns the (benchmark, task)s of these."""
    unknown_things = "context_sha256 IS NULL OR \"references\"::VARCHAR = '[]' OR question = ''"
    if not connection.execute(f"FROM samples WHERE {unknown_things} LIMIT 1").fetchone():
        return set()
    completed: set[tuple[str, str]] = set()
    for unknown, columns in (
        ("old.context_sha256 IS NULL AND new.context_sha256 IS NOT NULL", _ALL_OF_A_SAMPLE),
        (
            "old.\"references\"::VARCHAR = '[]' AND new.\"references\"::VARCHAR <> '[]'",
            ('"references"', "question", "meta"),
        ),
        ("old.question = '' AND new.question <> ''", ("question",)),
    ):
        taken = ", ".join(f"{column} = {_NEWLY_KNOWN.get(column, f'new.{column}')}" for column in columns)
        completed.update(
            connection.execute(
                f"UPDATE samples old SET {taken} FROM ({new_rows}) new "
                "WHERE (old.benchmark, old.task, old.sample_id) = (new.benchmark, new.task, new.sample_id) "
                f"AND {unknown} RETURNING old.benchmark, old.task",
                list(parameters),
            ).fetchall()
        )
    return completed
