"""Runs of a results file: search by name, metadata, list of runs, progress.

Metadata is the user's notes, {key: value}, which only exports use. Progress is state, finished samples, pace, remaining
time and failures.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lbx.base.errors import UsageError
from lbx.base.marks import UNFINISHED
from lbx.base.units import format_count
from lbx.results.file.contents import COLUMN_TYPES
from lbx.results.file.identity import joined_settings, setting_differences
from lbx.results.file.sessions import progress_of_runs
from lbx.results.file.store import Store
from lbx.results.read.stored_answers import AnswerKey
from lbx.results.rows import RunRow, as_json


def run_names(store: Store, *, judges: bool = False) -> list[str]:
    """List the names of the runs of models, or of the runs of judges."""
    join = "SEMI" if judges else "ANTI"
    names = store.query(f"SELECT run_id FROM runs {join} JOIN judges ON run_id = judge_id ORDER BY ALL").rows
    return [name for (name,) in names]


def check_runs(store: Store, runs: Sequence[str]) -> None:
    """Raise UsageError if a name is not that of a run, or judge, in the file."""
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
    """Resolve names to runs by the rules of ``match_runs``.

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
    """Return the name of the file's only run, not counting judges, or with ``judges`` of the file's only judge.

    Raises UsageError if there is none, or several.

    Args:
        option: option that names a run, for the message.
    """
    names, kind = run_names(store, judges=judges), "judges" if judges else "runs"
    if not names:
        raise UsageError(
            f"{store.path} has no {kind}.", fix="`lbx judge` adds one." if judges else "`lbx run` adds one."
        )
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
    """Find the run with a name, else the runs of a model with that name, else the runs whose names begin with it.

    Args:
        runs: {run: model}, with None as the model of a judge, which is found only by the judge's name.
    """
    if name in runs:
        return [name]
    of_model = [run for run, model in runs.items() if model == name]
    return of_model or [run for run in runs if name and run.startswith(name)]


def metadata(store: Store, run_id: str) -> dict[str, str]:
    """Read the metadata of a run. Raises UsageError if the run does not exist."""
    check_runs(store, [run_id])
    return metadata_of(store.query("SELECT metadata FROM runs WHERE run_id = ?", [run_id]).dicts()[0])


def metadata_of(run: Mapping[str, Any]) -> dict[str, str]:
    """Parse the metadata in a row of ``runs``. Returns {} if it is malformed."""
    values = json.loads(run["metadata"] or "{}")
    return {str(key): str(value) for key, value in values.items()} if isinstance(values, dict) else {}


def set_metadata(store: Store, run_id: str, changes: Mapping[str, str]) -> dict[str, str]:
    """Change the metadata of a run, and return all metadata of the run. An empty value removes the key.

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
    """Store the metric version of all scores of a run of a benchmark."""
    with store.transaction() as connection:
        connection.execute(
            "UPDATE runs SET benchmark_versions = json_merge_patch(benchmark_versions, ?::JSON) WHERE run_id = ?",
            [as_json({benchmark: version}), run_id],
        )


def find_run(store: Store, run: RunRow, names: Sequence[str]) -> RunRow:
    """Find a stored run with the same identity among ``names``, and return the run with that name, or with a free name.

    Args:
        names: possible names in order of preference.
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


RUNNING, KILLED, DONE = "running", "killed", "done"
_NEWEST = 50
"""Number of newest answers from which the pace is computed. Prompts of the same task are of similar length."""


@dataclass(frozen=True, slots=True)
class RunState:
    """Progress of a run.

    Attributes:
        state: see ``run_state``.
        answers: number of answers, including failures.
        total: number of answers of the complete run, or None if unknown.
        failures: number of failed answers.
        per_minute: newest answers of a running run per minute, or None if unknown.
        left_s: remaining seconds, estimated from ``per_minute``, or None if unknown.
        newest_at: time of the newest answer, UTC.
        last_error: newest error, as "type: message".
        last_failure: answer with that error.
    """

    run_id: str
    state: str
    answers: int
    total: int | None
    failures: int
    started_at: datetime
    newest_at: datetime | None
    per_minute: float | None = None
    left_s: float | None = None
    last_error: str = ""
    last_failure: AnswerKey | None = None


def run_state(status: str, *, is_active: bool) -> str:
    """Return the state of a run: "running", "done", "interrupted", "failed", or "killed" if no end was recorded.

    Args:
        status: the status in the file, "running" until the process records the end.
        is_active: whether the process that writes the file works on the run.
    """
    return RUNNING if is_active else KILLED if status == RUNNING else status


def states_of_runs(store: Store) -> dict[str, str]:
    """Return {run: state} for all runs (``run_state``)."""
    active = progress_of_runs(store)
    rows = store.query("SELECT run_id, status FROM runs").rows
    return {run_id: run_state(status, is_active=run_id in active) for run_id, status in rows}


