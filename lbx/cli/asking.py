"""What ``lbx run`` tells whoever holds the model, in this process or in others, and what it does with the answers."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lbx.cli.output import be_quiet, note
from lbx.cli.planning import look_ahead_of_run
from lbx.cli.run_setup import check_reasoning_budget, load_model, make_run_row, make_work
from lbx.cli.verification import check_verifiable, verify_runs
from lbx.cli.watching import watched

if TYPE_CHECKING:
    from lbx.engine.askers import Asker
    from lbx.engine.retrieving import StoredChunks
    from lbx.engine.runner import Outcome
    from lbx.engine.selection import Selection
    from lbx.engine.settings import RunSettings
    from lbx.engine.work import Agenda, Prepared
    from lbx.records import SampleKey, Task
    from lbx.store import RunRow, Store


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    """Everything that makes a model ready to be asked. It travels to worker processes.

    Attributes:
        settings: of each run that is made together, one row in the results file each.
        names: of these runs; None makes one from model and settings.
        server: the one address that may be reached.
        offline: how the run is kept offline, in words.
        threads: of each process that holds the model, instead of the card's.
        checked: how the bundle was held against its manifest, in words.
    """

    bundle: Path
    tasks: Sequence[Task]
    model: str
    backend: str | None
    settings: Sequence[RunSettings]
    names: Sequence[str | None]
    selection: Selection
    chunks: StoredChunks | None
    server: tuple[str, int] | None
    offline: str
    threads: int | None = None
    checked: str = ""


def run_order(
    output: Path,
    order: Order,
    workers: int,
    *,
    retry_failed: bool,
    verify: int = 0,
    plan: bool = True,
    log: Path | None = None,
) -> dict[str, Outcome]:
    """Load the model and run; returns what was done, by run.

    Args:
        output: the results file.
        workers: see ``open_asker``.
        verify: how many answers of each run to ask again alone afterwards.
        plan: whether to count and estimate first.
        log: a file that gets a line a minute.
    """
    from lbx.benchmarks import BENCHMARKS
    from lbx.engine.jobs import JobSize
    from lbx.engine.planning.memory_use import Free
    from lbx.engine.runner import Runner, closing
    from lbx.engine.work import Agenda
    from lbx.layout import Bundle
    from lbx.store import Store

    free = Free.now()
    asker = open_asker(order, workers)
    try:
        if verify:
            check_verifiable(asker)
        with Store(output) as store:
            done = [_begin(store, row, retry_failed=retry_failed) for row in asker.rows]
            agendas = [
                Agenda(row.run_id, Bundle(order.bundle), order.tasks, BENCHMARKS, settings, order.selection)
                for row, settings in zip(asker.rows, order.settings, strict=True)
            ]
            total = sum(agenda.total for agenda in agendas)
            with closing(store, [agenda.run_id for agenda in agendas]):
                note(f"The bundle is as it was unpacked, by {order.checked}.")
                for agenda in agendas:
                    note(f"{agenda.run_id}: {_extent(agenda)}; {order.offline}")
                outlook = look_ahead_of_run(store, asker, done, free, workers) if plan else None
                with watched(
                    store,
                    asker.rows,
                    outlook,
                    samples=total,
                    workers=workers,
                    process_ids=lambda: asker.process_ids,
                    log=log,
                ) as progress:
                    outcomes = Runner(agendas, store, done, progress, asker, JobSize.for_workers(workers, total)).run()
            if verify:
                verify_runs(store, agendas, outcomes, asker, verify)
            return {agenda.run_id: outcome for agenda, outcome in zip(agendas, outcomes, strict=True)}
    finally:
        asker.close()


def _extent(agenda: Agenda) -> str:
    """How much is asked: "3 of 269 samples of 1 task, 9 answers"."""
    asked, there = (sum(map(count, agenda.tasks)) for count in (agenda.samples_in, lambda task: task.samples))
    of = f" of {there:,}" if asked < there else ""
    tasks = f"{len(agenda.tasks)} task{'s' if len(agenda.tasks) > 1 else ''}"
    prompts = f", {agenda.total:,} answers" if agenda.total > asked else ""
    return f"{asked:,}{of} samples of {tasks}{prompts}"


def _begin(store: Store, row: RunRow, *, retry_failed: bool) -> set[SampleKey]:
    """Enter a run, or take it up again; what of it is done."""
    done = store.begin_run(row)
    return store.begin_run(row) if retry_failed and store.delete_failed(row.run_id) else done


def open_asker(order: Order, workers: int) -> Asker:
    """The model, in this process, or in as many others as are asked for.

    Raises:
        LbxError: it cannot be loaded.
    """
    from lbx.engine.askers import Here
    from lbx.engine.workers.crew import Crew

    if workers:
        return Crew(functools.partial(prepare_worker, order), workers, note)
    return Here(functools.partial(prepare, order))


def prepare(order: Order) -> list[Prepared]:
    """Load the model."""
    from lbx.engine.work import Prepared
    from lbx.layout import Bundle

    loaded = load_model(Bundle(order.bundle), list(order.tasks), order.model, order.backend, order.threads)
    recommended = loaded.card.sampling or loaded.backend.info.default_sampling
    prepared: list[Prepared] = []
    try:
        for settings, name in zip(order.settings, order.names, strict=True):
            completed = dataclasses.replace(settings, model_sampling=recommended)
            check_reasoning_budget(loaded, completed)
            work = make_work(loaded, completed, order.selection, order.chunks)
            row = make_run_row(name, work, order.offline, order.checked)
            prepared.append(Prepared(dataclasses.replace(work, run_id=row.run_id), row))
    except BaseException:
        loaded.backend.close()
        raise
    return prepared


def prepare_worker(order: Order) -> list[Prepared]:
    """Load the model in a worker process. Only the first one speaks."""
    from lbx.engine.offline import block_network
    from lbx.engine.workers.crew import NUMBER

    if os.environ.get(NUMBER) != "1":
        be_quiet()
    block_network(order.server)
    return prepare(order)
