"""Identity of a run: the same model, bundle and settings as a run in the file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lbx.base.errors import StoreError
from lbx.store.rows import RunRow, as_json, differing_keys, identity

if TYPE_CHECKING:
    from lbx.store.store import Store

FULL_HASH = "backend.weights_whole"
"""Setting with a hash of every byte of the weights. A run may begin without it and continue with it, or vice versa."""


def setting_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Names of the settings that make two rows of ``runs`` different runs; both have settings as JSON text."""
    before, now = identity(old), identity(new)
    return [
        name
        for name in differing_keys(before, now)
        if name != FULL_HASH or None not in (before.get(name), now.get(name))
    ]


def joined_settings(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Union of the settings in two rows of the same run, which differ at most in ``FULL_HASH``."""
    return {**json.loads(old["settings"]), **json.loads(new["settings"])}


def find_run(store: Store, run: RunRow, names: Sequence[str]) -> RunRow:
    """Return the run with its existing name in the file, or with a new name.

    Args:
        names: candidates in order of preference.
    """
    columns = "run_id, model, backend, bundle_digest, settings"
    query = f"SELECT {columns} FROM runs WHERE run_id IN (SELECT unnest(?::VARCHAR[]))"
    stored_rows = {row["run_id"]: row for row in store.query(query, [list(names)]).dicts()}
    values = run.values() | {"settings": as_json(run.settings)}
    for name in names:
        if name not in stored_rows or setting_differences(stored_rows[name], values):
            continue
        settings = joined_settings(stored_rows[name], values)
        if as_json(settings) != as_json(json.loads(stored_rows[name]["settings"])):
            with store.transaction() as connection:
                connection.execute("UPDATE runs SET settings = ? WHERE run_id = ?", [as_json(settings), name])
        return replace(run, run_id=name, settings=settings)
    return replace(run, run_id=next((name for name in names if name not in stored_rows), names[0]))


def refuse_other_run(path: Path, run: RunRow, old: Mapping[str, Any]) -> None:
    """Raise StoreError if the stored run of this name cannot be continued as ``run``.

    Args:
        path: results file, for the message.
        old: row of ``runs``; its settings or its metric versions may differ.
    """
    before, now = identity(old), identity(run.values() | {"settings": as_json(run.settings)})
    if names := differing_keys(before, now):
        differences = (f"{name} was {before.get(name)!r} and is now {now.get(name)!r}" for name in names)
        raise StoreError(
            f"The run {run.run_id!r} in {path} has different settings: {'; '.join(differences)}.",
            fix="Pass another name with --name NAME, or repeat the settings to continue the run.",
        )
    stored_versions = json.loads(old["benchmark_versions"])
    for benchmark, version in run.benchmark_versions.items():
        if (stored := stored_versions.get(benchmark, version)) != version:
            raise StoreError(
                f"The run {run.run_id!r} in {path} was scored with metric version {stored} of {benchmark}; "
                f"this version of lbx has {version}.",
                fix="Score its answers again (`lbx score`), then repeat the command.",
            )
