"""Numbers as ``Store.write_results`` takes them, with what each kind has."""

from __future__ import annotations

from typing import Any

from lbx.base.number import Number


def task_row(run: str, benchmark: str, task: str, metric: str, n: int, score: float, **more: Any) -> Number:
    """A task's number; ``official``, ``metric_version`` and the others by name."""
    given = {"metric_version": 1, "unit": 100.0, "headline": True, "in_paper": True, "position": 0, **more}
    return Number(run_id=run, benchmark=benchmark, task=task, metric=metric, n=n, score=score, **given)


def group_row(run: str, benchmark: str, grouping: str, name: str, n: int, score: float, **more: Any) -> Number:
    """A number over several tasks."""
    given = {"metric": "average", "metric_version": 1, "unit": 100.0, "position": 0, **more}
    return Number(
        run_id=run, benchmark=benchmark, kind="group", grouping=grouping, name=name, n=n, score=score, **given
    )
