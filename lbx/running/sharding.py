"""Division of a run into shards of equal predicted cost, for ``lbx submit``."""

from __future__ import annotations

import functools
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from lbx.backends import Backend, ModelCard
from lbx.backends.hf.options import HfOptions
from lbx.backends.options import AUTO, MOST_THREADS
from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BackendError, UsageError
from lbx.base.listener import Listener
from lbx.base.resources import usable_cpu_count
from lbx.benchmarks.registry import BENCHMARKS
from lbx.options.run_spec import RunSpec
from lbx.options.sample_selection import Selection
from lbx.results import RunRow, Store
from lbx.results.file.sessions import LOAD_S
from lbx.running.forecast.estimate import Costs, calibrate, decode_capacity_of
from lbx.running.forecast.run_plan import make_plan
from lbx.running.forecast.shards import (
    ONE_BY_ONE,
    RULE_OF_THUMB,
    LoadTime,
    PlannedDocument,
    ShardPlan,
    choose_count,
    cost_of,
    count_document_tokens,
    estimate_document_tokens,
    make_shards,
)
from lbx.running.jobs import Work
from lbx.running.models import load_to_count, load_to_forecast, resolve_card
from lbx.running.plan import costs_of_sessions, use_one_share
from lbx.running.preparing import make_works, open_retriever, resolve
from lbx.running.resolved_run import ResolvedRun, check_samples

log = logging.getLogger("lbx")

_TRIAL_SAMPLES = 4
_LONGEST_LOAD_S = 86_400.0
"""Limit of the loading time in another machine's results file."""


@dataclass(frozen=True, slots=True)
class CountingOptions:
    """Options for predicting the cost of samples.

    Attributes:
        measure_speed: compute for a few seconds.
        history: results file of a run on similar machines.
        tokens: False estimates tokens from characters and loads no model.
    """

    measure_speed: bool = True
    history: Path | None = None
    tokens: bool = True


@dataclass(frozen=True, slots=True)
class _DocumentCosts:
    """Documents with costs in ``unit``, whose origin is ``basis``. ``load`` is None unless the unit is "s"."""

    documents: Sequence[PlannedDocument]
    costs: Sequence[float]
    unit: str
    basis: str
    processes: int = 1
    load: LoadTime | None = None

    @classmethod
    def by_rule_of_thumb(cls, documents: Sequence[PlannedDocument], tasks: Sequence[str], unit_name: str) -> Self:
        costs = [cost_of([document], tasks, RULE_OF_THUMB, ONE_BY_ONE) for document in documents]
        return cls(documents, costs, "tokens", f"{RULE_OF_THUMB.basis}, from {unit_name}")


def plan_shards(
    spec: RunSpec,
    count: int | None,
    counting: CountingOptions = CountingOptions(),
    listener: Listener | None = None,
    results: Sequence[Path] = (),
    *,
    at_once: int = 0,
) -> ShardPlan:
    """Plan the shards of a run. The spec needs a name, because generated names may differ between machines.

    Args:
        count: number of shards, at most one per document. None chooses a number (``lbx.running.forecast.shards``).
        results: files that the shards or their merge will write to.
        at_once: number of shards that run in parallel, or 0 if unknown.

    Raises:
        LbxError: the bundle, the tasks or the data are missing, or ``results`` contain another revision of the data.
    """
    run = resolve(spec)
    for path in results:
        check_samples(run, path)
    # Warn that each node resolves "auto" for its own processor, as shards of two number formats cannot be merged
    options = resolve_card(run.spec, run.bundle).options
    if isinstance(options, HfOptions) and options.dtype == AUTO:
        log.info(
            "dtype = 'auto' depends on each node's processor or GPU, and shards with different number formats "
            "cannot be merged. If your nodes differ, set dtype in the model card's [options]."
        )
    with use_one_share(spec.workers):
        document_costs = _count(run, counting, listener or Listener())
    if not document_costs.documents:
        raise UsageError("These tasks have no samples.", fix="`lbx tasks` lists the samples of each task.")
    if count is None:
        count, reason = choose_count(
            document_costs.costs, document_costs.load, processes=document_costs.processes, at_once=at_once
        )
        log.info(reason)
    elif len(document_costs.documents) < count:
        log.info(f"Only {len(document_costs.documents):,} shards instead of {count}: there is one document for each.")
    tasks = [task.full_name for task in run.tasks]
    shards = make_shards(
        document_costs.documents, document_costs.costs, tasks, count, processes=document_costs.processes
    )
    iterations = {
        task.full_name: spec.iterations or BENCHMARKS[task.benchmark].protocol.iterations for task in run.tasks
    }
    names = tuple(str(name) for name in run.names)
    return ShardPlan(run.bundle.digest, names, iterations, document_costs.unit, document_costs.basis, shards)


