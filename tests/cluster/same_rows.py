"""What two results files of one run must agree in: every row, but for what a clock or a cache wrote."""

from __future__ import annotations

from pathlib import Path

from lbx.results import Store

_RUN = "run_id, model, backend, backend_version, benchmark_versions, bundle_digest, settings, lbx_version, status"
ROWS = {
    "runs": f"SELECT {_RUN} FROM runs",
    "samples": "SELECT * FROM samples",
    "generations": "SELECT * EXCLUDE (created_at, prefill_s, decode_s, cached_tokens) FROM generations",
    "scores": "SELECT * FROM scores",
    "task_results": "SELECT * FROM task_results",
    "group_results": "SELECT * FROM group_results",
}


def same_rows(one: Path, other: Path) -> dict[str, int]:
    """How many rows of each table; fails where one differs."""
    counts = {}
    with Store(one, read_only=True) as first, Store(other, read_only=True) as second:
        for table, query in ROWS.items():
            rows = [store.query(f"{query} ORDER BY ALL").rows for store in (first, second)]
            assert rows[0] == rows[1], table
            counts[table] = len(rows[0])
    return counts
