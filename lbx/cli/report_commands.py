"""``lbx report``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lbx.cli.options import ReportFormat, Results
from lbx.cli.output import answer_json, answer_text, stdout
from lbx.errors import UsageError
from lbx.report.reports import REPORTS

if TYPE_CHECKING:
    pass

_DEFAULT_VIEWS = ("leaderboard", "task_scores", "paper", "length_curve", "comparison", "truncation", "failures")


def report(
    *,
    results: Results,
    view: Annotated[
        str | None,
        typer.Argument(
            help=f"{', '.join(REPORTS)}; default: those usually read.",
            autocompletion=lambda incomplete: [name for name in REPORTS if name.startswith(incomplete)],
        ),
    ] = None,
    output_format: Annotated[ReportFormat, typer.Option("--format", "-f", help="How to print.")] = ReportFormat.TABLE,
    runs: Annotated[list[str] | None, typer.Option("--run", help="Only this run. Can be repeated.")] = None,
    versions: Annotated[
        list[str] | None,
        typer.Option("--metric-version", help="BENCHMARK=N: that version's scores instead of the newest ones'."),
    ] = None,
    references: Annotated[
        list[Path] | None,
        typer.Option(
            "--reference",
            help="CSV of published figures, in place of those that lbx has; shown beside the runs in the report paper, "
            "marked with *.",
        ),
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--against", help="These published models beside the runs in the report paper, each by a part of its name."
        ),
    ] = None,
) -> None:
    """Print tables from a results file.

    Example: lbx report results.duckdb length_curve --format markdown
    """
    from lbx.report import render
    from lbx.report.reference import beside, figures_beside
    from lbx.report.reports import read
    from lbx.report.shapes import Wanted
    from lbx.store import Store

    if view is not None and view not in REPORTS:
        raise UsageError(f"There is no report {view!r}.", fix=f"There are: {', '.join(REPORTS)}.")
    if view is None and output_format is ReportFormat.CSV:
        raise UsageError("A csv file holds one table.", fix=f"Name one of: {', '.join(REPORTS)}.")
    names = [view] if view else list(_DEFAULT_VIEWS)
    published = references is not None or against is not None
    if published and not {"paper", "reference"} & set(names):
        raise UsageError(
            "Only the reports paper and reference show published figures.",
            fix="Ask for one of them, or name no report.",
        )
    with Store(results, read_only=True) as store:
        store.use_metric_versions(_versions(versions or ()))
        wanted = Wanted(runs=runs or (), models=against or (), references=references or ())
        tables = {name: read(store, name, wanted) for name in names}
        if published and "paper" in tables:
            tables["paper"] = beside(tables["paper"], figures_beside(store, wanted))
    if output_format is ReportFormat.JSON:
        answer_json(render.json_text(tables[view] if view else tables))
        return
    if output_format is ReportFormat.CSV:
        answer_text(render.csv_text(tables[names[0]]))
        return
    if view is None:
        tables = {name: table for name, table in tables.items() if table.rows} or {"leaderboard": tables["leaderboard"]}
    if output_format is ReportFormat.HTML:
        pages = [(REPORTS[name].title, render.cells(REPORTS[name], table)) for name, table in tables.items()]
        answer_text(render.html(pages))
        return
    for name, table in tables.items():
        made = render.cells(REPORTS[name], table)
        if output_format is ReportFormat.MARKDOWN:
            answer_text(render.markdown(REPORTS[name].title, made) + "\n")
        else:
            stdout().print(render.rich_table(REPORTS[name].title, made))


def _versions(named: Sequence[str]) -> dict[str, int]:
    """{"longbench": 1} from "longbench=1"."""
    found = {}
    for text in named:
        benchmark, _, version = text.partition("=")
        if not benchmark or not version.isdecimal():
            raise UsageError(f"--metric-version is BENCHMARK=N, e.g. longbench=1, not {text!r}.")
        found[benchmark] = int(version)
    return found
