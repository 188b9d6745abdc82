"""Rows of other runs and of people that are about a run."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from lbx.base.database import sql_literal
from lbx.store.store import Store


def rounds_on(runs: Collection[str]) -> str:
    """SQL condition on ``samples``: rounds of judges on the answers of these runs."""
    names = ", ".join(map(sql_literal, runs))
    return f"benchmark = 'judge' AND ((meta->>'run_id') IN ({names}) OR (meta->>'against_run_id') IN ({names}))"


def read_rounds(store: Store, run_id: str) -> list[dict[str, Any]]:
    """Rows of ``samples``: the rounds on a run's answers, each with its two answers, for every rubric of its judges."""
    return store.query(
        f"""
        SELECT a.*, coalesce(r.output, '') AS answer, coalesce(b.output, '') AS opponent, j.rubric_sha256
        FROM (FROM samples WHERE {rounds_on([run_id])}) a
        JOIN (SELECT DISTINCT g.task, g.sample_id, r.settings->>'rubric_sha256' AS rubric_sha256
              FROM generations g JOIN runs r USING (run_id) WHERE g.benchmark = 'judge') j USING (task, sample_id)
        LEFT JOIN generations r ON r.run_id = (a.meta->>'run_id') AND r.benchmark = (a.meta->>'benchmark')
            AND r.task = (a.meta->>'task') AND r.sample_id = (a.meta->>'sample_id')
            AND r.iteration = try_cast(a.meta->>'iteration' AS INTEGER)
        LEFT JOIN generations b ON b.run_id = (a.meta->>'against_run_id') AND b.benchmark = (a.meta->>'benchmark')
            AND b.task = (a.meta->>'task') AND b.sample_id = (a.meta->>'sample_id')
            AND b.iteration = try_cast(a.meta->>'against_iteration' AS INTEGER)
        """
    ).dicts()
