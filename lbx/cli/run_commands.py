"""``lbx tasks`` and ``lbx run``."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lbx.cli.asking import Order, run_order
from lbx.cli.choosing import choice_of, choose_samples
from lbx.cli.options import (
    AsJson,
    BackendName,
    Batching,
    BothKinds,
    BundleDir,
    Chat,
    ChunkWords,
    CopyEvery,
    Cot,
    Documents,
    DrawSamples,
    Embedding,
    HashBundle,
    Ids,
    Iterations,
    Limit,
    MaxNewTokens,
    MaxPromptTokens,
    Model,
    ModelWorkers,
    NoContext,
    Rag,
    Retriever,
    SamplingSource,
    Scratch,
    Seed,
    ShardNumber,
    Shards,
    Tasks,
    Thinking,
    ThinkingTokens,
    Threads,
    VerifyBatching,
)
from lbx.cli.output import ByteProgress, CountProgress, answer, answer_json, note, stdout
from lbx.cli.run_setup import (
    Retrieval,
    check_embedding,
    choose_tasks,
    finder_for,
    model_server,
)
from lbx.cli.sharding import shard_of, written_beside_copies
from lbx.cli.stopping import saying
from lbx.cli.watching import log_beside
from lbx.errors import LbxError, UsageError

if TYPE_CHECKING:
    from lbx.engine.retrieving import StoredChunks
    from lbx.engine.runner import Outcome
    from lbx.engine.selection import Selection
    from lbx.engine.settings import RunSettings
    from lbx.layout import Bundle
    from lbx.records import Task

_EXIT_SOME_FAILED = 3


def tasks(bundle: BundleDir, as_json: AsJson = False) -> None:
    """List what the bundle holds to run.

    Example: lbx tasks --bundle demo
    """
    from lbx.benchmarks import everything
    from lbx.layout import Bundle
    from lbx.report import render
    from lbx.store import Table

    found = everything(Bundle(bundle))
    columns = ["task", "language", "samples", "metrics"]
    table = Table(columns, [(t.full_name, t.language, t.samples, ", ".join(t.metrics)) for t in found])
    if as_json:
        answer_json(render.json_text(table))
    else:
        stdout().print(render.rich_table("", render.plain_columns(table)))
    if not any(task.benchmark == "needle" for task in found):
        note("The built-in needle needs no data and was not bundled: --tasks needle asks it all the same.")


def run(
    *,
    bundle: BundleDir,
    model: Model,
    task_names: Tasks,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The results file; made when missing.")
    ],
    backend: BackendName = None,
    name: Annotated[
        str | None, typer.Option("--run", metavar="NAME", help="Name of the run; made from model and settings without.")
    ] = None,
    limit: Limit = None,
    documents: Documents = None,
    sample: DrawSamples = None,
    ids: Ids = None,
    iterations: Iterations = None,
    max_prompt_tokens: MaxPromptTokens = None,
    max_new_tokens: MaxNewTokens = None,
    sampling: Annotated[
        SamplingSource,
        typer.Option(
            "--sampling",
            metavar="KIND",
            help="official: the benchmark's own temperature; model: what its makers recommend.",
        ),
    ] = SamplingSource.OFFICIAL,
    seed: Seed = 0,
    chat: Chat = True,
    thinking: Thinking = None,
    thinking_tokens: ThinkingTokens = None,
    cot: Cot = False,
    no_context: NoContext = False,
    rag: Rag = 0,
    retriever: Retriever = "bm25",
    chunk_words: ChunkWords = None,
    embedding: Embedding = None,
    batching: Batching = True,
    workers: ModelWorkers = 0,
    threads: Threads = None,
    both_kinds: BothKinds = False,
    verify_batching: VerifyBatching = 0,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Ask samples again that failed in an earlier run.")
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan/--no-plan", help="Count tokens and estimate the time before the first sample.")
    ] = True,
    log: Annotated[
        Path | None,
        typer.Option(
            "--log", metavar="FILE", help="Gets a line a minute; RESULTS.log beside the results file without."
        ),
    ] = None,
    shards: Shards = None,
    shard: ShardNumber = None,
    scratch: Scratch = None,
    copy_every: CopyEvery = 10.0,
    hash_bundle: HashBundle = False,
    as_json: AsJson = False,
) -> None:
    """Ask a model every sample and write answers and scores to one file. The same command again continues.

    Never touches the network, but for the one address of a card with backend = "endpoint". Exit code 3 means done,
    but some samples failed.

    Example: lbx run --bundle demo --model demo-hf --tasks needle -o results.duckdb
    """
    from lbx.bundle import check_unchanged
    from lbx.engine.offline import block_network
    from lbx.engine.settings import RunSettings
    from lbx.layout import Bundle
    from lbx.store import Store

    place = written_beside_copies(output, scratch, copy_every) if scratch else output
    opened = Bundle(bundle)
    server = model_server(opened, model, backend, threads)
    with ByteProgress() as bytes_done:
        checked = check_unchanged(opened.root, bytes_done, hashes=hash_bundle)
    choice = choice_of(limit, documents, sample, seed, ids)
    shard_samples = shard_of(opened, task_names, shards, shard)
    log = log_beside(output, log)
    offline = block_network(server)
    Store.check(place)  # a model may take minutes to load: what can be refused is refused before
    settings = RunSettings(
        iterations=iterations,
        max_prompt_tokens=max_prompt_tokens,
        max_new_tokens=max_new_tokens,
        sampling=sampling.value,
        chat=chat,
        seed=seed,
        thinking=thinking,
        thinking_tokens=thinking_tokens,
        cot=cot,
        no_context=no_context,
        rag=rag,
        batching=batching,
    )
    names, kinds = asked_kinds(settings, name) if both_kinds else ([name], [settings])
    tasks = choose_tasks(opened, task_names, settings)
    selection = choose_samples(opened, tasks, choice) & shard_samples
    if embedding:
        check_embedding(embedding, opened, tasks, place)
    with saying(f"Every answer so far is in {output}."):
        retrieved = _retrieve(place, opened, tasks, selection, Retrieval(rag, retriever, chunk_words, threads))
        order = Order(
            opened.root,
            tasks,
            model,
            backend,
            [dataclasses.replace(one, retriever=retrieved) for one in kinds],
            names,
            selection,
            _stored_chunks(place, retrieved),
            server,
            offline,
            threads,
            checked,
        )
        outcomes = run_order(
            place,
            order,
            workers,
            retry_failed=retry_failed,
            verify=verify_batching,
            plan=plan,
            log=log,
        )
        for run_id in outcomes:
            _score_summaries(place, run_id, opened, tasks, embedding=embedding, threads=threads)
    _finish(outcomes, output, as_json=as_json)


def asked_kinds(settings: RunSettings, name: str | None) -> tuple[list[str | None], list[RunSettings]]:
    """The names and settings of --both-kinds' runs."""
    if settings.thinking is not None:
        raise UsageError("--both-kinds asks with reasoning and without; --thinking and --no-thinking choose one.")
    names = [f"{name}-{kind}" if name else None for kind in ("thinking", "nonthinking")]
    with_reasoning = dataclasses.replace(settings, thinking=True)
    return names, [with_reasoning, dataclasses.replace(settings, thinking=False, thinking_tokens=None)]


