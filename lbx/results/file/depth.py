"""Comparisons of models by position in texts: the tables ``depth_pairs`` and ``depth_parity``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from lbx.results.file.inserting import insert
from lbx.results.file.store import Store
from lbx.results.rows import DepthPairRow, DepthRow

_PAIRS = """
    SELECT * FROM depth_pairs
    ORDER BY min(created_at) OVER (PARTITION BY comparison_id), comparison_id, created_at, pair_id
"""
_JSON = ("settings", "hardware", "reference_settings", "reference_hardware")
_LARGEST = 2.0**17
"""Largest divergence or loss, in nats. Logits in 16 bits differ by less."""
_LARGEST_SIZES = {"weights_bytes": 2**50, "kv_bytes_per_token": 2**30}


class DepthPair(NamedTuple):
    """Candidate in a comparison, with the rows of the texts read so far.

    Attributes:
        invalid_texts: number of texts that are left out because of impossible numbers, which a foreign tool wrote.
    """

    row: DepthPairRow
    bins: list[DepthRow]
    invalid_texts: int = 0

    @property
    def read_texts(self) -> int:
        return len({row.text_sha256 for row in self.bins})


def read_depth_pairs(store: Store) -> list[DepthPair]:
    """Read all comparisons by position, the earliest first."""
    bins: dict[str, list[DepthRow]] = {}
    for stored in store.query("SELECT * FROM depth_parity ORDER BY pair_id, text, start").dicts():
        bins.setdefault(stored["pair_id"], []).append(DepthRow(**stored))
    pairs = []
    for row in map(_pair, store.query(_PAIRS).dicts()):
        found = bins.get(row.pair_id, [])
        invalid = _invalid_texts(found)
        pairs.append(DepthPair(row, [one for one in found if one.text_sha256 not in invalid], len(invalid)))
    return pairs


def _invalid_texts(rows: Iterable[DepthRow]) -> set[str]:
    return {row.text_sha256 for row in rows if not _is_possible(row)}


def _is_possible(row: DepthRow) -> bool:
    """Whether these numbers can come from a comparison. NaN is outside of all ranges, and other programs store NULL."""
    values = row.values()
    if any(value is None for name, value in values.items() if name not in ("kl_error", "kl_error_max")):
        return False
    sizes = row.kl, row.kl_p99, row.kl_max, row.kl_error or 0.0, row.kl_error_max or 0.0
    return (
        0 <= row.start < row.start + row.positions <= row.stop
        and 0 <= row.audited_positions <= row.positions
        and all(0 <= size <= _LARGEST for size in sizes)
        and 0 <= row.same_top <= 1
        and all(-_LARGEST <= value <= 1e-3 for value in (row.log_prob, row.reference_log_prob))  # rounded
        and all(0 <= value < math.inf for value in (row.seconds, row.reference_seconds))
    )


def _pair(row: dict[str, Any]) -> DepthPairRow:
    """Candidate as stored. Impossible settings and sizes are unknown."""
    parsed = {name: json.loads(row[name]) for name in _JSON}
    known: dict[str, Any] = {name: value if isinstance(value, dict) else {} for name, value in parsed.items()}
    for size, largest in _LARGEST_SIZES.items():
        for name in (size, f"reference_{size}"):
            known[name] = row[name] if row[name] is not None and 0 <= row[name] <= largest else None
    return DepthPairRow(**row | known)


def begin_depth_pair(store: Store, row: DepthPairRow) -> list[DepthRow]:
    """Store a new candidate, and return the rows of the texts that a known candidate has read. Raises StoreError.

    Texts with impossible numbers are removed, so that they are read again.
    """
    sql = "SELECT * FROM depth_parity WHERE pair_id = ? ORDER BY text, start"
    found = [DepthRow(**stored) for stored in store.query(sql, [row.pair_id]).dicts()]
    invalid = _invalid_texts(found)
    with store.transaction() as connection:
        insert(connection, "depth_pairs", [row], replace=False)
        delete = "DELETE FROM depth_parity WHERE pair_id = ? AND list_contains(?, text_sha256)"
        connection.execute(delete, [row.pair_id, [*invalid]])
    return [one for one in found if one.text_sha256 not in invalid]


def write_depth_rows(store: Store, rows: Sequence[DepthRow]) -> None:
    """Commit the rows of a text, all or none. Raises StoreError if the file cannot be written."""
    with store.transaction() as connection:
        insert(connection, "depth_parity", rows)
