"""Execution of a run into a results file: checks, questions, scores."""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lbx.backends import ModelCard, is_debugging, resolve_embedder
from lbx.backends.embedding import check_embedder
from lbx.backends.endpoint.options import EndpointOptions
from lbx.backends.serving.command import ServerCommand, server_settings
from lbx.base.bundle_folder import Bundle
from lbx.base.errors import LbxError, UsageError
from lbx.base.listener import Listener
from lbx.base.outputs import remove_leftovers
from lbx.base.phases import phases
from lbx.base.resources import CpuTimes, describe_cpu_limit, describe_neighbours
from lbx.base.units import format_count
from lbx.base.visible import as_command
from lbx.benchmarks.registry import BENCHMARKS, embedding_tasks
from lbx.bundle import check_unchanged
from lbx.options.run_spec import RunSpec
from lbx.options.sample_selection import EVERYTHING
from lbx.results import Store
from lbx.results.file.caches import embedding_models
from lbx.results.file.samples import refuse_other_samples
from lbx.results.read.runs import find_run
from lbx.results.whole.commit_copies import open_copy
from lbx.results.whole.run_changes import score_with
from lbx.running.answering import Asker, LocalAsker
from lbx.running.forecast.run_forecast import FreeMemory
from lbx.running.jobs import JobSize, RunQuestions
from lbx.running.models import embedding_servers, make_finder, resolve_card, server_address
from lbx.running.monitor import ProgressTracker, RunMonitor, log_path, record_sessions
from lbx.running.offline import offline
from lbx.running.plan import forecast_run
from lbx.running.preparing import prepare_runs, prepare_worker, resolve
from lbx.running.resolved_run import ResolvedRun, check_samples
from lbx.running.retrieving import StoredChunks, retrieve_all
from lbx.running.run_names import candidate_names
from lbx.running.runner import Outcome, Runner, record_end_status
from lbx.running.sharding import shard_of
from lbx.running.workers.pool import WorkerPool

if TYPE_CHECKING:
    from lbx.backends.serving.process import ModelServer
    from lbx.running.forecast.shards import ShardPlan

log = logging.getLogger("lbx")


def run(
    spec: RunSpec,
    results: str | os.PathLike[str],
    *,
    listener: Listener | None = None,
    retry_failed: bool = False,
    retry_empty: bool = False,
    plan: bool = True,
    hash_bundle: bool = False,
    log_file: str | os.PathLike[str] | None = None,
    shard: tuple[ShardPlan, int] | None = None,
    scratch: str | os.PathLike[str] | None = None,
) -> dict[str, Outcome]:
    """Run every sample through a model, and write answers and scores to one file. The same call again continues.

    Uses no network except the address of a card with ``backend = "endpoint"``.

    Args:
        results: the results file, created if missing.
        listener: receives progress.
        retry_failed: retry samples that failed in an earlier session.
        retry_empty: retry samples with an empty answer.
        plan: count tokens and estimate the time before the first sample.
        hash_bundle: hash every file of the bundle first.
        log_file: receives a line per minute; None: the path of the results file with ``.log`` appended.
        shard: a shard plan (``lbx.running.sharding.plan_shards``), and the number of the shard to run.
        scratch: a folder on a local disk: write there, and copy each commit to ``results``.

    Returns:
        {run's name in the results file: counts of this session}; two runs with ``both_kinds``.

    Raises:
        LbxError: the run cannot begin or continue. Answers so far are safe.
        KeyboardInterrupt: re-raised after all answers are safe.
    """
    listener = listener or Listener()
    cpu_times = CpuTimes.measure()
    output = Path(results)
    disk = None if scratch is None else Path(scratch)
    with _open_output(output, disk) as (path, after_commit):
        bundle = Bundle(Path(spec.bundle))
        card = resolve_card(spec, bundle)
        served = _make_server(spec, card, output)
        address = served.address if served else server_address(card)
        checked = check_unchanged(
            bundle.root, lambda stage, _item, done, total: listener.on_count(stage, done, total), hashes=hash_bundle
        )
        logged_to = log_path(output, None if log_file is None else Path(log_file))
        with served or nullcontext(), offline(address, *embedding_servers(spec, bundle)) as network:
            resolved = resolve(spec)
            Store.check(path)  # loading a model may take minutes, so fail early
            selection = resolved.selection & (EVERYTHING if shard is None else shard_of(*shard, resolved))
            resolved = replace(resolved, selection=selection, server=address, network=network, bundle_check=checked)
            if (serve := resolved.spec.serve) is not None:
                settings = server_settings(ServerCommand.parse(serve), every_byte=resolved.spec.hash_weights)
                resolved = replace(resolved, server_settings=settings)
            check_samples(resolved, path, output)
            _check_embedding(resolved, path)
            resolved = _retrieve(resolved, path, listener)
            ask = functools.partial(
                _ask, listener=listener, retry_failed=retry_failed, retry_empty=retry_empty, log_file=logged_to
            )
            free = FreeMemory.measure() if plan else None  # before the model is loaded
            _log_cpu_limits(resolved, cpu_times)
            began = time.monotonic()
            asker = open_asker(resolved, served)
            load_s = time.monotonic() - began
            try:
                with Store(path, after_commit=after_commit) as store:
                    facts = served.facts if served else dict
                    outcomes = ask(resolved, store, asker, free=free, load_s=load_s, facts=facts)
            finally:
                asker.close()
                if served:
                    served.close()
            for run_id in outcomes:
                _score_summaries(resolved, run_id, path, output, listener)
    return outcomes


