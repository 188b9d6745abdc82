"""Progress of each run of a results file: state, finished samples, pace, remaining time, failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lbx.store.answer_lists import AnswerKey
from lbx.store.sessions import progress_of_runs
from lbx.store.store import Store

RUNNING, KILLED = "running", "killed"
_NEWEST = 50
"""Number of newest answers from which the pace is computed: prompts of one task have similar lengths."""


@dataclass(frozen=True, slots=True)
class RunState:
    """Progress of a run.

    Attributes:
        state: "running", "done", "interrupted", "failed", or "killed" if its process ended without recording an end.
        answers: number of answers, with failures.
        total: number of answers that the run was asked for; None if unknown.
        per_minute: answers per minute, of a running run, from its newest answers; None if unknown.
        left_s: estimate from that pace; None if unknown.
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


def run_states(store: Store, runs: Sequence[str] = ()) -> list[RunState]:
    """States of these runs, or of all; running ones first, then the newest.

    A run without a recorded end is running only if the process that writes the file works on it.
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
                WHERE g.created_at >= n.began
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
            LEFT JOIN generations g USING (run_id)
        WHERE len(?) = 0 OR list_contains(?, r.run_id)
        GROUP BY ALL ORDER BY r.started_at DESC, r.run_id
        """,
        [list(runs), list(runs)],
    ).dicts()
    states = [_state(row, time, is_active=row["run_id"] in active) for row in rows]
    return sorted(states, key=lambda state: state.state != RUNNING)


def _state(row: Mapping[str, Any], time: datetime, *, is_active: bool) -> RunState:
    state = RUNNING if is_active else KILLED if row["status"] == RUNNING else row["status"]
    total = row["total"] if row["total"] is not None else row["bundle_samples"]
    pace = _per_minute(row, time) if is_active else None
    left = None if total is None else max(0, total - row["answers"])
    failure = row["failure"]
    return RunState(
        row["run_id"],
        state,
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
