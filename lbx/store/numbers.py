"""Numbers made of answers, scores and opinions: written anew, and dropped when what they are made of changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import duckdb

from lbx.base.number_key import NumberKey
from lbx.store.inserting import insert
from lbx.store.rows import BenchmarkRow, GroupRow, LengthRow, ResultRow, SureRow

TASK = ("run_id", "benchmark", "task")
_BENCHMARK = ("run_id", "benchmark")
_TABLE_OF: Mapping[type[SureRow], str] = {
    ResultRow: "task_results",
    LengthRow: "length_results",
    GroupRow: "group_results",
    BenchmarkRow: "benchmark_results",
}
_ADDED_UP = {
    "task_results": TASK,
    "length_results": TASK,
    "group_results": _BENCHMARK,
    "benchmark_results": _BENCHMARK,
}
"""{table: what makes a row of it out of date}."""
TABLES = tuple(_ADDED_UP)
OPINIONS = "\"grouping\" IN ('judge', 'people')"
"""Numbers made of judgements and ratings, not of scores: they go with the answers alone."""


KEY_COLUMNS = ("kind", "task", "grouping", "name", "metric")
"""Columns of a number's key beside its run and benchmark."""


def key_of(row: Mapping[str, Any]) -> NumberKey:
    """Key of a number, given its row."""
    return NumberKey(
        run=row["run_id"],
        benchmark=row["benchmark"],
        kind=row["kind"],
        task=row["task"],
        grouping=row["grouping"],
        group=row["name"],
        metric=row["metric"],
    )


def replace(connection: duckdb.DuckDBPyConnection, results: Sequence[SureRow]) -> None:
    """Write numbers in place of all of the same tasks (or benchmarks), which may have been more."""
    for kind, table in _TABLE_OF.items():
        rows = [row for row in results if isinstance(row, kind)]
        key = _ADDED_UP[table]
        delete(connection, table, key, {tuple(getattr(row, name) for name in key) for row in rows})
        insert(connection, table, rows)


def forget(
    connection: duckdb.DuckDBPyConnection, answered: set[tuple[str, str, str]], scored: set[tuple[str, str, str]]
) -> None:
    """Drop numbers made of rows that are no more.

    Args:
        answered: (run, benchmark, task) with other answers.
        scored: (run, benchmark, task) with other scores.
    """
    for table, key in _ADDED_UP.items():
        size = len(key)
        delete(connection, table, key, {names[:size] for names in answered}, opinions=True)
        delete(connection, table, key, {names[:size] for names in scored})
    for judge in {name[0] for name in (*answered, *scored) if name[1] == "judge"}:
        connection.execute(
            "DELETE FROM group_results WHERE \"grouping\" = 'judge' AND (name = $1 OR starts_with(name, $1 || ' vs '))",
            [judge],
        )
    for opponent in {name[0] for name in answered if name[1] != "judge"}:
        connection.execute(
            f"DELETE FROM group_results WHERE {OPINIONS} "
            "AND (ends_with(name, ' vs ' || $1) OR contains(name, ' vs ' || $1 || ', '))",
            [opponent],
        )


def delete(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    columns: Sequence[str],
    keys: Iterable[tuple[Any, ...]],
    *,
    opinions: bool = False,
) -> None:
    """Delete the rows that have one of these values in these columns; opinions only where that is asked for."""
    rows = sorted(keys)
    if not rows:
        return
    names, values = ", ".join(columns), ", ".join("unnest(?)" for _ in columns)
    where = f"({names}) IN (SELECT ({names}) FROM (SELECT {values}) AS gone ({names}))"
    if table == "group_results" and not opinions:
        where += f" AND NOT {OPINIONS}"
    connection.execute(f"DELETE FROM {table} WHERE {where}", [*map(list, zip(*rows, strict=True))])
