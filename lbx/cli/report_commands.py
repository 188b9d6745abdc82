"""``lbx report``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from lbx.base.commands import as_command
from lbx.base.errors import UsageError
from lbx.base.outputs import whole_place
from lbx.cli import report_options as options
from lbx.cli.options import OnlyRuns, ReportFormat
from lbx.cli.output import answer_json, answer_text, check_output, note, parquet_file, show_sheets
from lbx.report.board_shapes import BOARDS
from lbx.report.reports import BOARD, REPORTS, named

if TYPE_CHECKING:
    from lbx.report.cells import Sheet
    from lbx.report.shapes import Wanted
    from lbx.store import Table

_DEFAULT_VIEWS = ("leaderboard", "task_scores", "paper", "length_curve", "comparison", "truncation", "failures")


def report(
    *,
    results: options.MaybeResults = None,
    view: options.View = None,
    output_format: options.Format = ReportFormat.TABLE,
    output: options.Output = None,
    runs: OnlyRuns = None,
    versions: options.Versions = None,
    no_interval: options.NoInterval = False,
    references: options.References = None,
    against: options.Against = None,
    baseline: options.Baseline = None,
    margin: options.Margin = 1.0,
    force: options.Force = False,
    tasks: options.Tasks = None,
    limit: options.Limit = 50,
    expected: options.Expected = None,
    keep: options.Keep = None,
    at_least: options.AtLeast = None,
    ascii_only: options.AsciiOnly = False,
    chars: options.Chars = 400,
) -> None:
    """Print tables from a results file.

    Example: lbx report results.duckdb length_curve --format markdown
    """
    from lbx.report.shapes import Wanted

    published = references is not None or against is not None
    if expected and view is None and results is not None:
        view = "expected"
    results, view = _asked(results, view, published=published)
    names = _views(view, output_format)
    check_output(output)
    if (view == "expected") != bool(expected):
        raise UsageError("The report expected needs --expect MODEL, and no other report takes it.")
    if published and not {"paper", "reference", "expected", *BOARDS} & set(names):
        raise UsageError(
            "Only the reports paper, reference, expected and board show published figures.",
            fix="Ask for one of them, or name no report.",
        )
    wanted = Wanted(
        runs=runs or (),
        models=against or (),
        references=references or (),
        expected=expected or (),
        published=published,
        alone=no_interval,
        baseline=baseline or "",
        margin=margin,
        force=force,
        tasks=tasks or (),
        limit=limit,
        keep=keep,
        at_least=at_least,
    )
    found = _versions(versions or ())
    if results is not None and view is None and output_format is ReportFormat.TABLE:
        show_sheets(_overview(results, found, wanted), output, ascii_only=ascii_only)
        return
    if output_format is ReportFormat.PARQUET:
        note(f"{_export(results, names, found, wanted, parquet_file(output)):,} rows in {output}")
    elif output_format is ReportFormat.HTML:
        answer_text(_page(results, names if view else (), found, wanted, chars), output)
    if output_format in (ReportFormat.PARQUET, ReportFormat.HTML):
        tables = _read(results, names, found, wanted, in_bold=False) if expected else {}
    else:
        tables = _read(results, names, found, wanted, in_bold=output_format is ReportFormat.LATEX)
        _write(tables, output_format, output, ascii_only=ascii_only)
    if expected and any(row["verdict"] == "differs" for row in tables["expected"].dicts()):
        raise typer.Exit(1)


def _asked(results: Path | None, view: str | None, *, published: bool) -> tuple[Path | None, str | None]:
    """The file and the report, where ``reference`` may stand without a file."""
    if results is not None and view is None and str(results) in (*REPORTS, BOARD) and not results.exists():
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


def _views(view: str | None, output_format: ReportFormat) -> list[str]:
    """The reports that are asked for. Raises UsageError."""
    names = named(view) if view else list(_DEFAULT_VIEWS)
    if len(names) > 1 and output_format in (ReportFormat.CSV, ReportFormat.PARQUET):
        one_of = ", ".join(names if view else REPORTS)
        raise UsageError(f"A {output_format} file holds one table.", fix=f"Name one of: {one_of}.")
    return names


def _read(
    results: Path | None, names: Sequence[str], versions: Mapping[str, int], wanted: Wanted, *, in_bold: bool
) -> dict[str, Table]:
    """The reports' rows; with ``in_bold`` the paper's say which cannot be told from the best."""
    from lbx.report.reports import read
    from lbx.scoring.reading import read_added_up

    if results is None:
        return {name: read(None, name, wanted) for name in names}
    with read_added_up(results) as store:
        store.use_metric_versions(versions)
        found = {}
        for name in names:
            try:
                found[name] = read(store, name, wanted)
            except UsageError as refused:
                if names != list(_DEFAULT_VIEWS) or name != "comparison":
                    raise
                note(f"Without the report comparison: {refused.cause}")
        if in_bold and found.get("paper"):
            from lbx.report.alike import marked  # all pairs are compared for that

            found["paper"] = marked(store, wanted, found["paper"])
        return found


def _page(
    results: Path | None, names: Sequence[str], versions: Mapping[str, int], wanted: Wanted, chars: int
) -> Sequence[str]:
    from lbx.report import page
    from lbx.scoring.reading import read_added_up

    if results is None:
        return page.pieces(None, wanted, names=names)
    with read_added_up(results) as store:
        store.use_metric_versions(versions)
        return page.pieces(store, wanted, names=names, chars=chars)


def _overview(results: Path, versions: Mapping[str, int], wanted: Wanted) -> Sequence[Sheet]:
    from lbx.report.overview import sheets
    from lbx.scoring.reading import read_added_up

    with read_added_up(results) as store:
        store.use_metric_versions(versions)
        return sheets(store, wanted, results)


def _export(
    results: Path | None, names: Sequence[str], versions: Mapping[str, int], wanted: Wanted, output: Path
) -> int:
    from lbx.report.reports import write_parquet
    from lbx.scoring.reading import read_added_up

    if results is None:
        raise UsageError("Parquet is made of a results file's reports.", fix="Name the file, or ask for csv or json.")
    with whole_place(output) as place, read_added_up(results, beside=[place], threads=1) as store:
        store.use_metric_versions(versions)
        return write_parquet(store, names[0], wanted, place)


def _write(tables: dict[str, Table], output_format: ReportFormat, output: Path | None, *, ascii_only: bool) -> None:
    from lbx.report import latex, render

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
    from lbx.report import papers
    from lbx.report.cells import sheet

    if name == "paper" and table.rows:
        return papers.sheets(table)
    return [sheet(REPORTS[name], table, curves=curves)]


def _versions(named: Sequence[str]) -> dict[str, int]:
    """{"longbench": 1} from "longbench=1"."""
    found = {}
    for text in named:
        benchmark, _, version = text.partition("=")
        if not benchmark or not version.isdecimal():
            raise UsageError(f"--metric-version is BENCHMARK=N, e.g. longbench=1, not {text!r}.")
        found[benchmark] = int(version)
    return found
