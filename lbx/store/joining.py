"""Rules for two rows with the same key in a merge.

The rules do not depend on the order of files, so merging in any order, or repeatedly, gives the same rows. An answer
with text wins over one without, then the newer one: a retried answer replaces a failed or empty one. Two different
texts are refused. An answer's scores come along with it; a complete set of scores wins over a partial one.
"""

from __future__ import annotations

from pathlib import Path

import duckdb

from lbx.base.errors import StoreError
from lbx.base.marks import BLANK
from lbx.store import numbers

ANSWER = ("run_id", "benchmark", "task", "sample_id", "iteration")
_ANSWER = ", ".join(ANSWER)

_MAY_DIFFER = {
    "generations": ("created_at", "prefill_s", "decode_s", "cached_tokens", "served_model"),
    "scores": (),
    "retrievals": ("score",),
}
"""{table: columns in which two computations of the same result may differ}."""
_KEYS = {
    "generations": ANSWER,
    "scores": (*ANSWER, "metric"),
    "retrievals": ("retriever", "benchmark", "task", "sample_id", "context_sha256", "rank"),
}
_UNEQUAL = {
    "extracted": "nullif(old.extracted, '') IS DISTINCT FROM nullif(new.extracted, '')",
    "output_ids": "coalesce(old.output_ids <> new.output_ids, false)",
    "system_prompt": "coalesce(old.system_prompt <> new.system_prompt, false)",
    "steps": " IS DISTINCT FROM ".join(
        f"list_transform(json_extract({row}.steps, '$[*]'), lambda s: json_merge_patch(s, '{{\"output_ids\": null}}'))"
        for row in ("old", "new")
    ),
}
"""Comparison of columns that older versions of lbx left empty, or without token ids."""


def _has_text(row: str) -> str:
    blank = f"coalesce({row}.output_words = 0, regexp_full_match(coalesce({row}.output, ''), '{BLANK}'))"
    return f"({row}.error IS NULL AND NOT {blank})"


def _weight(row: str) -> str:
    """SQL weight of an answer; the heavier wins. With equal text, columns that older versions left empty count."""
    known_columns = f"({row}.output_ids IS NOT NULL)::INTEGER + ({row}.system_prompt IS NOT NULL)::INTEGER"
    text = _has_text(row)
    return f"({text}, CASE WHEN {text} THEN {known_columns} ELSE 0 END, {row}.created_at, coalesce({row}.error, ''))"


class AnswersExistError(Exception):
    """Some answers of a file are already in the store; its transaction must be restarted."""


def add_new_answers(connection: duckdb.DuckDBPyConnection, source: str) -> None:
    """Add answers and scores of an attached results file that shares no answer with the store.

    Only keys are looked up, so that merging the parts of a run takes time in proportion to their answers; the queries
    of ``merge_answers`` read the whole store again for each file.

    Raises:
        AnswersExistError: the store already has one of the answers.
    """
    try:
        for table in ("generations", "scores"):
            connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM {source}.{table}")
    except duckdb.ConstraintException as exc:
        raise AnswersExistError from exc


def merge_answers(connection: duckdb.DuckDBPyConnection, source: str, path: Path) -> None:
    """Add answers and scores of the results file attached as ``source``, in an open transaction.

    Raises:
        StoreError: it has another answer, or another score, under the same key.
    """
    different = " OR ".join(_differences(connection, "generations").values())
    texts = f"{_has_text('old')} AND {_has_text('new')}"
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
    """Add rows; rows with an existing key must be equal. Raises StoreError otherwise."""
    _refuse_other(connection, table, rows, path, "true")
    connection.execute(f"INSERT OR IGNORE INTO {table} BY NAME SELECT * FROM {rows}")


def _differences(connection: duckdb.DuckDBPyConnection, table: str) -> dict[str, str]:
    """{column: SQL condition that it differs}."""
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
"""{(run, benchmark): hash of the answers and scores behind its numbers}."""


def number_hashes(connection: duckdb.DuckDBPyConnection, database: str = "") -> NumberHashes:
    """Compute the hashes of the store, or of an attached file."""
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
    """Delete numbers that lack the added rows of an attached file, and add its numbers that cover all rows.

    Args:
        hashes_before: hashes of the store before the rows were added.
        only_new_rows: whether all rows of the file were added without replacing others (``add_new_answers``).

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
