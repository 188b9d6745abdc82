"""Comparison of a results file's samples with other rows, and renaming of samples in all tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path

from lbx.results.file.identity import OtherSamples, differing_samples, find_other_samples, other_samples_error
from lbx.results.file.inserting import json_rows, rows_of_json
from lbx.results.file.store import Store
from lbx.results.rows import SampleRow, as_json

_BATCH_ROWS = 512
_KEYED = ("samples", "generations", "scores", "retrievals")
"""Tables whose primary key contains the sample's id."""


def rename_samples(store: Store, benchmark: str, task: str, names: Mapping[str, str]) -> None:
    """Rename samples of a task, {old id: new id}. A new id must be free, or be an old id.

    Each table takes two commits, because DuckDB checks keys before the end of a transaction. An interrupted call
    therefore loses rows. Call this function only for a copy of a file that is then thrown away.
    """
    store.query(
        f"CREATE OR REPLACE TEMP TABLE lbx_names AS {json_rows(dict.fromkeys(('old', 'new'), 'VARCHAR'))}",
        [as_json([{"old": old, "new": new} for old, new in names.items()])],
    )
    old_rows, key = "t.sample_id = n.old AND (t.benchmark, t.task) = (?, ?)", [benchmark, task]
    for table in _KEYED:
        store.query(
            f"CREATE OR REPLACE TEMP TABLE lbx_renamed AS SELECT t.* REPLACE (n.new AS sample_id) FROM {table} t "
            f"JOIN lbx_names n ON {old_rows}",
            key,
        )
        with store.transaction() as connection:
            connection.execute(f"DELETE FROM {table} t USING lbx_names n WHERE {old_rows}", key)
        with store.transaction() as connection:
            connection.execute(f"INSERT INTO {table} BY NAME FROM lbx_renamed")
    with store.transaction() as connection:
        connection.execute(f"UPDATE rating_items t SET sample_id = n.new FROM lbx_names n WHERE {old_rows}", key)
        connection.execute(f"UPDATE rounds t SET sample_id = n.new FROM lbx_names n WHERE {old_rows}", key)


def differing_parts(store: Store, samples: Sequence[Mapping[str, object]]) -> dict[str, Sequence[str]]:
    """Compare new rows of a task's samples with the file's rows.

    Returns:
        {sample_id: fields that differ}, for the samples that the file contains.
    """
    rows = rows_of_json(store.connection, "samples")
    sql = f"SELECT sample_id, parts FROM ({differing_samples(rows)}) ORDER BY position, sample_id"
    batches = (samples[begin : begin + _BATCH_ROWS] for begin in range(0, len(samples), _BATCH_ROWS))
    return dict(row for batch in batches for row in store.query(sql, [as_json(batch)]).rows)


def refuse_other_samples(store: Store, samples: Iterable[SampleRow], path: Path) -> None:
    """Raise ConflictError if the file contains samples of the same names with other content.

    Args:
        samples: new rows. Their documents are not kept in memory.
        path: path of the file in the message.
    """
    rows, values = rows_of_json(store.connection, "samples"), (row.values() for row in samples)
    found: OtherSamples | None = None
    while batch := [*islice(values, _BATCH_ROWS)]:
        other = find_other_samples(store.connection, rows, [as_json(batch)])
        found = found + other if found else other
    if found:
        raise other_samples_error(path, found)
