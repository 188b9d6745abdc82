"""Which numbers of a paper's table the samples cannot tell from the best of their column."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lbx.report.comparing import compare_runs
from lbx.report.labels import number_label
from lbx.report.shapes import ReportQuery
from lbx.statistics.differences import holm
from lbx.store import Store, Table

Lines = dict[tuple[str, str], dict[str, Any]]
"""{(benchmark, line): something of each run}."""

NOTE = "Bold: the best, and what a paired test at the 5% level cannot tell from it (Holm, within a column)."


def marked(store: Store, query: ReportQuery, paper: Table) -> Table:
    """The paper's rows with a last column ``alike``: whether a number cannot be told from the best run's.

    A line whose best is a published figure has none: there are no samples to compare.
    """
    rows = paper.dicts()
    scores: Lines = {}
    for row in rows:
        if row["official"] is not None:
            by_run = scores.setdefault((row["benchmark"], row["line"]), {})
            by_run[row["run_id"]] = max(row["official"], by_run.get(row["run_id"], row["official"]))
    best = {key: max(by_run, key=lambda run: by_run[run]) for key, by_run in scores.items() if len(by_run) > 1}
    tests: Lines = {}
    for compared in compare_runs(store, replace(query, baseline="", force=True)):  # all pairs: samples read once
        number = (compared.benchmark, number_label(compared.first.key))
        pair = (compared.run_a, compared.run_b)
        if (top := best.get(number)) in pair:
            tests.setdefault(number, {})[pair[pair[0] == top]] = compared.found.p
    alike = {(*key, run) for key, by_run in tests.items() for run in _not_told(by_run)}
    same = [(row["benchmark"], row["line"], row["run_id"]) in alike for row in rows]
    return Table([*paper.columns, "alike"], [(*row, one) for row, one in zip(paper.rows, same, strict=True)])


def _not_told(found: dict[str, float | None]) -> list[str]:
    """The runs whose difference from the best is not significant, or has no test."""
    corrected = holm([1.0 if p is None else p for p in found.values()])
    return [run for run, p in zip(found, corrected, strict=True) if p >= 0.05]
