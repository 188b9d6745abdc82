"""``lbx report`` and ``lbx sql``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lbx.cli.options import ReportFormat, Results, SqlFormat
from lbx.cli.output import answer_json, answer_text, note, stdout
from lbx.errors import UsageError
from lbx.report.reports import REPORTS

if TYPE_CHECKING:
    from lbx.store import Table

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
            "--reference", help="CSV of published figures, shown beside the runs in the report paper, marked with *."
        ),
    ] = None,
    against: Annotated[
        list[str] | None, typer.Option("--against", help="Only these published models, each by a part of its name.")
    ] = None,
) -> None:
    """Print tables from a results file.

    Example: lbx report results.duckdb length_curve --format markdown
    """
    from lbx.report import render
    from lbx.report.reports import read
    from lbx.store import Store

    if view is not None and view not in REPORTS:
        raise UsageError(f"There is no report {view!r}.", fix=f"There are: {', '.join(REPORTS)}.")
    if view is None and output_format is ReportFormat.CSV:
        raise UsageError("A csv file holds one table.", fix=f"Name one of: {', '.join(REPORTS)}.")
    names = [view] if view else list(_DEFAULT_VIEWS)
    with Store(results, read_only=True) as store:
        store.use_metric_versions(_versions(versions or ()))
        tables = {name: read(store, name, runs or ()) for name in names}
    if references or against:
        tables = _with_published(tables, references or (), against or ())
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


def _with_published(tables: dict[str, Table], references: Sequence[Path], against: Sequence[str]) -> dict[str, Table]:
    """The tables with published figures in the report paper."""
    from lbx.report.reference import beside, read_reference

    if "paper" not in tables:
        raise UsageError("Published figures stand in the report paper only.", fix="Ask for it, or for no report.")
    if not references:
        raise UsageError("--against chooses among published figures.", fix="Name their file with --reference.")
    figures = {model: lines for path in references for model, lines in read_reference(path).items()}
    return tables | {"paper": beside(tables["paper"], figures, against)}


def _versions(named: Sequence[str]) -> dict[str, int]:
    """{"longbench": 1} from "longbench=1"."""
    found = {}
    for text in named:
        benchmark, _, version = text.partition("=")
        if not benchmark or not version.isdecimal():
            raise UsageError(f"--metric-version is BENCHMARK=N, e.g. longbench=1, not {text!r}.")
        found[benchmark] = int(version)
    return found


def sql(
    results: Results,
    query: Annotated[str, typer.Argument(help="One SQL query; docs/results.md lists tables and views.")],
    output_format: Annotated[SqlFormat, typer.Option("--format", "-f", help="How to print.")] = SqlFormat.TABLE,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where to write (parquet).")] = None,
) -> None:
    """Query a results file with SQL, read-only.

    Example: lbx sql results.duckdb "SELECT task, avg(prompt_tokens) FROM generations GROUP BY task" --format json
    """
    from lbx.report import render
    from lbx.store import Store
    from lbx.store.queries import parquet_part

    if output_format is SqlFormat.PARQUET:
        if output is None:
            raise UsageError("Parquet is not for terminals.", fix="Say where to write it: -o FILE.parquet.")
        with Store(results, read_only=True, beside=[parquet_part(output)]) as store:
            rows = store.export_parquet(query, output)
        note(f"{rows:,} rows in {output}")
        return
    with Store(results, read_only=True) as store:
        table = store.ask(query)
    if output_format is SqlFormat.JSON:
        text = render.json_text(table) + "\n"
    elif output_format is SqlFormat.CSV:
        text = render.csv_text(table)
    else:
        stdout().print(render.rich_table("", render.plain_columns(table)))
        return
    if output:
        output.write_text(text, "utf-8")
    else:
        answer_text(text)
