"""What ``lbx report`` does: it reads the reports that are asked for, and writes them in a format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from lbx.base.commands import as_command
from lbx.base.errors import UsageError
from lbx.base.outputs import whole_place
from lbx.cli.options import ReportFormat
from lbx.cli.output import answer_json, answer_text, note
from lbx.cli.tables import show_sheets
from lbx.report import latex, papers, render, reports
from lbx.report import overview as overviews
from lbx.report import page as pages
from lbx.report.alike import marked
from lbx.report.boards import BOARDS
from lbx.report.cells import Sheet, sheet
from lbx.report.shapes import BOARD, Wanted
from lbx.scoring.reading import read_added_up
from lbx.store import Table

_DEFAULT_VIEWS = ("leaderboard", "task_scores", "paper", "length_curve", "comparison", "truncation", "failures")


def asked(results: Path | None, view: str | None, *, published: bool) -> tuple[Path | None, str | None]:
    """The file and the report, where ``reference`` may stand without a file."""
    if results is not None and view is None and str(results) in (*reports.REPORTS, BOARD) and not results.exists():
        results, view = None, str(results)
    if results is None and view is None and published:
        view = "reference"
    if results is None and view != "reference":
        raise UsageError(
            f"The report {view} reads a results file." if view else "Which results file? None is named.",
            fix="Only published figures need none: `lbx report reference`.",
            command=as_command("lbx", "report", "RESULTS", *([view] if view else [])),
        )
    return results, view


def views(view: str | None, output_format: ReportFormat) -> list[str]:
    """The reports that are asked for. Raises UsageError."""
    names = reports.reports_of(view) if view else list(_DEFAULT_VIEWS)
    if len(names) > 1 and output_format in (ReportFormat.CSV, ReportFormat.PARQUET):
        one_of = ", ".join(names if view else reports.REPORTS)
        raise UsageError(f"A {output_format} file holds one table.", fix=f"Name one of: {one_of}.")
    return names


def check_published(names: Sequence[str]) -> None:
    """Raise UsageError: none of these reports shows published figures."""
    if not {"paper", "reference", "expected", *BOARDS} & set(names):
        raise UsageError(
            "Only the reports paper, reference, expected and board show published figures.",
            fix="Ask for one of them, or name no report.",
        )


def read(
    results: Path | None, names: Sequence[str], versions: Mapping[str, int], wanted: Wanted, *, in_bold: bool
) -> dict[str, Table]:
    """The reports' rows; with ``in_bold`` the paper's say which cannot be told from the best."""

    if results is None:
        return {name: reports.read(None, name, wanted) for name in names}
    with read_added_up(results) as store:
        store.use_metric_versions(versions)
        found = {}
        for name in names:
            try:
                found[name] = reports.read(store, name, wanted)
            except UsageError as refused:
                if names != list(_DEFAULT_VIEWS) or name != "comparison":
                    raise
                note(f"Without the report comparison: {refused.cause}")
        if in_bold and found.get("paper"):
            found["paper"] = marked(store, wanted, found["paper"])
        return found


def page(
    results: Path | None, names: Sequence[str], versions: Mapping[str, int], wanted: Wanted, chars: int
) -> Sequence[str]:

    if results is None:
        return pages.pieces(None, wanted, names=names)
    with read_added_up(results) as store:
        store.use_metric_versions(versions)
        return pages.pieces(store, wanted, names=names, chars=chars)


def overview(results: Path, versions: Mapping[str, int], wanted: Wanted) -> Sequence[Sheet]:

    with read_added_up(results) as store:
        store.use_metric_versions(versions)
        return overviews.sheets(store, wanted, results)


def export(
    results: Path | None, names: Sequence[str], versions: Mapping[str, int], wanted: Wanted, output: Path
) -> int:

    if results is None:
        raise UsageError("Parquet is made of a results file's reports.", fix="Name the file, or ask for csv or json.")
    with whole_place(output) as place, read_added_up(results, beside=[place], threads=1) as store:
        store.use_metric_versions(versions)
        return reports.write_parquet(store, names[0], wanted, place)


def write(tables: dict[str, Table], output_format: ReportFormat, output: Path | None, *, ascii_only: bool) -> None:

    if output_format is ReportFormat.JSON:
        one = next(iter(tables.values())) if len(tables) == 1 else None
        answer_json(render.json_pieces(one.columns, one.rows) if one else render.json_of_tables(tables), output)
        return
    if output_format is ReportFormat.CSV:
        (one,) = tables.values()
        answer_text(render.csv_pieces(one.columns, one.rows), output)
        return
    if len(tables) > 1:
        tables = {name: table for name, table in tables.items() if table.rows} or dict([next(iter(tables.items()))])
    in_text = output_format is ReportFormat.TABLE
    sheets = (one for name, table in tables.items() for one in _sheets(name, table, curves=in_text))
    if in_text:
        show_sheets(sheets, output, ascii_only=ascii_only)
    elif output_format is ReportFormat.LATEX:
        answer_text(latex.pieces(sheets), output)
    else:
        answer_text((render.markdown(one) + "\n" for one in sheets), output)


def _sheets(name: str, table: Table, *, curves: bool) -> Sequence[Sheet]:

    if name == "paper" and table.rows:
        return papers.sheets(table)
    return [sheet(reports.REPORTS[name], table, curves=curves)]
