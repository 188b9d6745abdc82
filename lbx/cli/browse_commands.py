"""``lbx browse``: a results file's answers, on a page of this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lbx.base.errors import UsageError
from lbx.cli.options import Host, OnlyRuns, Others, Port, Results, Uds
from lbx.cli.output import note
from lbx.cli.show_commands import rebuilt_prompts
from lbx.cli.sites import check_web, open_site

if TYPE_CHECKING:
    from lbx.store.answers import StoredAnswer


def browse(
    *,
    results: Results,
    bundle: Annotated[
        Path | None,
        typer.Option("--bundle", "-b", metavar="DIR", help="Where documents and prompts come from."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="MODEL", help="For prompts, where the run's is not there any more."),
    ] = None,
    runs: OnlyRuns = None,
    tasks: Annotated[
        list[str] | None, typer.Option("--task", metavar="NAME", help="Only this one: leval/tpo. Can be repeated.")
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 8765,
    uds: Uds = None,
    others: Others = False,
) -> None:
    """Browse stored answers: question, document with a search, reasoning, answer, scores, what judges and people said.

    A list by run, task, mark, score and text; of each answer its prompt, made again from the bundle and checked by its
    hash. The file is opened for each page and closed again: nothing is written, no run is held up.

    Example: lbx browse results.duckdb --bundle long --run RUN
    """
    check_web()
    from lbx.base.layout import Bundle
    from lbx.store import Store
    from lbx.store.runs import check_runs
    from lbx.web.browsing import BrowsingPages

    with Store(results, read_only=True) as store:
        check_runs(store, runs or ())
        held = [
            row[0] for row in store.query("SELECT DISTINCT benchmark || '/' || task FROM samples ORDER BY ALL").rows
        ]
    for task in tasks or ():
        if task not in held:
            raise UsageError(f"{results} has no task {task!r}.", fix=f"It has {', '.join(held) or 'none'}.")
    opened = Bundle(bundle) if bundle else None

    def prompts(answer: StoredAnswer) -> Sequence[Mapping[str, Any]]:
        return [sent.to_json() for sent in rebuilt_prompts(results, answer, bundle, model)]

    pages = BrowsingPages(results, bundle=opened, prompts=prompts, runs=runs or (), tasks=tasks or ())
    if opened is None:
        note("Without --bundle there are no documents.")
    open_site(pages.routes, ["you"], host=host, port=port, uds=uds, others=others)
