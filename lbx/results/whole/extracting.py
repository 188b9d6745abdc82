"""Copying of runs into a new results file, with or without texts, and a search for texts in a file.

Only the rows of the copy are ever written to the new file, so that free blocks cannot contain other texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from lbx.base.database import RESULTS, attach, quote_name, sql_literal
from lbx.base.errors import StoreError
from lbx.base.marks import COUNT_WORDS
from lbx.base.processes import defer_signals
from lbx.opinions.views import ANSWER_HASH
from lbx.results.file.contents import COLUMN_TYPES
from lbx.results.file.identity import TEXT_PARTS, part_hash
from lbx.results.file.opening import first_line
from lbx.results.file.store import Store
from lbx.results.file.texts import (
    ANSWERS,
    CHANGED,
    FACT,
    FACT_COLUMNS,
    IS_VERDICT,
    JUDGE,
    LABEL_PATTERNS,
    LONGEST_LABEL,
    MODEL,
    NO_TEXTS,
    REMOVED_MESSAGE,
    TEXT_COLUMNS,
    add_plain_functions,
    plain_function,
    removal_notice,
    texts_of,
)

_TARGET = "lbx_extract"

_ANSWER = "run_id, benchmark, task, sample_id, iteration"
_SAMPLE = "benchmark, task, sample_id"

_CHOICES = f"""
    CREATE TEMP TABLE lbx_answers AS
    SELECT {_ANSWER} FROM generations WHERE list_contains($runs, run_id) AND (benchmark <> 'judge' OR $everything);
    INSERT INTO lbx_answers
    SELECT judge_id, 'judge', rubric, round_id, judge_iteration FROM judgements
    WHERE NOT $everything AND (list_contains($runs, judge_id) OR list_contains($runs, run_id)
                               OR list_contains($runs, against_run_id))
        -- It is unknown without an answer's row whether the answer has changed since.
        AND (current OR (list_contains($runs, run_id) AND coalesce(list_contains($runs, against_run_id), true)));
    CREATE TEMP TABLE lbx_runs AS
    SELECT unnest($runs) AS run_id UNION SELECT run_id FROM lbx_answers;
    CREATE TEMP TABLE lbx_ratings AS
    WITH asked AS (
        SELECT set_id, item, {_SAMPLE}, unnest(try_cast(meta->'answers' AS JSON[])) AS answer FROM rating_items
    ), changed AS (
        SELECT DISTINCT set_id, item, g.run_id, g.iteration
        FROM asked a JOIN generations g ON g.run_id = a.answer->>'run_id' AND g.benchmark = a.benchmark
            AND g.task = a.task AND g.sample_id = a.sample_id
            AND g.iteration = try_cast(a.answer->>'iteration' AS INTEGER)
        WHERE NOT list_contains($runs, g.run_id)
            AND (g.error IS NOT NULL OR {ANSWER_HASH.format(row="g")} <> a.answer->>'sha256')
    )
    SELECT r.* FROM ratings r ANTI JOIN changed USING (set_id, item, run_id, iteration)
    ANTI JOIN changed c ON c.set_id = r.set_id AND c.item = r.item AND c.run_id = r.against_run_id
        AND c.iteration = r.against_iteration
    WHERE NOT $everything AND (list_contains($runs, run_id) OR list_contains($runs, against_run_id))
    UNION ALL FROM ratings WHERE $everything;
    CREATE TEMP TABLE lbx_sets AS
    SELECT DISTINCT set_id FROM lbx_ratings UNION SELECT set_id FROM rating_sets WHERE $everything;
    CREATE TEMP TABLE lbx_samples AS
    SELECT {_SAMPLE} FROM lbx_answers UNION SELECT {_SAMPLE} FROM rating_items SEMI JOIN lbx_sets USING (set_id);
    CREATE TEMP TABLE lbx_pairs AS
    SELECT pair_id FROM depth_pairs p WHERE $everything OR EXISTS (
        FROM runs r WHERE list_contains($runs, r.run_id) AND r.backend = p.backend
        AND CASE WHEN p.settings->>'backend.weights' IS NULL THEN r.model = p.model
            ELSE r.settings->>'backend.weights' = p.settings->>'backend.weights' END
    );
