"""Merging of results files: each table by the primary key, one file at a time, inside DuckDB.

Equal rows in two files become one row. The file that is merged
into counts as one of the files, and keeps its own rows. Aggregates (``numbers``) come from a file that has all of their
answers; otherwise they must be recomputed.

The rules for two rows with the same key do not depend on the order of files, so merging in any order, or
repeatedly, gives the same rows. An answer with text wins over one without, then the newer one: a retried answer
replaces a failed or empty one. Two different texts are refused. An answer's scores come along with it; a complete set
of scores wins over a partial one.
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
from lbx.base.marks import BLANK, OUTDATED
from lbx.base.processes import defer_signals
from lbx.opinions.rating_rows import TABLES as RATINGS
from lbx.opinions.rating_rows import merge_ratings
from lbx.results.file import numbers
from lbx.results.file.contents import COLUMN_TYPES, schema_version
from lbx.results.file.identity import (
    asked_samples,
    complete_samples,
    find_other_samples,
    joined_settings,
    setting_differences,
)
from lbx.results.file.store import Store
from lbx.results.read.runs import metadata_of
from lbx.results.rows import as_json, run_identity, show_setting
from lbx.results.schema import SCHEMA_VERSION

ANSWER = ("run_id", "benchmark", "task", "sample_id", "iteration")
_ANSWER = ", ".join(ANSWER)

_MAY_DIFFER = {
    "generations": ("created_at", "prefill_s", "decode_s", "cached_tokens", "served_model"),
    "rounds": (),
    "scores": (),
    "retrievals": ("score",),
    "depth_pairs": (
        "hardware",
        "weights_bytes",
        "reference_hardware",
        "reference_weights_bytes",
        "bundle_digest",
        "lbx_version",
        "created_at",
    ),
    # The last bits of logits differ between machines, and files have other names.
    "depth_parity": (
        "text",
        *(
            name
            for (table, name), kind in COLUMN_TYPES.items()
            if table == "depth_parity" and kind == "DOUBLE" and name != "kl"
        ),
    ),
}
"""{table: columns in which two computations of the same result may differ}"""
_KEYS = {
    "generations": ANSWER,
    "rounds": ("rubric", "round_id"),
    "scores": (*ANSWER, "metric"),
    "retrievals": ("retriever", "benchmark", "task", "sample_id", "context_sha256", "rank"),
    "depth_pairs": ("pair_id",),
    "depth_parity": ("pair_id", "text_sha256", "start"),
}
_UNEQUAL = {
    "kl": "abs(old.kl - new.kl) > greatest(0.001, 0.02 * abs(old.kl))",
    "extracted": "nullif(old.extracted, '') IS DISTINCT FROM nullif(new.extracted, '')",
    "output_ids": "coalesce(old.output_ids <> new.output_ids, false)",
    "system_prompt": "coalesce(old.system_prompt <> new.system_prompt, false)",
    "steps": " IS DISTINCT FROM ".join(
        f"list_transform(json_extract({row}.steps, '$[*]'), lambda s: json_merge_patch(s, '{{\"output_ids\": null}}'))"
        for row in ("old", "new")
    ),
}
"""{column: SQL condition of a difference}, for columns that older versions of lbx left empty, or without token ids, and
for a divergence, which machines compute with other last bits."""


def _text_condition(row: str) -> str:
    blank = f"coalesce({row}.output_words = 0, regexp_full_match(coalesce({row}.output, ''), '{BLANK}'))"
    return f"({row}.error IS NULL AND NOT {blank})"


def _weight(row: str) -> str:
    """Build the SQL for the weight of an answer. Of two answers, the heavier is kept.

    With equal texts, columns that older versions left empty decide. Of two answers without a text, the number of
    finished steps decides, which a repetition continues.
    """
    known_columns = f"({row}.output_ids IS NOT NULL)::INTEGER + ({row}.system_prompt IS NOT NULL)::INTEGER"
    steps = f"CASE WHEN {OUTDATED.format(g=row)} THEN 0 ELSE coalesce(json_array_length({row}.steps), 0) END"
    text = _text_condition(row)
    return (
        f"({text}, CASE WHEN {text} THEN {known_columns} ELSE {steps} END, {row}.created_at, coalesce({row}.error, ''))"
    )


class AnswersExistError(Exception):
    """Error for answers of a file that are already in the store. The store's transaction must be restarted."""


