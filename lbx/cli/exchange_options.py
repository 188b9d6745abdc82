"""Options of the commands that import, export and merge results."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from lbx.cli.loading import completion
from lbx.cli.options import RUN_FORMS, AsJson, OnlyRuns, ResultsArgument, Workers, bundle_option
from lbx.cli.spec_options import spec_option

FormatArgument = Annotated[
    str,
    typer.Argument(
        help="Format of the files: a benchmark's name, such as longbench, or leval_judge or leval_ratings; to import "
        "LongBench from another harness, lm_eval or opencompass.",
        metavar="FORMAT",
        autocompletion=completion("formats"),
    ),
]
ExportFormatArgument = Annotated[
    str,
    typer.Argument(
        help="Format of the files: a benchmark's name, leval_judge, leval_ratings, or the format of another tool: "
        "every_eval_ever, inspect, lm_eval.",
        metavar="FORMAT",
        autocompletion=completion("export_formats"),
    ),
]
RatingSetOption = Annotated[
    str | None,
    typer.Option(
        "--set",
        metavar="SET",
        help="leval_ratings: the set of questions; default: the only one, or computed from the content.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """With --bundle and -o, answers to your own benchmarks are scored by the rules of the bundle, into a new file.
    Metrics, extraction and references may have changed; answers to changed questions are kept with a mark.

    Example: lbx score results.duckdb --bundle handbook-2 -o rescored.duckdb
    """

    results: ResultsArgument
    runs: OnlyRuns = ()
    embedding: Annotated[str | None, spec_option("embedding")] = None
    bundle: Annotated[
        Path | None, bundle_option("The folder created by `lbx unpack`, with the embedding model or with new rules.")
    ] = None
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="A new results file, with scores by the bundle's rules."),
    ] = None
    workers: Workers = 0
    threads: Annotated[int | None, spec_option("threads")] = None
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """Example: lbx import longbench pred/llama3-8b-instruct --model llama3-8b-instruct -o results.duckdb"""

    BRIEF: ClassVar[Sequence[str]] = ("output", "model", "name", "e", "bundle")

    file_format: FormatArgument
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The folder or file written by the official script.")]
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="The results file; created if missing."),
    ]
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="NAME",
            help="The model's name in reports. Only predictions need it: a file of judgements contains its "
            "judge's name.",
        ),
    ] = None
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Name of the run; default: computed from the content."),
    ] = None
    e: Annotated[
        bool, typer.Option("--e", help="The predictions are for LongBench-E; a folder pred_e in the path implies it.")
    ] = False
    bundle: Annotated[
        Path | None,
        bundle_option(
            "Match rows to this bundle's samples, to compare with runs of lbx. Rows without a match are "
            "reported and imported unchanged.",
            variable=False,  # only on request: matching rows to samples results in a different run
        ),
    ] = None
    strip_reasoning: Annotated[
        bool,
        typer.Option(
            "--strip-reasoning",
            help="Remove reasoning blocks (<think>...</think>) from answers before scoring; they are kept as "
            "`reasoning`.",
        ),
    ] = False
    set_id: RatingSetOption = None
    rater: Annotated[
        str | None,
        typer.Option("--rater", metavar="NAME", help="leval_ratings: the rater, if no file name contains it."),
    ] = None
    metadata: Annotated[tuple[str, ...], spec_option("metadata")] = ()
    workers: Workers = 0
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Example: lbx export longbench results.duckdb --run RUN -o LongBench"""

    BRIEF: ClassVar[Sequence[str]] = ("runs", "output", "official", "judged", "bundle", "force")

    file_format: ExportFormatArgument
    results: ResultsArgument
    runs: Annotated[
        tuple[str, ...],
        typer.Option(
            "--run",
            metavar="RUN",
            help=f"The run: {RUN_FORMS}. Can be repeated; default: the only one.",
            autocompletion=completion("runs"),
        ),
    ] = ()
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", help="The folder to write into; created if missing."),
    ]
    set_id: RatingSetOption = None
    rater: Annotated[
        str | None,
        typer.Option("--rater", metavar="NAME", help="leval_ratings: the rater; default: the only one."),
    ] = None
    bundle: Annotated[
        Path | None,
        bundle_option("The bundle with the questions, for leval_ratings, leval_judge and --judged."),
    ] = None
    documents: Annotated[
        Path | None,
        typer.Option(
            "--documents",
            metavar="FILE",
            help="leval_ratings: a file with the documents, such as claude.gpt4.ref.jsonl.",
        ),
    ] = None
    official: Annotated[
        bool,
        typer.Option(
            "--results",
            help="Write the official scorer's output for these answers (result.json, summary.json, leaderboard "
            "tables), byte for byte, instead of the answers.",
        ),
    ] = False
    judged: Annotated[
        str | None,
        typer.Option(
            "--judged",
            metavar="METRIC",
            help="leval: write the answers for a judge: llm_gpt4_eval, human_eval or llm_turbo_eval; needs --bundle.",
        ),
    ] = None
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class MergeOptions:
    """Refuses runs with one name but different settings or bundles, and two different answers to one question; an
    answer replaces a failed or empty one. With --force, merges again into the same file and keeps all of its rows.
    Exit code 3: samples are missing or have failed.

    Example: lbx merge a.duckdb b.duckdb -o all.duckdb
    """

    sources: Annotated[
        tuple[Path, ...], typer.Argument(metavar="FILES", help="Results files, or the folder of `lbx submit`.")
    ]
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The new results file; default for a folder: its results.duckdb."
        ),
    ] = None
    shards: Annotated[
        Path | None, typer.Option("--shards", metavar="FILE", help="The shard plan, which lists the expected samples.")
    ] = None
    force: Annotated[
        bool, typer.Option("--force", help="Merge into an existing output; rows that only the output has are kept.")
    ] = False
    as_json: AsJson = False
