"""What a run would read and take, computed without running it, and the same in sentences."""

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
from lbx.backends.options import AUTO, HfOptions
from lbx.base.errors import BackendError, DoesNotFitError, EndpointError
from lbx.base.records import SampleKey
from lbx.base.units import counted, duration, size
from lbx.planning.asking import OF_LENGTH
from lbx.planning.estimate import Costs, TimeEstimate, costs_from
from lbx.planning.memory_use import Free, MemoryFit
from lbx.planning.outlook import Outlook, look_ahead
from lbx.running.answering import Asker
from lbx.running.data_check import check_samples
from lbx.running.listening import Listener
from lbx.running.models import card_of, load_model, load_to_count
from lbx.running.preparing import make_works, resolve, retrieving
from lbx.running.resolved import ResolvedRun
from lbx.running.spec import RunSpec
from lbx.running.workers.devices import share_out
from lbx.store import RunRow, Store
from lbx.store.sessions import answer_lengths, history

log = logging.getLogger("lbx")

_MEASURED = "percent of measuring the model's speed"


def plan(
    spec: RunSpec,
    results: str | os.PathLike[str] | None = None,
    *,
    calibrate: bool = True,
    listener: Listener | None = None,
) -> Outlook:
    """Count the tokens of a run and estimate memory and time. Nothing is run but a calibration of a few seconds.

    Args:
        results: a results file; what sessions in it took says how long this run takes, and nothing is calibrated.
        calibrate: False leaves unknown what no session tells.
        listener: told how much is counted.

    Raises:
        LbxError: the bundle, the tasks or the model are not there, or ``results`` holds another revision of the data.
    """
    return next(plan_each(spec, (), results, calibrate=calibrate, listener=listener))


def plan_each(
    spec: RunSpec,
    against: Sequence[str],
    results: str | os.PathLike[str] | None = None,
    *,
    calibrate: bool = True,
    listener: Listener | None = None,
) -> Iterator[Outlook]:
    """The same of the spec's model, then of others in its place; one that cannot be loaded is left out.

    With others, a model of transformers on a CPU whose card names no dtype is planned in float32 and in bfloat16.

    Args:
        against: as ``RunSpec.model``.
        results, calibrate, listener: as of ``plan``.

    Raises:
        LbxError: the bundle, the tasks or a model are not there, or the spec's model cannot be loaded.
    """
    run = resolve(spec)
    if results is not None:
        check_samples(run, Path(results))
    with retrieving(run) as reading, share_of_one(spec.workers):
        ahead = functools.partial(
            _plan, reading, free=Free.now(), results=results, calibrate=calibrate, listener=listener or Listener()
        )
        cards = [card_of(replace(spec, model=name, backend=None), run.bundle) for name in against]
        first = card_of(spec, run.bundle)
        yield (outlook := ahead(first))
        if against:
            yield from map(ahead, _in_other_dtype(first, outlook))
        for card in cards:
            try:
                yield (outlook := ahead(card))
                yield from map(ahead, _in_other_dtype(card, outlook))
            except (BackendError, EndpointError) as error:
                log.info(f"{card.name} is left out: {error}")


def _in_other_dtype(card: ModelCard, planned: Outlook) -> list[ModelCard]:
    """The card with the other of a CPU's two formats, where it leaves the choice."""
    options = card.options
    if not isinstance(options, HfOptions) or options.dtype != AUTO or planned.memory.device != "RAM":
        return []
    other = "float32" if planned.dtype == "bfloat16" else "bfloat16"
    return [replace(card, options=replace(options, dtype=other))]


def _plan(
    run: ResolvedRun,
    card: ModelCard,
    *,
    free: Free,
    results: str | os.PathLike[str] | None,
    calibrate: bool,
    listener: Listener,
) -> Outlook:
    workers = run.spec.workers
    try:
        backend = load_model(card, run.bundle)
    except DoesNotFitError as error:
        backend, calibrate = load_to_count(card, run.bundle), False
        log.info(f"{error} Its tokens are counted anyway.")
    try:
        works = make_works(run, card, backend)
        return look_ahead(
            works,
            free=free,
            workers=workers,
            known=_known(results, works[0].row, workers),
            measure=calibrate,
            progress=functools.partial(listener.counted, "counted"),
            measuring=functools.partial(listener.counted, _MEASURED),
        )
    finally:
        backend.close()


def _known(results: str | os.PathLike[str] | None, row: RunRow, workers: int) -> Costs | None:
    if results is None or not Path(results).exists():
        return None
    with Store(Path(results), read_only=True) as store:
        return known_costs(store, row, workers)


@contextlib.contextmanager
def share_of_one(workers: int) -> Iterator[None]:
    """Limit this process to the share of the first of several workers, for a block."""
    if not workers:
        yield
        return
    share = share_out(workers)[0]
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


