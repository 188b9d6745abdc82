"""Runs of a results file with their state and size."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from lbx.store.contents import COLUMN_TYPES
from lbx.store.run_progress import run_states
from lbx.store.runs import metadata_of
from lbx.store.store import Store

_FIXED_BYTES = 8
"""Estimate of a stored number, time or truth value."""


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run, or a judge.

    Attributes:
        kind: "model" or "judge".
        size_bytes: Estimate: bytes of its own rows and texts before compression, without the questions.
        state, answers, failures, started_at, newest_at: See ``lbx.store.run_progress.RunState``.
        facts: See ``lbx.store.runs.metadata``.
        bundle_answers: Number of answers of a complete run on its tasks; None if unknown.
    """

    run_id: str
    model: str
    kind: str
    state: str
    answers: int
    failures: int
    size_bytes: int
    started_at: datetime
    newest_at: datetime | None
    facts: dict[str, str]
    bundle_answers: int | None


def listed_runs(store: Store) -> list[ListedRun]:
    """Return all runs and judges in order of their start."""
    kind = "if(EXISTS (FROM judges WHERE judge_id = run_id), 'judge', 'model') AS kind"
    rows = {row["run_id"]: row for row in store.query(f"SELECT run_id, model, metadata, {kind} FROM runs").dicts()}
    sizes = _sizes(store)
    totals = dict(
        store.query(
            "SELECT run_id, CASE WHEN count(bundle_answers) = count(*) THEN sum(bundle_answers)::BIGINT END "
            "FROM coverage GROUP BY ALL"
        ).rows
    )
    return [
        ListedRun(
            state.run_id,
            rows[state.run_id]["model"],
            rows[state.run_id]["kind"],
            state.state,
            state.answers,
            state.failures,
            sizes[state.run_id],
            state.started_at,
            state.newest_at,
            metadata_of(rows[state.run_id]),
            totals.get(state.run_id),
        )
        for state in sorted(run_states(store), key=lambda state: (state.started_at, state.run_id))
    ]


def _sizes(store: Store) -> dict[str, int]:
    tables = [table for table, column in COLUMN_TYPES if column == "run_id"]
    parts = " UNION ALL ".join(f"SELECT run_id, {_row_bytes(table)} AS bytes FROM {table}" for table in tables)
    return dict(store.query(f"SELECT run_id, sum(bytes)::BIGINT FROM ({parts}) GROUP BY run_id").rows)


def _row_bytes(table: str) -> str:
    return " + ".join(
        _value_bytes(f'"{column}"', kind) for (name, column), kind in COLUMN_TYPES.items() if name == table
    )


def _value_bytes(column: str, kind: str) -> str:
    if kind in ("VARCHAR", "JSON"):
        return f"coalesce(strlen({column}::VARCHAR), 0)"
    return f"coalesce({_FIXED_BYTES} * len({column}), 0)" if kind.endswith("[]") else str(_FIXED_BYTES)