"""
"""Statements that select the rows of the chosen runs, judgements and ratings of their answers, the judges, and the
comparisons of the runs' models by position."""

_ROWS = {
    "runs": "runs r SEMI JOIN lbx_runs USING (run_id)",
    "samples": f"samples r SEMI JOIN lbx_samples USING ({_SAMPLE})",
    "generations": f"generations r SEMI JOIN lbx_answers USING ({_ANSWER})",
    "rounds": "rounds r SEMI JOIN (SELECT task AS rubric, sample_id AS round_id FROM lbx_samples "
    "WHERE benchmark = 'judge') USING (rubric, round_id)",
    "scores": f"scores r SEMI JOIN lbx_answers USING ({_ANSWER})",
    "numbers": "numbers r SEMI JOIN lbx_runs USING (run_id) WHERE kind <> 'opinion' OR judge IN "
    "(SELECT run_id FROM lbx_runs UNION SELECT set_id FROM lbx_sets)",
    "retrievals": f"retrievals r SEMI JOIN lbx_answers USING ({_SAMPLE}) "
    "WHERE retriever IN (SELECT settings->>'retriever' FROM runs SEMI JOIN lbx_runs USING (run_id))",
    "sessions": "sessions r SEMI JOIN lbx_runs USING (run_id)",
    "rating_sets": "rating_sets r SEMI JOIN lbx_sets USING (set_id)",
    "rating_items": "rating_items r SEMI JOIN lbx_sets USING (set_id)",
    "ratings": "lbx_ratings r",
    "depth_pairs": "depth_pairs r SEMI JOIN lbx_pairs USING (pair_id)",
    "depth_parity": "depth_parity r SEMI JOIN lbx_pairs USING (pair_id)",
}
"""{table: SQL for the rows to copy}. Embeddings are left out, because a continued run computes them again."""


@dataclass(slots=True)
class ExtractSummary:
    """Summary of ``copy_runs``: rows and texts that the new file contains.

    Attributes:
        runs, judges: names of the copied runs, and of the judges that were copied for their judgements.
        left_out: runs of the source that were not copied.
        rows: {table: rows in the new file}.
        texts: which texts the new file contains, as in ``runs.texts``.
        removed_facts: {"table.column": rows from which sentences in settings, hardware or notes were removed}.
    """

    runs: list[str] = field(default_factory=list)
    judges: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    texts: str | None = None
    removed_facts: dict[str, int] = field(default_factory=dict)


def copy_runs(store: Store, target: Path, runs: Sequence[str] = (), texts: str | None = None) -> ExtractSummary:
    """Copy runs into a new results file.

    Args:
        store: source, open for reading, with ``target`` in the ``allowed_files``. Temporary numbers are copied, too.
        target: path of the new file.
        runs: names of runs and judges, or () for all.
        texts: "none" to remove texts, "answers" to keep only the answers of models, or None to copy all texts.

    Raises:
        StoreError: the source contains no answers to keep, or the new file cannot be written.
    """
    if texts == ANSWERS and texts_of(store) == NO_TEXTS:
        raise StoreError(f"{removal_notice(store)} Its answers cannot be kept.", fix="Leave out --keep-answers.")
    every = [run for (run,) in store.query("SELECT run_id FROM runs ORDER BY ALL").rows]
    chosen = [*runs] or every
    parameters = {"runs": chosen, "everything": not runs}
    Store(target).close()
    try:
        with defer_signals():
            connection = store.connection
            for statement in _CHOICES.split(";\n")[:-1]:
                used = {name: value for name, value in parameters.items() if f"${name}" in statement}
                connection.execute(statement, used)
            attach(connection, target, _TARGET, read_only=False)
            add_plain_functions(store)
            summary = _copy_rows(connection, plain_columns(texts) if texts else {})
            connection.execute(f"CHECKPOINT {_TARGET}; DETACH {_TARGET}")
    except duckdb.Error as exc:
        raise StoreError(
            f"The runs cannot be copied: {first_line(exc)}.", fix="No file was written. Make room if the disk is full."
        ) from exc
    copied = [run for (run,) in store.query("SELECT run_id FROM lbx_runs ORDER BY ALL").rows]
    summary.runs = [run for run in copied if run in chosen]
    summary.judges = [run for run in copied if run not in chosen]
    summary.left_out = [run for run in every if run not in copied]
    summary.texts = texts or texts_of(store)
    return summary


