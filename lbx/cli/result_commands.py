"""``lbx score``, ``lbx import`` and ``lbx export``: what is done to a results file without a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from lbx.base.errors import UsageError
from lbx.cli.options import AsJson, OnlyRuns, Results, Workers
from lbx.cli.output import RunBar, answer, answer_json
from lbx.cli.spec_options import of_run


def _format_names() -> list[str]:
    from lbx.benchmarks import format_names, judge_forms, rating_forms

    return [*format_names(), *judge_forms(), *rating_forms()]


Format = Annotated[
    str,
    typer.Argument(
        help="Whose files: the benchmark's name, such as longbench; leval_judge, fastchat, leval_ratings.",
        metavar="FORMAT",
        autocompletion=_format_names,
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
OptionalBundle = Annotated[
    Path | None,
    typer.Option("--bundle", "-b", metavar="DIR", help="The folder that `lbx unpack` made."),
]


def score(
    *,
    results: Results,
    runs: OnlyRuns = None,
    embedding: Annotated[str | None, of_run("embedding")] = None,
    bundle: OptionalBundle = None,
    workers: Workers = 0,
    threads: Annotated[int | None, of_run("threads")] = None,
    as_json: AsJson = False,
) -> None:
    """Score stored outputs again with this lbx's metrics; older metric versions stay beside the new one.

    Example: lbx score results.duckdb
    """
    from lbx.running.rescoring import score as score_results

    if threads and not embedding:
        raise UsageError("--threads is for an embedding model, and none is named.", fix="Name one with --embedding.")
    with RunBar() as bar:
        scored = score_results(
            results,
            runs=runs or (),
            embedding=embedding,
            bundle=bundle,
            workers=workers,
            threads=threads,
            listener=bar,
        )
    if as_json:
        answer_json(json.dumps({"scored": scored}))
    else:
        answer(f"{scored:,} outputs scored in {results}")


def import_(
    *,
    file_format: Format,
    path: Annotated[Path, typer.Argument(help="The folder or file that the official script wrote.")],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="The results file; created where there is none."),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="NAME",
            help="The model's name in reports. Needed for predictions alone: a judge's stands in its file.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--run", metavar="RUN", help="Name of the run; default: made from the content."),
    ] = None,
    e: Annotated[
        bool, typer.Option("--e", help="The predictions are LongBench-E's; a folder pred_e in the path says the same.")
    ] = False,
    bundle: Annotated[
        Path | None,
        typer.Option(
            "--bundle",
            "-b",
            metavar="DIR",
            help="Match rows to this bundle's samples, to compare with runs of lbx; rows that it does not have are "
            "named, and taken as they stand.",
        ),
    ] = None,
    set_id: RatingSet = None,
    rater: Annotated[
        str | None,
        typer.Option("--rater", metavar="NAME", help="leval_ratings: whose they are, where no file's name says it."),
    ] = None,
    metadata: Annotated[list[str] | None, of_run("metadata")] = None,
    workers: Workers = 0,
    as_json: AsJson = False,
) -> None:
    """Read an official script's predictions into a results file and score them; or judgements, or people's ratings.

    Example: lbx import longbench pred/llama3-8b-instruct --model llama3-8b-instruct -o results.duckdb
    """
    from lbx.cli.exchanging import import_files

    import_files(
        file_format=file_format,
        path=path,
        output=output,
        model=model,
        name=name,
        e=e,
        bundle=bundle,
        set_id=set_id,
        rater=rater,
        metadata=metadata,
        workers=workers,
        as_json=as_json,
    )


def export(
    *,
    file_format: Format,
    results: Results,
    runs: Annotated[list[str] | None, typer.Option("--run", metavar="RUN", help="The run. Can be repeated.")] = None,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", help="The folder to write into; created where there is none."),
    ],
    set_id: RatingSet = None,
    rater: Annotated[
        str | None,
        typer.Option("--rater", metavar="NAME", help="leval_ratings: whose; default: the only one's."),
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(
            "--bundle", "-b", metavar="DIR", help="The bundle of the questions: leval_ratings, leval_judge, --judged."
        ),
    ] = None,
    documents: Annotated[
        Path | None,
        typer.Option(
            "--documents", metavar="FILE", help="leval_ratings: a file with the documents, as claude.gpt4.ref.jsonl."
        ),
    ] = None,
    official: Annotated[
        bool,
        typer.Option(
            "--results",
            help="Write what the official scorer makes of these answers (result.json, summary.json, leaderboard "
            "tables), byte for byte, instead of the answers.",
        ),
    ] = False,
    judged: Annotated[
        str | None,
        typer.Option(
            "--judged",
            metavar="METRIC",
            help="leval: the answers for a judge, as llm_gpt4_eval, human_eval or llm_turbo_eval; needs --bundle.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write runs' answers in the official script's format, for its own scorer to read, or what that would write.

    Example: lbx export longbench results.duckdb --run RUN -o pred/my-model
    """
    from lbx.cli.exchanging import export_files

    export_files(
        file_format=file_format,
        results=results,
        runs=runs,
        output=output,
        set_id=set_id,
        rater=rater,
        bundle=bundle,
        documents=documents,
        official=official,
        judged=judged,
        force=force,
        as_json=as_json,
    )


def metadata(
    *,
    results: Results,
    said: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="What to record; KEY= removes it.")
    ] = None,
    run: Annotated[str, typer.Option("--run", metavar="RUN", help="The run.")],
    as_json: AsJson = False,
) -> None:
    """Record what a run's settings do not say about it, for exported result files, or show what is recorded.

    Example: lbx metadata results.duckdb --run RUN PE=no IDD=no "Max-Ctx=16k"
    """
    from lbx.cli.exchanging import record_metadata

    record_metadata(results=results, said=said, run=run, as_json=as_json)
