"""Sessions, the calls of ``lbx run``: their work, and data for the estimate of the next call."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from lbx.base.errors import UsageError
from lbx.base.marks import UNFINISHED
from lbx.results.file.inserting import insert
from lbx.results.file.store import Store
from lbx.results.rows import RunRow, SessionRow

_ALIKE = ("batching", "context_window")
"""Settings that affect speed, in addition to the backend's settings."""
LOAD_S = "load_s"
"""Key in a session's hardware with the seconds that loading the model took."""
_NOT_SPEED = (
    LOAD_S,
    "network",
    "dtype_reason",
    "bundle_check",
    "variants_refused",
    "prompts_not_shared",
    "repetition_penalty_left_out",
    "generation_keys_left_out",
    "architecture",
    "tokenizer_sha256",
    "same_family_as",
    "server_restarts",
)
_CLOCKS_DIFFER = timedelta(seconds=1)
_FEWEST_TOKENS = 2_000
_NEWEST = 3


SessionWork = tuple[float, float, float]
"""Seconds, number of computed tokens, and number of pairs of a computed token and a token that it attends to."""


@dataclass(frozen=True, slots=True)
class History:
    """Cost of earlier sessions of a model on this hardware.

    Attributes:
        sessions: (run, session number)s, newest first.
        prefill_s, decode_s, wall_s: sums over the sessions.
        prefill, decode: work of the sessions' answers, grouped by session and length of the prompt.
        longest_prompt: tokens of the longest prompt.
        answer_count: largest number of answers in a session.
    """

    sessions: Sequence[tuple[str, int]]
    prefill_s: float
    decode_s: float
    wall_s: float
    prefill: Sequence[SessionWork]
    decode: Sequence[SessionWork]
    longest_prompt: int
    answer_count: int


def next_session(store: Store, run_id: str) -> int:
    """Return the number of a run's next session, and mark the run's sessions with status "running" as killed.

    They cannot be running, because only one process at a time writes the file.
    """
    with store.transaction() as connection:
        connection.execute("UPDATE sessions SET status = 'killed' WHERE run_id = ? AND status = 'running'", [run_id])
    return int(store.query("SELECT coalesce(max(session), 0) + 1 FROM sessions WHERE run_id = ?", [run_id]).rows[0][0])


def store_sessions(store: Store, rows: Sequence[SessionRow]) -> None:
    """Commit rows of sessions, all or none. An old row of the same session is replaced."""
    with store.transaction() as connection:
        insert(connection, "sessions", rows)


def progress_of_runs(store: Store) -> dict[str, str]:
    """Return {run: "running, 212 of 643"} for the active runs, or {} if no process is writing the file.

    The newest session belongs to the process that writes the file, unless a run was killed before that process began.
    A run without a session that the process began is prepared: it counts tokens and measures the model's speed.
    """
    if store.snapshot is None:
        return {}
    began = store.snapshot.began
    rows = store.query(
        """
        SELECT s.run_id, coalesce(s.done_before, 0) + count(g.run_id), s.done_before + s.to_ask
        FROM sessions s LEFT JOIN generations g
            ON g.run_id = s.run_id AND g.created_at >= s.started_at AND g.error_type IS DISTINCT FROM $2
        WHERE s.status = 'running' AND s.started_at = (SELECT max(started_at) FROM sessions)
              AND s.started_at >= coalesce($1, s.started_at)
        GROUP BY s.run_id, s.done_before, s.to_ask
        UNION ALL
        SELECT run_id, 0, NULL FROM runs
        WHERE status = 'running' AND run_id NOT IN (SELECT run_id FROM sessions)
              AND started_at >= coalesce($1, (SELECT max(started_at) FROM sessions), started_at)
        ORDER BY ALL
        """,
        [began and (began - _CLOCKS_DIFFER).replace(tzinfo=None), UNFINISHED],
    ).rows
    return {run: f"running, {done:,} " + ("answers" if total is None else f"of {total:,}") for run, done, total in rows}


def newest_spec(path: Path, run_id: str | None) -> Any:
    """Read the latest spec of a run in a results file, as JSON of ``RunSpec.to_json``.

    Raises:
        StoreError: the file is not a results file.
        UsageError: the run does not exist, no name was given and the file contains several runs, or the runs were
            imported and therefore have no specs.
    """
    with Store(path, allow_writer=True) as store:
        specs = dict(
            store.query(
                "SELECT run_id, arg_max(spec::VARCHAR, session) FROM sessions WHERE spec IS NOT NULL GROUP BY run_id "
                "ORDER BY run_id"
            ).rows
        )
    if run_id is None and len(set(specs.values())) == 1:
        return json.loads(next(iter(specs.values())))
    if run_id in specs:
        return json.loads(specs[run_id])
    if not specs:
        raise UsageError(
            f"{path} has no specs of its runs, because they were imported.", fix="Pass the options instead of --spec."
        )
    problem = "contains several runs" if run_id is None else f"has no spec of a run {run_id}"
    raise UsageError(f"{path} {problem}.", fix=f"Pass one with --run: {', '.join(specs)}.")