def add_new_answers(connection: duckdb.DuckDBPyConnection, source: str) -> None:
    """Add answers and scores of an attached results file that shares no answer with the store.

    Only keys are looked up, so that merging several files of a run takes time in proportion to their answers. The
    queries of ``merge_answers`` read the whole store for each file.

    Raises:
        AnswersExistError: the store already contains one of the answers.
    """
    try:
        for table in ("generations", "scores"):
            connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM {source}.{table}")
    except duckdb.ConstraintException as exc:
        raise AnswersExistError from exc


def merge_answers(connection: duckdb.DuckDBPyConnection, source: str, path: Path) -> None:
    """Add answers and scores of the results file attached as ``source``, in an open transaction.

    Raises:
        StoreError: the file contains another answer, or another score, under the same key.
    """
    different = " OR ".join(_differences(connection, "generations").values())
    texts = f"{_text_condition('old')} AND {_text_condition('new')}"
    _refuse_other(connection, "generations", f"{source}.generations", path, texts)
    connection.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE lbx_twice AS
        SELECT {_ANSWER}, {different} AS differ, {_weight("new")} > {_weight("old")} AS taken
        FROM {source}.generations new JOIN generations old USING ({_ANSWER})
        """
    )
    connection.execute(
        f"DELETE FROM scores WHERE ({_ANSWER}) IN (SELECT ({_ANSWER}) FROM lbx_twice WHERE differ AND taken)"
    )
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE lbx_scores AS SELECT * FROM {source}.scores "
        f"WHERE ({_ANSWER}) NOT IN (SELECT ({_ANSWER}) FROM lbx_twice WHERE differ AND NOT taken)"
    )
    connection.execute(
        f"INSERT OR REPLACE INTO generations BY NAME SELECT * FROM {source}.generations "
        f"WHERE ({_ANSWER}) NOT IN (SELECT ({_ANSWER}) FROM lbx_twice WHERE NOT taken)"
    )
    for lacking, complete in (("scores", "lbx_scores"), ("lbx_scores", "scores")):
        connection.execute(
            f"WITH partial AS (SELECT {_ANSWER} FROM {lacking} GROUP BY ALL HAVING bool_or(partial IS NOT NULL)), "
            f"complete AS (SELECT {_ANSWER} FROM {complete} GROUP BY ALL HAVING NOT bool_or(partial IS NOT NULL)) "
            f"DELETE FROM {lacking} WHERE ({_ANSWER}) IN "
            f"(SELECT ({_ANSWER}) FROM partial SEMI JOIN complete USING ({_ANSWER}))"
        )
    merge_equal_rows(connection, "scores", "lbx_scores", path)


def merge_equal_rows(connection: duckdb.DuckDBPyConnection, table: str, rows: str, path: Path) -> None:
    """Add rows to a table. Raises StoreError if a row with an existing key differs from the stored row."""
    _refuse_other(connection, table, rows, path, "true")
    connection.execute(f"INSERT OR IGNORE INTO {table} BY NAME SELECT * FROM {rows}")


def _differences(connection: duckdb.DuckDBPyConnection, table: str) -> dict[str, str]:
    """Build {column: SQL condition that the column differs}."""
    columns = [row[0] for row in connection.execute(f"SELECT column_name FROM (DESCRIBE {table})").fetchall()]
    return {
        name: _UNEQUAL.get(name, f'old."{name}" IS DISTINCT FROM new."{name}"')
        for name in columns
        if name not in (*_KEYS[table], *_MAY_DIFFER[table])
    }


def _refuse_other(connection: duckdb.DuckDBPyConnection, table: str, rows: str, path: Path, condition: str) -> None:
    key, tests = _KEYS[table], _differences(connection, table)
    names = ", ".join(f"CASE WHEN {test} THEN '{name}' END" for name, test in tests.items())
    existing = connection.execute(
        f"""
        SELECT {", ".join(f'new."{name}"' for name in key)}, list_filter([{names}], lambda x: x IS NOT NULL)
        FROM {rows} new JOIN {table} old USING ({", ".join(key)})
        WHERE ({condition}) AND ({" OR ".join(tests.values())}) LIMIT 1
        """
    ).fetchone()
    if existing:
        key_text = ", ".join(f"{name} {value}" for name, value in zip(key, existing[:-1], strict=True))
        raise StoreError(
            f"{path} and an earlier file contain different rows of {table} with the same key ({key_text}). They "
            f"differ in {', '.join(existing[-1])}.",
            fix="One of the rows belongs to another run, or was computed again. Merge without one of the files.",
        )


# Numbers

NumberHashes = dict[tuple[str, str], int]
"""{(run, benchmark): hash of the answers and scores from which the numbers were computed}"""


def number_hashes(connection: duckdb.DuckDBPyConnection, database: str = "") -> NumberHashes:
    """Compute the hashes of answers and scores in the store, or in an attached file."""
    prefix = f"{database}." if database else ""
    rows = connection.execute(
        f"""
        SELECT run_id, benchmark, bit_xor(made) FROM (
            SELECT run_id, benchmark, hash(
                       task, sample_id, iteration, coalesce(output_sha256, output), error, original_tokens) AS made
            FROM {prefix}generations
            UNION ALL SELECT run_id, benchmark, hash(task, sample_id, iteration, metric, metric_version, score, partial)
            FROM {prefix}scores
        ) GROUP BY ALL
        """
    ).fetchall()
    return {(run, benchmark): number_hash for run, benchmark, number_hash in rows}


def merge_numbers(
    connection: duckdb.DuckDBPyConnection, source: str, hashes_before: NumberHashes, *, only_new_rows: bool
) -> NumberHashes:
    """Keep the stored numbers, and add the numbers of a merged file, that were computed from all rows of the store.

    Args:
        hashes_before: hashes of the store before the rows were added.
        only_new_rows: whether all rows of the file were added without replacing rows (``add_new_answers``).

    Returns:
        Hashes of the remaining numbers.
    """
    theirs = number_hashes(connection, source)
    hashes_after = (
        hashes_before | {key: hashes_before.get(key, 0) ^ number_hash for key, number_hash in theirs.items()}
        if only_new_rows
        else number_hashes(connection)
    )
    changed = [key for key in theirs if hashes_before.get(key, hashes_after[key]) != hashes_after[key]]
    unchanged = [
        [*names]
        for names in zip(
            *(key for key, number_hash in sorted(theirs.items()) if number_hash == hashes_after[key]), strict=True
        )
    ]
    numbers.delete(connection, "numbers", ("run_id", "benchmark"), changed)
    if unchanged:
        connection.execute(
            f"INSERT OR IGNORE INTO numbers BY NAME SELECT * FROM {source}.numbers "
            "SEMI JOIN (SELECT unnest($1) AS run_id, unnest($2) AS benchmark) USING (run_id, benchmark)",
            unchanged,
        )
    return hashes_after


_SOURCE = "lbx_source"
_NOTED = ("backend_version", "lbx_version")
_TABLES = (
    "runs",
    "samples",
    "generations",
    "rounds",
    "scores",
    "retrievals",
    "embeddings",
    "sessions",
    *RATINGS,
    "depth_pairs",
    "depth_parity",
)


@dataclass(slots=True)
class MergeState:
    """State of a merge.

    Attributes:
        runs: {run: files with the run}, without the file that is merged into. [] if only that file contains the run.
        joined_runs: runs that were in more than one file.
        rows: {table: number of rows in the merged file}.
        notes: tolerated differences, as sentences.
        completed_tasks: (benchmark, task)s with samples on which a file contains more information than another.
        number_hashes: hashes of the data that the file's numbers were computed from.
    """

    runs: dict[str, list[Path]] = field(default_factory=dict)
    joined_runs: list[str] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    completed_tasks: set[tuple[str, str]] = field(default_factory=set)
    number_hashes: NumberHashes = field(default_factory=dict)


def merge_files(store: Store, sources: Sequence[Path], target: Path | None = None) -> MergeState:
    """Merge results files into a new results file.

    Args:
        store: new file without rows, opened with the other files in ``allowed_files``.
        sources: results files of the current schema version that no process writes.
        target: file that the sources are merged into. It stays attached until the store is closed, so that other
            processes cannot write to it.

    Raises:
        StoreError: a file cannot be read or is of another schema version, a run was made with different settings or
            bundles in two files, or two rows contradict each other. The store then contains no row of that file.
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
    """Attach a file. Signals take effect after all or none of the file's rows are added."""
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
    """Raise StoreError if texts were removed from the attached file and not from the other files, or vice versa."""
    texts = store.query(f"SELECT texts FROM runs UNION SELECT texts FROM {_SOURCE}.runs").rows
    if len(texts) > 1:
        raise StoreError(
            f"{source} and the files before it differ in their texts: `lbx runs extract --without-texts` removed texts "
            "from only some of them. All files are unchanged.",
            fix="Extract every file in the same way, then merge the extracted files.",
        )