def _stored_chunks(output: Path, retriever: str) -> StoredChunks | None:
    from lbx.engine.retrieving import StoredChunks
    from lbx.store import Store

    if not retriever:
        return None
    with Store(output) as store:
        return StoredChunks(store, retriever)


def _retrieve(output: Path, bundle: Bundle, tasks: Sequence[Task], selection: Selection, retrieval: Retrieval) -> str:
    """Find all chunks before a language model takes the memory; returns the retriever's name, "" for none."""
    from lbx.benchmarks import BENCHMARKS
    from lbx.engine.retrieving import find_all
    from lbx.store import Store

    finder = finder_for(retrieval, bundle)
    if finder is None:
        return ""
    try:
        with Store(output) as store, CountProgress("chunks retrieved") as progress:
            chosen = [(BENCHMARKS[task.benchmark], task) for task in tasks]
            find_all(store, finder, bundle, chosen, selection=selection, progress=progress)
    finally:
        finder.close()
    return finder.name


def _score_summaries(
    output: Path, run_id: str, bundle: Bundle, tasks: Sequence[Task], *, embedding: str | None, threads: int | None
) -> None:
    """The half of a summary's score that needs an embedding model, once the language model has gone."""
    from lbx.cli.result_commands import score_with
    from lbx.store import Store

    if not any("similarity" in task.metrics for task in tasks):
        return
    if embedding is None:
        note(
            "Summaries (t4) are scored in part: ROUGE-L alone, without an embedding model. To add it: "
            f"lbx score {output} --embedding CARD --bundle {bundle.root}"
        )
        return
    try:
        with Store(output) as store:
            score_with(store, bundle, embedding, run_ids=[run_id], workers=0, threads=threads)
    except LbxError:
        note(
            f"{run_id}: every answer is in {output}; only the similarities of the summaries (t4) are missing. To add "
            f"them later: lbx score {output} --embedding CARD --bundle {bundle.root}"
        )
        raise


def _finish(outcomes: Mapping[str, Outcome], output: Path, *, as_json: bool) -> None:
    if as_json:
        told = [{"run_id": name, "results": str(output), **dataclasses.asdict(one)} for name, one in outcomes.items()]
        answer_json(json.dumps(told[0] if len(told) == 1 else told))
    for name, outcome in outcomes.items():
        if not as_json:
            found = f", {outcome.found:,} found done" if outcome.found else ""
            if outcome.samples < outcome.bundle_samples:
                found += f"; {outcome.samples:,} of {outcome.bundle_samples:,} samples have an answer"
            answer(f"{name}: {outcome.answered:,} answered, {outcome.failed:,} failed{found}; results in {output}")
        if outcome.verification:
            note(f"{name}: {outcome.verification}")
        if outcome.unclosed:
            note(
                f"{outcome.unclosed:,} answers are empty because their budget ran out inside the reasoning: give it "
                "more (--thinking-tokens N), or ask without (--no-thinking)."
            )
    if any(outcome.failures for outcome in outcomes.values()):
        note(f"Why they failed: lbx report {output} failures")
        raise typer.Exit(_EXIT_SOME_FAILED)
