"""Command ``lbx report``: read and write reports of a results file as tables, data files, a page or charts."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import typer

from lbx.base.errors import StoreError, UsageError
from lbx.base.exit_codes import ExitCode
from lbx.base.outputs import atomic_path, write_file
from lbx.base.units import format_count
from lbx.base.visible import as_command
from lbx.cli.options import ReportFormat
from lbx.cli.output import answer_json, answer_text, note, require_output_file, terminal
from lbx.cli.read_options import ReportOptions
from lbx.cli.table_output import check_output, show_sheets
from lbx.opinions.journal import journal_of, read_journal
from lbx.options.option import changed_options
from lbx.report import overview as overviews
from lbx.report import reports
from lbx.report.format import render
from lbx.report.format.labels import headline, progress, with_progress
from lbx.report.format.sheets import Sheet
from lbx.report.query import ALL, ReportQuery
from lbx.report.rows.revisions import open_baseline
from lbx.results import Store, Table
from lbx.results.attesting.checking import AttestationNotice, attestation_notice
from lbx.results.read.runs import resolve_runs_in
from lbx.results.scoring.reading import open_with_numbers

_PICTURES = (ReportFormat.SVG, ReportFormat.PNG)
_PIPE_WIDTH = 120
"""Width of the overview in characters in a pipe or a file. Reports that are requested by name show all columns."""


def report(options: ReportOptions) -> None:
    view, results, output = options.view, options.results, options.output
    published = bool(options.references or options.published)
    given_options = changed_options(options)
    if view is None and results is not None:
        view = _selected_report(given_options)
    results, view = _resolve_report(results, view, has_published=published)
    output_format = options.output_format
    names = _views(view, output_format)
    if options.baseline_file is not None:
        names = _add_companions(view, names, output_format)
    check_output(output)
    if results and any(reports.REPORTS[name].has_ratings for name in names):
        _note_unmoved_ratings(results)
    _check_needed_option(view, given_options)
    is_overview = view is None and results is not None
    on_a_screen = is_overview and output_format is ReportFormat.TABLE
    on_a_page = is_overview and output_format is ReportFormat.HTML
    read_reports = overviews.REPORTS_READ if on_a_screen else reports.reports_on_page() if on_a_page else names
    reports.check_options(read_reports, given_options)
    if view is None and options.tasks and not on_a_screen:
        takers = reports.reports_with("--tasks")
        raise UsageError("--tasks selects rows of one report.", fix=f"Name it: {', '.join(takers)}.")
    notice = attestation_notice(results) if results is not None else AttestationNotice()
    query = ReportQuery(
        runs=resolve_runs_in(results, options.runs) if results else (),
        models=options.published,
        references=options.references,
        expected_models=options.expected,
        with_published_models=published,
        without_intervals=options.no_interval,
        baseline=options.baseline or "",
        baseline_file=options.baseline_file,
        margin=ALL.margin if options.margin is None else options.margin,
        allow_different_settings=options.allow_different_settings,
        tasks=options.tasks,
        limit=options.rows or ALL.limit,
        keep_share=options.keep_share,
        keep_score=options.keep_score,
        attestation=notice.state,
    )
    if results is not None and on_a_screen:
        sheets = _with_notice(_overview(results, query), notice.text)
        show_sheets(sheets, output, ascii_only=options.ascii_only, pipe_width=_PIPE_WIDTH)
        return
    if output_format is ReportFormat.PARQUET:
        note(f"{_export(results, names, query, require_output_file(output, 'Parquet')):,} rows in {output}")
    elif output_format is ReportFormat.HTML:
        if output is None and terminal():
            raise UsageError("A page cannot be read on a terminal.", fix="Pass the file to write: -o report.html.")
        answer_text(_page(results, names if view else (), query, options.chars, notice.text), output)
    elif output_format in _PICTURES:
        _draw(results, names, query, output_format, output)
    tables = Tables()
    if output_format not in (ReportFormat.PARQUET, ReportFormat.HTML, *_PICTURES):
        tables = _read_reports(results, names, query, in_bold=output_format is ReportFormat.LATEX)
        _write_tables(tables, output_format, output, notice.text, ascii_only=options.ascii_only)
    elif any(reports.REPORTS[name].has_failed for name in names):
        tables = _read_reports(results, names, query, in_bold=False)
    if any(
        has_failed(row)
        for name, table in tables.items()
        if (has_failed := reports.REPORTS[name].has_failed)
        for row in table.dicts()
    ):
        raise typer.Exit(ExitCode.FAILED)


def _selected_report(given_options: Collection[str]) -> str | None:
    """Return the report that one of these options needs, for a command line that names no report."""
    return next((name for name, report in reports.REPORTS.items() if report.needs_option in given_options), None)


def _check_needed_option(view: str | None, given_options: Collection[str]) -> None:
    option = reports.REPORTS[view].needs_option if view and view in reports.REPORTS else ""
    if option and option not in given_options:
        raise UsageError(f"The report {view} needs {option} MODEL.")


def _note_unmoved_ratings(results: Path) -> None:
    """Note the number of ratings that are only in the journal, from which `lbx rate` moves them at the end."""
    journal, count = journal_of(results), 0
    with contextlib.suppress(StoreError):  # --collect reports a damaged journal
        count = sum(len(record.get("ratings", ())) for record in read_journal(journal)) if journal.is_file() else 0
    if count:
        note(
            f"Not in {results} yet: {format_count(count, 'rating or revision', 'ratings and revisions')} in "
            f"{journal}. `lbx rate` moves them when it ends; if it was killed, run: "
            f"{as_command('lbx', 'rate', results, '--collect')}"
        )


def _resolve_report(results: Path | None, view: str | None, *, has_published: bool) -> tuple[Path | None, str | None]:
    """Resolve results file and report. Published scores need no file."""
    (without_file,) = (name for name, report in reports.REPORTS.items() if not report.needs_file)
    is_name = results is not None and (str(results) in reports.NAMES or str(results) in reports.REPORTS)
    if results is not None and view is None and is_name and not results.exists():
        results, view = None, str(results)
    if results is None and view is None and has_published:
        view = without_file
    if results is None and view != without_file:
        raise UsageError(
            f"The report {view} needs a results file." if view else "No results file given.",
            fix=f"Only published scores work without one: `{as_command('lbx', 'report', without_file)}`.",
            command=as_command("lbx", "report", "RESULTS", *([view] if view else [])),
        )
    return results, view


def _views(view: str | None, output_format: ReportFormat) -> list[str]:
    names = reports.reports_of(view) if view else reports.default_reports()
    if view is None and output_format in _PICTURES:
        raise UsageError(
            f"A file in the format {output_format} has the charts of one report.",
            fix="Name it, such as length_curve, or use --format html.",
        )
    if len(names) > 1 and output_format in (ReportFormat.CSV, ReportFormat.PARQUET):
        raise UsageError(f"A {output_format} file contains one table.", fix=f"Name one of: {', '.join(names)}.")
    return names


def _add_companions(view: str | None, names: list[str], output_format: ReportFormat) -> list[str]:
    """Add the report on left-out questions to a comparison with another file, if the format allows several reports.

    Raises:
        UsageError: the report does not compare two files.
    """
    comparisons = reports.reports_with("--baseline-file")
    companions = [name for name, report in reports.REPORTS.items() if report.added_by == "--baseline-file"]
    if view not in comparisons:
        raise UsageError(
            "--baseline-file compares two results files.", fix=f"Name one of the reports {', '.join(comparisons)}."
        )
    alone = output_format in (ReportFormat.CSV, ReportFormat.PARQUET, *_PICTURES) or view in companions
    return names if alone else [*names, *companions]


@contextlib.contextmanager
def _open(
    results: Path, query: ReportQuery, *, output: Sequence[Path] = (), threads: int = 0, numbers: bool = True
) -> Iterator[Store]:
    """Open a results file to read its reports, with the baseline of another file, if any."""
    others = [query.baseline_file] if query.baseline_file else []
    with open_with_numbers(results, allowed_files=[*output, *others], threads=threads, numbers=numbers) as store:
        open_baseline(store, query)
        yield store


class Tables(dict[str, Table]):
    """Rows by report, the progress of unfinished runs for headings, and further notes by report.

    Attributes:
        notes: notes of ``Report.read_notes``.
    """

    def __init__(self, tables: Mapping[str, Table] = MappingProxyType({})) -> None:
        super().__init__(tables)
        self.progress = ""
        self.notes: dict[str, Sequence[str]] = {}


def _read_reports(results: Path | None, names: Sequence[str], query: ReportQuery, *, in_bold: bool) -> Tables:
    """Read the reports. ``in_bold`` marks scores that do not differ significantly from the best."""
    if results is None:
        return Tables({name: reports.read_report(None, name, query) for name in names})
    with _open(results, query, numbers=reports.has_number_reports(names)) as store:
        tables = Tables()
        tables.progress = progress(store, query.runs)
        for name in names:
            try:
                tables[name] = reports.read_report(store, name, query)
            except UsageError as refused:
                if (
                    names != reports.default_reports()
                    or "--allow-different-settings" not in reports.REPORTS[name].takes
                ):
                    raise
                note(f"The report {name} is left out: {refused.cause}")
        for name, table in tables.items():
            report = reports.REPORTS[name]
            if report.read_notes:
                tables.notes[name] = report.read_notes(store, table)
            if in_bold and report.mark_ties:
                tables[name] = report.mark_ties(store, query, table)
        return tables


def _page(results: Path | None, names: Sequence[str], query: ReportQuery, chars: int, notice: str) -> Sequence[str]:
    from lbx.report import page as pages  # imported late: only this format needs Jinja

    if results is None:
        return pages.pieces(None, query, names=names)
    with _open(results, query) as store:
        return pages.pieces(store, query, names=names, chars=chars, notice=notice)


def _draw(
    results: Path | None, names: Sequence[str], query: ReportQuery, output_format: ReportFormat, output: Path | None
) -> None:
    """Write the charts of a report to a file."""
    from lbx.report.draw import figures as drawings  # imported late: only these formats need Jinja
    from lbx.report.page.source import PageSource

    path = require_output_file(output, "PNG") if output_format is ReportFormat.PNG else output
    with _open(results, query) if results else contextlib.nullcontext() as store:
        source = PageSource(store, query)
        figures = [figure for name in names for figure in drawings.figures(source, name)]
        drawings.require_figures(names, figures)
        title = headline(f"{source.file}: {reports.REPORTS[names[0]].caption}", source.progress)
    drawing = drawings.svg_file(title, figures)
    if path and output_format is ReportFormat.PNG:
        write_file(path, drawings.render_png(drawing))
        if missing := drawings.missing_letters(drawing):
            note(
                f"No font that is installed here has {', '.join(missing)}: {path} shows boxes there. Install one, such "
                "as the package fonts-noto-cjk of Debian for Chinese, Japanese and Korean, or use --format svg."
            )
    else:
        answer_text(drawing, path)


def _overview(results: Path, query: ReportQuery) -> Sequence[Sheet]:
    with open_with_numbers(results) as store:
        return with_progress(overviews.sheets(store, query, results), progress(store, query.runs))


def _export(results: Path | None, names: Sequence[str], query: ReportQuery, output: Path) -> int:
    if results is None:
        raise UsageError("Parquet needs a results file.", fix="Give a results file, or use csv or json.")
    numbers = reports.has_number_reports(names)
    with (
        atomic_path(output) as path,
        _open(results, query, output=[path], threads=1, numbers=numbers) as store,
    ):
        return reports.write_parquet(store, names[0], query, path)


def _with_notice(sheets: Sequence[Sheet], notice: str) -> Sequence[Sheet]:
    """Add a sentence about the file to the first sheet."""
    if not (notice and sheets):
        return sheets
    return [replace(sheets[0], notes=[*sheets[0].notes, notice]), *sheets[1:]]


def _write_tables(
    tables: Tables, output_format: ReportFormat, output: Path | None, notice: str, *, ascii_only: bool
) -> None:
    if output_format is ReportFormat.JSON:
        table = next(iter(tables.values())) if len(tables) == 1 else None
        answer_json(render.json_pieces(table.columns, table.rows) if table else render.json_of_tables(tables), output)
        return
    if output_format is ReportFormat.CSV:
        (table,) = tables.values()
        answer_text(render.csv_pieces(table.columns, table.rows), output)
        return
    tables_with_rows = {name: table for name, table in tables.items() if table.rows} or dict(
        [next(iter(tables.items()))]
    )
    in_text = output_format is ReportFormat.TABLE
    sheets = [
        sheet
        for name, table in tables_with_rows.items()
        for sheet in with_progress(
            reports.REPORTS[name].sheets(table, tables.notes.get(name, ()), in_text=in_text), tables.progress
        )
    ]
    if output_format is not ReportFormat.LATEX:
        sheets = [*_with_notice(sheets, notice)]
    if in_text:
        has_shades = any(column.kind == "shade" for sheet in sheets for column in sheet.columns)
        show_sheets(sheets, output, ascii_only=ascii_only, pipe_width=_PIPE_WIDTH if has_shades else None)
    elif output_format is ReportFormat.LATEX:
        answer_text(render.latex_pieces(sheets), output)
    else:
        answer_text((render.markdown(sheet) + "\n" for sheet in sheets), output)
