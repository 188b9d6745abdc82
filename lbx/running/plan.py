"""Forecast of a run, for ``lbx plan``, and before the first sample of ``lbx run``."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path

from lbx.backends import ModelCard
from lbx.backends.hf.options import HfOptions
from lbx.backends.options import AUTO
from lbx.base.errors import BackendError, EndpointError, UsageError
from lbx.base.listener import Listener
from lbx.base.records import SampleKey
from lbx.options.asking import LENGTH_OPTIONS
from lbx.options.run_spec import RunSpec
from lbx.results import RunRow, Store
from lbx.results.file.sessions import answer_lengths, history
from lbx.running.answering import Asker
from lbx.running.forecast.estimate import LEAST_S, Costs, costs_from
from lbx.running.forecast.run_forecast import Forecast, FreeMemory, make_forecast, summary_lines
from lbx.running.jobs import count_questions
from lbx.running.models import load_to_forecast, resolve_card
from lbx.running.preparing import for_other_model, make_works, open_retriever, resolve
from lbx.running.resolved_run import ResolvedRun, check_samples
from lbx.running.workers.pool import divide_machine

log = logging.getLogger("lbx")


def plan(
    spec: RunSpec,
    results: str | os.PathLike[str] | None = None,
    *,
    measure_speed: bool = True,
    listener: Listener | None = None,
) -> Forecast:
    """Count the tokens of a run and estimate memory and time, running at most a calibration of a few seconds.

    Args:
        results: a results file; the durations of sessions in that file replace the calibration.
        measure_speed: False leaves costs unknown that no session provides.
        listener: receives the counting progress.

    Raises:
        LbxError: the bundle, the tasks or the model are missing, or ``results`` contains another revision of the data.
    """
    return next(plan_each(spec, (), results, measure_speed=measure_speed, listener=listener))


def plan_each(
    spec: RunSpec,
    alternatives: Sequence[str],
    results: str | os.PathLike[str] | None = None,
    *,
    measure_speed: bool = True,
    listener: Listener | None = None,
) -> Iterator[Forecast]:
    """Yield forecasts of the spec's model and of alternative models, skipping alternatives that cannot be loaded.

    Samples that depend on the model are made for each model, so they may differ in number and length. With
    alternatives, a transformers model on a CPU without a dtype in its card is planned in float32 and in bfloat16.

    Args:
        alternatives: alternative models, named as in ``RunSpec.model``.
        results, measure_speed, listener: see ``plan``.

    Raises:
        LbxError: the bundle, the tasks or a model are missing, or the spec's model cannot be loaded.
    """
    run = resolve(spec)
    if results is not None:
        check_samples(run, Path(results))
    with open_retriever(run) as reading, use_one_share(spec.workers):
        ahead = functools.partial(
            _plan,
            free=FreeMemory.measure(),
            results=results,
            measure_speed=measure_speed,
            listener=listener or Listener(),
        )
        cards = [resolve_card(replace(spec, model=name, backend=None), run.bundle) for name in alternatives]
        first = resolve_card(spec, run.bundle)
        yield (forecast := ahead(reading, first))
        if alternatives:
            yield from (ahead(reading, card) for card in _in_other_dtype(first, forecast))
        for card in cards:
            try:
                alternative = for_other_model(reading, card)
                yield (forecast := ahead(alternative, card))
                yield from (ahead(alternative, other) for other in _in_other_dtype(card, forecast))
            except (BackendError, EndpointError, UsageError) as error:
                log.info(f"Skipped {card.name}: {error}")


def _in_other_dtype(card: ModelCard, forecast: Forecast) -> list[ModelCard]:
    """Return the card with the CPU's other number format, as a list that is empty if the card sets a format."""
    options = card.options
    if not isinstance(options, HfOptions) or options.dtype != AUTO or forecast.memory.device != "RAM":
        return []
    other = "float32" if forecast.dtype == "bfloat16" else "bfloat16"
    return [replace(card, options=replace(options, dtype=other))]


def _plan(
    run: ResolvedRun,
    card: ModelCard,
    *,
    free: FreeMemory,
    results: str | os.PathLike[str] | None,
    measure_speed: bool,
    listener: Listener,
) -> Forecast:
    workers = run.spec.workers
    backend, measurable = load_to_forecast(card, run.bundle)
    try:
        works = make_works(run, card, backend)
        forecast = make_forecast(
            works,
            free=free,
            workers=workers,
            session_costs=_costs_in_file(results, works[0].row, workers),
            measure=measure_speed and measurable,
            progress=functools.partial(listener.on_count, "Counting tokens", unit="samples"),
            measuring=functools.partial(listener.on_count, "Measuring speed", unit="%"),
        )
        return replace(forecast, questions=count_questions(works[0]))
    finally:
        backend.close()


def _costs_in_file(results: str | os.PathLike[str] | None, row: RunRow, workers: int) -> Costs | None:
    if results is None or not Path(results).exists():
        return None
    with Store(Path(results), read_only=True) as store:
        return costs_of_sessions(store, row, workers)


@contextlib.contextmanager
def use_one_share(workers: int) -> Iterator[None]:
    if not workers:
        yield
        return
    share = divide_machine(workers)[0]
    movable = hasattr(os, "sched_setaffinity")
    cores = os.sched_getaffinity(0) if movable else ()
    saved = {name: os.environ.get(name) for name in share.environment}
    if movable:
        os.sched_setaffinity(0, share.cores)
    os.environ |= share.environment
    try:
        yield
    finally:
        if movable:
            os.sched_setaffinity(0, cores)
        for name, value in saved.items():
            os.environ.pop(name, None)
            os.environ |= {} if value is None else {name: value}


def forecast_run(
    store: Store,
    asker: Asker,
    finished_keys: Sequence[AbstractSet[SampleKey]],
    free: FreeMemory,
    *,
    workers: int,
    listener: Listener,
) -> Forecast:
    """Make and log the forecast of a run, before the first sample.

    Args:
        finished_keys: answered samples of each of the runs that are executed together.
        free: free memory before the model was loaded.

    Raises:
        BundleError: a data file is damaged.
        BackendError: the model failed during the calibration.
    """
    session_costs = costs_of_sessions(store, asker.rows[0], workers)
    ahead = functools.partial(
        make_forecast,
        free=free,
        finished_keys=finished_keys,
        workers=workers,
        session_costs=session_costs,
        least_s=LEAST_S,
    )
    if not workers:
        ahead = functools.partial(ahead, measuring=functools.partial(listener.on_count, "Measuring speed", unit="%"))
    forecast = asker.call(ahead)
    for line in summary_lines(forecast):
        log.info(line)
    return forecast


def costs_of_sessions(store: Store, run: RunRow, workers: int) -> Costs | None:
    """Costs of a run's model from earlier sessions in a results file, or None without sessions."""
    costs = history(store, run, workers=workers)
    return None if costs is None else costs_from(costs, answer_lengths(store, run, LENGTH_OPTIONS))
