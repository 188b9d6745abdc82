"""Numbers made of answers, scores and opinions: written anew, and dropped when what they are made of changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import duckdb

from lbx.base.number_key import NumberKey
from lbx.store.inserting import insert
from lbx.store.rows import BenchmarkRow, GroupRow, LengthRow, ResultRow, SureRow

TASK_VERSION = ("run_id", "benchmark", "task", "metric_version")
_BENCHMARK_VERSION = ("run_id", "benchmark", "metric_version")
_TABLE_OF: Mapping[type[SureRow], str] = {
    ResultRow: "task_results",
    LengthRow: "length_results",
    GroupRow: "group_results",
    BenchmarkRow: "benchmark_results",
}
_ADDED_UP = {
    "task_results": TASK_VERSION,
    "length_results": TASK_VERSION,
    "group_results": _BENCHMARK_VERSION,
    "benchmark_results": _BENCHMARK_VERSION,
}
"""{table: what makes a row of it out of date}."""
TABLES = tuple(_ADDED_UP)
OPINIONS = "\"grouping\" IN ('judge', 'people')"
"""What is made of judgements and ratings, not of scores: it goes with the answers alone, and there
is one of each whatever the metric version.
"""


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
    """Write numbers; the old ones of the same task (or benchmark) and metric version go: today's may be fewer."""
    for kind, table in _TABLE_OF.items():
        rows = [row for row in results if isinstance(row, kind)]
        key = _ADDED_UP[table]
        delete(connection, table, key, {tuple(getattr(row, name) for name in key) for row in rows})
        insert(connection, table, rows)


def forget(
    connection: duckdb.DuckDBPyConnection,
    answered: set[tuple[str, str, str]],
    scored: set[tuple[str, str, str, int]],
) -> None:
    """Drop numbers made of rows that are no more: of every metric version where an answer changed, else of one.

    Args:
        answered: (run, benchmark, task) with other answers.
        scored: (run, benchmark, task, metric version) with other scores.
    """
    runs = {(run_id, benchmark, version) for run_id, benchmark, _, version in scored}
    for table, key in _ADDED_UP.items():
        if key == TASK_VERSION:
            delete(connection, table, ("run_id", "benchmark", "task"), answered)
            delete(connection, table, key, scored)
        else:
            delete(connection, table, ("run_id", "benchmark"), {name[:2] for name in answered})
            delete(connection, table, key, runs)
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
    connection: duckdb.DuckDBPyConnection, table: str, columns: Sequence[str], keys: Iterable[tuple[Any, ...]]
) -> None:
    """Delete the rows that have one of these values in these columns; of scores' numbers none but theirs."""
    rows = sorted(keys)
    if not rows:
        return
    names, values = ", ".join(columns), ", ".join("unnest(?)" for _ in columns)
    where = f"({names}) IN (SELECT ({names}) FROM (SELECT {values}) AS gone ({names}))"
    if table == "group_results" and "metric_version" in columns:
        where += f" AND NOT {OPINIONS}"
    connection.execute(f"DELETE FROM {table} WHERE {where}", [*map(list, zip(*rows, strict=True))])
