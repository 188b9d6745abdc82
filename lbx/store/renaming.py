"""New names of a run, of rounds and of sets of ratings, in every table that has the old ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb

from lbx.store.contents import COLUMN_TYPES
from lbx.store.dependents import rounds_on
from lbx.store.json_columns import change_json

_RUN_COLUMNS = [key for key in COLUMN_TYPES if key[1] in ("run_id", "against_run_id")]


def rename_run_rows(connection: duckdb.DuckDBPyConnection, old: str, new: str) -> None:
    """Change a run's name in all tables, in an open transaction. Opinions in ``numbers`` must be computed again."""
    for table, column in _RUN_COLUMNS:
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", [new, old])

    def rename(value: Any) -> Any:
        return new if value == old else value

    def rename_in_list(value: Any) -> Any:
        return [*map(rename, value)] if isinstance(value, list) else value

    def rename_keys(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        single = {key: rename(value[key]) for key in ("run_id", "against_run_id", "name", "against") if key in value}
        lists = {key: rename_in_list(value[key]) for key in ("runs", "same_family_as") if key in value}
        answers = value.get("answers")
        nested = {"answers": [*map(rename_keys, answers)]} if isinstance(answers, list) else {}
        return {**value, **single, **lists, **nested}

    change_json(connection, "samples", "meta", rename_keys, where=rounds_on([old]))
    for table in ("runs", "sessions"):
        change_json(connection, table, "hardware", rename_keys)
    change_json(connection, "sessions", "spec", rename_keys)
    change_json(connection, "rating_sets", "runs", rename_in_list)
    change_json(connection, "rating_items", "meta", rename_keys)


def rename_rounds(connection: duckdb.DuckDBPyConnection, names: Mapping[tuple[str, str], str]) -> None:
    """Change names of judges' rounds, in an open transaction.

    Args:
        names: {(rubric, old name): new name}.
    """
    keys = [*names]
    for table in ("samples", "generations", "scores") if keys else ():
        connection.execute(
            f"UPDATE {table} SET sample_id = renamed.name FROM (SELECT unnest(?::VARCHAR[]) AS rubric, "
            "unnest(?::VARCHAR[]) AS round, unnest(?::VARCHAR[]) AS name) renamed "
            "WHERE benchmark = 'judge' AND task = renamed.rubric AND sample_id = renamed.round",
            [[rubric for rubric, _ in keys], [name for _, name in keys], [*names.values()]],
        )


def rename_rating_set(connection: duckdb.DuckDBPyConnection, old: str, new: str) -> None:
    """Change the name of a set of ratings, in an open transaction."""
    for table in ("rating_sets", "rating_items", "ratings"):
        connection.execute(f"UPDATE {table} SET set_id = ? WHERE set_id = ?", [new, old])
