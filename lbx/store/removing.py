"""Removal of runs, with the judgements and ratings of their answers, in an open transaction."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import duckdb

from lbx.store.contents import COLUMN_TYPES
from lbx.store.dependents import rounds_on
from lbx.store.json_columns import change_json

_OWN_TABLES = [table for table, column in COLUMN_TYPES if column == "run_id" and table != "ratings"]
_ABOUT = "list_contains($1::VARCHAR[], {column})"


def remove_judgements(connection: duckdb.DuckDBPyConnection, runs: Collection[str]) -> list[str]:
    """Delete judges' rounds on the answers of runs; returns the judges that have no answer left."""
    round_keys = f"SELECT task, sample_id FROM samples WHERE {rounds_on(runs)}"
    judged = f"benchmark = 'judge' AND (task, sample_id) IN ({round_keys})"
    judges = connection.execute(f"SELECT DISTINCT run_id FROM generations WHERE {judged} ORDER BY ALL").fetchall()
    for table in ("generations", "scores"):
        connection.execute(f"DELETE FROM {table} WHERE {judged}")
    left = {run for (run,) in connection.execute("SELECT DISTINCT run_id FROM generations").fetchall()}
    return [judge for (judge,) in judges if judge not in left]


def remove_ratings(connection: duckdb.DuckDBPyConnection, runs: Collection[str], sets: Collection[str]) -> None:
    """Delete ratings of the answers of runs, and those of their sets that have no other rating."""
    rated = f"{_ABOUT.format(column='run_id')} OR {_ABOUT.format(column='against_run_id')}"
    connection.execute(f"DELETE FROM ratings WHERE {rated}", [list(runs)])
    in_sets = _ABOUT.format(column="set_id")

    def remove_answers(meta: Any) -> Any:
        answers = meta.get("answers") if isinstance(meta, dict) else None
        if not isinstance(answers, list):
            return meta
        return {
            **meta,
            "answers": [one for one in answers if not (isinstance(one, dict) and one.get("run_id") in runs)],
        }

    def remove_names(stored: Any) -> Any:
        return [name for name in stored if name not in runs] if isinstance(stored, list) else stored

    change_json(connection, "rating_sets", "runs", remove_names)
    change_json(connection, "rating_items", "meta", remove_answers)
    connection.execute(
        f"DELETE FROM rating_items WHERE {in_sets} AND json_array_length(meta->'answers') < "
        "(SELECT if(kind = 'pair', 2, 1) FROM rating_sets s WHERE s.set_id = rating_items.set_id) "
        "AND (set_id, item) NOT IN (SELECT set_id, item FROM ratings)",
        [list(sets)],
    )
    for table in ("rating_items", "rating_sets", "ratings"):  # an import has a row without a run for each page
        connection.execute(
            f"DELETE FROM {table} WHERE {in_sets} AND set_id NOT IN (SELECT set_id FROM ratings WHERE run_id <> '')",
            [list(sets)],
        )


def remove_run_rows(connection: duckdb.DuckDBPyConnection, runs: Collection[str]) -> int:
    """Delete runs with all their rows, and samples that no run, judge or set of ratings uses; returns their number.

    Opinions in ``numbers`` must be computed again.
    """
    for table in _OWN_TABLES:
        connection.execute(f"DELETE FROM {table} WHERE {_ABOUT.format(column='run_id')}", [list(runs)])

    def remove_family(hardware: Any) -> Any:
        family = hardware.get("same_family_as") if isinstance(hardware, dict) else None
        if not isinstance(family, list):
            return hardware
        return {**hardware, "same_family_as": [name for name in family if name not in runs]}

    for table in ("runs", "sessions"):
        change_json(connection, table, "hardware", remove_family)
    connection.execute("DELETE FROM numbers WHERE kind = 'opinion'")
    return _remove_unused_samples(connection)


def _remove_unused_samples(connection: duckdb.DuckDBPyConnection) -> int:
    key = "benchmark, task, sample_id"
    connection.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE lbx_unused AS
        SELECT {key} FROM samples
        ANTI JOIN (SELECT {key} FROM generations UNION SELECT {key} FROM rating_items) USING ({key})
        ANTI JOIN (
            SELECT meta->>'benchmark' AS benchmark, meta->>'task' AS task, meta->>'sample_id' AS sample_id
            FROM samples SEMI JOIN generations USING ({key}) WHERE benchmark = 'judge'
        ) USING ({key})
        """
    )
    (count,) = connection.execute("SELECT count(*) FROM lbx_unused").fetchone() or (0,)
    for table in ("samples", "retrievals"):
        connection.execute(f"DELETE FROM {table} WHERE ({key}) IN (FROM lbx_unused)")
    connection.execute("DROP TABLE lbx_unused")
    return int(count)
