"""Parquet files of made rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb


def write_parquet(path: Path, rows: Sequence[Mapping[str, Any]], types: Mapping[str, str]) -> Path:
    """Write rows with the columns of the first one, of these SQL types."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = path.with_suffix(".jsonl")
    lines.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    columns = {name: kind for name, kind in types.items() if name in rows[0]}
    duckdb.execute(f"COPY (FROM read_json('{lines}', columns={columns})) TO '{path}' (FORMAT parquet)")
    return path
