"""``lbx run --verify-batching``: after the run, with the model still loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lbx.cli.output import CountProgress

if TYPE_CHECKING:
    from lbx.engine.askers import Asker
    from lbx.engine.runner import Outcome
    from lbx.engine.work import Agenda
    from lbx.store import Store


def check_verifiable(asker: Asker) -> None:
    """Raise UsageError, before anything is asked, where answers cannot be asked again alone."""
    from lbx.engine.checking.verifying import refuse_unverifiable

    asker.call(refuse_unverifiable)


def verify_runs(store: Store, agendas: Sequence[Agenda], outcomes: Sequence[Outcome], asker: Asker, count: int) -> None:
    """Ask so many answers of each run again alone; what is found becomes part of its outcome."""
    from lbx.engine.checking.verifying import verify

    with CountProgress("answers asked again alone") as progress:
        for run, (agenda, outcome) in enumerate(zip(agendas, outcomes, strict=True)):
            outcome.verification = verify(store, agenda, count, asker.call, run=run, progress=progress.count)