def _copy_rows(connection: duckdb.DuckDBPyConnection, replacements: Mapping[str, Mapping[str, str]]) -> ExtractSummary:
    summary = ExtractSummary()
    connection.execute("BEGIN")
    for table, source in _ROWS.items():
        values = {column: f'r."{column}"' for name, column in COLUMN_TYPES if name == table}
        columns = ", ".join(f'{sql} AS "{column}"' for column, sql in {**values, **replacements.get(table, {})}.items())
        ((count,),) = connection.execute(
            f"INSERT INTO {_TARGET}.{table} BY NAME SELECT {columns} FROM {source} ORDER BY r.rowid"
        ).fetchall()
        summary.rows[table] = int(count)
        for column in FACT_COLUMNS.get(table, ()) if replacements else ():
            is_changed = f"{plain_function(table, column)}(r.{column})[1] = '{CHANGED}'"
            ((count,),) = connection.execute(f"SELECT count(*) FILTER ({is_changed}) FROM {source}").fetchall()
            summary.removed_facts |= {f"{table}.{column}": int(count)} if count else {}
    connection.execute("COMMIT")
    return summary


# Removal of texts


def plain_columns(texts: str) -> dict[str, dict[str, str]]:
    """Return {table: {column: SQL for the value without texts}}, for rows named ``r``, after ``add_plain_functions``.

    Columns without texts are left out. A row without texts is unchanged.

    Args:
        texts: "none" or "answers", as in ``runs.texts``.
    """
    is_kept = f"('{texts}' = '{ANSWERS}' AND r.benchmark <> 'judge')"
    message = f"CASE WHEN r.error IS NOT NULL THEN '{REMOVED_MESSAGE}' END"
    words = f"coalesce(r.output_words, {COUNT_WORDS.format(text='r.output')})"
    columns_of_facts = {
        table: {column: f"{plain_function(table, column)}(r.{column})[2:]" for column in columns}
        for table, columns in FACT_COLUMNS.items()
    }
    return columns_of_facts | {
        "runs": columns_of_facts["runs"] | {"texts": f"'{texts}'"},
        "samples": {
            "question": "''",
            "references": "'[]'",
            "meta": "lbx_plain_samples(r.meta)[2:]",
            "text_hashes": _text_hashes(),
        },
        "generations": {
            "output": f"CASE WHEN {is_kept} THEN r.output END",
            "output_sha256": f"CASE WHEN NOT {is_kept} THEN coalesce(r.output_sha256, sha256(r.output)) END",
            "output_words": f"CASE WHEN {is_kept} THEN r.output_words ELSE {words} END",
            "error": message,
            **dict.fromkeys(("reasoning", "steps", "source_row", "output_ids"), "NULL"),
        },
        "rounds": {"verdicts": "NULL", "pattern": "NULL"},
        "scores": {
            "extracted": f"CASE WHEN r.extracted = '' OR {IS_VERDICT.format(row='r')} THEN r.extracted END",
            "error": message,
        },
        "retrievals": {"text": "''"},
        "rating_items": {"meta": "lbx_plain_rating_items(r.meta)[2:]"},
        "ratings": {"comment": "NULL", "source_row": "NULL"},
    }