def look_ahead_of_run(
    store: Store,
    asker: Asker,
    done: Sequence[AbstractSet[SampleKey]],
    free: Free,
    *,
    workers: int,
    listener: Listener,
) -> Outlook:
    """Count what a run is about to read, and log it.

    Args:
        done: of each of the runs that are made together, what is answered already.
        free: memory, before the model was loaded.
        listener: told how far the measuring is, where that goes on in this process.

    Raises:
        BundleError: a data file is damaged.
        BackendError: the model failed while it was measured.
    """
    known = known_costs(store, asker.rows[0], workers)
    ahead = functools.partial(look_ahead, free=free, done=done, workers=workers, known=known)
    if not workers:
        ahead = functools.partial(ahead, measuring=functools.partial(listener.counted, _MEASURED))
    outlook = asker.call(ahead)
    for line in brief(outlook):
        log.info(line)
    return outlook


def known_costs(store: Store, run: RunRow, workers: int) -> Costs | None:
    """What earlier sessions in a results file say of a model's speed; None: nothing."""
    costs = history(store, run, workers=workers)
    return None if costs is None else costs_from(costs, answer_lengths(store, run, OF_LENGTH))


def brief(outlook: Outlook) -> list[str]:
    """The outlook in a few lines."""
    total, memory, time = outlook.total, outlook.memory, outlook.time
    if not total.samples:
        return ["Nothing left to ask: every prompt was asked."]
    tokens = "characters" if outlook.in_characters else "tokens"
    spoilt = [f"{n:,} {what}" for n, what in ((total.truncated, "truncated"), (total.refused, "refused")) if n]
    lines = [
        f"To ask: {counted(total.samples, 'prompt')} of {total.prompt_tokens:,} {tokens}, "
        f"{total.distinct_tokens:,} distinct ({total.shared_factor:.1f} times shared); "
        f"{', '.join(spoilt) or 'none truncated'}"
    ]
    lines += sharing_lines(outlook)
    if memory.weights_bytes is not None:
        lines.append(memory_line(memory))
    lines.append(time_line(time))
    return lines


def by_time(outlooks: Sequence[Outlook]) -> list[tuple[Outlook, TimeEstimate]]:
    """Plans of the same run whose time is known, the fastest first."""
    known = [(one, one.time) for one in outlooks if one.time is not None]
    return sorted(known, key=lambda one: one[1].total_s)


def name_of(outlook: Outlook) -> str:
    """A model, and in what it is computed where: "smollm2 on hf in bfloat16"."""
    return f"{outlook.model} on {outlook.backend}" + (f" in {outlook.dtype}" if outlook.dtype else "")


def faster_line(outlooks: Sequence[Outlook]) -> str:
    """Which of several models is the fastest here."""
    ordered = by_time(outlooks)
    if len(ordered) < 2:
        return "Which one is faster is unknown: too few of them could be measured."
    (best, best_time), *others = ordered
    ratios = ((one, f"{time.total_s / best_time.total_s:.1f}") for one, time in others)
    comparisons = (f"{'' if ratio == '1.0' else f'{ratio} times '}as fast as {name_of(one)}" for one, ratio in ratios)
    return f"Fastest here: {name_of(best)}, {', '.join(comparisons)}"


def sharing_lines(outlook: Outlook) -> list[str]:
    """What is wrong where prompts that share a document do not share the reading of it."""
    return [f"Every prompt is read from its beginning: {outlook.not_shared}"] if outlook.not_shared else []


def memory_line(memory: MemoryFit) -> str:
    """What the model needs beside what there is, and whether that is enough."""
    parts = [f"weights {size(memory.weights_bytes)}{_each(memory.weights_copies)}"]
    if memory.kv_bytes is None or memory.kv_bytes_per_token is None:
        tokens = f"; {memory.kv_cells:,} tokens{_windows(memory.windows)}" if memory.windows > 1 else ""
        parts.append(f"KV cache unknown (this kind of model keeps other amounts in other layers{tokens})")
    else:
        parts.append(
            f"KV cache {size(memory.kv_bytes)} ({memory.kv_bytes_per_token:,} bytes a token, "
            f"{memory.kv_cells:,} tokens{_windows(memory.windows)}{_each(memory.copies)})"
        )
    parts.append(f"free {memory.device} {size(memory.available_bytes)}")
    verdict = {True: "fits", False: "does not fit", None: "whether it fits is unknown"}[memory.fits]
    if memory.fits is False:
        window = memory.window_that_fits
        verdict += f"; a context window of {window:,} tokens would" if window else ": the weights alone are too large"
    return f"Memory: {', '.join(parts)}: {verdict}"


def _windows(windows: int) -> str:
    return f" for copies of sequences, {windows} context windows" if windows > 1 else ""


def _each(copies: int) -> str:
    return f" in each of {copies} processes" if copies > 1 else ""


def time_line(time: TimeEstimate | None) -> str:
    """How long it takes, of what, and how one knows."""
    if time is None:
        return "Time: unknown"
    other = f", tokenizing {duration(time.other_s)}" if time.other_s >= 1 else ""
    tokens = sum(time.answer_tokens.values())
    return (
        f"Time: about {duration(time.total_s)} (reading {time.computed_tokens:,} tokens {duration(time.prefill_s)}, "
        f"{tokens:,} tokens of answers {duration(time.decode_s)}{other}), by {time.basis}"
    )
