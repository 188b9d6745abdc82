"""Options and arguments shared by several commands. Options that define a run are fields of ``RunSpec`` instead.

Modules of options do not use ``from __future__ import annotations``, for the reason given in ``lbx.options.option``.
"""

import functools
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from lbx.cli.loading import completion


class ReportFormat(StrEnum):
    TABLE = "table"
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    LATEX = "latex"
    HTML = "html"
    SVG = "svg"
    PNG = "png"


class SqlFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


_which, _how, _shard, _output, _web = (
    functools.partial(typer.Option, rich_help_panel=panel)
    for panel in ("Which samples", "How it runs", "One shard of many", "Output", "The page")
)


BUNDLE_VARIABLE = "LBX_BUNDLE"
"""Environment variable with the default bundle."""


def bundle_option(text: str, *, variable: bool = True) -> Any:
    """Build the option --bundle of a command without a run's spec."""
    return typer.Option("--bundle", "-b", metavar="DIR", help=text, envvar=BUNDLE_VARIABLE if variable else None)


def format_option(formats: type[StrEnum]) -> Any:
    """Build the option --format of a command that prints tables."""
    return typer.Option("--format", "-f", metavar="FORMAT", help=f"Output format: {', '.join(formats)}.")


AsJson = Annotated[bool, _output("--json", help="Print the answer as JSON.")]
ResultsOutput = Annotated[Path, _output("--output", "-o", metavar="FILE", help="The results file; created if missing.")]
# For commands that read a results file.
RUN_FORMS = "its name, a prefix of it, or its model's name"
ResultsArgument = Annotated[Path, typer.Argument(help="The results file written by `lbx run`.", metavar="RESULTS")]
OnlyRuns = Annotated[
    tuple[str, ...],
    typer.Option(
        "--run",
        metavar="RUN",
        help=f"Only this run: {RUN_FORMS}. Can be repeated.",
        autocompletion=completion("runs"),
    ),
]
OnlyTasks = Annotated[
    tuple[str, ...],
    typer.Option(
        "--tasks",
        "-t",
        metavar="NAMES",
        help="Only these benchmarks or tasks: leval, leval/tpo, 'lveval/*_16k'.",
        autocompletion=completion("tasks"),
    ),
]
OutputFile = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file.")]
Workers = Annotated[
    int, typer.Option("--workers", metavar="N", min=0, help="Number of processes; 0 means one per CPU.")
]


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """Options of commands that run a model, here or in shards."""

    retry_failed: Annotated[
        bool, _which("--retry-failed", help="Repeat samples that failed in an earlier session.")
    ] = False
    retry_empty: Annotated[
        bool, _which("--retry-empty", help="Repeat samples with an empty answer in an earlier session.")
    ] = False
    plan: Annotated[
        bool, _how("--plan/--no-plan", help="Count tokens and estimate the time before the first sample.")
    ] = True
    hash_bundle: Annotated[
        bool,
        _how(
            "--hash-bundle",
            help="Hash every file of the bundle first; default: compare names, sizes and times, and hash only files "
            "newer than the manifest.",
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class LocalSessionOptions(SessionOptions):
    """Options of commands that run a model in this process."""

    log: Annotated[
        Path | None,
        _output("--log", metavar="FILE", help="Write a progress line to this file every minute; default: RESULTS.log."),
    ] = None
    scratch: Annotated[
        Path | None,
        _shard(
            "--scratch",
            metavar="DIR",
            help="A folder on this machine's own disk: write there, and copy every commit to the results file.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """Options of commands that serve a page."""

    host: Annotated[
        str,
        _web(
            "--host",
            metavar="ADDRESS",
            help="Address to listen on; an address that other machines can reach needs --others-may-reach-it.",
        ),
    ] = "127.0.0.1"
    port: Annotated[int, _web("--port", metavar="N", min=0, max=65535, help="The port; 0 takes any free port.")] = 8765
    uds: Annotated[
        Path | None,
        _web("--uds", metavar="FILE", help="Listen on a Unix socket instead, to reach a container without network."),
    ] = None
    others: Annotated[
        bool, _web("--others-may-reach-it", help="Allow a --host that other machines can reach, unencrypted.")
    ] = False
