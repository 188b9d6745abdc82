"""``lbx annotate``: a dataset in L-Eval's form, on a page of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lbx.cli.options import Host, Others, Port, Uds


def annotate(
    *,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The dataset: a document a line, as L-Eval's. Never written to.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="OUT", help="Where the edited dataset goes; default: FILE with .annotated."
        ),
    ] = None,
    new_pairs: Annotated[
        int, typer.Option("--new-pairs", metavar="N", min=0, help="Offer N empty pairs for each document.")
    ] = 0,
    read_only: Annotated[bool, typer.Option("--read-only", help="Only browse and search.")] = False,
    take: Annotated[
        Path | None,
        typer.Option("--take", metavar="DIR", help="First take over the *_cleaned.json that L-Eval's own tool wrote."),
    ] = None,
    official: Annotated[
        Path | None,
        typer.Option(
            "--official",
            metavar="DIR",
            help="Write *_cleaned.json and X.cleaned.jsonl, too, as L-Eval's own tool would: a form that loses keys.",
        ),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write what was saved (OUT, --official), and stop: no page.")
    ] = False,
    host: Host = "127.0.0.1",
    port: Port = 8765,
    uds: Uds = None,
    others: Others = False,
) -> None:
    """Browse, search and edit a dataset of questions on documents: what is not edited keeps its bytes.

    Every edit is saved at once in OUT.edits.jsonl, and can be undone; the same command again goes on. OUT is written
    when you ask for it, and at the end (Ctrl-C).

    Example: lbx annotate LEval-data/summary/qmsum.jsonl --new-pairs 2
    """
    from lbx.cli.annotating import annotate_file

    annotate_file(
        file=file,
        output=output,
        new_pairs=new_pairs,
        read_only=read_only,
        take=take,
        official=official,
        write=write,
        host=host,
        port=port,
        uds=uds,
        others=others,
    )
