"""What people say of a run: free keys beside its settings, which only exports read."""

from __future__ import annotations

import json
from collections.abc import Mapping

from lbx.store.rows import as_json
from lbx.store.store import Store


def metadata(store: Store, run_id: str) -> dict[str, str]:
    """What is said of a run that is there."""
    ((text,),) = store.query("SELECT metadata FROM runs WHERE run_id = ?", [run_id]).rows
    held = json.loads(text or "{}")
    return {str(key): str(value) for key, value in held.items()} if isinstance(held, dict) else {}


def set_metadata(store: Store, run_id: str, changes: Mapping[str, str]) -> dict[str, str]:
    """Change what is said of a run: an empty value takes its key away. Returns all that is said now."""
    told = {key: value for key, value in {**metadata(store, run_id), **changes}.items() if value}
    with store.transaction() as connection:
        connection.execute("UPDATE runs SET metadata = ? WHERE run_id = ?", [as_json(told) if told else None, run_id])
    return told
