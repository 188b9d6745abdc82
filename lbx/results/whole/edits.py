"""Edits of stored runs: removal, renaming, and results files that are written whole.

- Removal of runs, with the judgements and ratings of their answers, in an open transaction.
- Renaming of runs, rounds and sets of ratings, in all tables.
- Results files that are written whole or not at all: new files, and copies without free blocks.
- Search for judgements and ratings of a run's answers.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from lbx.base.database import RESULTS, attach, database_files, open_database, sql_literal
from lbx.base.errors import StoreError, UsageError
from lbx.base.inputs import open_input
from lbx.base.outputs import sync_folder, temporary_folder
from lbx.base.processes import defer_signals
from lbx.base.visible import as_command
from lbx.results.file.contents import COLUMN_TYPES
from lbx.results.file.inserting import update_json
from lbx.results.file.opening import check_path, first_line
from lbx.results.file.store import Store
from lbx.results.whole.commit_copies import exclusive_lock

_OLD = "lbx_source"


@contextmanager
def new_results_file(path: Path) -> Iterator[Path]:
    """Yield the path of a new results file, which becomes ``path`` at the end of the block.

    Raises:
        UsageError: ``path`` exists.
        StoreError: the file cannot be written, or another process is about to write it.
    """
    check_path(path)
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} already exists.", fix="Choose another file with -o, or remove it.")
    target = path.resolve()
    with exclusive_lock(target), temporary_folder(target) as (folder, _):
        part = folder / target.name
        yield part
        Store(part).close()  # checks the new file, and moves the log into it
        replace_file(target, part)


def replace_file(path: Path, copy: Path) -> None:
    """Replace a file by a copy in the same folder, or in a subfolder, and flush file and folder to the disk."""
    with open_input(copy) as file:
        os.fsync(file.fileno())
    copy.replace(path)
    sync_folder(path.parent)


def rewrite_file(path: Path) -> tuple[int, int]:
    """Replace a results file by a copy without free blocks. Returns the sizes in bytes before and after.

    The copy needs disk space next to the file. Ctrl-C and SIGTERM take effect at the end.

    Raises:
        StoreError: the file is in use, or the disk is full. The file is then unchanged.
    """
    target = path.resolve()
    Store(path, read_only=True).close()  # opening another database for writing would create tables in it
    with exclusive_lock(target):
        size_before = sum(part.stat().st_size for part in database_files(target))
        Store(path).close()  # joins the log of a killed process
        try:
            with defer_signals(), temporary_folder(target) as (folder, _):
                _replace_by_copy(target, folder / target.name)
        except (duckdb.Error, OSError) as exc:
            reason = first_line(exc) if isinstance(exc, duckdb.Error) else exc.strerror or exc
            raise StoreError(
                f"{path} could not be rewritten: {reason}.",
                fix="It has all its rows. The copy needs as much room as these: make room, then rewrite the file.",
                command=as_command("lbx", "runs", "remove", path, "--vacuum"),
            ) from exc
    return size_before, target.stat().st_size


def _replace_by_copy(target: Path, copy: Path) -> None:
    with closing(open_database(copy, read_only=False, allowed_files=[target])) as connection:
        attach(connection, target, _OLD, read_only=True)  # until the end, so that no other process writes the old file
        if database_files(target)[1:]:
            raise StoreError(f"{target} was written by another process meanwhile.", fix="Repeat the command.")
        connection.execute(f"COPY FROM DATABASE {_OLD} TO {RESULTS}")
        connection.execute("CHECKPOINT")
        shutil.copymode(target, copy)
        replace_file(target, copy)


def round_keys_sql(runs: Collection[str]) -> str:
    """Build the SQL for the keys, in columns of ``samples``, of judges' rounds on the answers of runs."""
    names = ", ".join(map(sql_literal, runs))
    about = f"run_id IN ({names}) OR against_run_id IN ({names})"
    return f"SELECT 'judge' AS benchmark, rubric AS task, round_id AS sample_id FROM rounds WHERE {about}"


def read_rounds(store: Store, run_id: str) -> list[dict[str, Any]]:
    """Read the rows of ``samples`` of judges' rounds on a run's answers, with both answers and the rubric's hash."""
    return store.query(
        f"""
        SELECT a.*, d AS subject, coalesce(r.output, '') AS answer, coalesce(b.output, '') AS opponent, j.rubric_sha256
        FROM samples a SEMI JOIN ({round_keys_sql([run_id])}) USING (benchmark, task, sample_id)
        JOIN rounds d ON (d.rubric, d.round_id) = (a.task, a.sample_id)
        JOIN (SELECT DISTINCT g.task, g.sample_id, r.settings->>'rubric_sha256' AS rubric_sha256
              FROM generations g JOIN runs r USING (run_id) WHERE g.benchmark = 'judge') j USING (task, sample_id)
        LEFT JOIN generations r ON r.run_id = d.run_id AND r.benchmark = d.benchmark AND r.task = d.task
            AND r.sample_id = d.sample_id AND r.iteration = d.iteration
        LEFT JOIN generations b ON b.run_id = d.against_run_id AND b.benchmark = d.benchmark AND b.task = d.task
            AND b.sample_id = d.sample_id AND b.iteration = d.against_iteration
        """
    ).dicts()


@dataclass(frozen=True, slots=True)
class Dependents:
    """Rows about some runs that belong to other runs or to people.

    Attributes:
        judgements: {judge: number of judgements of these runs}, of judges that are not among the runs.
        ratings: {set of ratings: number of people's ratings of these runs}, of sets that contain one of the runs.
        numbers: number of other runs' numbers that were computed from these judgements, from these ratings or by a
            judge among these runs.
    """

    judgements: Mapping[str, int]
    ratings: Mapping[str, int]
    numbers: int