def _text_hashes() -> str:
    """Build the SQL for ``samples.text_hashes``."""
    pairs = ", ".join(f"'{part}', {part_hash('r', part)}" for part in TEXT_PARTS)
    return f"json_merge_patch('{{}}', json_object({pairs}))"


UNKNOWN = "unknown"
"""Origin of texts in columns that lbx does not fill with texts, and in tables of other programs."""
_NO_TEXT = ("", "[]", "{}", REMOVED_MESSAGE)
_PLAIN_TYPES = r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DOUBLE|FLOAT|BOOLEAN|DECIMAL.*|DATE|TIME.*|INTERVAL|UUID"


@dataclass(frozen=True, slots=True)
class ColumnTexts:
    """Texts of one origin in a column.

    Attributes:
        rows: number of rows with a text.
        size_bytes: bytes of the texts in UTF-8, before compression.
    """

    table: str
    column: str
    origin: str
    rows: int
    size_bytes: int


def text_columns(store: Store) -> list[ColumnTexts]:
    """Find the columns that contain texts, in the order of the schema. Columns of other programs follow."""
    add_plain_functions(store)
    found = [
        text
        for column in COLUMN_TYPES
        for text in (_texts if column in TEXT_COLUMNS else _texts_in_names)(store, *column)
    ]
    return found + [text for column in _other_columns(store) for text in _count(store, *column, UNKNOWN)]


def _texts(store: Store, table: str, column: str) -> Iterator[ColumnTexts]:
    origin = TEXT_COLUMNS[table, column]
    if column == "meta":
        yield from _count(store, table, column, origin, f"lbx_plain_{table}(meta)[1] = '{CHANGED}'")
    elif origin == MODEL:
        yield from _count(store, table, column, MODEL, "benchmark <> 'judge'")
        verdicts = f" AND NOT {IS_VERDICT.format(row=table)}" if column == "extracted" else ""
        yield from _count(store, table, column, JUDGE, f"benchmark = 'judge'{verdicts}")
    else:
        yield from _count(store, table, column, origin)


def _texts_in_names(store: Store, table: str, column: str) -> Iterator[ColumnTexts]:
    """Find texts in columns of names and facts: sentences among facts, and values that lbx never writes."""
    name = quote_name(column)
    if column in FACT_COLUMNS.get(table, ()):
        yield from _count(store, table, column, FACT, f"{plain_function(table, column)}({name})[1] = '{CHANGED}'")
    elif form := LABEL_PATTERNS.get((table, column)):
        is_text = f"NOT regexp_full_match({name}::VARCHAR, {sql_literal(form)})"
        if COLUMN_TYPES[table, column] == "VARCHAR":
            is_text = f"({is_text} OR length({name}) > {LONGEST_LABEL})"
        yield from _count(store, table, column, UNKNOWN, is_text)


def _other_columns(store: Store) -> list[tuple[str, str]]:
    """List the columns of other programs that may contain a text."""
    rows = store.query(
        "SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = ? AND schema_name = 'main' "
        "AND table_name IN (SELECT table_name FROM duckdb_tables() WHERE database_name = $1) "
        "AND NOT regexp_full_match(data_type, $2) ORDER BY table_name, column_index",
        [RESULTS, _PLAIN_TYPES],
    ).rows
    return [(table, column) for table, column in rows if (table, column) not in COLUMN_TYPES]


def _count(store: Store, table: str, column: str, origin: str, condition: str = "true") -> Iterator[ColumnTexts]:
    value = f"{quote_name(column)}::VARCHAR"
    no_text = ", ".join(f"'{text}'" for text in _NO_TEXT)
    ((rows, size_bytes),) = store.query(
        f"SELECT count(*), coalesce(sum(strlen({value})), 0)::BIGINT FROM {RESULTS}.main.{quote_name(table)} "
        f"WHERE {condition} AND {value} NOT IN ({no_text})"
    ).rows
    if rows:
        yield ColumnTexts(table, column, origin, rows, size_bytes)
