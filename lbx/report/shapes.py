"""What a report is: its columns, how they are shown, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lbx.base.columns import Column

if TYPE_CHECKING:
    from lbx.store import Table


BOARD = "board"
"""The boards of the benchmarks, by one name."""
PUBLISHED = ("--reference", "--against")
"""The options that put published figures beside runs."""


COVERAGE = Column("coverage", "samples", optional=True, rank=4)
"""Beside every score of a part of the samples: "3 of 269"."""


@dataclass(frozen=True, slots=True)
class Report:
    """One report.

    Attributes:
        order: what its rows are sorted by, as SQL.
        pivot: (column, value): one table column for each of the column's values. A line of such a table belongs to one
            run, unless the columns are the runs themselves.
        rows: the query that gives them, without an order; the view of the report's own name where it is empty.
        run_columns: the columns that ``--run`` filters by.
        notes: sentences below the table that its rows call for.
        empty: the sentence that is said where there are no rows.
        says: whether a row says anything; others are in tables for programs alone, and a note counts them.
        takes: the options of ``lbx report`` that bear on its rows, beside those that every report takes.
        reads: "numbers" that the end of a run stores, "coverage": these and how many samples have an answer or what
            tells runs apart, or "answers": answers and scores.
        page: its position on the page of a whole results file; 0: not there.
    """

    title: str
    order: str
    columns: Sequence[Column]
    pivot: tuple[str, Column] | None = None
    rows: str = ""
    run_columns: Sequence[str] = ("run_id",)
    notes: Callable[[Table], Sequence[str]] | None = None
    empty: str = "The file has nothing of this."
    says: Callable[[Mapping[str, Any]], bool] | None = None
    takes: Collection[str] = ()
    reads: Literal["answers", "numbers", "coverage"] = "answers"
    page: int = 0


@dataclass(frozen=True, slots=True)
class ReportQuery:
    """What is asked of a report.

    Attributes:
        runs: only these; all without any.
        models: published models, each by a part of its name; all without any.
        references: files with published figures, in place of those that the package has.
        expected: published models whose figures the runs should give, each by a part of its name.
        published: whether published models stand beside the runs in the report paper.
        alone: whether scores stand alone, without columns of their intervals.
        baseline: the run that others are compared with.
        margin: the difference that is none worth speaking of, in points.
        force: whether to compare what was not asked alike.
        tasks: only these; all without any.
        limit: the most rows.
        keep: which share of the score at the shortest length a longer one has to keep; None: the usual one.
        at_least: in place of that, the score in 0..1 that it has to have.
    """

    runs: Sequence[str] = ()
    models: Sequence[str] = ()
    references: Sequence[Path] = ()
    expected: Sequence[str] = ()
    published: bool = False
    alone: bool = False
    baseline: str = ""
    margin: float = 1.0
    force: bool = False
    tasks: Sequence[str] = ()
    limit: int = 50
    keep: float | None = None
    at_least: float | None = None


ALL = ReportQuery()
