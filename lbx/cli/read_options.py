"""Options of the commands that read a results file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from lbx.base.limits import QUERY_MIB, QUERY_SECONDS
from lbx.cli.loading import completion, import_object
from lbx.cli.options import (
    RUN_FORMS,
    AsJson,
    OnlyRuns,
    OnlyTasks,
    OutputFile,
    PageOptions,
    ReportFormat,
    ResultsArgument,
    SqlFormat,
    bundle_option,
    format_option,
)
from lbx.opinions.reports import OPINIONS
from lbx.report.comparison_reports import COMPARISONS
from lbx.report.report_types import ALL, BOARD
from lbx.report.score_reports import SCORES

_REPORTS = (*SCORES, *COMPARISONS, *OPINIONS, BOARD)


def _reports(incomplete: str) -> list[str]:
    names: Sequence[str] = _REPORTS
    if incomplete.startswith(BOARD):  # its tables are defined by the benchmarks
        names = (*import_object("report.reports:REPORTS"), BOARD)
    return [name for name in names if name.startswith(incomplete)]


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Example: lbx report results.duckdb length_curve --format markdown"""

    BRIEF: ClassVar[Sequence[str]] = (
        "output_format",
        "output",
        "runs",
        "baseline",
        "against",
        "no_interval",
        "tasks",
        "rows",
    )

    results: Annotated[
        Path | None,
        typer.Argument(help="The results file; not needed for published figures (reference).", metavar="RESULTS"),
    ] = None
    view: Annotated[
        str | None,
        typer.Argument(
            metavar="REPORT",
            help=f"{', '.join(_REPORTS)} (or one table of it); default: an overview on one screen, or in other "
            "formats the most used reports (csv and parquet take one: name it).",
            autocompletion=_reports,
        ),
    ] = None
    output_format: Annotated[ReportFormat, format_option(ReportFormat)] = ReportFormat.TABLE
    output: OutputFile = None
    runs: OnlyRuns = ()
    no_interval: Annotated[
        bool,
        typer.Option("--no-interval", help="Show scores without their intervals, as the official scripts print them."),
    ] = False
    references: Annotated[
        tuple[Path, ...],
        typer.Option(
            "--reference",
            metavar="CSV",
            help="CSV of published figures to use instead of lbx's; shown next to the runs in the reports paper "
            "and board, marked with *.",
        ),
    ] = ()
    against: Annotated[
        tuple[str, ...],
        typer.Option(
            "--against",
            metavar="MODEL",
            help="Also show this published model in the reports paper and board; part of its name is enough.",
        ),
    ] = ()
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            help=f"Compare the other runs with this run: {RUN_FORMS}.",
            metavar="RUN",
            autocompletion=completion("runs"),
        ),
    ] = None
    baseline_file: Annotated[
        Path | None,
        typer.Option(
            "--baseline-file",
            metavar="FILE",
            help="The results file with the baseline, perhaps of another revision of the data: questions with equal "
            "content are compared.",
        ),
    ] = None
    margin: Annotated[
        float | None,
        typer.Option(
            "--margin",
            metavar="POINTS",
            min=0.0,
            help=f"Largest difference in points that counts as equal; default: {ALL.margin:g}.",
        ),
    ] = None
    force: Annotated[
        bool, typer.Option("--force", help="Compare runs even if their settings differ; each line notes it.")
    ] = False
    tasks: Annotated[
        tuple[str, ...],
        typer.Option(
            "--tasks",
            "-t",
            metavar="NAMES",
            help="changes: only these benchmarks or tasks: leval, leval/tpo, 'lveval/*_16k'.",
            autocompletion=completion("tasks"),
        ),
    ] = ()
    rows: Annotated[
        int | None,
        typer.Option("--rows", metavar="N", min=1, help=f"changes: show at most N; default: {ALL.limit}."),
    ] = None
    expected: Annotated[
        tuple[str, ...],
        typer.Option(
            "--expect",
            metavar="MODEL",
            help="Check the runs against the figures of this published model, given by a part of its name; exit "
            "code 1 if one differs. Can be repeated.",
        ),
    ] = ()
    keep: Annotated[
        float | None,
        typer.Option(
            "--keep",
            metavar="SHARE",
            min=0.0,
            max=1.0,
            help="Effective context: the share of the score at the shortest length to keep; default: 0.85.",
        ),
    ] = None
    at_least: Annotated[
        float | None,
        typer.Option(
            "--at-least",
            metavar="SCORE",
            min=0.0,
            max=1.0,
            help="Effective context: the score to reach instead, such as RULER's 0.856.",
        ),
    ] = None
    ascii_only: Annotated[
        bool, typer.Option("--ascii", help="Print tables in ASCII only; other characters are spelled out.")
    ] = False
    chars: Annotated[
        int,
        typer.Option("--chars", min=0, metavar="N", help="HTML: number of characters shown of each text of an answer."),
    ] = 400