def unfinished_part(store: Store, run_id: str) -> str:
    """Describe an unfinished run and the remedy, or return "".

    For example "was killed with 30 of 180 answers; repeat its command to finish it".
    """
    state = states_of_runs(store)[run_id]
    ((answers, total),) = store.query(
        "SELECT sum(answers)::BIGINT, CASE WHEN count(bundle_answers) = count(*) THEN sum(bundle_answers)::BIGINT END "
        "FROM coverage WHERE run_id = ?",
        [run_id],
    ).rows
    if state == DONE or total is None or answers >= total:
        return ""
    remedy = "wait for its end" if state == RUNNING else "repeat its command to finish it"
    return f"{state_words(state)} with {answers:,} of {format_count(total, 'answer')}; {remedy}"


def failed_samples(store: Store, run: str) -> dict[str, int]:
    """Count the failed samples, as {benchmark or BENCHMARK/TASK: number}, without samples that were never asked."""
    failed: dict[str, int] = {}
    sql = "SELECT benchmark, task, count(*) FROM generations WHERE run_id = ? AND error IS NOT NULL GROUP BY ALL"
    for benchmark, task, count in store.query(sql, [run]).rows:
        failed[f"{benchmark}/{task}"] = count
        failed[benchmark] = failed.get(benchmark, 0) + count
    return failed


def state_words(state: str) -> str:
    """Turn a state into the predicate of a sentence: "is running", "was killed", "failed"."""
    return {RUNNING: "is running", "failed": "failed"}.get(state, f"was {state}")


def run_states(store: Store, runs: Sequence[str] = ()) -> list[RunState]:
    """List the states of these runs, or of all runs. Running runs come first, then the newest.

    A run without a recorded end is running only if the process that writes the file works on the run.
    """
    time = store.snapshot.taken_at if store.snapshot else datetime.now(UTC)
    active = progress_of_runs(store)
    rows = store.query(
        f"""
        WITH newest AS (
            SELECT run_id, arg_max(done_before + to_ask, session) AS total, max(started_at) AS began
            FROM sessions GROUP BY run_id
        ), paced AS (
            SELECT run_id, count(*) AS count, min(created_at) AS since FROM (
                SELECT g.run_id, g.created_at FROM generations g JOIN newest n USING (run_id)
                WHERE g.created_at >= n.began AND g.error_type IS DISTINCT FROM '{UNFINISHED}'
                QUALIFY row_number() OVER (PARTITION BY g.run_id ORDER BY g.created_at DESC) <= {_NEWEST}
            ) GROUP BY run_id
        )
        SELECT r.run_id, r.status, r.started_at, n.total, p.count, p.since, count(g.run_id) AS answers,
               count(g.error) AS failures, max(g.created_at) AS newest_at,
               arg_max({{'benchmark': g.benchmark, 'task': g.task, 'sample_id': g.sample_id, 'iteration': g.iteration,
                         'error': concat_ws(': ', g.error_type, g.error)}}, g.created_at)
                   FILTER (WHERE g.error IS NOT NULL) AS failure,
               (SELECT sum(try_cast(value AS BIGINT))::BIGINT FROM json_each(r.task_samples)) AS bundle_samples
        FROM runs r LEFT JOIN newest n USING (run_id) LEFT JOIN paced p USING (run_id)
            LEFT JOIN generations g ON g.run_id = r.run_id AND g.error_type IS DISTINCT FROM '{UNFINISHED}'
        WHERE len(?) = 0 OR list_contains(?, r.run_id)
        GROUP BY ALL ORDER BY r.started_at DESC, r.run_id
        """,
        [list(runs), list(runs)],
    ).dicts()
    states = [_state(row, time, is_active=row["run_id"] in active) for row in rows]
    return sorted(states, key=lambda state: state.state != RUNNING)


def _state(row: Mapping[str, Any], time: datetime, *, is_active: bool) -> RunState:
    total = row["total"] if row["total"] is not None else row["bundle_samples"]
    pace = _per_minute(row, time) if is_active else None
    left = None if total is None else max(0, total - row["answers"])
    failure = row["failure"]
    return RunState(
        row["run_id"],
        run_state(row["status"], is_active=is_active),
        row["answers"],
        None if total is None else max(total, row["answers"]),
        row["failures"],
        row["started_at"],
        row["newest_at"],
        pace,
        None if not pace or left is None else 60 * left / pace,
        failure["error"] if failure else "",
        _key(row["run_id"], failure) if failure else None,
    )


def _key(run_id: str, failure: Mapping[str, Any]) -> AnswerKey:
    return AnswerKey(run_id, failure["benchmark"], failure["task"], failure["sample_id"], failure["iteration"])


def _per_minute(row: Mapping[str, Any], time: datetime) -> float | None:
    if not row["count"]:
        return None
    seconds = (time.replace(tzinfo=None) - row["since"]).total_seconds()
    return 60 * row["count"] / seconds if seconds > 0 else None


_FIXED_BYTES = 8
"""Estimated size of a stored number, time or truth value."""


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run, or a judge, for lists of runs.

    Attributes:
        kind: "model" or "judge".
        state, answers, failures, started_at, newest_at: see ``RunState``.
        size_bytes: estimated bytes of the run's rows and texts before compression, without the questions.
        facts: metadata of the run.
        bundle_answers: number of answers of a complete run on the run's tasks, or None if unknown.
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
    """List all runs and judges in order of their start."""
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
