"""Merging of results files: each table by its primary key, one file at a time, inside DuckDB.

Equal rows in two files become one row; see ``lbx.store.joining`` for the rules of conflicts. The file that is merged
into counts as one of the files, and keeps its own rows. Aggregates (``numbers``) come from a file that has all of their
answers; otherwise they must be recomputed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from lbx.base.errors import ConflictError, StoreError
from lbx.base.interrupts import defer_signals
from lbx.store.contents import schema_version
from lbx.store.joining import (
    ANSWER,
    AnswersExistError,
    NumberHashes,
    add_new_answers,
    merge_answers,
    merge_equal_rows,
    merge_numbers,
)
from lbx.store.ratings import TABLES as RATINGS
from lbx.store.ratings import merge_ratings
from lbx.store.rows import as_json, identity
from lbx.store.runs import metadata_of
from lbx.store.same_runs import joined_settings, setting_differences
from lbx.store.same_samples import complete_samples, find_other_samples
from lbx.store.schema import SCHEMA_VERSION
from lbx.store.store import Store

_SOURCE = "lbx_source"
_NOTED = ("backend_version", "lbx_version")
_TABLES = (
    "runs",
    "samples",
    "generations",
    "scores",
    "retrievals",
    "embeddings",
    "sessions",
    *RATINGS,
)


@dataclass(slots=True)
class MergeState:
    """State of a merge.

    Attributes:
        runs: {run: its files}, without the file that is merged into; [] if only that file has the run.
        joined_runs: runs that were in more than one file.
        rows: {table: number of rows in the file}.
        notes: tolerated differences, as sentences.
        completed_tasks: (benchmark, task)s with samples that one file has more information on than another.
        number_hashes: hashes of the data that the file's numbers were computed from.
    """

    runs: dict[str, list[Path]] = field(default_factory=dict)
    joined_runs: list[str] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    completed_tasks: set[tuple[str, str]] = field(default_factory=set)
    number_hashes: NumberHashes = field(default_factory=dict)


def merge_files(store: Store, sources: Sequence[Path], target: Path | None = None) -> MergeState:
    """Copy the contents of results files into a new one.

    Args:
        store: new and without rows; opened with the other files in ``allowed_files``.
        sources: results files of the current schema version that no process writes.
        target: the file that they are merged into. It stays attached until the store is closed, so that other processes
            cannot write to it.

    Raises:
        StoreError: a file cannot be read or has another schema version; a run has other settings or another bundle in
            two files; two rows contradict each other. None of that file's rows are in the store then.
    """
    merging = MergeState()
    with store.transaction() as connection:
        connection.execute("CREATE OR REPLACE TEMP TABLE lbx_sessions AS SELECT * FROM sessions")
    for source in sources:
        with _attach_source(store, source):
            try:
                with store.transaction() as connection:
                    add_new_answers(connection, _SOURCE)
                    _merge_source(store, connection, source, merging, only_new_rows=True)
            except AnswersExistError:
                with store.transaction() as connection:
                    _merge_source(store, connection, source, merging, only_new_rows=False)
    if target is not None:
        store.attach(target, _SOURCE)
        _refuse_other_texts(store, target)
        with store.transaction() as connection:
            _copy_target_rows(store, connection, target, merging)
    with store.transaction() as connection:
        _number_sessions(connection)
    merging.rows = {table: int(store.query(f"SELECT count(*) FROM {table}").rows[0][0]) for table in _TABLES}
    return merging


@contextmanager
def _attach_source(store: Store, source: Path) -> Iterator[None]:
    """Attach a file; signals wait until all or none of its rows are added."""
    with defer_signals():
        try:
            store.attach(source, _SOURCE)
        except StoreError:
            Store(source, read_only=True).close()  # its message is more specific than ATTACH's
            raise
        try:
            if schema_version(store.connection, _SOURCE) != SCHEMA_VERSION:
                Store(source, read_only=True).close()  # raises the error for another version
            _refuse_other_texts(store, source)
            yield
        finally:
            store.query(f"DETACH {_SOURCE}")


def _refuse_other_texts(store: Store, source: Path) -> None:
    """Raise StoreError if texts were removed from the attached file and not from the others, or vice versa."""
    texts = store.query(f"SELECT texts FROM runs UNION SELECT texts FROM {_SOURCE}.runs").rows
    if len(texts) > 1:
        raise StoreError(
            f"{source} and the files before it differ in their texts: `lbx runs extract --without-texts` removed texts "
            "from only some of them. All files are unchanged.",
            fix="Extract every file in the same way, then merge the extracted files.",
        )


def _copy_target_rows(store: Store, connection: duckdb.DuckDBPyConnection, target: Path, merging: MergeState) -> None:
    """Add the rows of the file that is merged into; its metadata of runs takes precedence."""
    try:
        for run in _runs_in(store):
            name = run["run_id"]
            ending = _ending_with(connection, store, run)
            _merge_run(store, connection, run, target, merging)
            if name in merging.joined_runs:
                (row,) = store.query("SELECT metadata FROM runs WHERE run_id = ?", [name]).dicts()
                stated = metadata_of(row) | metadata_of(run)
                connection.execute(
                    "UPDATE runs SET status = ?, finished_at = ?, metadata = ? WHERE run_id = ?",
                    [*ending, as_json(stated) if stated else None, name],
                )
            merging.runs[name].remove(target)
        _merge_rows(connection, target, merging, only_new_rows=False)
    except StoreError as exc:
        raise ConflictError(
            exc.cause,
            fix=f"Merge into another file (-o FILE); this merge would lose or mix data of {target}. No file was "
            "changed.",
        ) from exc


def _runs_in(store: Store) -> list[dict[str, Any]]:
    return store.query(f"SELECT * FROM {_SOURCE}.runs ORDER BY ALL").dicts()


def _merge_source(
    store: Store, connection: duckdb.DuckDBPyConnection, source: Path, merging: MergeState, *, only_new_rows: bool
) -> None:
    for run in _runs_in(store):
        _merge_run(store, connection, run, source, merging)
    _merge_rows(connection, source, merging, only_new_rows=only_new_rows)


def _merge_rows(
    connection: duckdb.DuckDBPyConnection, source: Path, merging: MergeState, *, only_new_rows: bool
) -> None:
    """Add a file's rows; with ``only_new_rows``, all of its answers were new and are already in the store."""
    _merge_samples(connection, source, merging)
    if not only_new_rows:
        merge_answers(connection, _SOURCE, source)
    merging.number_hashes = merge_numbers(connection, _SOURCE, merging.number_hashes, only_new_rows=only_new_rows)
    merge_equal_rows(connection, "retrievals", f"{_SOURCE}.retrievals", source)
    # Vectors of the same text differ in their last bits between machines.
    connection.execute(f"INSERT OR IGNORE INTO embeddings BY NAME SELECT * FROM {_SOURCE}.embeddings")
    merge_ratings(connection, _SOURCE, source)
    connection.execute(f"INSERT INTO lbx_sessions BY NAME SELECT * FROM {_SOURCE}.sessions")


