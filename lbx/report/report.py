"""The class ``Report``, which defines a table of a results file for all outputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lbx.base.columns import Column
from lbx.base.number import INTERVAL_COLUMNS
from lbx.report.format.labels import labels, with_labels
from lbx.report.format.sheets import Sheet
from lbx.report.format.table_cells import sheet, without_intervals
from lbx.report.query import ALL, ReportQuery
from lbx.report.ranks import RANK_SQL, in_rank_order, rank_parameters
from lbx.results import Store, Table
from lbx.results.file.texts import require_texts
from lbx.results.read.queries import export_report, export_rows
from lbx.results.read.runs import check_runs
from lbx.results.scoring.score_columns import runs_by_id

if TYPE_CHECKING:
    from lbx.report.draw.figures import Figure, FigureSource

WHO = (Column("model", "model"), Column("backend", "backend", rank=9), Column("mode", "mode", optional=True, rank=3))
"""Columns that name a run."""
TWIN = Column("differs_in", "differs in", optional=True, rank=2)
"""Column with the settings in which a run differs from runs of the same model, backend and mode."""
TASK = (Column("benchmark", "benchmark"), Column("task", "task"))
_RANK, _NAMES = "RANK", "model, backend, run_id"
COVERAGE = Column("coverage", "samples", optional=True, rank=4)
"""Column with the coverage of a score that counts only some of the samples: "3 of 269"."""


@dataclass(frozen=True, slots=True)
class PagePlace:
    """Place of a report on the page of a whole results file.

    Attributes:
        group: Heading in the contents.
        order: Position among the page's reports, from 1.
        title: Title of the section, or "" for the title of the report.
        layout: "plain" (figures, then a table for each benchmark), "tables" or "figures" (for each benchmark tables
            then figures, or figures then tables), "paper" (runs side by side), "strips" (runs by lengths) or "boards"
            (a table with figures for each section).
        has_answer_links: Whether a row is a run on a benchmark or task, so that numbers link to answers.
        figures: Where figures are shown: in the "section" of the report, or there only if the page shows "few runs",
            because the first section shows all scores.
        is_open: Whether the section is open, and follows the first section.
        has_best_baseline: Whether many runs are compared with the best one, if the query has no baseline.
    """

    group: str
    order: int
    title: str = ""
    layout: Literal["plain", "tables", "figures", "paper", "strips", "boards"] = "plain"
    has_answer_links: bool = False
    figures: Literal["section", "few runs"] = "section"
    is_open: bool = False
    has_best_baseline: bool = False


@dataclass(frozen=True)
class Report:
    """Definition of a report: the rows, their formatting, and the position among other reports.

    Rows come from a view or query (``sql``, ``order``, ``run_columns``), or from a function (``rows``).

    Attributes:
        rows: Function that computes the rows, if no query can. A report without ``needs_file`` may get None as store.
        sql: Query of the rows, without an order. The default is the view of the report's name.
        order: Sort order, as SQL, in which ``RANK`` stands for the order of runs on the leaderboard.
        run_columns: Columns that ``--run`` filters by. None means that the rows are not about runs.
        pivot: (column, value column), which makes a table column for each value of the column. A line of such a table
            is about one run, unless the columns are runs.
        notes: Function from the rows to the sentences below the table.
        empty: Sentence for a report without rows.
        is_informative: Predicate for rows to show to readers. Other rows appear only in formats for programs, and a
            note counts them.
        omission_notes: Function from these other rows to the sentences on them, in place of that note.
        takes: Options of ``lbx report`` that affect the rows, besides the options of every report.
        reads: Data that the rows are computed from: "numbers" (stored at the end of a run), "coverage" (numbers, and
            the number of samples with an answer or the settings that distinguish runs) or "answers" (and scores).
        draw: Function that draws the figures.
        make_sheets: Function from the rows, further notes, and whether to draw with characters, to tables for readers.
            The default is one table of the columns.
        read_notes: Function that reads further notes for ``make_sheets`` from the file, or the reasons why there are no
            rows.
        mark_ties: Function that adds a last column "alike": whether a score does not differ significantly from the
            best score.
        page: Place on the page of a whole results file, or None if the page does not show the report.
        default: Position among the reports that files contain if no report is named, from 1, or 0 for none.
        next_step: Position among the reports that the overview recommends, from 1, or 0 for none.
        needs_file: Whether the report needs a results file.
        needs_texts: Whether the report shows texts, and refuses a file without texts. (``failures`` shows that messages
            were removed.)
        has_ratings: Whether the report shows people's ratings. A journal may contain ratings that the file lacks.
        needs_option: Option without which the report is empty, and which selects the report if no report is named.
        added_by: Option that adds the report to a requested report that takes the option.
        has_failed: Predicate for rows with which ``lbx report`` fails.
        sections: Function that returns the reports that this report consists of: {name: report}. Each name begins with
            the name of this report.
        section_of: Name of the report that this report is a section of, or "".
    """

    name: str
    title: str
    columns: Sequence[Column]
    rows: Callable[[Any, ReportQuery], Table] | None = None
    sql: str = ""
    order: str = ""
    run_columns: Sequence[str] = ("run_id",)
    pivot: tuple[str, Column] | None = None
    notes: Callable[[Table], Sequence[str]] | None = None
    empty: str = "This file has no rows for the report."
    is_informative: Callable[[Mapping[str, Any]], bool] | None = None
    omission_notes: Callable[[Sequence[Mapping[str, Any]]], Sequence[str]] | None = None
    takes: Collection[str] = ()
    reads: Literal["answers", "numbers", "coverage"] = "answers"
    draw: Callable[[FigureSource], Iterable[Figure]] | None = None
    make_sheets: Callable[[Table, Sequence[str], bool], Sequence[Sheet]] | None = None
    read_notes: Callable[[Store, Table], Sequence[str]] | None = None
    mark_ties: Callable[[Store, ReportQuery, Table], Table] | None = None
    page: PagePlace | None = None
    default: int = 0
    next_step: int = 0
    needs_file: bool = True
    needs_texts: bool = False
    has_ratings: bool = False
    needs_option: str = ""
    added_by: str = ""
    has_failed: Callable[[Mapping[str, Any]], bool] | None = None
    sections: Callable[[], Mapping[str, Report]] | None = None
    section_of: str = ""

    @property
    def caption(self) -> str:
        """Title without the units in parentheses."""
        return self.title.split(" (")[0]

    def read(self, store: Store | None, query: ReportQuery = ALL, among: Collection[str] = ()) -> Table:
        """Read the rows, with labels of runs. A store is needed unless the report needs no file.

        Args:
            among: Runs shown together with these, as on a page.

        Raises:
            UsageError: A run does not exist, or the report refuses the query.
        """
        if store is None:
            no_rows = Table([column.name for column in self.columns], [])
            return no_rows if self.needs_file or self.rows is None else self.rows(None, query)
        if self.needs_texts:
            require_texts(store, f"The report {self.name} needs questions and answers.")
        check_runs(store, query.runs)
        if self.reads == "coverage":
            store.materialise_views("coverage", "distinctions")
        table = self.rows(store, query) if self.rows else store.query(*self._query(query.runs))
        if _RANK in self.order:
            before, _, _ = self.order.partition(_RANK)
            table = in_rank_order(store, table, [part.split()[0] for part in before.split(",") if part.strip()])
        if "label" not in table.columns:
            table = with_labels(store, table, among)
        return without_intervals(self, table) if query.without_intervals else table

    def _query(self, runs: Sequence[str], rank_lists: Sequence[object] = ()) -> tuple[str, list[object]]:
        """Query of the rows. ``rank_lists`` are the order of runs (``rank_parameters``), or () for any order."""
        condition = ""
        if runs:
            placeholders = ", ".join("?" for _ in runs)
            condition = " WHERE " + " AND ".join(f"{column} IN ({placeholders})" for column in self.run_columns)
        rows = self.sql or f"SELECT * FROM {self.name}"  # noqa: S608 (our own names)
        order = self.order.replace(_RANK, f"{RANK_SQL}, {_NAMES}" if rank_lists else _NAMES)
        return f"{rows}{condition} ORDER BY {order}", [*[*runs] * len(self.run_columns), *rank_lists]

    def sheets(self, table: Table, further_notes: Sequence[str] = (), *, in_text: bool = False) -> Sequence[Sheet]:
        """Format rows as tables for readers.

        Args:
            further_notes: Notes of ``read_notes``.
            in_text: Whether to draw with characters, too.
        """
        if self.make_sheets and table.rows and (sheets := self.make_sheets(table, further_notes, in_text)):
            return sheets
        return [sheet(self, table, further_notes)]

    def write_parquet(self, store: Store, query: ReportQuery, path: Path) -> int:
        """Write the rows to a parquet file, in the types of the view. Returns the number of rows. Raises UsageError."""
        if self.rows:
            return export_rows(store, self.read(store, query), path)
        check_runs(store, query.runs)
        sql, parameters = self._query(query.runs, rank_parameters(store) if _RANK in self.order else ())
        runs = {str(run) for (run,) in store.query(f"SELECT DISTINCT run_id FROM ({sql})", parameters).rows}  # noqa: S608 (our own names)
        label_of = labels(row for run, row in runs_by_id(store).items() if run in runs)
        sql = f"SELECT v.*, map(?::VARCHAR[], ?::VARCHAR[])[run_id] AS label FROM ({sql}) v"  # noqa: S608 (our own names)
        parameters = [list(label_of), list(label_of.values()), *parameters]
        return export_report(store, sql, parameters, path, INTERVAL_COLUMNS if query.without_intervals else ())


def has_any_of(*columns: str) -> Callable[[Mapping[str, Any]], bool]:
    """Make a predicate for rows with a value in any of the columns."""
    return lambda row: any(row.get(name) is not None for name in columns)