@contextmanager
def _open_output(output: Path, scratch: Path | None) -> Iterator[tuple[Path, Callable[[Store], None] | None]]:
    """Yield the path to write to, and the callback after each commit, which updates the copy for ``scratch``."""
    if output.parent.is_dir() and (leftovers := remove_leftovers(output.resolve())):
        log.info(f"Removed leftover files of killed processes: {', '.join(map(str, leftovers))}")
    if scratch is None:
        yield output, None
        return
    with open_copy(output, scratch, log.info) as copies:
        yield copies.path, copies.update


# Modules that only some runs need are imported locally: each takes some CPU milliseconds.


def open_asker(run: ResolvedRun, server: ModelServer | None = None) -> Asker:
    """Load the model in this process, or in as many workers as the spec requests.

    Args:
        server: the model's server, which is started.

    Raises:
        LbxError: the model cannot be loaded.
    """
    if server:
        server.start()
    if run.spec.workers:
        return WorkerPool(functools.partial(prepare_worker, run), run.spec.workers)
    return LocalAsker(functools.partial(prepare_runs, run, server))


def _make_server(spec: RunSpec, card: ModelCard, output: Path) -> ModelServer | None:
    """Make the server that the spec starts, or None without one.

    Raises:
        UsageError: the server's program does not exist, or the port is in use.
    """
    if spec.serve is None:
        return None
    from lbx.backends.serving.process import ModelServer

    log_file = output.with_name(f"{output.name}.server.log")
    command = ServerCommand.parse(spec.serve)
    return ModelServer(command, card.options_as(EndpointOptions), log_file, spec.serve_timeout_s)


def _log_cpu_limits(run: ResolvedRun, since: CpuTimes) -> None:
    """Log CPU limits, and other processes that slow down a model that computes on this machine."""
    if run.server and not run.server_settings:
        return
    for text in (describe_cpu_limit(), describe_neighbours(since.busy_cpus(CpuTimes.measure()))):
        if text:
            log.info(text)


def _ask(
    run: ResolvedRun,
    store: Store,
    asker: Asker,
    *,
    free: FreeMemory | None,
    facts: Callable[[], Mapping[str, Any]],
    listener: Listener,
    retry_failed: bool,
    retry_empty: bool,
    log_file: Path,
    load_s: float,
) -> dict[str, Outcome]:
    """Ask the remaining samples, after a forecast if ``free`` (free memory before loading the model) is given.

    Args:
        facts: returns facts for the session's row at its end.
    """
    workers = run.spec.workers
    if store.query("FROM samples LIMIT 1").rows:  # another session may have written while the model was loaded
        refuse_other_samples(store, run.sample_rows(), store.path)
    rows = [
        find_run(store, row, [name] if name else candidate_names(store, row, judges=bool(run.extra_settings)))
        for row, name in zip(asker.rows, run.names, strict=True)
    ]
    done = [store.begin_run(row, failed=retry_failed, empty=retry_empty) for row in rows]
    run_ids = [row.run_id for row in rows]
    run_questions = run.run_questions
    total = sum(questions.total for questions in run_questions)
    with record_end_status(store, run_ids):
        log.info(f"Bundle unchanged, checked by {run.bundle_check}.")
        for row in rows:
            if family := row.hardware.get("same_family_as"):
                log.warning(
                    f"The judge {row.model} is of the same model family as {', '.join(family)}: judges prefer answers "
                    "like their own. Reports mark this; use another judge as well."
                )
        for run_id, questions in zip(run_ids, run_questions, strict=True):
            log.info(f"{run_id}: {_describe_size(questions)}; {run.network}")
        forecast = forecast_run(store, asker, done, free, workers=workers, listener=listener) if free else None
        first = run.tasks[0].full_name if run.tasks else ""
        watch = RunMonitor(ProgressTracker(forecast, total), listener, log_file, first, lambda: asker.process_ids)
        counts = list(map(len, done))
        with record_sessions(
            store,
            rows,
            forecast,
            watch,
            answer_counts=counts,
            workers=workers,
            spec=run.spec.to_json(),
            load_s=load_s,
            facts=facts,
        ):
            if is_debugging():
                for line in phases.take_table():
                    log.info(line)
            size = JobSize.for_workers(workers, total)
            outcomes = Runner(run_ids, run_questions, store, done, watch, asker, size).run()
        _warn_of_no_reasoning(run_questions, outcomes)
    return dict(zip(run_ids, outcomes, strict=True))


