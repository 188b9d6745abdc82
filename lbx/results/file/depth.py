"""Comparisons of models by position in texts: the tables ``depth_pairs`` and ``depth_parity``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from lbx.results.file.inserting import insert
from lbx.results.file.store import Store
from lbx.results.rows import DepthPairRow, DepthRow

_PAIRS = """
    SELECT * FROM depth_pairs
    ORDER BY min(created_at) OVER (PARTITION BY comparison_id), comparison_id, created_at, pair_id
"""
_JSON = ("settings", "hardware", "reference_settings", "reference_hardware")


class DepthPair(NamedTuple):
    """Candidate in a comparison, with the rows of the texts read so far."""

    row: DepthPairRow
    bins: list[DepthRow]


def read_depth_pairs(store: Store) -> list[DepthPair]:
    """Read all comparisons by position, the earliest first."""
    bins: dict[str, list[DepthRow]] = {}
    for row in store.query("SELECT * FROM depth_parity ORDER BY pair_id, text, start").dicts():
        bins.setdefault(row["pair_id"], []).append(DepthRow(**row))
    pairs = store.query(_PAIRS).dicts()
    return [DepthPair(_pair(row), bins.get(row["pair_id"], [])) for row in pairs]


def _pair(row: dict[str, Any]) -> DepthPairRow:
    parsed = {name: json.loads(row[name]) for name in _JSON}
    return DepthPairRow(**row | {name: value if isinstance(value, dict) else {} for name, value in parsed.items()})


def begin_depth_pair(store: Store, row: DepthPairRow) -> list[DepthRow]:
    """Store a new candidate, and return the rows of the texts that a known candidate has read. Raises StoreError."""
    with store.transaction() as connection:
        insert(connection, "depth_pairs", [row], replace=False)
    found = store.query("SELECT * FROM depth_parity WHERE pair_id = ? ORDER BY text, start", [row.pair_id])
    return [DepthRow(**stored) for stored in found.dicts()]


def write_depth_rows(store: Store, rows: Sequence[DepthRow]) -> None:
    """Commit the rows of a text, all or none. Raises StoreError if the file cannot be written."""
    with store.transaction() as connection:
        insert(connection, "depth_parity", rows)
