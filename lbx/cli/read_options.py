"""Options of the commands that read a results file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from lbx.base.limits import QUERY_MIB, QUERY_SECONDS
from lbx.cli.options import PageOptions, ReportFormat, SqlFormat
from lbx.options.common import (
    BUNDLE,
    FORMAT,
    MODEL,
    RESULTS,
    ROWS,
    RUN,
    RUN_FORMS,
    TASKS,
    AsJson,
    Full,
    OnlyRuns,
    OnlyTasks,
    OutputFile,
    ResultsArgument,
)
from lbx.options.option import Argument, Option, option_of
from lbx.report.query import ReportQuery
from lbx.report.reports import NAMES, REPORTS


def _reports(incomplete: str) -> list[str]:
    is_section = any(incomplete.startswith(f"{name}_") for name in NAMES) or incomplete in NAMES
    names = dict.fromkeys((*REPORTS, *NAMES)) if is_section else NAMES  # sections are defined by the benchmarks
    return [name for name in names if name.startswith(incomplete)]


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Example: lbx report results.duckdb length_curve --format markdown"""

    BRIEF: ClassVar[Sequence[str]] = (
        "output_format",
        "output",
        "runs",
        "baseline",
        "published",
        "no_interval",
        "tasks",
        "rows",
    )

    results: Annotated[
        Path | None,
        RESULTS.with_help("The results file; the report reference needs none."),
    ] = None
    view: Annotated[
        str | None,
        Argument(
            f"{', '.join(NAMES)} (or one table of it); default: an overview, or in other "
            "formats the most used reports (csv, parquet: name one).",
            "REPORT",
            completion=_reports,
        ),
    ] = None
    output_format: Annotated[
        ReportFormat,
        FORMAT.with_help(f"Output format: {', '.join(ReportFormat)}. A model card's YAML: lbx export model_index."),
    ] = ReportFormat.TABLE
    output: OutputFile = None
    runs: OnlyRuns = ()
    no_interval: Annotated[bool, option_of(ReportQuery, "without_intervals")] = False
    references: Annotated[tuple[Path, ...], option_of(ReportQuery, "references")] = ()
    published: Annotated[tuple[str, ...], option_of(ReportQuery, "models")] = ()
    baseline: Annotated[str | None, option_of(ReportQuery, "baseline")] = None
    baseline_file: Annotated[Path | None, option_of(ReportQuery, "baseline_file")] = None
    margin: Annotated[float | None, option_of(ReportQuery, "margin")] = None
    allow_different_settings: Annotated[bool, option_of(ReportQuery, "allow_different_settings")] = False
    tasks: Annotated[
        tuple[str, ...],
        TASKS.with_help("comparison, changes: only these benchmarks or tasks: leval, leval/tpo, 'lveval/*_16k'."),
    ] = ()
    rows: Annotated[int | None, option_of(ReportQuery, "limit")] = None
    expected: Annotated[tuple[str, ...], option_of(ReportQuery, "expected_models")] = ()
    keep_share: Annotated[float | None, option_of(ReportQuery, "keep_share")] = None
    keep_score: Annotated[
        float | None,
        option_of(ReportQuery, "keep_score").with_help(
            "Effective context: the score to reach instead, such as RULER's 0.856."
        ),
    ] = None
    ascii_only: Annotated[
        bool, Option("Print tables in ASCII only; other characters are spelled out.", names=("--ascii",))
    ] = False
    chars: Annotated[
        int,
        Option("HTML: number of characters shown of each text of an answer.", "N"),
    ] = 400


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """Exit code 0: all conditions are passed; 1: one failed; 4: undecided at the 5% level, for lack of questions.

    Example: lbx check results.duckdb --run new --at-least leval=45 --not-worse-than old --margin 2
    """

    BRIEF: ClassVar[Sequence[str]] = ("run", "at_least", "not_worse_than", "margin", "tasks")

    results: ResultsArgument
    run: Annotated[
        str | None, RUN.with_help(f"The run to check: {RUN_FORMS}. Default: the only one besides the compared ones.")
    ] = None
    at_least: Annotated[
        tuple[str, ...],
        Option("The score of this benchmark or task must be at least SCORE percent. Can be repeated.", "TASK=SCORE"),
    ] = ()
    not_worse_than: Annotated[
        tuple[str, ...],
        Option(
            f"The scores must not be below this run's by more than --margin: {RUN_FORMS}. Can be repeated.",
            "RUN",
            completion="runs",
        ),
    ] = ()
    margin: Annotated[float | None, option_of(ReportQuery, "margin")] = None
    tasks: Annotated[
        tuple[str, ...],
        TASKS.with_help("Compare these benchmarks or tasks; default: the average of each benchmark."),
    ] = ()
    baseline_file: Annotated[Path | None, option_of(ReportQuery, "baseline_file")] = None
    allow_different_settings: Annotated[bool, option_of(ReportQuery, "allow_different_settings")] = False
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class ShowOptions:
    """Example: lbx show results.duckdb needle/single_en/len0064-depth000-00 --prompt"""

    results: ResultsArgument
    sample: Annotated[
        str | None,
        Argument("[BENCHMARK/]TASK/ID, optionally with #ITERATION, or an ID; default: a list of answers.", "SAMPLE"),
    ] = None
    runs: OnlyRuns = ()
    tasks: OnlyTasks = ()
    rows: Annotated[int, ROWS.with_help("List at most N answers.")] = 40
    mark: Annotated[
        str,
        Option(
            "List only answers with this mark of the report guards; any: with any mark; wrong: with a score of 0.",
            "MARK",
        ),
    ] = ""
    prompt: Annotated[
        bool,
        Option("Rebuild the prompt from bundle and model, and compare it with the stored hash."),
    ] = False
    bundle: Annotated[Path | None, BUNDLE.with_help("For --prompt; default: the run's.", variable="")] = None
    model: Annotated[str | None, MODEL.with_help("For --prompt; default: the run's.")] = None
    full: Full = False
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class BrowseOptions(PageOptions):
    """Lists answers by run, task, mark, score and text, compares all models' answers to a question, and shows each with
    its prompt, rebuilt from the bundle and checked by its hash. During a run, pages refresh and show its progress. They
    open the file read-only and close it again, so running commands can write to it.

    Example: lbx browse results.duckdb --bundle long --run RUN
    """

    BRIEF: ClassVar[Sequence[str]] = ("bundle", "model", "runs", "tasks")

    results: Annotated[
        tuple[Path, ...],
        RESULTS.with_help("The results file; of several, or of a folder, a start page lists them all."),
    ]
    bundle: Annotated[Path | None, BUNDLE.with_help("The bundle with the documents and prompts.")] = None
    model: Annotated[
        str | None,
        MODEL.with_help("Model for rebuilding prompts, if the run's model is no longer available."),
    ] = None
    runs: OnlyRuns = ()
    tasks: OnlyTasks = ()


@dataclass(frozen=True, kw_only=True)
class SqlOptions:
    """Example: lbx sql results.duckdb "SELECT task, avg(prompt_tokens) FROM generations GROUP BY task" --format json"""

    results: ResultsArgument
    query: Annotated[str, Argument("One SQL query; docs/schema.toml describes tables and views.", "QUERY")]
    output_format: Annotated[SqlFormat, FORMAT.with_help(f"Output format: {', '.join(SqlFormat)}.")] = SqlFormat.TABLE
    attached: Annotated[
        tuple[str, ...],
        Option(
            "Another results file to query; its tables and views are NAME.runs, NAME.task_scores ... Can be repeated.",
            "NAME=FILE",
            ("--attach",),
        ),
    ] = ()
    memory_mib: Annotated[int, Option("Memory limit of the query; 0: no limit.", "MIB", ("--memory",))] = QUERY_MIB
    timeout_s: Annotated[int, Option("Time limit of the query; 0: no limit.", "SECONDS", ("--timeout",))] = (
        QUERY_SECONDS
    )
    output: OutputFile = None
