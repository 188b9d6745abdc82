"""``lbx report`` and ``lbx sql``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lbx.cli.options import ReportFormat, Results, SqlFormat
from lbx.cli.output import answer_json, answer_text, note, stdout
from lbx.errors import UsageError
from lbx.paths import part_of
from lbx.report.reports import REPORTS

if TYPE_CHECKING:
    from lbx.store import Store, Table

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
        if references or against is not None:
            tables |= _with_published(store, tables, references or (), against or (), runs or ())
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


def _with_published(
    store: Store, tables: Mapping[str, Table], references: Sequence[Path], models: Sequence[str], runs: Sequence[str]
) -> dict[str, Table]:
    """The reports paper and reference with published figures: those of the files, or without any the package's."""
    from lbx.report.reference import beside, chosen, published, read_reference
    from lbx.report.reports import answered_benchmarks, published_beside

    if not tables.keys() & {"paper", "reference"}:
        raise UsageError(
            "Only the reports paper and reference show published figures.",
            fix="Ask for one of them, or name no report.",
        )
    figures = [figure for path in references for figure in read_reference(path)] if references else published()
    if "reference" in tables:
        return {"reference": published_beside(store, figures, models, runs)}
    return {"paper": beside(tables["paper"], chosen(figures, answered_benchmarks(store, runs), models))}


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

    if output_format is SqlFormat.PARQUET:
        if output is None:
            raise UsageError("Parquet is not for terminals.", fix="Say where to write it: -o FILE.parquet.")
        with Store(results, read_only=True, beside=[part_of(output)]) as store:
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
    if output is None:
        answer_text(text)
    elif output.exists() and not output.is_file():
        output.write_text(text, "utf-8")  # a device or a pipe
    else:
        part = part_of(output)
        try:
            part.write_text(text, "utf-8")
            part.replace(output)
        finally:
            part.unlink(missing_ok=True)