@dataclass(frozen=True, kw_only=True)
class ShowOptions:
    """Example: lbx show results.duckdb needle/single_en/len0064-depth000-00 --prompt"""

    results: ResultsArgument
    sample: Annotated[
        str | None,
        typer.Argument(
            metavar="SAMPLE",
            help="[BENCHMARK/]TASK/ID, optionally with #ITERATION, or an ID; default: a list of answers.",
        ),
    ] = None
    runs: OnlyRuns = ()
    tasks: OnlyTasks = ()
    rows: Annotated[int, typer.Option("--rows", metavar="N", min=1, help="List at most N answers.")] = 40
    mark: Annotated[
        str, typer.Option("--mark", metavar="MARK", help="List only answers with this mark; any: with any mark.")
    ] = ""
    prompt: Annotated[
        bool,
        typer.Option("--prompt", help="Rebuild the prompt from bundle and model, and compare it with the stored hash."),
    ] = False
    bundle: Annotated[Path | None, bundle_option("For --prompt; default: the run's.", variable=False)] = None
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="MODEL", help="For --prompt; default: the run's.")
    ] = None
    full: Annotated[bool, typer.Option("--full", help="Show whole texts; default: their beginning and end.")] = False
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class BrowseOptions(PageOptions):
    """Lists answers by run, task, mark, score and text, compares all models' answers to a question, and shows each with
    its prompt, rebuilt from the bundle and checked by its hash. During a run, pages refresh and show its progress. They
    open the file read-only and close it again, so running commands can write to it.

    Example: lbx browse results.duckdb --bundle long --run RUN
    """

    BRIEF: ClassVar[Sequence[str]] = ("bundle", "model", "runs", "tasks")

    results: ResultsArgument
    bundle: Annotated[Path | None, bundle_option("The bundle with the documents and prompts.")] = None
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="Model for rebuilding prompts, if the run's model is no longer available.",
        ),
    ] = None
    runs: OnlyRuns = ()
    tasks: OnlyTasks = ()


@dataclass(frozen=True, kw_only=True)
class SqlOptions:
    """Example: lbx sql results.duckdb "SELECT task, avg(prompt_tokens) FROM generations GROUP BY task" --format json"""

    results: ResultsArgument
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="One SQL query; docs/schema.toml describes tables and views.")
    ]
    output_format: Annotated[SqlFormat, format_option(SqlFormat)] = SqlFormat.TABLE
    attached: Annotated[
        tuple[str, ...],
        typer.Option(
            "--attach",
            metavar="NAME=FILE",
            help="Another results file to query; its tables and views are NAME.runs, NAME.task_scores ... Can be "
            "repeated.",
        ),
    ] = ()
    memory_mib: Annotated[
        int, typer.Option("--memory", metavar="MIB", min=0, help="Memory limit of the query; 0: no limit.")
    ] = QUERY_MIB
    timeout_s: Annotated[
        int, typer.Option("--timeout", metavar="SECONDS", min=0, help="Time limit of the query; 0: no limit.")
    ] = QUERY_SECONDS
    output: OutputFile = None
