"""``lbx plan``: what a run would read and take, computed without running it."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lbx.cli.choosing import choice_of, choose_samples
from lbx.cli.options import (
    AsJson,
    BackendName,
    Batching,
    BundleDir,
    Chat,
    ChunkWords,
    Cot,
    Documents,
    DrawSamples,
    Ids,
    Iterations,
    Limit,
    MaxNewTokens,
    MaxPromptTokens,
    Model,
    NoContext,
    Rag,
    Retriever,
    Seed,
    Tasks,
    Thinking,
    ThinkingTokens,
    Threads,
)
from lbx.cli.output import CountProgress, announce, answer_json, note
from lbx.cli.planning import known_costs, show
from lbx.cli.run_setup import (
    Retrieval,
    check_reasoning_budget,
    choose_tasks,
    finder_for,
    load_model,
    load_to_count,
    make_run_row,
    make_work,
)
from lbx.errors import DoesNotFitError

if TYPE_CHECKING:
    from lbx.cli.run_setup import Loaded
    from lbx.engine.planning.estimate import Costs
    from lbx.engine.work import Work


def plan(
    *,
    bundle: BundleDir,
    model: Model,
    task_names: Tasks,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="A results file: what runs in it took says how long this one takes."
        ),
    ] = None,
    backend: BackendName = None,
    limit: Limit = None,
    documents: Documents = None,
    sample: DrawSamples = None,
    seed: Seed = 0,
    ids: Ids = None,
    iterations: Iterations = None,
    max_prompt_tokens: MaxPromptTokens = None,
    max_new_tokens: MaxNewTokens = None,
    chat: Chat = True,
    thinking: Thinking = None,
    thinking_tokens: ThinkingTokens = None,
    cot: Cot = False,
    no_context: NoContext = False,
    rag: Rag = 0,
    retriever: Retriever = "bm25",
    chunk_words: ChunkWords = None,
    batching: Batching = True,
    workers: Annotated[int, typer.Option("--workers", metavar="N", min=0, help="As `lbx run` would be given.")] = 0,
    threads: Threads = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate/--no-calibrate", help="Compute for a few seconds to tell how long a run takes.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Say what a run would read and take: tokens, shared prefixes, truncation, memory, time.

    Nothing is run but a calibration of a few seconds, and none where a results file (-o) tells of earlier sessions.

    Example: lbx plan --bundle demo --model demo-hf --tasks needle
    """
    from lbx.engine.planning.memory_use import Free
    from lbx.engine.planning.outlook import look_ahead
    from lbx.engine.settings import RunSettings
    from lbx.layout import Bundle

    settings = RunSettings(
        iterations=iterations,
        max_prompt_tokens=max_prompt_tokens,
        max_new_tokens=max_new_tokens,
        chat=chat,
        seed=seed,
        thinking=thinking,
        thinking_tokens=thinking_tokens,
        cot=cot,
        no_context=no_context,
        rag=rag,
        batching=batching,
    )
    opened = Bundle(bundle)
    tasks = choose_tasks(opened, task_names, settings)
    selection = choose_samples(opened, tasks, choice_of(limit, documents, sample, seed, ids))
    finder = finder_for(Retrieval(rag, retriever, chunk_words, threads), opened)
    free = Free.now()
    if workers:
        _take_share_of(workers)
    try:
        loaded = load_model(opened, tasks, model, backend, threads)
    except DoesNotFitError as error:
        loaded, calibrate = load_to_count(opened, tasks, model, backend, threads), False
        note(f"{error} Its tokens are counted all the same.")
    try:
        check_reasoning_budget(loaded, settings)
        work = make_work(loaded, settings, selection, finder.find if finder else None)
        known = _known(output, loaded, work, workers)
        with CountProgress("counted") as progress:
            outlook = look_ahead(
                [work],
                free=free,
                workers=workers,
                known=known,
                measure=calibrate,
                progress=progress.count,
                say=announce,
            )
    finally:
        loaded.backend.close()
    if as_json:
        answer_json(json.dumps(outlook.to_json(), ensure_ascii=False))
    else:
        show(outlook)


def _take_share_of(workers: int) -> None:
    """Have this process compute on what the first of so many workers would get."""
    from lbx.engine.workers.devices import VISIBLE, share_out

    share = share_out(workers)[0]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, share.cores)
    if share.gpus is not None:
        os.environ[VISIBLE] = share.gpus


def _known(output: Path | None, loaded: Loaded, work: Work, workers: int) -> Costs | None:
    """What the results file, where it is one, says of this model's speed."""
    from lbx.store import Store

    if output is None or not output.exists():
        return None
    recommended = loaded.card.sampling or loaded.backend.info.default_sampling
    settings = dataclasses.replace(work.settings, model_sampling=recommended)
    row = make_run_row(None, dataclasses.replace(work, settings=settings), "")
    with Store(output, read_only=True) as store:
        return known_costs(store, row, workers)
