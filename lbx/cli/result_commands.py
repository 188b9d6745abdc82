"""``lbx score``, ``lbx import`` and ``lbx export``: what is done to a results file without a model."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lbx.cli.options import AsJson, Embedding, Results, Threads, Workers
from lbx.cli.output import CountProgress, answer, answer_json, note
from lbx.cli.run_setup import load_embedding_model, open_bundle
from lbx.errors import LbxError, UsageError

if TYPE_CHECKING:
    from lbx.layout import Bundle
    from lbx.store import Store


_NOTES = 5


class PredictionFormat(StrEnum):
    LONGBENCH = "longbench"
    LONGBENCH_V2 = "longbench_v2"
    LONGBENCH_PRO = "longbench_pro"
    LVEVAL = "lveval"
    LEVAL = "leval"


Format = Annotated[PredictionFormat, typer.Argument(help="Whose files: the benchmark's name.", metavar="FORMAT")]
OptionalBundle = Annotated[Path | None, typer.Option("--bundle", "-b", help="The folder that `lbx unpack` made.")]


def score(
    *,
    results: Results,
    runs: Annotated[list[str] | None, typer.Option("--run", help="Only this run; repeat for several.")] = None,
    embedding: Embedding = None,
    bundle: OptionalBundle = None,
    workers: Workers = 0,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Score stored outputs again with this lbx's metrics; older metric versions stay beside the new one.

    Example: lbx score results.duckdb
    """
    from lbx.report.views import check_runs
    from lbx.store import Store

    if threads and not embedding:
        raise UsageError("--threads is for an embedding model, and none is named.", fix="Name one with --embedding.")
    if not results.is_file() or not results.stat().st_size:  # opening it for writing would make it one
        raise LbxError(f"There is no results file at {results}.", fix="It is what `lbx run -o FILE` writes.")
    with Store(results) as store:
        check_runs(store, runs or ())
        scored = score_with(store, open_bundle(bundle), embedding, run_ids=runs or (), workers=workers, threads=threads)
    if as_json:
        answer_json(json.dumps({"scored": scored}))
    else:
        answer(f"{scored:,} outputs scored in {results}")


def score_with(
    store: Store,
    bundle: Bundle | None,
    embedding: str | None,
    *,
    run_ids: Sequence[str],
    workers: int,
    threads: int | None = None,
) -> int:
    """Score outputs, with an embedding model where one is named; returns how many."""
    from lbx.benchmarks import BENCHMARKS
    from lbx.engine.scoring import Rescoring, rescore
    from lbx.engine.similarity import Similarities
    from lbx.store.caches import embedding_models

    stored = embedding if embedding in embedding_models(store) else None
    embedder = load_embedding_model(embedding, bundle, threads) if embedding and not stored else None
    try:
        with CountProgress("texts embedded") as embedded, CountProgress("outputs scored") as progress:
            similarities = Similarities(embedder, model=stored, progress=embedded.count)
            return rescore(store, Rescoring(BENCHMARKS, run_ids, similarities, workers), progress.count)
    finally:
        if embedder:
            embedder.close()


def import_(
    *,
    file_format: Format,
    path: Annotated[Path, typer.Argument(help="The folder or file that the official script wrote.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The results file; made when missing.")],
    model: Annotated[str, typer.Option("--model", "-m", help="The model's name in reports.")],
    name: Annotated[str | None, typer.Option("--run", help="Name of the run; made up without.")] = None,
    e: Annotated[
        bool, typer.Option("--e", help="They are LongBench-E's; a folder pred_e in the path says so, too.")
    ] = False,
    bundle: Annotated[
        Path | None,
        typer.Option("--bundle", "-b", help="Match rows to this bundle's samples, to compare with runs of lbx."),
    ] = None,
    workers: Workers = 0,
    as_json: AsJson = False,
) -> None:
    """Read an official script's predictions into a results file and score them.

    Example: lbx import longbench pred/llama3-8b-instruct --model llama3-8b-instruct -o results.duckdb
    """
    from lbx.exchange import understand, write_predictions
    from lbx.store import Store

    Store.check(output)
    opened = open_bundle(bundle)
    # Before the results file is opened, so that none is made for predictions that cannot be taken.
    understood = understand(file_format.value, path, model=model, run_id=name, bundle=opened, e=e)
    with Store(output) as store:
        done = write_predictions(store, understood)
        _score_import(store, done.run_id, opened, workers)
    if as_json:
        answer_json(json.dumps({"results": str(output), **dataclasses.asdict(done)}))
        return
    failed = f", {done.failed:,} of them errors" if done.failed else ""
    rows = sum(done.counts.values())
    tasks = f"{len(done.counts)} task{'s' if len(done.counts) > 1 else ''}"
    answer(f"{done.run_id}: {rows:,} rows of {tasks}{failed}; results in {output}")
    for text in done.notes[:_NOTES]:
        note(text)
    if len(done.notes) > _NOTES:
        note(f"... and {len(done.notes) - _NOTES:,} more rows like these (--json names all)")
    if done.ignored:
        note(f"Not predictions, and left alone: {', '.join(done.ignored)}")


def _score_import(store: Store, run_id: str, bundle: Bundle | None, workers: int) -> None:
    status = "interrupted"
    try:
        score_with(store, bundle, None, run_ids=[run_id], workers=workers)
        status = "done"
    finally:
        store.finish_run(run_id, status)


def export(
    *,
    file_format: Format,
    results: Results,
    run: Annotated[str, typer.Option("--run", help="The run.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write into; made when missing.")],
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a run's answers in the official script's format, for its own scorer to read.

    Example: lbx export longbench results.duckdb --run RUN -o pred/my-model
    """
    from lbx.exchange import export_predictions
    from lbx.report.views import check_runs
    from lbx.store import Store

    with Store(results, read_only=True) as store:
        check_runs(store, [run])
        done = export_predictions(store, file_format.value, run, output, force=force)
        ((status,),) = store.query("SELECT status FROM runs WHERE run_id = ?", [run]).rows
    if status != "done":
        note(f"The run {run} is {status}: its files may lack rows.")
    if as_json:
        answer_json(json.dumps(dataclasses.asdict(done), default=str))
        return
    left_out = "".join(f"; left out: {count:,} {why}" for why, count in done.left_out.items())
    answer(f"{done.rows:,} rows in {len(done.files)} files in {output}{left_out}")
