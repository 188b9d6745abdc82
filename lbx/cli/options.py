"""Options and arguments that several commands share. What says what a run is is a field of ``RunSpec`` instead."""

from __future__ import annotations

import functools
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class ReportFormat(StrEnum):
    TABLE = "table"
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    LATEX = "latex"
    HTML = "html"


class SqlFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


_asked = functools.partial(typer.Option, rich_help_panel="What to ask")
_which = functools.partial(typer.Option, rich_help_panel="Which samples")
_how = functools.partial(typer.Option, rich_help_panel="How it runs")
_shard = functools.partial(typer.Option, rich_help_panel="One shard of many")
_output = functools.partial(typer.Option, rich_help_panel="Output")
_web = functools.partial(typer.Option, rich_help_panel="The page")

# Of a judge.
Calibrate = Annotated[
    bool,
    _asked(
        "--calibrate",
        help="Judge the published answers of Claude, GPT-4 and Llama 2 against turbo's instead: what this judge says "
        "of them stands beside what GPT-4 said.",
    ),
]
SaveSpec = Annotated[
    Path | None,
    _output("--save-spec", metavar="FILE", help="Ask nothing; write the judge's work for `lbx submit --spec FILE`."),
]
JudgeOutput = Annotated[
    Path | None,
    _output("--output", "-o", metavar="FILE", help="Where judgements go; default: the results file itself."),
]

# Which samples.
RetryFailed = Annotated[bool, _which("--retry-failed", help="Ask samples again that failed in an earlier session.")]
RetryEmpty = Annotated[
    bool, _which("--retry-empty", help="Ask samples again whose answer was empty in an earlier session.")
]

# How it runs.
CountFirst = Annotated[
    bool, _how("--plan/--no-plan", help="Count tokens and estimate the time before the first sample.")
]
VerifyBatching = Annotated[
    int,
    _how(
        "--verify-batching",
        metavar="N",
        min=0,
        help="Afterwards ask N answers again, each alone, and report how many differ and by how much.",
    ),
]
HashBundle = Annotated[
    bool,
    _how(
        "--hash-bundle",
        help="Hash every file of the bundle first; default: compare names, sizes and times, and hash only files newer "
        "than the manifest.",
    ),
]

# One shard of many.
Shards = Annotated[
    Path | None, _shard("--shards", metavar="FILE", help="The shard plan that `lbx submit` wrote; needs --shard.")
]
ShardNumber = Annotated[int | None, _shard("--shard", metavar="I", min=0, help="Run only shard I, counted from 0.")]
Scratch = Annotated[
    Path | None,
    _shard(
        "--scratch",
        metavar="DIR",
        help="A folder on this machine's own disk: write there, and copy to the results file at intervals and at "
        "the end, however the run ends.",
    ),
]
CopyEvery = Annotated[
    float,
    _shard(
        "--copy-every", metavar="MIN", min=0, help="With --scratch: minutes between copies; 0 copies at the end only."
    ),
]

# Output.
ResultsOutput = Annotated[
    Path, _output("--output", "-o", metavar="FILE", help="The results file; created where there is none.")
]
Log = Annotated[
    Path | None,
    _output("--log", metavar="FILE", help="Write a progress line every minute here; default: RESULTS.log."),
]
AsJson = Annotated[bool, _output("--json", help="Print the answer as JSON.")]

# Of commands that read a results file.
Results = Annotated[Path, typer.Argument(help="The results file that `lbx run` wrote.", metavar="RESULTS")]
OnlyRuns = Annotated[list[str] | None, typer.Option("--run", metavar="RUN", help="Only this run. Can be repeated.")]
Workers = Annotated[int, typer.Option("--workers", metavar="N", min=0, help="Processes; 0 means one for each core.")]

# Of commands that serve a page.
Host = Annotated[str, _web("--host", metavar="ADDRESS", help="Where to listen; other machines only if you insist.")]
Port = Annotated[int, _web("--port", metavar="N", min=0, max=65535, help="The port; 0 takes any that is free.")]
Uds = Annotated[
    Path | None,
    _web("--uds", metavar="FILE", help="Listen at a Unix socket instead: the way into a container without network."),
]
Others = Annotated[
    bool, _web("--others-may-reach-it", help="Allow a --host that other machines can reach, unencrypted.")
]
