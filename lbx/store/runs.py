"""Runs by name, and their metadata: free keys next to the settings, used only by exports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lbx.base.errors import UsageError
from lbx.store.rows import as_json
from lbx.store.store import Store


def run_names(store: Store, *, judges: bool = False) -> list[str]:
    """Names of the runs with answers of models, or with those of judges, for users to choose from."""
    join = "SEMI" if judges else "ANTI"
    names = store.query(f"SELECT run_id FROM runs {join} JOIN judges ON run_id = judge_id ORDER BY ALL").rows
    return [name for (name,) in names]


def check_runs(store: Store, runs: Sequence[str]) -> None:
    """Raise UsageError if the file lacks a run, or judge, of one of these names."""
    run_ids = {row[0] for row in store.query("SELECT run_id FROM runs").rows}
    for run in runs:
        if run not in run_ids:
            raise _no_run(store, run)


def _no_run(store: Store, name: str) -> UsageError:
    offered = run_names(store)
    return UsageError(
        f"No run {name!r} in {store.path}.",
        fix=f"Available runs: {', '.join(offered)}." if offered else "The file contains no runs.",
    )


def resolve_runs(store: Store, names: Sequence[str], *, judges: bool = True) -> tuple[str, ...]:
    """Resolve names to runs; see ``match_runs``.

    Args:
        judges: whether names may match judges.

    Raises:
        UsageError: a name matches no run, or is ambiguous.
    """
    rows = store.query(
        "SELECT run_id, model, EXISTS (FROM judges WHERE judge_id = run_id) FROM runs ORDER BY run_id"
    ).rows
    model_of_run = {run: None if judge else model for run, model, judge in rows if judges or not judge}
    return tuple(dict.fromkeys(_resolve_run(store, name, model_of_run) for name in names))


def only_run(store: Store, *, judges: bool = False, option: str = "--run") -> str:
    """The file's only run, not counting judges; or its only judge. Raises UsageError if there is not exactly one.

    Args:
        option: names a run; for the message.
    """
    names, kind = run_names(store, judges=judges), "judges" if judges else "runs"
    if not names:
        raise UsageError(f"{store.path} has no {kind}.")
    if len(names) > 1:
        raise UsageError(f"{store.path} contains several {kind}.", fix=f"Pass one with {option}: {', '.join(names)}.")
    return names[0]


def resolve_runs_in(path: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Resolve names in a results file (see ``resolve_runs``), which is opened only if there are names."""
    if not names:
        return ()
    with Store(path, allow_writer=True) as store:
        return resolve_runs(store, names)


def _resolve_run(store: Store, name: str, model_of_run: Mapping[str, str | None]) -> str:
    meant = match_runs(name, model_of_run)
    if len(meant) > 1:
        raise UsageError(f"{name!r} is ambiguous: it matches {', '.join(meant)}.", fix="Give one of these.")
    if not meant:
        raise _no_run(store, name)
    return meant[0]


def match_runs(name: str, runs: Mapping[str, str | None]) -> list[str]:
    """Runs that match a name: the run with that name, else those with that model, else those with that prefix.

    Args:
        runs: {run: its model; None for a judge, which has only its own name}.
    """
    if name in runs:
        return [name]
    of_model = [run for run, model in runs.items() if model == name]
    return of_model or [run for run in runs if name and run.startswith(name)]


def metadata(store: Store, run_id: str) -> dict[str, str]:
    """Metadata of a run. Raises UsageError if it does not exist."""
    check_runs(store, [run_id])
    return metadata_of(store.query("SELECT metadata FROM runs WHERE run_id = ?", [run_id]).dicts()[0])


def metadata_of(run: Mapping[str, Any]) -> dict[str, str]:
    """Metadata in a row of ``runs``; {} if it is malformed."""
    values = json.loads(run["metadata"] or "{}")
    return {str(key): str(value) for key, value in values.items()} if isinstance(values, dict) else {}


def set_metadata(store: Store, run_id: str, changes: Mapping[str, str]) -> dict[str, str]:
    """Change metadata of a run, and return all of it; an empty value removes its key.

    Raises:
        UsageError: the run does not exist.
    """
    values = {key: value for key, value in {**metadata(store, run_id), **changes}.items() if value}
    with store.transaction() as connection:
        connection.execute(
            "UPDATE runs SET metadata = ? WHERE run_id = ?", [as_json(values) if values else None, run_id]
        )
    return values


def set_metric_version(store: Store, run_id: str, benchmark: str, version: int) -> None:
    """Store the metric version of a benchmark that all scores of a run have."""
    with store.transaction() as connection:
        connection.execute(
            "UPDATE runs SET benchmark_versions = json_merge_patch(benchmark_versions, ?::JSON) WHERE run_id = ?",
            [as_json({benchmark: version}), run_id],
        )
