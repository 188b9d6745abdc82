"""Renaming of samples in every table that names them."""

from __future__ import annotations

from collections.abc import Mapping

from lbx.store.inserting import json_rows
from lbx.store.rows import as_json
from lbx.store.store import Store

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
        connection.execute(
            "UPDATE samples SET meta = json_merge_patch(meta, json_object('sample_id', n.new)) FROM lbx_names n "
            "WHERE benchmark = 'judge' AND (meta->>'benchmark', meta->>'task', meta->>'sample_id') = (?, ?, n.old)",
            key,
        )
