"""Options of the commands that import, export and merge results."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from lbx.options.common import (
    BUNDLE,
    FORMAT_NAME,
    NAME,
    OUTPUT,
    RATER,
    REPLACE,
    RUN,
    RUN_FORMS,
    SHARD_PLAN,
    AsJson,
    OnlyRuns,
    Processes,
    ResultsArgument,
)
from lbx.options.option import Argument, Option, option_of
from lbx.options.run_spec import RunSpec

FormatArgument = Annotated[
    str,
    FORMAT_NAME.with_help(
        "Format of the files: a benchmark's name, such as longbench, or leval_judge or leval_ratings; to import "
        "LongBench from another harness, lm_eval or opencompass.",
        completion="formats",
    ),
]
ExportFormatArgument = Annotated[
    str,
    FORMAT_NAME.with_help(
        "Format of the files: a benchmark's name, leval_judge, leval_ratings, or the format of another tool: "
        "every_eval_ever, inspect, lm_eval, or model_index for a model card.",
        completion="export_formats",
    ),
]
RatingSetOption = Annotated[
    str | None,
    Option(
        "leval_ratings: the set of questions; default: the only one, or computed from the content.", "SET", ("--set",)
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
    embedding: Annotated[str | None, option_of(RunSpec, "embedding")] = None
    bundle: Annotated[
        Path | None, BUNDLE.with_help("The folder created by `lbx unpack`, with the embedding model or with new rules.")
    ] = None
    output: Annotated[
        Path | None,
        OUTPUT.with_help("A new results file, with scores by the bundle's rules."),
    ] = None
    processes: Processes = None
    threads: Annotated[int | None, option_of(RunSpec, "threads")] = None
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """Example: lbx import longbench pred/llama3-8b-instruct --model-name llama3-8b-instruct -o results.duckdb"""

    BRIEF: ClassVar[Sequence[str]] = ("output", "model_name", "name", "e", "bundle")

    file_format: FormatArgument
    path: Annotated[Path, Argument("The folder or file written by the official script.", "PATH")]
    output: Annotated[
        Path,
        OUTPUT.with_help("The results file; created if missing."),
    ]
    model_name: Annotated[
        str | None,
        Option(
            "The model's name in reports. Only predictions need it: a file of judgements contains its judge's name.",
            "NAME",
        ),
    ] = None
    name: Annotated[
        str | None,
        NAME.with_help("Name of the run; default: computed from the content."),
    ] = None
    e: Annotated[bool, Option("The predictions are for LongBench-E; a folder pred_e in the path implies it.")] = False
    bundle: Annotated[
        Path | None,
        BUNDLE.with_help(
            "Match rows to this bundle's samples, to compare with runs of lbx. Rows without a match are "
            "reported and imported unchanged.",
            variable="",  # only on request: matching rows to samples results in a different run
        ),
    ] = None
    strip_reasoning: Annotated[
        bool,
        Option(
            "Remove reasoning blocks (<think>...</think>) from answers before scoring; they are kept as `reasoning`."
        ),
    ] = False
    set_id: RatingSetOption = None
    rater: Annotated[
        str | None,
        RATER.with_help("leval_ratings: the rater, if no file name contains it."),
    ] = None
    metadata: Annotated[tuple[str, ...], option_of(RunSpec, "metadata")] = ()
    processes: Processes = None
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Example: lbx export longbench results.duckdb --run RUN -o LongBench"""

    BRIEF: ClassVar[Sequence[str]] = ("runs", "output", "official", "judged", "bundle", "force")

    file_format: ExportFormatArgument
    results: ResultsArgument
    runs: Annotated[
        tuple[str, ...],
        RUN.with_help(f"The run: {RUN_FORMS}. Can be repeated; default: the only one."),
    ] = ()
    output: Annotated[
        Path,
        OUTPUT.with_help("The folder to write into; created if missing.", metavar="DIR"),
    ]
    set_id: RatingSetOption = None
    rater: Annotated[
        str | None,
        RATER.with_help("leval_ratings: the rater; default: the only one."),
    ] = None
    bundle: Annotated[
        Path | None,
        BUNDLE.with_help("The bundle with the questions, for leval_ratings, leval_judge and --judged."),
    ] = None
    documents_file: Annotated[
        Path | None,
        Option("leval_ratings: a file with the documents, such as claude.gpt4.ref.jsonl.", "FILE"),
    ] = None
    official: Annotated[
        bool,
        Option(
            "Write the official scorer's output for these answers (result.json, summary.json, leaderboard "
            "tables), byte for byte, instead of the answers.",
            names=("--results",),
        ),
    ] = False
    judged: Annotated[
        str | None,
        Option(
            "leval: write the answers for a judge: llm_gpt4_eval, human_eval or llm_turbo_eval; needs --bundle.",
            "METRIC",
        ),
    ] = None
    force: Annotated[bool, REPLACE] = False
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class MergeOptions:
    """Refuses runs with one name but different settings or bundles, and two different answers to one question; an
    answer replaces a failed or empty one. With --update, merges again into the same file and keeps all of its rows.
    Exit code 3: samples are missing or have failed.

    Example: lbx merge a.duckdb b.duckdb -o all.duckdb
    """

    sources: Annotated[tuple[Path, ...], Argument("Results files, or the folder of `lbx submit`.", "FILES")]
    output: Annotated[
        Path | None,
        OUTPUT.with_help("The new results file; default for a folder: its results.duckdb."),
    ] = None
    shard_plan: Annotated[Path | None, SHARD_PLAN] = None
    update: Annotated[bool, Option("Merge into an existing output; rows that only the output has are kept.")] = False
    as_json: AsJson = False