def find_dependents(store: Store, runs: Collection[str]) -> Dependents:
    """Count the rows about these runs that belong to other runs and to people."""
    judgements = store.query(
        "SELECT run_id, count(*) FROM generations "
        f"SEMI JOIN ({round_keys_sql(runs)}) USING (benchmark, task, sample_id) "
        "WHERE NOT list_contains($1::VARCHAR[], run_id) GROUP BY ALL ORDER BY ALL",
        [list(runs)],
    ).rows
    ratings = store.query(
        "SELECT set_id, count(r.set_id) FROM rating_sets s LEFT JOIN (FROM ratings "
        "WHERE list_contains($1::VARCHAR[], run_id) OR list_contains($1::VARCHAR[], against_run_id)) r USING (set_id) "
        "WHERE r.set_id IS NOT NULL OR list_has_any(s.runs->>'$[*]', $1::VARCHAR[]) "
        "GROUP BY ALL ORDER BY ALL",
        [list(runs)],
    ).rows
    ((numbers,),) = store.query(
        "SELECT count(*) FROM numbers WHERE kind = 'opinion' AND NOT list_contains($1::VARCHAR[], run_id) "
        "AND (list_contains($1::VARCHAR[], judge) OR list_contains($1::VARCHAR[], against))",
        [list(runs)],
    ).rows
    return Dependents(dict(judgements), dict(ratings), numbers)


_OWN_TABLES = [table for table, column in COLUMN_TYPES if column == "run_id" and table not in ("ratings", "rounds")]
_ABOUT = "list_contains($1::VARCHAR[], {column})"


def remove_judgements(connection: duckdb.DuckDBPyConnection, runs: Collection[str]) -> list[str]:
    """Delete the judgements of the answers of runs. Returns the judges without a remaining judgement."""
    judged = f"(benchmark, task, sample_id) IN ({round_keys_sql(runs)})"
    judges = connection.execute(f"SELECT DISTINCT run_id FROM generations WHERE {judged} ORDER BY ALL").fetchall()
    for table in ("generations", "scores"):
        connection.execute(f"DELETE FROM {table} WHERE {judged}")
    left = {run for (run,) in connection.execute("SELECT DISTINCT run_id FROM generations").fetchall()}
    return [judge for (judge,) in judges if judge not in left]


def remove_ratings(connection: duckdb.DuckDBPyConnection, runs: Collection[str], sets: Collection[str]) -> None:
    """Delete the ratings of the answers of runs, and those of ``sets`` that contain no other rating."""
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

    update_json(connection, "rating_sets", "runs", remove_names)
    update_json(connection, "rating_items", "meta", remove_answers)
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
    """Delete runs with all their rows, and unused samples. Returns the number of deleted samples.

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
        update_json(connection, table, "hardware", remove_family)
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
            SELECT d.benchmark, d.task, d.sample_id FROM rounds d
            SEMI JOIN generations g ON (g.benchmark, g.task, g.sample_id) = ('judge', d.rubric, d.round_id)
        ) USING ({key})
        """
    )
    (count,) = connection.execute("SELECT count(*) FROM lbx_unused").fetchone() or (0,)
    for table in ("samples", "retrievals"):
        connection.execute(f"DELETE FROM {table} WHERE ({key}) IN (FROM lbx_unused)")
    connection.execute("DELETE FROM rounds WHERE ('judge', rubric, round_id) IN (FROM lbx_unused)")
    connection.execute("DROP TABLE lbx_unused")
    return int(count)


_RUN_COLUMNS = [key for key in COLUMN_TYPES if key[1] in ("run_id", "against_run_id")]


def rename_run_rows(connection: duckdb.DuckDBPyConnection, old: str, new: str) -> None:
    """Rename a run in all tables, in an open transaction. Opinions in ``numbers`` must be computed again."""
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

    for table in ("runs", "sessions"):
        update_json(connection, table, "hardware", rename_keys)
    update_json(connection, "sessions", "spec", rename_keys)
    update_json(connection, "rating_sets", "runs", rename_in_list)
    update_json(connection, "rating_items", "meta", rename_keys)


_ROUND_COLUMNS = {
    **dict.fromkeys(("samples", "generations", "scores"), ("benchmark = 'judge' AND task", "sample_id")),
    "rounds": ("rounds.rubric", "round_id"),
}
"""{table: columns with the rubric and the name of a judge's round}"""


def rename_rounds(connection: duckdb.DuckDBPyConnection, names: Mapping[tuple[str, str], str]) -> None:
    """Rename judges' rounds, in an open transaction.

    Args:
        names: {(rubric, old name): new name}.
    """
    keys = [*names]
    for table, (rubric, name) in _ROUND_COLUMNS.items() if keys else ():
        connection.execute(
            f"UPDATE {table} SET {name} = renamed.name FROM (SELECT unnest(?::VARCHAR[]) AS rubric, "
            "unnest(?::VARCHAR[]) AS round, unnest(?::VARCHAR[]) AS name) renamed "
            f"WHERE {rubric} = renamed.rubric AND {name} = renamed.round",
            [[rubric for rubric, _ in keys], [name for _, name in keys], [*names.values()]],
        )


def rename_rating_set(connection: duckdb.DuckDBPyConnection, old: str, new: str) -> None:
    """Rename a set of ratings, in an open transaction."""
    for table in ("rating_sets", "rating_items", "ratings"):
        connection.execute(f"UPDATE {table} SET set_id = ? WHERE set_id = ?", [new, old])
