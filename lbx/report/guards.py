"""The report ``guards``: what may have spoilt scores, as counts, and as shares of the answers of which it is known.

A share is a mean over answers as a score is, so it has the same interval, by document. What nobody knows of any answer
of a task, as of imported ones, is NULL and never 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from lbx.report.scored import Samples, as_table, starts_of
from lbx.report.shapes import Wanted
from lbx.statistics.estimates import Estimate, Stratum, coded, interval, wilson
from lbx.store import Store, Table

MARKS: Mapping[str, str] = {
    "empty_prompts": "coalesce(g.error_type = 'EmptyPromptError', false)",
    "failed": "g.error IS NOT NULL AND g.error_type IS DISTINCT FROM 'EmptyPromptError'",
    "doubled_bos": "g.bos_tokens > 1",
    "reasoning_unclosed": "coalesce(NOT g.reasoning_closed, CASE WHEN g.stop_in_reasoning IS NOT NULL THEN false END)",
    "answers_cut": "g.finish_reason = 'length' AND g.reasoning_closed IS DISTINCT FROM false",
    "stop_in_reasoning": "g.stop_in_reasoning",
    "truncated": "g.truncated",
    "reference_cut": "CASE WHEN NOT g.truncated THEN false ELSE g.reference_cut END",
    "official_errors": "CASE WHEN c.score IS NOT NULL THEN c.error IS NOT NULL END",
    "partial": "CASE WHEN c.score IS NOT NULL THEN c.partial IS NOT NULL END",
}
"""What each column of the view counts, as SQL: NULL where it is not known of an answer."""

_ANSWERS = f"""
    SELECT r.place AS run, a.rowid AS sample, {", ".join(f"{rule} AS {mark}" for mark, rule in MARKS.items())}
    FROM generations g
    JOIN samples a USING (benchmark, task, sample_id)
    JOIN (SELECT unnest(?::VARCHAR[]) AS run_id, unnest(range(?)) AS place) r USING (run_id)
    LEFT JOIN (SELECT * FROM newest_scores WHERE headline) c USING (run_id, benchmark, task, sample_id, iteration)
    WHERE g.benchmark <> 'judge'
"""  # noqa: S608 (our own names)


def table(store: Store, wanted: Wanted) -> Table:
    """The view's rows and columns, then each mark's rate with its interval, which ``wanted.alone`` leaves out."""
    held = counts(store, wanted)
    at = [held.columns.index(name) for name in ("run_id", "benchmark", "task")]
    found = _rates(store, list(dict.fromkeys(row[at[0]] for row in held.rows)))
    kinds = ("rate",) if wanted.alone else ("rate", "low", "high")
    columns = [*held.columns, *(f"{mark}_{kind}" for mark in MARKS for kind in kinds)]
    rows = zip(held.dicts(), held.rows, strict=True)
    return as_table(columns, [named | found.get(tuple(row[place] for place in at), {}) for named, row in rows])


def counts(store: Store, wanted: Wanted) -> Table:
    """The view's rows of the runs that are wanted."""
    return store.query(
        "SELECT * FROM guards WHERE len(?) = 0 OR list_contains(?, run_id) "
        "ORDER BY benchmark, task, model, backend, run_id",
        [list(wanted.runs)] * 2,
    )


def _rates(store: Store, runs: Sequence[str]) -> dict[tuple[Any, ...], dict[str, float | None]]:
    """{(run, benchmark, task): the columns of its rates}."""
    samples = Samples(store)
    clusters = coded(cluster or ("alone", rank) for rank, cluster in enumerate(samples.clusters))
    held = store.arrays(_ANSWERS, [runs, len(runs)])
    ranks = samples.ranks[held.pop("sample")]
    order = np.lexsort((ranks, held["run"]))
    ranks, placed = ranks[order], held.pop("run")[order]
    starts = starts_of(placed, samples.tasks[ranks])
    bounds = [*itertools.pairwise([*starts.tolist(), len(order)])]
    documents = [len(np.unique(clusters[ranks[begin:end]])) for begin, end in bounds]
    columns: list[dict[str, float | None]] = [{} for _ in bounds]
    for mark, column in held.items():
        known = ~np.ma.getmaskarray(column)[order]
        values = np.ma.filled(column, False)[order].astype(float)
        counts = np.add.reduceat(known.astype(float), starts).tolist() if bounds else []
        sums = np.add.reduceat(values, starts).tolist() if bounds else []
        for at, (begin, end) in enumerate(bounds):
            # Most marks are nowhere, and of that a table is quickly made.
            if counts[at] == end - begin and not sums[at] and documents[at] > 1:
                low, high = _nowhere(documents[at])
                columns[at] |= {f"{mark}_rate": 0.0, f"{mark}_low": low, f"{mark}_high": high}
            elif counts[at]:
                rows = begin + np.flatnonzero(known[begin:end])
                rate = interval(Estimate((Stratum(1.0, ranks[rows], clusters[ranks[rows]], values[rows]),)))
                columns[at] |= {f"{mark}_rate": rate.value, f"{mark}_low": rate.low, f"{mark}_high": rate.high}
    firsts = [samples.samples[rank] for rank in ranks[starts]]
    names = [runs[place] for place in placed[starts]]
    return {(run, one.benchmark, one.task): made for run, one, made in zip(names, firsts, columns, strict=True)}


@cache
def _nowhere(documents: int) -> tuple[float, float]:
    """What ``interval`` says of a share of 0 among so many documents."""
    return wilson(0.0, documents)
