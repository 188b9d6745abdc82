"""``lbx score``, ``lbx import`` and ``lbx export``: what is done to a results file without a model."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lbx.base.commands import as_command
from lbx.base.errors import UsageError
from lbx.cli.options import AsJson, OnlyRuns, Results, Workers
from lbx.cli.output import RunBar, answer, answer_json, note, notes
from lbx.cli.rating_files import export_ratings, import_ratings
from lbx.cli.spec_options import of_run
from lbx.planning.option import key_values

if TYPE_CHECKING:
    from lbx.base.layout import Bundle
    from lbx.store import Store


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
    from lbx.base.layout import Bundle
    from lbx.benchmarks import judge_forms, rating_forms
    from lbx.exchange import understand, write_predictions
    from lbx.store import Store

    if form := rating_forms().get(file_format):
        import_ratings(form, path, output, rater=rater, set_id=set_id, bundle=bundle, as_json=as_json)
        return
    Store.check(output)
    opened = Bundle(bundle) if bundle else None
    # Before the results file is opened, so that none is made for predictions that cannot be taken.
    told = key_values("--metadata", metadata or ())
    if file_format in judge_forms():
        _import_judge(file_format, path, output, model=model, name=name, bundle=opened, metadata=told, as_json=as_json)
        return
    understood = understand(file_format, path, model=model or "", run_id=name, bundle=opened, e=e, metadata=told)
    with Store(output) as store:
        done = write_predictions(store, understood)
        _score_import(store, done.run_id, workers)
    if as_json:
        answer_json(json.dumps({"results": str(output), **dataclasses.asdict(done)}))
        return
    failed = f", {done.failed:,} of them errors" if done.failed else ""
    failed += f", {done.unmatched:,} of them not in the bundle" if done.unmatched else ""
    rows = sum(done.counts.values())
    tasks = f"{len(done.counts)} task{'s' if len(done.counts) > 1 else ''}"
    answer(f"{done.run_id}: {rows:,} rows of {tasks}{failed}; results in {output}")
    notes(done.notes)
    if done.ignored:
        note(f"Not predictions, and left alone: {', '.join(done.ignored)}")


def _import_judge(
    form: str,
    path: Path,
    output: Path,
    *,
    model: str | None,
    name: str | None,
    bundle: Bundle | None,
    metadata: Mapping[str, str],
    as_json: bool,
) -> None:
    """Raises UsageError, BundleError, StoreError: see ``lbx.exchange.write_judgements``."""
    from lbx.exchange import understand_judgements, write_judgements
    from lbx.store import Store

    read = understand_judgements(form, path, model=model, run_id=name, bundle=bundle, metadata=metadata)
    with Store(output) as store:
        done = write_judgements(store, read)
        for run in done:
            _score_import(store, run.run_id, 1)
    if as_json:
        answer_json(json.dumps({"results": str(output), "runs": [dataclasses.asdict(run) for run in done]}))
        return
    for run in done:
        failed = f", {run.failed:,} of them errors" if run.failed else ""
        answer(f"{run.run_id}: {run.rounds:,} rounds about {' and '.join(run.compared)}{failed}; results in {output}")
        for line in run.numbers:
            answer(line)
        notes(run.notes)


def _score_import(store: Store, run_id: str, workers: int) -> None:
    """Score a run that was just imported, and close it."""
    from lbx.running.rescoring import score_with

    status = "interrupted"
    try:
        with RunBar() as bar:
            score_with(store, None, run_ids=[run_id], workers=workers, listener=bar)
        status = "done"
    finally:
        store.finish_run(run_id, status)


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
    from lbx.base.layout import Bundle
    from lbx.benchmarks import judge_forms, official_judges, rating_forms
    from lbx.exchange import export as export_runs
    from lbx.exchange import export_judged, export_judgements
    from lbx.store import Store

    if form := rating_forms().get(file_format):
        export_ratings(
            form,
            results,
            output,
            set_id=set_id,
            rater=rater,
            bundle=bundle,
            documents=documents,
            force=force,
            as_json=as_json,
        )
        return
    judgements = file_format in judge_forms()
    if not runs:
        listed = as_command("lbx", "sql", results, "SELECT run_id, model FROM runs")
        raise UsageError("No run is named.", fix="Name it with --run.", command=listed)
    if official and judgements:
        raise UsageError("--results is for answers: judgements bring their numbers along.", fix="Leave it out.")
    if judged and (file_format not in official_judges() or official or not bundle):
        whose = " or ".join(official_judges())
        raise UsageError(f"--judged is for {whose}, needs --bundle, and goes without --results.", fix="See --help.")
    with Store(results, read_only=True) as store:
        if judgements:
            opened = Bundle(bundle) if bundle else None
            done = export_judgements(store, file_format, runs, output, bundle=opened, force=force)
        elif judged and bundle:
            done = export_judged(store, judged, runs, Bundle(bundle), output, force=force)
        else:
            done = export_runs(store, file_format, runs, output, results=official, force=force)
        lacking = [text for run in runs for text in _lacking(store, run, file_format)]
    for text in lacking:
        note(text)
    if as_json:
        answer_json(json.dumps(dataclasses.asdict(done), default=str))
        return
    left_out = "".join(f"; left out: {count:,} {why}" for why, count in done.left_out.items())
    files = f"{len(done.files)} file{'s' if len(done.files) > 1 else ''}"
    said = f"{files} made of {done.rows:,} answers" if official else f"{done.rows:,} rows in {files}"
    answer(f"{said} in {output}{left_out}")


def _lacking(store: Store, run: str, benchmark: str) -> Iterator[str]:
    """What a reader of a run's files must know: that it has no end yet, or not every sample."""
    ((status,),) = store.query("SELECT status FROM runs WHERE run_id = ?", [run]).rows
    if status != "done":
        yield f"The run {run} is {status}: its files may lack rows."
    parts = store.query(
        "SELECT task, samples, bundle_samples FROM coverage WHERE run_id = ? AND benchmark = ? "
        "AND samples < bundle_samples ORDER BY ALL",
        [run, benchmark],
    ).rows
    if parts:
        told = ", ".join(f"{task} ({samples:,} of {every:,} samples)" for task, samples, every in parts)
        yield f"The run {run} answered only a part of {told}; the official scorer takes every file to be complete."


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
    from lbx.store import Store, is_results_file
    from lbx.store.runs import metadata as held
    from lbx.store.runs import set_metadata

    changes = key_values("lbx metadata", said or ())
    only_read = not changes or not is_results_file(results)  # opening what is none for writing would make it one
    with Store(results, read_only=only_read) as store:
        told = set_metadata(store, run, changes) if changes else held(store, run)
    if as_json:
        answer_json(json.dumps(told, ensure_ascii=False))
    else:
        for line in [f"{key}={value}" for key, value in told.items()] or [f"Nothing is recorded about {run}."]:
            answer(line)
