"""Data source of a page: the results file, the query, and the runs with their marks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from lbx.base.errors import UsageError
from lbx.report.format.labels import labels, progress
from lbx.report.page.html import MOST_ROWS, anchor_of, truncate_text
from lbx.report.pairs import MOST_RUNS
from lbx.report.query import ReportQuery
from lbx.report.ranks import ranked_runs
from lbx.report.reports import REPORTS, read_report
from lbx.results import Store, Table
from lbx.results.read.runs import states_of_runs
from lbx.results.scoring.score_columns import runs_by_id

_RUNS = """
    SELECT r.* FROM runs r
    WHERE (len($1::VARCHAR[]) = 0 OR run_id IN (SELECT unnest($1::VARCHAR[])))
      AND run_id NOT IN (SELECT judge_id FROM judges)
    ORDER BY coalesce(list_position($2::VARCHAR[], run_id), len($2::VARCHAR[]) + 1), r.model, r.backend, r.run_id
"""


RUN_ANCHOR = "run-"
"""Beginning of the anchors of sections about one run."""
_MOST_RUN_SECTIONS = 40
_LONGEST = 120  # characters of a run's name

_FAILURES = r"""
    SELECT run_id, benchmark, min(left(error, 500)) AS error, count(*) AS n FROM generations
    WHERE error IS NOT NULL AND run_id IN (SELECT unnest($1::VARCHAR[]))
    GROUP BY run_id, benchmark, regexp_replace(left(error, 400), '\d+', '0', 'g')
    ORDER BY n DESC, run_id, benchmark, error LIMIT 1000
"""


@dataclass(frozen=True, slots=True)
class PageRun:
    """Run on a page.

    Attributes:
        mark: Rank on the leaderboard from 0, which determines colour and shape.
        label: Name for readers, see ``lbx.report.format.labels``.
        anchor: Anchor of the section about the run, or "" for a run after the first ``_MOST_RUN_SECTIONS``.
    """

    mark: int
    run_id: str
    label: str
    row: dict[str, Any]
    anchor: str


@dataclass
class PageSource:
    """Data source of a page, which reads each report once.

    Attributes:
        store: The results file, or None for published scores only.
        runs: {run_id: run} in the order of marks.
        labels: Labels of runs by mark.
        most_rows: Maximum number of rows of a table.
        other_marks: Marks of published models, and of runs that the page omits.
    """

    store: Store | None
    query: ReportQuery
    most_rows: int = MOST_ROWS
    runs: dict[str, PageRun] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)
    other_marks: dict[str, int] = field(default_factory=dict)
    _tables: dict[str, Table] = field(default_factory=dict)
    _rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _refusals: dict[str, UsageError] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rows = self.store.query(_RUNS, [list(self.query.runs), ranked_runs(self.store)]).dicts() if self.store else []
        states = states_of_runs(self.store) if self.store and rows else {}
        rows = [{**row, "status": states[row["run_id"]]} for row in rows]
        who = runs_by_id(self.store) if self.store else {}
        names = [truncate_text(label, _LONGEST) for label in labels(who[row["run_id"]] for row in rows).values()]
        self.labels = [f"{label} #{i + 1}" if names.count(label) > 1 else label for i, label in enumerate(names)]
        anchors = _anchors([row["run_id"] for row in rows])
        self.runs = {
            row["run_id"]: PageRun(i, row["run_id"], self.labels[i], row, anchors[i]) for i, row in enumerate(rows)
        }

    @property
    def progress(self) -> str:
        """Progress of unfinished runs, for headings."""
        return progress(self.store, self.query.runs) if self.store else ""

    @property
    def file(self) -> str:
        return self.store.path.name if self.store else ""

    def table(self, name: str) -> Table | None:
        """Return the rows of a report, or None if it is unknown or empty. Raises UsageError if it refuses the query."""
        if name not in REPORTS:
            return None
        if refused := self._refusals.get(name):
            raise refused
        if name not in self._tables:
            try:
                self._tables[name] = _finite(read_report(self.store, name, self._query_of(name), list(self.runs)))
            except UsageError as exc:
                self._refusals[name] = exc
                raise
        return self._tables[name] if self._tables[name].rows else None

    def _query_of(self, name: str) -> ReportQuery:
        """Query of a report. A comparison of more than ``MOST_RUNS`` runs gets the best run as baseline."""
        place = REPORTS[name].page
        if not (place and place.has_best_baseline) or self.query.baseline or len(self.runs) <= MOST_RUNS:
            return self.query
        scores = [row for row in self.rows("leaderboard") if row["score"] is not None]
        best = max(scores, key=lambda row: (row["n"], row["score"]), default=None)
        return replace(self.query, baseline=best["run_id"] if best else "")

    def rows(self, name: str) -> list[dict[str, Any]]:
        if name not in self._rows:
            table = self.table(name)
            self._rows[name] = table.dicts() if table else []
        return self._rows[name]

    def failures(self) -> list[dict[str, Any]]:
        """Count errors by run, benchmark and message (ignoring digits), the most frequent first."""
        return self.store.query(_FAILURES, [list(self.runs)]).dicts() if self.store else []

    def mark(self, run_id: object) -> int | None:
        run = self.runs.get(str(run_id))
        return None if run is None else run.mark

    def mark_of(self, name: str) -> int:
        """Return the mark of a run or a published model, which gets a new mark on first use."""
        mark = self.mark(name)
        return self.other_marks.setdefault(name, len(self.runs) + len(self.other_marks)) if mark is None else mark

    def label(self, run_id: object) -> str:
        run = self.runs.get(str(run_id))
        return truncate_text(str(run_id), _LONGEST) if run is None else run.label


def _anchors(names: Sequence[str]) -> list[str]:
    """Anchors of the sections of runs: the words of the names, with a number if runs would share an anchor."""
    anchors: dict[str, None] = {}
    for name in names[:_MOST_RUN_SECTIONS]:
        slug = RUN_ANCHOR + anchor_of(name)
        numbered = (f"{slug}-{number}" for number in count(2))
        anchors[slug if slug not in anchors else next(other for other in numbered if other not in anchors)] = None
    return [*anchors, *[""] * (len(names) - len(anchors))]


def _finite(table: Table) -> Table:
    """Replace NaN and infinity, which a foreign tool may have written, by NULL."""
    numbers = (value for column in zip(*table.rows, strict=True) for value in column if isinstance(value, float))
    if all(map(math.isfinite, numbers)):
        return table
    rows = [tuple(None if isinstance(v, float) and not math.isfinite(v) else v for v in row) for row in table.rows]
    return Table(table.columns, rows)
