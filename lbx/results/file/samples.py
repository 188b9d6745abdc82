"""Samples of a results file: comparison with other rows, and renaming in every table that names them."""

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
"""Tables with the sample's id in their primary key."""


def rename_samples(store: Store, benchmark: str, task: str, names: Mapping[str, str]) -> None:
    """Rename samples of a task, {old id: new id}; a new id must be free, or be renamed itself.

    Each table takes two commits, because DuckDB checks keys before the end of a transaction. So an interrupted call
    loses rows: only call it for a copy that is then thrown away.
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
    """Compare new rows of a task's samples with the file's.

    Returns:
        {sample_id: names of the parts that differ}, for the samples that the file has.
    """
    rows = rows_of_json(store.connection, "samples")
    sql = f"SELECT sample_id, parts FROM ({differing_samples(rows)}) ORDER BY position, sample_id"
    batches = (samples[begin : begin + _BATCH_ROWS] for begin in range(0, len(samples), _BATCH_ROWS))
    return dict(row for batch in batches for row in store.query(sql, [as_json(batch)]).rows)


def refuse_other_samples(store: Store, samples: Iterable[SampleRow], path: Path) -> None:
    """Raise ConflictError if the file has samples of the same names with other content.

    Args:
        samples: their documents are not kept in memory.
        path: name of the file in the message.
    """
    rows, values = rows_of_json(store.connection, "samples"), (row.values() for row in samples)
    found: OtherSamples | None = None
    while batch := [*islice(values, _BATCH_ROWS)]:
        other = find_other_samples(store.connection, rows, [as_json(batch)])
        found = found + other if found else other
    if found:
        raise other_samples_error(path, found)
