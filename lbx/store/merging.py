"""Several results files as one: each table by its primary key, one file at a time, inside DuckDB.

The same row in two files is one row; two rows under one key that differ are refused by name, with the columns that do.
What adds up over samples (``numbers.TABLES``) is taken only of runs that lie in one file: of joined
runs it must be added up anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from lbx.errors import StoreError
from lbx.store import numbers
from lbx.store.interrupts import uninterrupted
from lbx.store.ratings import TABLES as RATINGS
from lbx.store.ratings import take_ratings
from lbx.store.rows import as_json, identity, unequal
from lbx.store.runs import said_of
from lbx.store.same_runs import Difference, difference
from lbx.store.same_samples import complete_samples, other_sample
from lbx.store.store import Store

_SOURCE = "lbx_source"
_NOTED = ("backend_version", "lbx_version")
_ANSWER = ("run_id", "benchmark", "task", "sample_id", "iteration")

_KEYED: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "generations": (_ANSWER, ("created_at", "prefill_s", "decode_s", "cached_tokens")),
    "scores": ((*_ANSWER, "metric", "metric_version"), ()),
    "verifications": ((*_ANSWER, "step"), ("checked_at", "logit_gap")),
    "retrievals": (("retriever", "benchmark", "task", "sample_id", "context_sha256", "rank"), ("score",)),
}
"""{table: (primary key, columns in which two computations of the same thing may differ)}."""
_UNEQUAL = {
    "output_ids": "coalesce(old.output_ids <> new.output_ids, false)",
    "system_prompt": "coalesce(old.system_prompt <> new.system_prompt, false)",
    "steps": " IS DISTINCT FROM ".join(
        f"list_transform(json_extract({row}.steps, '$[*]'), lambda s: json_merge_patch(s, '{{\"output_ids\": null}}'))"
        for row in ("old", "new")
    ),
}
"""How columns are compared that older versions of lbx left empty, or without token ids."""


@dataclass(slots=True)
class Merging:
    """What has been merged so far.

    Attributes:
        runs: {run: the files that hold it}.
        rows: {table: rows in the file}.
        notes: what was let pass, in sentences.
        completed: (benchmark, task)s of which one file knows more than another.
    """

    runs: dict[str, list[Path]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    completed: set[tuple[str, str]] = field(default_factory=set)

    @property
    def joined(self) -> list[str]:
        """Runs that lay in more than one file."""
        return [run for run, files in self.runs.items() if len(files) > 1]


def merge_files(store: Store, sources: Sequence[Path]) -> Merging:
    """Copy everything that results files hold into a new one.

    Args:
        store: new, without a row; it was given the sources beside its own file.
        sources: results files of today's schema version that no process writes.

    Raises:
        StoreError: a file cannot be read or is of another schema version; a run has other settings, another bundle
            or other metric versions in two files; a row differs. Nothing of the file concerned is in the store then.
    """
    merging = Merging()
    with store.transaction() as connection:
        connection.execute("CREATE OR REPLACE TEMP TABLE lbx_sessions AS SELECT * FROM sessions")
    for source in sources:
        Store(source, read_only=True).close()  # says what is wrong with a file better than ATTACH would
        with _attached(store, source) as connection:
            _take(store, connection, source, merging)
    with store.transaction() as connection:
        _number_sessions(connection)
        _forget_added_up(connection, merging.joined)
    tables = ("runs", "samples", *_KEYED, "embeddings", "sessions", *RATINGS)
    merging.rows = {table: int(store.query(f"SELECT count(*) FROM {table}").rows[0][0]) for table in tables}
    return merging


@contextmanager
def _attached(store: Store, source: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """One file beside the store, in one transaction."""
    with uninterrupted():
        store.attach(source, _SOURCE)
        try:
            with store.transaction() as connection:
                yield connection
        finally:
            store.query(f"DETACH {_SOURCE}")


def _take(store: Store, connection: duckdb.DuckDBPyConnection, source: Path, merging: Merging) -> None:
    columns = _columns_of(connection)
    for run in store.query(f"SELECT * FROM {_SOURCE}.runs ORDER BY ALL").dicts():
        _take_run(store, connection, run, source, merging)
    _take_samples(connection, source, merging)
    for table, (key, may_differ) in _KEYED.items():
        compared = [name for name in columns[table] if name not in (*key, *may_differ)]
        _refuse_other_row(connection, table, key, compared, source)
        _insert(connection, table)
    connection.execute(
        f"UPDATE generations old SET output_ids = new.output_ids, steps = new.steps FROM {_SOURCE}.generations new "
        f"WHERE old.output_ids IS NULL AND new.output_ids IS NOT NULL AND "
        + " AND ".join(f"old.{name} = new.{name}" for name in _ANSWER)
    )
    _insert(connection, "embeddings")  # the same text's vectors differ in their last bits from machine to machine
    for table in numbers.TABLES:
        _insert(connection, table)
    take_ratings(connection, _SOURCE, source)
    connection.execute(f"INSERT INTO lbx_sessions BY NAME SELECT * FROM {_SOURCE}.sessions")


def _columns_of(connection: duckdb.DuckDBPyConnection) -> dict[str, list[str]]:
    found = connection.execute(
        "SELECT table_name, list(column_name ORDER BY column_index) FROM duckdb_columns() "
        "WHERE database_name = current_database() GROUP BY ALL"
    )
    return dict(found.fetchall())


def _insert(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    connection.execute(f"INSERT OR IGNORE INTO {table} BY NAME SELECT * FROM {_SOURCE}.{table}")


# Runs


def _take_run(
    store: Store, connection: duckdb.DuckDBPyConnection, run: dict[str, Any], source: Path, merging: Merging
) -> None:
    files = merging.runs.setdefault(run["run_id"], [])
    if not files:
        connection.execute(f"INSERT INTO runs BY NAME SELECT * FROM {_SOURCE}.runs WHERE run_id = ?", [run["run_id"]])
    else:
        (held,) = store.query("SELECT * FROM runs WHERE run_id = ?", [run["run_id"]]).dicts()
        found = _refuse_other_run(held, run, files[0], source)
        merging.notes += [
            f"{run['run_id']}: {name} is {held[name]} in {files[0]} and {run[name]} in {source}."
            for name in _NOTED
            if held[name] != run[name]
        ]
        if found.earlier:
            merging.notes.append(
                f"{run['run_id']}: an earlier lbx made parts of it and recorded less of their model (of the weights, "
                f"the first and last MiB). That matches {source}; the file has today's {', '.join(found.earlier)}."
            )
        _join_runs(connection, held, run, found)
    files.append(source)


def _refuse_other_run(held: Mapping[str, Any], new: Mapping[str, Any], first: Path, source: Path) -> Difference:
    """Runs of one name are one run only where everything that makes the numbers is equal."""
    found = difference(held, new)
    before, now = identity(held), identity(new)
    scored_before, scored_now = (json.loads(row["benchmark_versions"]) for row in (held, new))
    asked = [_difference(name, before, now) for name in found.other]
    scored = [
        _difference(name, scored_before, scored_now, "metric version of ")
        for name in unequal(scored_before, scored_now)
        if name in scored_before.keys() & scored_now.keys()
    ]
    if asked or scored:
        metrics_only = not asked
        raise StoreError(
            f"The run {new['run_id']!r} in {source} is another one than in {first}: {'; '.join(asked + scored)}.",
            fix="Score the older file again, then merge."
            if metrics_only
            else "Runs that differ need names of their own (lbx run --run NAME); merge only files of one run.",
            command=f"lbx score {source}" if metrics_only else "",
        )
    return found


def _difference(name: str, before: Mapping[str, Any], now: Mapping[str, Any], what: str = "") -> str:
    return f"{what}{name} is {before.get(name)!r} there and {now.get(name)!r} here"


_STATUSES = ("running", "failed", "interrupted", "done")
"""Of joined runs the first that any part has."""


def _join_runs(
    connection: duckdb.DuckDBPyConnection, held: Mapping[str, Any], new: Mapping[str, Any], found: Difference
) -> None:
    ends = [run["finished_at"] for run in (held, new)]
    statuses = {held["status"], new["status"]}
    connection.execute(
        "UPDATE runs SET started_at = ?, finished_at = ?, status = ?, benchmark_versions = ?, task_samples = ?, "
        "metadata = ?, settings = ?, hardware = ? WHERE run_id = ?",
        [
            min(held["started_at"], new["started_at"]),
            None if None in ends else max(ends),
            next((status for status in _STATUSES if status in statuses), held["status"]),
            as_json(json.loads(held["benchmark_versions"]) | json.loads(new["benchmark_versions"])),
            as_json(json.loads(held["task_samples"] or "{}") | json.loads(new["task_samples"] or "{}")),
            as_json(told) if (told := said_of(held) | said_of(new)) else None,
            as_json(found.settings),
            as_json(found.hardware) if found.earlier else held["hardware"],
            held["run_id"],
        ],
    )


# Rows


def _take_samples(connection: duckdb.DuckDBPyConnection, source: Path, merging: Merging) -> None:
    rows = f"SELECT * FROM {_SOURCE}.samples"
    if other := other_sample(connection, rows):
        raise StoreError(
            f"{source} holds another sample under the name {'/'.join(other)} than the files before it: another "
            "document, question or references.",
            fix="The files are of different revisions of the data; merge only files of the same bundle.",
        )
    known = ", ".join(f"{{row}}.{name}" for name in ("context_sha256", '"references"', "question"))
    merging.completed.update(
        connection.execute(
            f"SELECT DISTINCT benchmark, task FROM ({rows}) new JOIN samples old USING (benchmark, task, sample_id) "
            f"WHERE ({known.format(row='old')}) IS DISTINCT FROM ({known.format(row='new')})"
        ).fetchall()
    )
    complete_samples(connection, rows)
    _insert(connection, "samples")


def _refuse_other_row(
    connection: duckdb.DuckDBPyConnection, table: str, key: Sequence[str], compared: Sequence[str], source: Path
) -> None:
    tests = {name: _UNEQUAL.get(name, f'old."{name}" IS DISTINCT FROM new."{name}"') for name in compared}
    unequal = " OR ".join(tests.values())
    names = ", ".join(f"CASE WHEN {test} THEN '{name}' END" for name, test in tests.items())
    found = connection.execute(
        f"""
        SELECT {", ".join(f'new."{name}"' for name in key)}, list_filter([{names}], lambda x: x IS NOT NULL)
        FROM {_SOURCE}.{table} new JOIN {table} old USING ({", ".join(key)})
        WHERE {unequal} LIMIT 1
        """
    ).fetchone()
    if found:
        named = ", ".join(f"{name} {value}" for name, value in zip(key, found[:-1], strict=True))
        raise StoreError(
            f"{source} and a file before it hold two different rows of {table} under one key ({named}): they differ in "
            f"{', '.join(found[-1])}.",
            fix="One of the two is not of this run, or was made again; leave out one of the files.",
        )


def _number_sessions(connection: duckdb.DuckDBPyConnection) -> None:
    """Every file counts its sessions from 1; together they are numbered by their beginning.

    Of a session that was still going when one copy of its file was made, the ended one in a later copy is kept.
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


def _forget_added_up(connection: duckdb.DuckDBPyConnection, runs: Sequence[str]) -> None:
    for table in numbers.TABLES:
        connection.execute(f"DELETE FROM {table} WHERE run_id IN (SELECT unnest(?::VARCHAR[]))", [list(runs)])
