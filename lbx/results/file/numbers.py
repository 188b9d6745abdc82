"""Writing of numbers computed from answers, scores and opinions, and their deletion when their sources change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import duckdb

from lbx.base.number import Number
from lbx.results.file.inserting import as_parameter, insert, json_rows, rows_of_json
from lbx.results.rows import GenerationRow, as_json

TASK = ("run_id", "benchmark", "task")
_BENCHMARK = ("run_id", "benchmark")
_ANSWER = (*TASK, "sample_id", "iteration")
_TEXT_COLUMNS = ("output", "reasoning", "finish_reason", "output_ids", "error")
_OF_TASKS, _OVER_TASKS = ("task", "length"), ("group", "mean")
KEY_COLUMNS = ("kind", "task", '"grouping"', "name", "metric", "judge", "against", "questions")
"""Columns of a number's key, in addition to run and benchmark."""


def replace_numbers(connection: duckdb.DuckDBPyConnection, rows: Sequence[Number]) -> None:
    """Replace all numbers of the rows' kinds and tasks (or benchmarks), including numbers without a new row."""
    for kind in (*_OF_TASKS, *_OVER_TASKS):
        columns = TASK if kind in _OF_TASKS else _BENCHMARK
        keys = {tuple(getattr(row, name) for name in columns) for row in rows if row.kind == kind}
        delete_numbers(connection, [kind], columns, keys)
    insert(connection, "numbers", rows)


def replace_opinions(
    connection: duckdb.DuckDBPyConnection, run_id: str, benchmark: str, rows: Sequence[Number]
) -> None:
    """Replace the opinions on a run's answers to a benchmark."""
    delete_numbers(connection, ["opinion"], _BENCHMARK, [(run_id, benchmark)])
    insert(connection, "numbers", rows)


def delete_averages(connection: duckdb.DuckDBPyConnection, run_id: str, benchmarks: Iterable[str]) -> None:
    """Delete a run's numbers over the tasks of benchmarks, which more tasks of the run change."""
    delete_numbers(connection, _OVER_TASKS, _BENCHMARK, {(run_id, benchmark) for benchmark in benchmarks})


def delete_stale_numbers(
    connection: duckdb.DuckDBPyConnection,
    changed_answers: set[tuple[str, str, str]],
    changed_scores: set[tuple[str, str, str]],
) -> None:
    """Delete the numbers computed from changed answers or scores.

    Args:
        changed_answers: (run, benchmark, task)s with changed answers.
        changed_scores: (run, benchmark, task)s with changed scores.
    """
    delete_numbers(connection, _OF_TASKS, TASK, changed_answers | changed_scores)
    delete_numbers(connection, _OVER_TASKS, _BENCHMARK, {names[:2] for names in changed_answers | changed_scores})
    delete_numbers(connection, ["opinion"], _BENCHMARK, {names[:2] for names in changed_answers})
    judges = {(run,) for run, benchmark, _ in changed_answers | changed_scores if benchmark == "judge"}
    delete_numbers(connection, ["opinion"], ["judge"], judges)
    opponents = {(run,) for run, benchmark, _ in changed_answers if benchmark != "judge"}
    delete_numbers(connection, ["opinion"], ["against"], opponents)


def delete_numbers(
    connection: duckdb.DuckDBPyConnection,
    kinds: Sequence[str],
    columns: Sequence[str],
    keys: Iterable[tuple[Any, ...]],
) -> None:
    """Delete the numbers of these kinds whose values of ``columns`` are in ``keys``."""
    delete(connection, "numbers", columns, keys, f"kind IN ({', '.join(map(repr, kinds))})")


def delete(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    columns: Sequence[str],
    keys: Iterable[tuple[Any, ...]],
    condition: str = "true",
) -> None:
    """Delete the rows of a table that fulfil ``condition`` and whose values of ``columns`` are in ``keys``."""
    rows = sorted(keys)
    if not rows:
        return
    names, values = ", ".join(columns), ", ".join("unnest(?)" for _ in columns)
    connection.execute(
        f"DELETE FROM {table} WHERE {condition} AND ({names}) IN "
        f"(SELECT ({names}) FROM (SELECT {values}) AS gone ({names}))",
        [*map(list, zip(*rows, strict=True))],
    )


def delete_replaced_scores(connection: duckdb.DuckDBPyConnection, generations: Sequence[GenerationRow]) -> None:
    """Delete the scores of stored answers that these rows replace by different answers."""
    # Existing keys are rare; reading all rows twice would take a fifth of the time of writing them.
    keys = json_rows({name: "INTEGER" if name == "iteration" else "VARCHAR" for name in _ANSWER})
    if not connection.execute(
        f"SELECT 1 FROM generations SEMI JOIN ({keys}) USING ({', '.join(_ANSWER)}) LIMIT 1",
        [as_json([{name: getattr(row, name) for name in _ANSWER} for row in generations])],
    ).fetchone():
        return
    columns = [", ".join(f"{row}.{name}" for name in _TEXT_COLUMNS) for row in ("old", "new")]
    replaced = connection.execute(
        f"SELECT {', '.join(_ANSWER)} FROM ({rows_of_json(connection, 'generations')}) new "
        f"JOIN generations old USING ({', '.join(_ANSWER)}) WHERE ({columns[0]}) IS DISTINCT FROM ({columns[1]})",
        [as_parameter(generations)],
    ).fetchall()
    delete(connection, "scores", _ANSWER, replaced)
