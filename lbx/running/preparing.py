"""Preparation of a run, from the spec to the loaded model, in this process or in worker processes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lbx.backends import ModelCard
from lbx.backends.serving.command import HOST, PORT
from lbx.base.bundle_folder import Bundle
from lbx.base.errors import UsageError
from lbx.base.phases import phases
from lbx.base.records import Task
from lbx.base.version import __version__
from lbx.benchmarks.base.benchmark import Benchmark, needs_model
from lbx.benchmarks.registry import benchmarks_with
from lbx.engine.model import Backend
from lbx.opinions.judge_run import resolve_judge
from lbx.opinions.judge_spec import JudgeSpec
from lbx.opinions.rounds import same_family_runs, tokenizer_sha256
from lbx.options.option import parse_key_values
from lbx.options.run_spec import RunSettings, RunSpec
from lbx.options.sample_selection import select_samples
from lbx.results import RunRow
from lbx.running.jobs import Work, reason_not_shared
from lbx.running.models import (
    bind_families,
    choose_tasks,
    has_reasoning_block,
    load_model,
    make_finder,
    make_prompter,
    resolve_card,
    with_url,
)
from lbx.running.offline import block_network
from lbx.running.resolved_run import ResolvedRun
from lbx.running.run_names import default_names

if TYPE_CHECKING:
    from lbx.backends.serving.process import ModelServer

log = logging.getLogger("lbx")


@phases.measure("find samples")
def resolve(spec: RunSpec) -> ResolvedRun:
    """Resolve a spec: look up tasks and samples in the bundle.

    Raises:
        UsageError: a task or sample does not exist, or does not support the prompting mode.
        BundleError: a data file is damaged.
        BackendError: the samples depend on the model's tokenizer, whose files are missing or damaged.
    """
    bundle = Bundle(Path(spec.bundle))
    if not isinstance(spec, JudgeSpec):
        return _resolve_for(spec, bundle, lambda: resolve_card(spec, bundle))
    judge = resolve_judge(spec, bundle)
    run = _resolved_run(spec, bundle, judge.rounds.tasks(bundle), [judge.rounds])
    return replace(run, extra_settings=judge.settings, judged_models=judge.models)


def for_other_model(run: ResolvedRun, card: ModelCard) -> ResolvedRun:
    """Copy of the run with another model's samples, or the run itself if the samples do not depend on the model.

    Raises:
        UsageError, BackendError: see ``resolve``.
    """
    if not any(map(needs_model, run.extra_benchmarks)):
        return run
    other = _resolve_for(run.spec, run.bundle, lambda: card)
    return replace(run, tasks=other.tasks, selection=other.selection, extra_benchmarks=other.extra_benchmarks)


def _resolve_for(spec: RunSpec, bundle: Bundle, find_card: Callable[[], ModelCard]) -> ResolvedRun:
    families = bind_families(bundle, spec.tasks, spec.settings, find_card)
    tasks = choose_tasks(bundle, spec.tasks, spec.settings, benchmarks_with(*families))
    return _resolved_run(spec, bundle, tasks, families)


def _resolved_run(spec: RunSpec, bundle: Bundle, tasks: Sequence[Task], families: Sequence[Benchmark]) -> ResolvedRun:
    selection = select_samples(spec.choice, bundle, tasks, benchmarks_with(*families))
    if selection.positions is not None:  # a task without a selected sample, as with --ids, is not part of the run
        tasks = [task for task in tasks if selection.count(task)] or tasks
    names, settings = zip(*spec.variants, strict=True)
    return ResolvedRun(spec, bundle, tasks, selection, names, settings, extra_benchmarks=families)


@contextmanager
def open_retriever(run: ResolvedRun) -> Iterator[ResolvedRun]:
    """Yield the run with a finder that retrieves chunks on demand, or the run itself if it uses no chunks.

    Raises:
        UsageError, BundleError, BackendError: see ``make_finder``.
    """
    finder = make_finder(run.spec, run.bundle, run.tasks)
    if finder is None:
        yield run
        return
    try:
        yield run.with_retriever(finder, finder.find)
    finally:
        finder.close()


@phases.measure("templates")
def make_works(run: ResolvedRun, card: ModelCard, backend: Backend) -> list[Work]:
    """Make the ``Work`` of each run: the questions, with the loaded model.

    Raises:
        UsageError: reasoning would take the whole context window, or prompts cannot be truncated.
    """
    recommended = card.sampling or backend.info.default_sampling
    works = []
    for name, settings in zip(run.names, run.settings, strict=True):
        completed = replace(settings, model_sampling=recommended, stop=card.stop)
        info = backend.info
        if (budget := completed.reasoning_budget(info.context_window)) >= info.context_window:
            raise UsageError(
                f"--thinking-tokens {budget} leaves no room for a prompt: the context window of {info.model} has "
                f"{info.context_window} tokens.",
                fix="Give a smaller budget.",
            )
        if budget and not completed.thinking_tokens:
            log.info(
                f"Each answer may use {budget:,} additional tokens for reasoning. Change this with --thinking-tokens N."
            )
        if completed.max_prompt_tokens and not info.counts_tokens:
            raise UsageError(
                f"--max-prompt-tokens needs a tokenizer, but the card of {info.model} has none.",
                fix="Add [tokenizer] to its card, or remove the option: the server rejects prompts that are too long.",
            )
        works.append(_make_work(run, name, card, backend, completed))
    return works


def prepare_runs(run: ResolvedRun, server: ModelServer | None = None) -> list[Work]:
    """Load the model, perhaps from the server that the run has started, and make the work of each run."""
    card = replace(resolve_card(run.spec, run.bundle), hash_weights=run.spec.hash_weights)
    if server:
        card = with_url(card, server.url)
    if card.hash_weights:
        log.info(f"--hash-weights: reading every byte of {card.name}'s weights once more.")
    backend = load_model(card, run.bundle)
    if server:
        server.watch(backend)
    try:
        return make_works(run, card, backend)
    except BaseException:
        backend.close()
        raise


def prepare_worker(run: ResolvedRun) -> list[Work]:
    block_network(run.server)
    return prepare_runs(run)


def _run_row(run: ResolvedRun, name: str | None, backend: Backend, run_settings: RunSettings) -> RunRow:
    """Make the row of a run. Tasks and samples are not in the row, so a run can be extended to others."""
    info = backend.info
    settings = {**run_settings.to_json(), **run.extra_settings, "context_window": info.context_window}
    if budget := run_settings.reasoning_budget(info.context_window):
        settings["thinking_tokens"] = budget
    hardware: dict[str, Any] = {"network": run.network} | (
        {"bundle_check": run.bundle_check} if run.bundle_check else {}
    )
    settings |= {f"backend.{name}": value for name, value in info.settings.items()}
    if run.server_settings:
        settings |= {**run.server_settings, "serve_version": info.version}
        hardware["url"] = f"http://{HOST}:{PORT}/v1"  # others at each start
    if allowed := run.bundle.allowed_files:  # recorded in every run: code or pickles were next to files that were read
        settings["bundle.allowed"] = allowed
    if reason := reason_not_shared(backend, batching=run_settings.batching):
        hardware["prompts_not_shared"] = reason
    if info.counted_in == "tokens":
        hardware["tokenizer_sha256"] = tokenizer_sha256(backend.tokenizer)
    row = RunRow(
        run_id=name or "",
        model=info.model,
        backend=info.name,
        backend_version=info.version,
        benchmark_versions={b: run.benchmarks[b].metric_version for b in {t.benchmark for t in run.tasks}},
        bundle_digest=run.bundle.digest,
        settings=settings,
        hardware={**info.hardware, **hardware},
        lbx_version=__version__,
        metadata=parse_key_values("--metadata", run.spec.metadata) or None,
    ).with_sample_counts(run.tasks)
    row = row if name else replace(row, run_id=default_names(row, judges=bool(run.extra_settings))[0])
    family = same_family_runs(row, run.judged_models)
    return replace(row, hardware={**row.hardware, "same_family_as": family}) if family else row


def _make_work(run: ResolvedRun, name: str | None, card: ModelCard, backend: Backend, settings: RunSettings) -> Work:
    prompter = make_prompter(card, backend, settings)
    return Work(
        bundle=run.bundle,
        tasks=run.tasks,
        benchmarks=run.benchmarks,
        settings=settings,
        selection=run.selection,
        row=_run_row(run, name, backend, settings),
        backend=backend,
        prompter=prompter,
        mode=replace(
            settings.mode(backend.info.context_window),
            reasoning_block=settings.thinks and has_reasoning_block(card, backend),
            chat_template=prompter.has_template,
            server_template=backend.info.wraps_prompts,
            counted_in=backend.info.counted_in,
        ),
        chunks=run.chunks,
    )
