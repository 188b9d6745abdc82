"""Rows of other runs and of people that are about a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Dependents:
    """Rows about some runs that belong to others.

    Attributes:
        judgements: {judge: number of its answers about these runs}, of judges that are not among them.
        ratings: {set of ratings: number of people's ratings of these runs}, of sets that contain one of them.
        numbers: number of other runs' numbers that were computed from these judgements, from these ratings or by a
            judge among these runs.
    """

    judgements: Mapping[str, int]
    ratings: Mapping[str, int]
    numbers: int


def find_dependents(store: Store, runs: Collection[str]) -> Dependents:
    """Return the rows about these runs that belong to other runs and to people."""
    judgements = store.query(
        "SELECT run_id, count(*) FROM generations "
        f"SEMI JOIN (FROM samples WHERE {rounds_on(runs)}) USING (benchmark, task, sample_id) "
        "WHERE NOT list_contains($1::VARCHAR[], run_id) GROUP BY ALL ORDER BY ALL",
        [list(runs)],
    ).rows
    ratings = store.query(
        "SELECT set_id, count(r.set_id) FROM rating_sets s LEFT JOIN (FROM ratings "
        "WHERE list_contains($1::VARCHAR[], run_id) OR list_contains($1::VARCHAR[], against_run_id)) r USING (set_id) "
        "WHERE r.set_id IS NOT NULL OR list_has_any(s.runs->>'$[*]', $1::VARCHAR[]) "
        "GROUP BY ALL ORDER BY ALL",
        [list(runs)],
    ).rows
    ((numbers,),) = store.query(
        "SELECT count(*) FROM numbers WHERE kind = 'opinion' AND NOT list_contains($1::VARCHAR[], run_id) "
        "AND (list_contains($1::VARCHAR[], judge) OR list_contains($1::VARCHAR[], against))",
        [list(runs)],
    ).rows
    return Dependents(dict(judgements), dict(ratings), numbers)