def _copy_target_rows(store: Store, connection: duckdb.DuckDBPyConnection, target: Path, merging: MergeState) -> None:
    """Copy the rows of the existing output ``target`` into the new store. The metadata of runs takes precedence."""
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
    """Add the rows of the attached file, except those of ``runs``.

    Args:
        only_new_rows: whether ``add_new_answers`` has already added the file's answers, which are all new.
    """
    _merge_samples(connection, source, merging)
    merge_equal_rows(connection, "rounds", f"{_SOURCE}.rounds", source)
    if not only_new_rows:
        merge_answers(connection, _SOURCE, source)
    merging.number_hashes = merge_numbers(connection, _SOURCE, merging.number_hashes, only_new_rows=only_new_rows)
    merge_equal_rows(connection, "retrievals", f"{_SOURCE}.retrievals", source)
    # Vectors of the same text differ in their last bits between machines.
    connection.execute(f"INSERT OR IGNORE INTO embeddings BY NAME SELECT * FROM {_SOURCE}.embeddings")
    merge_ratings(connection, _SOURCE, source)
    for table in ("depth_pairs", "depth_parity"):
        merge_equal_rows(connection, table, f"{_SOURCE}.{table}", source)
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
    before, now = run_identity(stored), run_identity(new)
    if names := setting_differences(stored, new):
        differences = "; ".join(
            f"{name} is {show_setting(before.get(name))} and {show_setting(now.get(name))}" for name in names
        )
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
"""Statuses in order of precedence when runs are joined."""
_FIRST = ("backend_version", "lbx_version", "hardware")
"""Columns of joined runs whose values come from the run that began first."""


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
    """Compute the status and the end time of a run that several files contain."""
    ends, statuses = [run["finished_at"] for run in runs], {run["status"] for run in runs}
    status = next((status for status in _STATUSES if status in statuses), runs[0]["status"])
    return status, None if None in ends else max(ends)


def _ending_with(connection: duckdb.DuckDBPyConnection, store: Store, run: Mapping[str, Any]) -> tuple[str, Any]:
    """Compute the status and the end time of a run after merging with the file that is merged into.

    If a file contains all tasks and answers of the run, the state in this file counts.
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
    asked, *others = ({*asked_samples(part["task_samples"])} for part in (run, *parts))
    if not parts or (not lacks and asked.issuperset(*others) and (adds or run["status"] == "done")):
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
    """Renumber sessions by start time, since every file numbers sessions from 1.

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
