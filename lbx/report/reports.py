"""Registry of reports, and functions that read their rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from lbx.base.errors import UsageError
from lbx.base.tables import nearest
from lbx.opinions import agreement
from lbx.opinions import tables as opinion_tables
from lbx.opinions.reports import OPINIONS
from lbx.report import (
    boards,
    comparing,
    cost,
    effective_context,
    expecting,
    guards,
    harnesses,
    leaderboard,
    needles,
    papers,
    reference,
    revisions,
    truncation_effect,
)
from lbx.report.cells import sheet, without_intervals
from lbx.report.comparison_reports import COMPARISONS
from lbx.report.labels import labels, with_labels, with_model_labels
from lbx.report.papers import curves, paper_numbers, with_table_positions, without_keys
from lbx.report.report_types import ALL, BOARD, ReportDefinition, ReportQuery
from lbx.report.score_reports import SCORES
from lbx.report.sheets import Sheet
from lbx.results import Store, Table
from lbx.results.file.texts import require_texts
from lbx.results.read.queries import export_report, export_rows
from lbx.results.read.runs import check_runs
from lbx.results.rows import INTERVAL_COLUMNS
from lbx.results.scoring.score_columns import runs_by_id as named_runs

REPORTS: Mapping[str, ReportDefinition] = {
    **SCORES,
    **COMPARISONS,
    **OPINIONS,
    **{name: boards.board_report(entry.board) for name, entry in boards.BOARDS.items()},
}

ON_A_PAGE = tuple(
    dict.fromkeys(
        BOARD if name in boards.BOARDS else name
        for name, report in sorted(REPORTS.items(), key=lambda item: item[1].page)
        if report.page
    )
)
"""Reports on the page of a whole file, in its order."""

TEXT_REPORTS = ("changes",)
"""Reports of texts, which a file without them refuses. The report ``failures`` shows that messages were removed."""

TABLE_BUILDERS: Mapping[str, Callable[[Store, ReportQuery], Table]] = {
    "leaderboard": leaderboard.table,
    "guards": guards.table,
    "harness": harnesses.table,
    "truncation_effect": truncation_effect.table,
    "effective_context": effective_context.table,
    "needles": needles.table,
    "cost": cost.table,
    "comparison": comparing.table,
    "changes": comparing.changes,
    "revisions": revisions.table,
    "reference": reference.table,
    "expected": expecting.table,
    "judge_results": opinion_tables.results,
    "judge_bias": opinion_tables.bias,
    "rating_results": opinion_tables.ratings,
    "agreement": agreement.table,
    **{name: partial(boards.table, name=name) for name in boards.BOARDS},
}
"""Functions that compute the rows of reports that are not SQL queries."""


def reports_of(view: str) -> list[str]:
    """Resolve a report's name, or the common name of the boards. Raises UsageError if it is unknown."""
    if view == BOARD:
        return list(boards.BOARDS)
    if view not in REPORTS:
        raise UsageError(f"There is no report {view!r}.", fix=nearest(view, [*REPORTS, BOARD]))
    return [view]


def check_options(names: Collection[str], options: Iterable[str]) -> None:
    """Raise UsageError if an option applies only to other reports (``ReportDefinition.takes``)."""
    for option in options:
        takers = [name for name, report in REPORTS.items() if option in report.takes]
        if takers and not {*takers} & {*names}:
            *first, last = dict.fromkeys(BOARD if name in boards.BOARDS else name for name in takers)
            who = f"reports {', '.join(first)} and {last} take" if first else f"report {last} takes"
            fix = f"Name {'one of them' if first else 'it'}, or omit {option}. `lbx sql` selects rows of any view."
            raise UsageError(f"Only the {who} {option}.", fix=fix)


def has_number_reports(names: Collection[str]) -> bool:
    """Return whether any of these reports reads the numbers that are stored at the end of a run."""
    return any(REPORTS[name].reads != "answers" for name in names)


def read_report(store: Store | None, name: str, query: ReportQuery = ALL, among: Collection[str] = ()) -> Table:
    """Read a report's rows, with labels of its runs; only ``reference`` works without a store.

    Args:
        among: Runs shown together with these, as on a page.

    Raises:
        UsageError: A run does not exist, or the report refuses the query.
    """
    if store is None:
        return reference.table(None, query)
    if name in TEXT_REPORTS:
        require_texts(store, f"The report {name} needs questions and answers.")
    check_runs(store, query.runs)
    if REPORTS[name].reads == "coverage":
        store.materialise_views("coverage", "distinctions")
    if name == "paper":
        table = without_keys(read_paper(store, query))
    else:
        table = TABLE_BUILDERS[name](store, query) if name in TABLE_BUILDERS else store.query(*_query(name, query.runs))
    table = with_model_labels(store, table) if name in boards.BOARDS else with_labels(store, table, among)
    return without_intervals(REPORTS[name], table) if query.without_intervals else table


def read_paper(store: Store, query: ReportQuery) -> Table:
    """Read rows of the report ``paper`` with the keys of their numbers, but without labels."""
    table = paper_numbers(store, query.runs)
    if query.with_published_models:
        table = reference.add_published_rows(table, reference.find_published(store, query))
    return opinion_tables.with_judge_warnings(
        store, with_table_positions(table, lambda benchmark: curves(store, benchmark, query.runs))
    )


def _query(name: str, runs: Sequence[str]) -> tuple[str, list[object]]:
    report = REPORTS[name]
    condition = ""
    if runs:
        placeholders = ", ".join("?" for _ in runs)
        condition = " WHERE " + " AND ".join(f"{column} IN ({placeholders})" for column in report.run_columns)
    rows = report.rows or f"SELECT * FROM {name}"  # noqa: S608 (our own names)
    return f"{rows}{condition} ORDER BY {report.order}", [*runs] * len(report.run_columns)


def sheets(name: str, table: Table, failures: Sequence[str] = (), *, in_text: bool = False) -> Sequence[Sheet]:
    """Format a report's rows for reading.

    Args:
        failures: Notes on failures that the report ``paper`` leaves out, see ``papers.failures``.
        in_text: Whether to draw with characters, too.
    """
    if name == "paper" and table.rows:
        return papers.sheets(table, failures)
    if name == "needles" and table.rows and in_text:
        return needles.sheets(table)
    return [sheet(REPORTS[name], table, curves=in_text)]


def write_parquet(store: Store, name: str, query: ReportQuery, path: Path) -> int:
    """Write a report's rows to a parquet file, in the types of the view, and return their number. Raises UsageError."""
    if name in TABLE_BUILDERS or name == "paper":
        return export_rows(store, read_report(store, name, query), path)
    check_runs(store, query.runs)
    sql, parameters = _query(name, query.runs)
    runs = {str(run) for (run,) in store.query(f"SELECT DISTINCT run_id FROM ({sql})", parameters).rows}  # noqa: S608 (our own names)
    label_of = labels(row for run, row in named_runs(store).items() if run in runs)
    sql = f"SELECT v.*, map(?::VARCHAR[], ?::VARCHAR[])[run_id] AS label FROM ({sql}) v"  # noqa: S608 (our own names)
    parameters = [list(label_of), list(label_of.values()), *parameters]
    return export_report(store, sql, parameters, path, INTERVAL_COLUMNS if query.without_intervals else ())
