"""The report ``guards``: possible distortions of scores, as counts and as shares of the answers with known values.

A share is a mean over answers like a score, and gets the same interval, clustered by document. Marks that are unknown
for all answers of a task, such as imported ones, are NULL and never 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from lbx.base.columns import Column
from lbx.base.marks import ANSWER_MARKS, MARKS, MARKS_BY_SEVERITY, Mark
from lbx.report.query import ReportQuery
from lbx.report.ranks import in_rank_order
from lbx.report.report import TASK, WHO, PagePlace, Report
from lbx.results import Store, Table
from lbx.results.scoring.score_columns import Samples, as_table, match_keys, starts_of
from lbx.statistics.estimates import Codes, Design, Estimate, Stratum, binomial_interval, interval_of

_OF_SCORES = tuple(mark for mark in MARKS if mark.tests_score)
_UNKNOWN = -1


def table(store: Store, query: ReportQuery) -> Table:
    """Build the rows of the report: the columns of the view, then the rate of each mark, with intervals if wanted."""
    count_table = mark_counts(store, query)
    at = [count_table.columns.index(name) for name in ("run_id", "benchmark", "task")]
    rates = _rates(store, list(dict.fromkeys(row[at[0]] for row in count_table.rows)))
    kinds = ("rate",) if query.without_intervals else ("rate", "low", "high")
    columns = [*count_table.columns, *(f"{mark.name}_{kind}" for mark in MARKS for kind in kinds)]
    rows = zip(count_table.dicts(), count_table.rows, strict=True)
    return as_table(columns, [fields | rates.get(tuple(row[index] for index in at), {}) for fields, row in rows])


def mark_counts(store: Store, query: ReportQuery) -> Table:
    """Rows of the view ``guards`` for the runs of the query."""
    counts = store.query(
        "SELECT * FROM guards WHERE len(?) = 0 OR list_contains(?, run_id) "
        "ORDER BY benchmark, task, model, backend, run_id",
        [list(query.runs)] * 2,
    )
    return in_rank_order(store, counts, ("benchmark", "task"))


def _rates(store: Store, runs: Sequence[str]) -> dict[tuple[Any, ...], dict[str, float | None]]:
    samples = Samples(store, unknown=True)
    answers = samples.read_columns(runs, "generations", _as_columns(ANSWER_MARKS))
    scores = samples.read_columns(runs, "scores", _as_columns(_OF_SCORES), condition="headline")
    ranks, run_indices = answers["sample"], answers["run"]
    marks = {mark.name: answers[mark.name] for mark in ANSWER_MARKS}
    scores, places = match_keys(scores, answers["key"])
    for mark in _OF_SCORES:
        marks[mark.name] = np.full(len(ranks), _UNKNOWN)
        marks[mark.name][places] = scores[mark.name]
    clusters = samples.clusters[ranks]
    starts = starts_of(run_indices, samples.tasks[ranks])
    bounds = [*itertools.pairwise([*starts.tolist(), len(ranks)])]
    designs = [_design(ranks[begin:end], clusters[begin:end]) for begin, end in bounds]
    columns: list[dict[str, float | None]] = [{} for _ in bounds]
    for name, column in marks.items():
        is_known, values = column != _UNKNOWN, (column == 1).astype(float)
        counts = np.add.reduceat(is_known.astype(float), starts).tolist() if bounds else []
        sums = np.add.reduceat(values, starts).tolist() if bounds else []
        for at, (begin, end) in enumerate(bounds):
            here, design = slice(begin, end), designs[at]
            # Most marks never occur, and this case is computed quickly.
            if counts[at] == end - begin and not sums[at] and design.estimable:
                low, high = _zero_share_interval(design.effective_clusters)
                columns[at] |= {f"{name}_rate": 0.0, f"{name}_low": low, f"{name}_high": high}
            elif counts[at]:
                if counts[at] < end - begin:
                    here = begin + np.flatnonzero(is_known[here])
                    design = _design(ranks[here], clusters[here])
                rate = interval_of(design, values[here])
                columns[at] |= {f"{name}_rate": rate.value, f"{name}_low": rate.low, f"{name}_high": rate.high}
    names = [
        (runs[run], *samples.names[task])
        for run, task in zip(run_indices[starts], samples.tasks[ranks[starts]], strict=True)
    ]
    return dict(zip(names, columns, strict=True))


def _as_columns(marks: Sequence[Mark]) -> str:
    """SQL columns of marks, with ``_UNKNOWN`` for answers of unknown status, such as those without a score."""
    return ", ".join(f"coalesce(({mark.test.format(g='t')})::TINYINT, {_UNKNOWN}) AS {mark.name}" for mark in marks)


def _design(samples: Codes, clusters: Codes) -> Design:
    return Estimate((Stratum(1.0, samples, clusters, samples.astype(float)),)).design


@cache
def _zero_share_interval(documents: float) -> tuple[float, float]:
    """Interval of a rate of 0 in answers on ``documents`` documents, as ``interval`` computes it."""
    return binomial_interval(0.0, documents)


def _guards_notes(table: Table) -> list[str]:
    has_intervals = any(
        value is not None for row in table.dicts() for name, value in row.items() if name.endswith("_low")
    )
    return ["Rates are followed by 95% intervals. JSON and csv also have counts."] if has_intervals else []


GUARDS = Report(
    name="guards",
    title="Possible faults in scores (percent of the answers with known values)",
    columns=(
        *TASK,
        *WHO,
        Column("n", "asked", "count"),
        *(
            Column(
                f"{mark.name}_rate",
                mark.label,
                "percent",
                interval=True,
                decimals=2,
                interval_prefix=f"{mark.name}_",
                unknown=True,
                never_zero=True,
                rank=mark.rank,
            )
            for mark in MARKS_BY_SEVERITY
        ),
        Column("tokens_cut", "tokens cut", "count", unknown=True, never_zero=True, rank=7),
    ),
    notes=_guards_notes,
    empty="No run has answers yet.",
    rows=table,
    page=PagePlace("Cost and faults", 16, has_answer_links=True),
    next_step=4,
)