# Runs


def _merge_run(
    store: Store, connection: duckdb.DuckDBPyConnection, run: dict[str, Any], source: Path, merging: MergeState
) -> None:
    files = merging.runs.setdefault(run["run_id"], [])
    if not files:
        connection.execute(f"INSERT INTO runs BY NAME SELECT * FROM {_SOURCE}.runs WHERE run_id = ?", [run["run_id"]])
    else:
        (stored,) = store.query("SELECT * FROM runs WHERE run_id = ?", [run["run_id"]]).dicts()
        _refuse_other_run(stored, run, files[0], source)
        merging.notes += [
            f"{run['run_id']}: {name} is {stored[name]} in {files[0]} and {run[name]} in {source}."
            for name in _NOTED
            if stored[name] != run[name]
        ]
        _join_runs(connection, stored, run)
        merging.joined_runs += [run["run_id"]] if run["run_id"] not in merging.joined_runs else []
    files.append(source)


def _refuse_other_run(stored: Mapping[str, Any], new: Mapping[str, Any], first: Path, source: Path) -> None:
    """Raise StoreError if two rows of the same name differ in anything that affects the numbers."""
    before, now = identity(stored), identity(new)
    if names := setting_differences(stored, new):
        differences = "; ".join(f"{name} is {before.get(name)!r} and {now.get(name)!r}" for name in names)
        raise StoreError(
            f"The run {new['run_id']!r} differs between {first} and {source}: {differences}.",
            fix="Give different runs different names (lbx run --name NAME), and merge only files of the same run.",
        )
    versions = [json.loads(run["benchmark_versions"]) for run in (stored, new)]
    for benchmark in sorted(versions[0].keys() & versions[1].keys()):
        if versions[0][benchmark] != versions[1][benchmark]:
            raise StoreError(
                f"The run {new['run_id']!r} was scored with metric version {versions[1][benchmark]} of {benchmark} in "
                f"{source} and with {versions[0][benchmark]} in {first}.",
                fix="Score the answers of both files with one version of lbx (`lbx score`), then merge them.",
            )


_STATUSES = ("running", "failed", "interrupted", "done")
"""Order of precedence when runs are joined."""
_FIRST = ("backend_version", "lbx_version", "hardware")
"""Columns of joined runs that come from the part that began first."""


