"""Options of the commands that import, export and merge results."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from lbx.cli.loading import completed_by
from lbx.cli.options import A_RUN, AsJson, OnlyRuns, Results, Workers, bundle_option
from lbx.cli.spec_options import of_run

Format = Annotated[
    str,
    typer.Argument(
        help="Whose files: the benchmark's name, such as longbench; leval_judge, leval_ratings.",
        metavar="FORMAT",
        autocompletion=completed_by("formats"),
    ),
]
RatingSet = Annotated[
    str | None,
    typer.Option(
        "--set",
        metavar="SET",
        help="leval_ratings: the questions' set; default: the only one, or made from the content.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Score:
    """Example: lbx score results.duckdb"""

    results: Results
    runs: OnlyRuns = ()
    embedding: Annotated[str | None, of_run("embedding")] = None
    bundle: Annotated[Path | None, bundle_option("The folder that `lbx unpack` made.")] = None
    workers: Workers = 0
    threads: Annotated[int | None, of_run("threads")] = None
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class Import:
    """Example: lbx import longbench pred/llama3-8b-instruct --model llama3-8b-instruct -o results.duckdb"""

    BRIEF: ClassVar[Sequence[str]] = ("output", "model", "name", "e", "bundle")

    file_format: Format
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The folder or file that the official script wrote.")]
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="The results file; created where there is none."),
    ]
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="NAME",
            help="The model's name in reports. Needed for predictions alone: a judge's stands in its file.",
        ),
    ] = None
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Name of the run; default: made from the content."),
    ] = None
    e: Annotated[
        bool, typer.Option("--e", help="The predictions are LongBench-E's; a folder pred_e in the path says the same.")
    ] = False
    bundle: Annotated[
        Path | None,
        bundle_option(
            "Match rows to this bundle's samples, to compare with runs of lbx; rows that it does not have are "
            "named, and taken as they stand.",
            variable=False,  # only on request: matching rows to samples results in a different run
        ),
    ] = None
    strip_reasoning: Annotated[
        bool,
        typer.Option(
            "--strip-reasoning",
            help="Score answers without their blocks of reasoning (<think>...</think>), which are kept as `reasoning`.",
        ),
    ] = False
    set_id: RatingSet = None
    rater: Annotated[
        str | None,
        typer.Option("--rater", metavar="NAME", help="leval_ratings: whose they are, where no file's name says it."),
    ] = None
    metadata: Annotated[tuple[str, ...], of_run("metadata")] = ()
    workers: Workers = 0
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class Export:
    """Example: lbx export longbench results.duckdb --run RUN -o LongBench"""

    BRIEF: ClassVar[Sequence[str]] = ("runs", "output", "official", "judged", "bundle", "force")

    file_format: Format
    results: Results
    runs: Annotated[
        tuple[str, ...],
        typer.Option(
            "--run",
            metavar="RUN",
            help=f"The run: {A_RUN}. Can be repeated; default: the only one.",
            autocompletion=completed_by("runs"),
        ),
    ] = ()
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", help="The folder to write into; created where there is none."),
    ]
    set_id: RatingSet = None
    rater: Annotated[
        str | None,
        typer.Option("--rater", metavar="NAME", help="leval_ratings: whose; default: the only one's."),
    ] = None
    bundle: Annotated[
        Path | None,
        bundle_option("The bundle of the questions: leval_ratings, leval_judge, --judged."),
    ] = None
    documents: Annotated[
        Path | None,
        typer.Option(
            "--documents", metavar="FILE", help="leval_ratings: a file with the documents, as claude.gpt4.ref.jsonl."
        ),
    ] = None
    official: Annotated[
        bool,
        typer.Option(
            "--results",
            help="Write what the official scorer makes of these answers (result.json, summary.json, leaderboard "
            "tables), byte for byte, instead of the answers.",
        ),
    ] = False
    judged: Annotated[
        str | None,
        typer.Option(
            "--judged",
            metavar="METRIC",
            help="leval: the answers for a judge, as llm_gpt4_eval, human_eval or llm_turbo_eval; needs --bundle.",
        ),
    ] = None
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """Without KEY=VALUE: what is recorded.

    Example: lbx metadata results.duckdb --run RUN PE=no "Max-Ctx=16k" IDD=no
    """

    results: Results
    said: Annotated[
        tuple[str, ...], typer.Argument(metavar="[KEY=VALUE]...", help="What to record; KEY= removes it.")
    ] = ()
    run: Annotated[
        str | None,
        typer.Option(
            "--run",
            metavar="RUN",
            help=f"The run: {A_RUN}; default: the only one.",
            autocompletion=completed_by("runs"),
        ),
    ] = None
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class Merge:
    """Runs of one name with other settings or bundles are refused, and so are two different answers to one question; an
    answer takes the place of a failed or empty one. With --force again into the same file: nothing it holds is lost.
    Exit code 3: samples are missing or have failed.

    Example: lbx merge a.duckdb b.duckdb -o all.duckdb
    """

    sources: Annotated[
        tuple[Path, ...], typer.Argument(metavar="FILES", help="Results files, or the folder of `lbx submit`.")
    ]
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The new results file; a folder's own results.duckdb."),
    ] = None
    shards: Annotated[
        Path | None, typer.Option("--shards", metavar="FILE", help="The shard plan, which says what there should be.")
    ] = None
    force: Annotated[
        bool, typer.Option("--force", help="Merge into the output if it exists: what it alone holds stays.")
    ] = False
    as_json: AsJson = False