def _warn_of_no_reasoning(run_questions: Sequence[RunQuestions], outcomes: Sequence[Outcome]) -> None:
    for questions, outcome in zip(run_questions, outcomes, strict=True):
        if questions.settings.thinks and outcome.answered and not outcome.reasoned:
            log.warning(
                f"None of {format_count(outcome.answered, 'answer')} contains reasoning, although the run enables "
                "it. The model does not reason, or it uses unknown reasoning tags. Inspect the answers with `lbx "
                'show`, and set the tags in the model\'s card: reasoning = ["OPENING", "CLOSING"] under [chat].'
            )


def _describe_size(questions: RunQuestions) -> str:
    """Describe the number of questions: "3 of 269 samples of 1 task, 9 answers"."""
    n_asked, n_all = (sum(map(count, questions.tasks)) for count in (questions.samples_in, lambda task: task.samples))
    of = f" of {n_all:,}" if n_asked < n_all else ""
    tasks = format_count(len(questions.tasks), "task")
    prompts = f", {questions.total:,} answers" if questions.total > n_asked else ""
    samples = "sample" if n_all == 1 else "samples"
    return f"{n_asked:,}{of} {samples} of {tasks}{prompts}"


def _retrieve(run: ResolvedRun, path: Path, listener: Listener) -> ResolvedRun:
    """Copy of the run with retrieved chunks, all found before a language model takes the memory."""
    finder = make_finder(run.spec, run.bundle, run.tasks)
    if finder is None:
        return run
    try:
        with Store(path) as store:
            selected = [(run.benchmarks[task.benchmark], task) for task in run.tasks]

            def progress(task: str, count: int, total: int) -> None:
                listener.on_count(f"Retrieving chunks for {task}", count, total, "questions")

            retrieve_all(store, finder, run.bundle, selected, selection=run.selection, progress=progress)
            return run.with_retriever(finder, StoredChunks(store, finder.name))
    finally:
        finder.close()


def _check_embedding(run: ResolvedRun, path: Path) -> None:
    """Check the embedding model early, so that it does not fail after hours of answers.

    Raises:
        UsageError: no task needs an embedding model, or the name belongs to a model of another type.
        BackendError: the weights or the library of the embedding model are missing.
    """
    if run.spec.embedding is None:
        return
    if not embedding_tasks(run.tasks):
        task_names = [
            f"{name}/{task}" for name, family in BENCHMARKS.items() for task in family.catalogue.embedding_tasks
        ]
        raise UsageError(
            f"--embedding does not apply to these tasks: it computes half of the score of {' and '.join(task_names)}.",
            fix="Add one of them to --tasks, or remove the option. For retrieval, pass --retriever.",
        )
    if path.is_file() and path.stat().st_size:
        with Store(path) as store:
            if run.spec.embedding in embedding_models(store):
                return
    check_embedder(resolve_embedder(run.spec.embedding, bundle=run.bundle), run.bundle)


def _score_summaries(run: ResolvedRun, run_id: str, path: Path, output: Path, listener: Listener) -> None:
    """Compute the embedding half of summary scores, after the language model has been unloaded."""
    halves = ", ".join(embedding_tasks(run.tasks))
    if not halves:
        return
    command = as_command("lbx", "score", output, "--embedding", "CARD", "--bundle", run.bundle.root)
    if run.spec.embedding is None:
        log.info(f"{halves}: partial scores, without an embedding model. To complete them: {command}")
        return
    try:
        with Store(path) as store:
            score_with(
                store,
                run.spec.embedding,
                run_ids=[run_id],
                processes=None,
                bundle=run.bundle,
                threads=run.spec.threads,
                listener=listener,
            )
    except LbxError:
        log.info(
            f"{run_id}: every answer is in {output}, but the embedding part of {halves} is missing. To add it "
            f"later: {command}"
        )
        raise