def _join_runs(connection: duckdb.DuckDBPyConnection, stored: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    first = min((stored, new), key=lambda run: (run["started_at"], *(run[name] for name in _FIRST)))
    samples, unscored, versions = (
        [json.loads(run[name] or "{}") for run in (stored, new)]
        for name in ("task_samples", "unscored_samples", "benchmark_versions")
    )
    stated = [metadata_of(run) for run in (stored, new)]
    newest = {key: max(metadata[key] for metadata in stated if key in metadata) for key in {**stated[0], **stated[1]}}
    values = {
        "started_at": first["started_at"],
        **dict(zip(("status", "finished_at"), _ending([stored, new]), strict=True)),
        "benchmark_versions": as_json({**versions[0], **versions[1]}),
        "task_samples": as_json({**samples[0], **samples[1]}),
        "unscored_samples": as_json({**unscored[0], **unscored[1]}) if any(unscored) else None,
        "metadata": as_json(newest) if newest else None,
        **{name: first[name] for name in _FIRST},
        "settings": as_json(joined_settings(stored, new)),
    }
    changes = ", ".join(f"{name} = ?" for name in values)
    connection.execute(f"UPDATE runs SET {changes} WHERE run_id = ?", [*values.values(), stored["run_id"]])


def _ending(runs: Sequence[Mapping[str, Any]]) -> tuple[str, Any]:
    """Status and end time of a run, from the rows of its parts."""
    ends, statuses = [run["finished_at"] for run in runs], {run["status"] for run in runs}
    status = next((status for status in _STATUSES if status in statuses), runs[0]["status"])
    return status, None if None in ends else max(ends)


def _ending_with(connection: duckdb.DuckDBPyConnection, store: Store, run: Mapping[str, Any]) -> tuple[str, Any]:
    """Status and end time of a run after merging with the file that is merged into.

    If one file has all answers of the run, its own state counts.
    """
    parts = store.query("SELECT * FROM runs WHERE run_id = ?", [run["run_id"]]).dicts()
    tables = (f"{_SOURCE}.generations", "generations")
    adds, lacks = (
        connection.execute(
            f"SELECT EXISTS (FROM {table} ANTI JOIN {other_table} USING ({', '.join(ANSWER)}) WHERE run_id = ?)",
            [run["run_id"]],
        ).fetchall()[0][0]
        for table, other_table in (tables, tables[::-1])
    )
    if not parts or (not lacks and (adds or run["status"] == "done")):
        return _ending([run])
    return _ending([*parts, run] if adds else parts)


# Rows


def _merge_samples(connection: duckdb.DuckDBPyConnection, source: Path, merging: MergeState) -> None:
    rows = f"SELECT * FROM {_SOURCE}.samples"
    known_ones = f"FROM {_SOURCE}.samples SEMI JOIN samples USING (benchmark, task, sample_id) LIMIT 1"
    if not connection.execute(known_ones).fetchone():  # parts of a run have no samples in common
        connection.execute(f"INSERT OR IGNORE INTO samples BY NAME {rows}")
        return
    if other := find_other_samples(connection, rows):
        raise StoreError(
            f"{source} contains answers to a different revision of the data than the files before it. {other}. All "
            "files are unchanged.",
            fix="Merge the files of each revision into a separate results file.",
        )
    content_columns = ", ".join(f"{{row}}.{name}" for name in ("context_sha256", '"references"', "question"))
    merging.completed_tasks.update(
        connection.execute(
            f"SELECT DISTINCT benchmark, task FROM ({rows}) new JOIN samples old USING (benchmark, task, sample_id) "
            f"WHERE ({content_columns.format(row='old')}) IS DISTINCT FROM ({content_columns.format(row='new')})"
        ).fetchall()
    )
    complete_samples(connection, rows)
    connection.execute(f"INSERT OR IGNORE INTO samples BY NAME {rows}")


def _number_sessions(connection: duckdb.DuckDBPyConnection) -> None:
    """Renumber sessions by start time, since every file counts its own from 1.

    If a file was copied during a session, the finished session of a later copy wins.
    """
    connection.execute(
        """
        INSERT INTO sessions BY NAME
        SELECT * EXCLUDE (session), row_number() OVER (
                   PARTITION BY run_id ORDER BY started_at, finished_at, session) AS session
        FROM (
            SELECT * FROM lbx_sessions
            QUALIFY row_number() OVER (
                PARTITION BY run_id, started_at, workers, planned_samples, planned_prompt_tokens, hardware::VARCHAR
                ORDER BY finished_at DESC NULLS LAST, status) = 1
        )
        """
    )
    connection.execute("DROP TABLE lbx_sessions")