def history(store: Store, run: RunRow, *, workers: int) -> History | None:
    """Read the cost of the newest sessions with the same model, options, hardware and number of workers.

    Returns None if there is no such session.
    """
    table = store.query(
        """
        SELECT s.run_id, s.session, s.hardware::VARCHAR AS hardware, r.settings::VARCHAR AS settings,
               s.started_at, s.prefill_s, s.decode_s, s.wall_s
        FROM sessions s JOIN runs r USING (run_id)
        WHERE r.model = ? AND r.backend = ? AND s.workers = ?
              AND s.computed_tokens >= ? AND s.prefill_s + s.decode_s > 0
        ORDER BY s.started_at DESC
        """,
        [run.model, run.backend, workers, _FEWEST_TOKENS],
    )
    key = _speed_settings(run.settings), _speed_hardware(run.hardware)
    alike = [
        row
        for row in table.dicts()
        if (_speed_settings(json.loads(row["settings"])), _speed_hardware(json.loads(row["hardware"]))) == key
    ][:_NEWEST]
    if not alike:
        return None
    groups = [_work(store, row["run_id"], row["session"]) for row in alike]
    if not any(groups):
        return None
    rows = [group for of_session in groups for group in of_session]
    return History(
        [(row["run_id"], row["session"]) for row in alike],
        prefill_s=sum(row["prefill_s"] for row in alike),
        decode_s=sum(row["decode_s"] for row in alike),
        wall_s=sum({row["started_at"]: row["wall_s"] for row in alike}.values()),  # simultaneous runs share it
        prefill=[row[:3] for row in rows],
        decode=[row[3:6] for row in rows],
        longest_prompt=max(row[6] for row in rows),
        answer_count=max(sum(group[7] for group in of_session) for of_session in groups),
    )


def _work(store: Store, run_id: str, session: int) -> Sequence[tuple[Any, ...]]:
    """Return rows with the work of a session's answers, grouped by similar prompt length.

    A row contains seconds, tokens and pairs of prefill, the same of decode, the longest prompt, and the count.
    """
    return store.query(
        """
        SELECT sum(prefill_s), sum(new), sum(new * (cached + new / 2)),
               sum(decode_s), sum(output_tokens), sum(output_tokens * (prompt_tokens + output_tokens / 2)),
               max(prompt_tokens), count(*)
        FROM (
            SELECT g.*, coalesce(g.cached_tokens, 0) AS cached, g.prompt_tokens - coalesce(g.cached_tokens, 0) AS new
            FROM generations g JOIN sessions s USING (run_id)
            WHERE g.run_id = ? AND s.session = ? AND g.created_at BETWEEN s.started_at AND s.finished_at
                  AND g.prompt_tokens > 0 AND g.prefill_s IS NOT NULL AND g.decode_s IS NOT NULL
                  AND g.output_tokens IS NOT NULL
        )
        GROUP BY floor(2 * log2(prompt_tokens)) ORDER BY max(prompt_tokens)
        """,
        [run_id, session],
    ).rows


def answer_lengths(store: Store, run: RunRow, setting_names: Collection[str]) -> dict[str, float]:
    """Return {task: mean answer length in tokens} of the run's model, over runs with equal values of these settings."""
    table = store.query(
        """
        SELECT g.benchmark || '/' || g.task, avg(g.output_tokens), r.settings::VARCHAR, count(*)
        FROM generations g JOIN runs r USING (run_id)
        WHERE r.model = ? AND r.backend = ? AND g.output_tokens IS NOT NULL
        GROUP BY ALL
        """,
        [run.model, run.backend],
    )
    run_values = _select_settings(run.settings, setting_names)
    lengths_of: dict[str, list[tuple[float, int]]] = {}
    for task, mean, settings, count in table.rows:
        if _select_settings(json.loads(settings), setting_names) == run_values:
            lengths_of.setdefault(task, []).append((mean, count))
    return {task: sum(m * n for m, n in parts) / sum(n for _, n in parts) for task, parts in lengths_of.items()}


def _speed_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name in _ALIKE or name.startswith("backend.")}


def _select_settings(settings: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: settings.get(name) for name in names}


def _speed_hardware(hardware: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in hardware.items() if name not in _NOT_SPEED}
