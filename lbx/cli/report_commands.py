"""``lbx report``."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from lbx.base.errors import UsageError
from lbx.cli import report_options as options
from lbx.cli.options import OnlyRuns, ReportFormat
from lbx.cli.output import answer_text, note, parquet_file
from lbx.report.shapes import Wanted

_PIPED = 120
"""Columns of the one screen on its way into a pipe or a file; a report that is asked for by name has all of its own."""


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
    from lbx.cli import reporting, tables

    published = references is not None or against is not None
    if expected and view is None and results is not None:
        view = "expected"
    results, view = reporting.asked(results, view, published=published)
    names = reporting.views(view, output_format)
    tables.check_output(output)
    if (view == "expected") != bool(expected):
        raise UsageError("The report expected needs --expect MODEL, and no other report takes it.")
    if published:
        reporting.check_published(names)
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
        tables.show_sheets(reporting.overview(results, found, wanted), output, ascii_only=ascii_only, piped=_PIPED)
        return
    if output_format is ReportFormat.PARQUET:
        note(f"{reporting.export(results, names, found, wanted, parquet_file(output)):,} rows in {output}")
    elif output_format is ReportFormat.HTML:
        answer_text(reporting.page(results, names if view else (), found, wanted, chars), output)
    if output_format in (ReportFormat.PARQUET, ReportFormat.HTML):
        made = reporting.read(results, names, found, wanted, in_bold=False) if expected else {}
    else:
        made = reporting.read(results, names, found, wanted, in_bold=output_format is ReportFormat.LATEX)
        reporting.write(made, output_format, output, ascii_only=ascii_only)
    if expected and any(row["verdict"] == "differs" for row in made["expected"].dicts()):
        raise typer.Exit(1)


def _versions(named: Sequence[str]) -> dict[str, int]:
    """{"longbench": 1} from "longbench=1"."""
    found = {}
    for text in named:
        benchmark, _, version = text.partition("=")
        if not benchmark or not version.isdecimal():
            raise UsageError(f"--metric-version is BENCHMARK=N, e.g. longbench=1, not {text!r}.")
        found[benchmark] = int(version)
    return found
