"""Harnesses whose answers were imported as runs: their own scores, and how comparable each task is.

A run keeps them in its setting ``harness``. Results files may come from anybody, so malformed values are left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from lbx.store.store import Store

SETTING = "harness"

Verdict = Literal["comparable", "differs", "not comparable", "unknown"]


@dataclass(frozen=True, slots=True)
class HarnessTask:
    """A task of an imported run.

    Attributes:
        version: the harness's version of the task; None if unknown.
        metric: the harness's name for its score; "" without a score.
        score: the harness's own score in 0..1; None if its files do not contain it.
        verdict: "comparable" with numbers of the official script; "differs": comparable, but answered under other
            conditions, which the reasons list; "not comparable"; "unknown": the files do not record enough.
        reasons: reasons for the verdict, and for a difference between the harness's score and lbx's.
        unknowns: facts that the files do not record, and that the verdict leaves open.
    """

    version: float | None = None
    metric: str = ""
    score: float | None = None
    verdict: Verdict = "unknown"
    reasons: Sequence[str] = ()
    unknowns: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Harness:
    """An evaluation harness and the settings under which it asked the model.

    Attributes:
        name: the format's name, such as "lm_eval".
        version: the harness's version; "" if unknown.
        time: when it ran, as in its files' names; "" if unknown.
        settings: recorded settings that affect answers.
        tasks: {task: its score and verdict}.
    """

    name: str
    version: str = ""
    time: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    tasks: Mapping[str, HarnessTask] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.name} {self.version}".rstrip()

    @property
    def unofficial_tasks(self) -> frozenset[str]:
        """Tasks without an official number, because they were not asked like the official script asks."""
        return frozenset(name for name, task in self.tasks.items() if task.verdict != "comparable")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def harness_of(settings: Mapping[str, Any]) -> Harness | None:
    """Return the harness in a run's settings; None for other runs."""
    stored = settings.get(SETTING)
    if not isinstance(stored, dict) or not isinstance(stored.get("name"), str):
        return None
    tasks = stored.get("tasks")
    return Harness(
        stored["name"],
        _text(stored.get("version")),
        _text(stored.get("time")),
        stored["settings"] if isinstance(stored.get("settings"), dict) else {},
        {name: _task(values) for name, values in tasks.items() if isinstance(values, dict)}
        if isinstance(tasks, dict)
        else {},
    )


def harnesses_of_runs(store: Store) -> dict[str, Harness]:
    """Return {run: its harness} of all runs that were imported from one."""
    rows = store.query("SELECT run_id, settings FROM runs WHERE json_exists(settings, ?)", [f"$.{SETTING}"]).rows
    found = {run_id: harness_of(json.loads(settings)) for run_id, settings in rows}
    return {run_id: harness for run_id, harness in found.items() if harness}


def _task(values: Mapping[str, Any]) -> HarnessTask:
    return HarnessTask(
        finite_number(values.get("version")),
        _text(values.get("metric")),
        finite_number(values.get("score")),
        next((verdict for verdict in get_args(Verdict) if verdict == values.get("verdict")), "unknown"),
        _texts(values.get("reasons")),
        _texts(values.get("unknowns")),
    )


def finite_number(value: object) -> float | None:
    """Return a number of a file from elsewhere; None for other values, NaN and infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _texts(values: object) -> list[str]:
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