def with_threads(spec: RunSpec, cpu_count: int) -> RunSpec:
    """Copy of a spec with as many threads as CPUs of a shard, unless the spec or the model's card sets a number.

    Args:
        cpu_count: 0 if the cluster decides.

    Raises:
        UsageError: the model does not exist.
    """
    if not cpu_count or spec.threads or _card_threads(spec) != 0:
        return spec
    return replace(spec, threads=min(max(1, cpu_count // max(1, spec.workers)), MOST_THREADS))


def forecast_cpu_count(spec: RunSpec) -> int:
    """Number of CPUs that a forecast on this machine assumes, or 0 for a model that lbx does not compute.

    Raises:
        UsageError: the model does not exist.
    """
    threads = _card_threads(spec)
    if threads is None:
        return 0
    threads = spec.threads or threads
    return threads * max(1, spec.workers) if threads else usable_cpu_count()


def _card_threads(spec: RunSpec) -> int | None:
    """Number of threads in the model's card, 0 for all CPUs, or None for a model server, which lacks the option."""
    threads: int | None = getattr(resolve_card(spec, Bundle(Path(spec.bundle))).options, "threads", None)
    return threads


def shard_of(plan: ShardPlan, number: int, run: ResolvedRun) -> Selection:
    """Select the samples of a shard.

    Raises:
        UsageError: the plan contains no such shard, or was made for another bundle or other tasks.
    """
    if number >= len(plan.shards):
        raise UsageError(
            f"Shard {number} does not exist: the plan has {len(plan.shards)} shards, numbered from 0.",
            fix="Pass one of them with --shard.",
        )
    plan.check(run.bundle.digest, [task.full_name for task in run.tasks])
    return plan.shards[number].selection


def _count(run: ResolvedRun, counting: CountingOptions, listener: Listener) -> _DocumentCosts:
    progress = functools.partial(listener.on_count, "Counting tokens", unit="samples")
    began = time.monotonic()
    loaded = _load(run, counting) if counting.tokens else None
    names = [task.full_name for task in run.tasks]
    if loaded is None:
        documents = estimate_document_tokens(run.run_questions, progress)
        return _DocumentCosts.by_rule_of_thumb(documents, names, "characters")
    card, backend, measured = loaded
    load = LoadTime(time.monotonic() - began, "measured here") if measured else None
    try:
        with open_retriever(run) as reading:
            works = make_works(reading, card, backend)
            documents = count_document_tokens(works, progress)
            costs, load_like = _costs(run, works, counting, can_measure=measured)
            if costs is None:
                return _DocumentCosts.by_rule_of_thumb(documents, names, "tokens")
            capacity = decode_capacity_of(backend, batching=run.spec.batching)
            seconds = [cost_of([document], names, costs, capacity) for document in documents]
            # Costs of earlier sessions cover this number of workers; a calibration covers one of them.
            processes = max(1, run.spec.workers) if counting.history is None else 1
            longest = max(
                (int(order.length.max(initial=0)) for planned in documents for order in planned.prefix_orders),
                default=0,
            )
            load = load or load_like or LoadTime.from_size(backend.info.weights_bytes)
            return _DocumentCosts(documents, seconds, "s", costs.basis_for(names, longest), processes, load)
    finally:
        backend.close()


def _load(run: ResolvedRun, counting: CountingOptions) -> tuple[ModelCard, Backend, bool] | None:
    """Load the model of a run, with the card and whether to measure the speed, or None if loading fails."""
    try:
        card = resolve_card(run.spec, run.bundle)
        if counting.measure_speed and counting.history is None:
            return card, *load_to_forecast(card, run.bundle)
        return card, load_to_count(card, run.bundle), False
    except BackendError as error:
        log.info(f"{error.cause} Shards are balanced by characters instead, which affects only their balance.")
        return None


def _costs(
    run: ResolvedRun, works: Sequence[Work], counting: CountingOptions, *, can_measure: bool
) -> tuple[Costs | None, LoadTime | None]:
    if counting.history is not None:
        costs, load = _costs_of_similar_run(counting.history, works[0].row, run.spec.workers)
        if costs is None:
            workers = run.spec.workers
            log.info(
                f"{counting.history} has no measured speed of this model with these options and {workers} workers."
            )
        return costs, load
    if not can_measure:
        return None, None
    few = [replace(work, selection=work.selection.first(work.tasks, _TRIAL_SAMPLES)) for work in works]
    return calibrate(works[0].backend, make_plan(few), batching=run.spec.batching), None


def _costs_of_similar_run(results: Path, row: RunRow, workers: int) -> tuple[Costs | None, LoadTime | None]:
    """Read costs and the loading time of the model from a results file, for the hardware of the newest session."""
    with Store(results, read_only=True) as store:
        rows = store.query(
            "SELECT s.hardware::VARCHAR FROM sessions s JOIN runs r USING (run_id) WHERE r.model = ? AND r.backend = ? "
            "ORDER BY s.started_at DESC LIMIT 1",
            [row.model, row.backend],
        ).rows
        if not rows:
            return None, None
        hardware = json.loads(rows[0][0])
        costs = costs_of_sessions(store, replace(row, hardware=hardware), workers)
    load_s = hardware.get(LOAD_S)
    is_known = isinstance(load_s, int | float) and 0 <= load_s < _LONGEST_LOAD_S
    return costs, LoadTime(load_s, f"measured in {results}") if is_known else None
