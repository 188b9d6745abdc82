"""``lbx browse``: a results file's answers, on a page of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lbx.cli.options import Host, OnlyRuns, Others, Port, Results, Uds
from lbx.cli.web import check_web


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
    from lbx.cli.browsing import browse_answers

    browse_answers(
        results=results,
        bundle=bundle,
        model=model,
        runs=runs,
        tasks=tasks,
        host=host,
        port=port,
        uds=uds,
        others=others,
    )
