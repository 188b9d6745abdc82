"""Sorted lists of answers for pages, the place of an answer in such a list, and all answers to a question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lbx.base.records import SampleKey
from lbx.store.answers import (
    ANSWER,
    COLUMNS,
    FROM,
    LISTED,
    ORDER,
    SCORE,
    AnswerFilter,
    StoredAnswer,
    as_answer,
    has_mark,
)
from lbx.store.rows import Table
from lbx.store.store import Store

_CUT = 200
"""Number of characters of a text in a list, and of those that order it."""
_KEY = "{'run_id': g.run_id, 'benchmark': benchmark, 'task': task, 'sample_id': sample_id, 'iteration': g.iteration}"
_REFERENCE = """s."references"->>'$[0]'"""
_MARKS = ", ".join(f"CASE WHEN {has_mark(mark)} THEN '{name}' END" for name, mark in LISTED.items())

SORTS: Mapping[str, str] = {
    "score": "c.score",
    "run": "list_position(?, g.run_id)",
    "sample": "row(benchmark, task, s.position, sample_id)",
    "question": f"left(s.question, {_CUT})",
    "answer": f"left(g.output, {_CUT})",
    "reference": f"left({_REFERENCE}, {_CUT})",
    "tokens": "g.output_tokens",
    "marks": f"nullif(len(list_filter([{_MARKS}], lambda mark: mark IS NOT NULL)), 0)",
}
"""{name of an order: SQL expression of answers ``g``, samples ``s`` and headline scores ``c``}."""


class AnswerKey(NamedTuple):
    """Identity of an answer in a results file."""

    run_id: str
    benchmark: str
    task: str
    sample_id: str
    iteration: int = 0

    @property
    def sample(self) -> SampleKey:
        """Identity of the answer within its run."""
        return SampleKey(*self[1:])


@dataclass(frozen=True, slots=True)
class AnswerOrder:
    """Order of a list; answers that are equal in it are in the data's order, and missing values come last.

    Attributes:
        name: key of ``SORTS``; "" for the data's order.
        runs: all runs, in the order in which "run" sorts them.
    """

    name: str = ""
    descending: bool = False
    runs: Sequence[str] = ()

    def value(self) -> tuple[str, list[object]]:
        """SQL of the value that orders an answer, and its parameters."""
        return SORTS.get(self.name, "NULL"), [list(self.runs)] if self.name == "run" else []

    def clause(self) -> str:
        """SQL of ORDER BY, for rows with that value as ``sort_value``."""
        return f"sort_value {'DESC' if self.descending else 'ASC'} NULLS LAST, {ORDER}"


@dataclass(frozen=True, slots=True)
class AnswerPlace:
    """Place of an answer in a list.

    Attributes:
        number: from 1.
        total: number of answers in the list.
        previous, next: neighbours; None at the ends.
    """

    number: int
    total: int
    previous: AnswerKey | None
    next: AnswerKey | None


def list_page(store: Store, choice: AnswerFilter, order: AnswerOrder, limit: int, *, skip: int = 0) -> Table:
    """List answers: key, score, tokens, the beginnings of question, answer and first reference, and marks."""
    sql, parameters = choice.condition(scores=True)
    value, more = order.value()
    start = f"left({{}}, {_CUT})"
    return store.query(
        f"""
        WITH page AS MATERIALIZED (
            SELECT g.rowid AS number, {value} AS sort_value {sql} ORDER BY {order.clause()} LIMIT ? OFFSET ?
        )
        SELECT g.run_id, benchmark, task, sample_id, g.iteration, c.score, g.output_tokens,
               {start.format("coalesce(s.question, '')")} AS question, {start.format("g.output")} AS answer,
               {start.format(_REFERENCE)} AS reference, json_array_length(s."references") AS reference_count,
               concat_ws(', ', {_MARKS}) AS marks
        FROM page JOIN generations g ON g.rowid = page.number LEFT JOIN samples s USING (benchmark, task, sample_id)
            {SCORE} ORDER BY {order.clause()}
        """,
        [*more, *parameters, limit, skip],
    )


def find_place(store: Store, choice: AnswerFilter, order: AnswerOrder, key: AnswerKey) -> AnswerPlace | None:
    """Find an answer in a list; None if the list does not contain it."""
    sql, parameters = choice.condition(scores=True)
    value, more = order.value()
    rows = store.query(
        f"""
        SELECT number, total, previous, next FROM (
            SELECT key, row_number() OVER place AS number, count(*) OVER () AS total, lag(key) OVER place AS previous,
                   lead(key) OVER place AS next
            FROM (SELECT {_KEY} AS key, {value} AS sort_value, {ORDER} {sql})
            WINDOW place AS (ORDER BY {order.clause()})
        ) WHERE key = {{'run_id': ?, 'benchmark': ?, 'task': ?, 'sample_id': ?, 'iteration': ?}}
        """,
        [*more, *parameters, *key],
    ).rows
    if not rows:
        return None
    number, total, *neighbours = rows[0]
    previous, following = (AnswerKey(**neighbour) if neighbour else None for neighbour in neighbours)
    return AnswerPlace(number, total, previous, following)


def answer_of(store: Store, key: AnswerKey) -> StoredAnswer | None:
    """Return an answer by its key; None if the file has no such answer."""
    rows = store.query(
        f"SELECT {COLUMNS} {FROM} WHERE (g.run_id, g.benchmark, g.task, g.sample_id, g.iteration) = (?, ?, ?, ?, ?)",
        list(key),
    ).dicts()
    return as_answer(store, rows[0]) if rows else None


def answers_to(store: Store, benchmark: str, task: str, sample_id: str, runs: Sequence[str] = ()) -> list[StoredAnswer]:
    """Return all answers to a question, of these runs or of all, by run and iteration."""
    rows = store.query(
        f"""
        SELECT {COLUMNS} {FROM} WHERE (g.benchmark, g.task, g.sample_id) = (?, ?, ?)
              AND (len(?) = 0 OR list_contains(?, g.run_id))
        ORDER BY {ANSWER}
        """,
        [benchmark, task, sample_id, list(runs), list(runs)],
    ).dicts()
    return [as_answer(store, row) for row in rows]
