"""``lbx annotate``: a dataset in L-Eval's form, on a page of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lbx.base.errors import UsageError
from lbx.cli.options import Host, Others, Port, Uds
from lbx.cli.output import answer, note
from lbx.cli.sites import check_web, open_site

if TYPE_CHECKING:
    from lbx.benchmarks.annotated.dataset import Dataset

_YOU = "you"


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
    from lbx.benchmarks.annotated.dataset import Dataset
    from lbx.benchmarks.leval.cleaned import take_pages

    if read_only and (output or take or official or write):
        raise UsageError("--read-only writes nothing: it does not go with -o, --take, --official, --write.")
    if file.is_dir():
        raise UsageError(f"{file} is a folder.", fix="Give a file with a JSON object a line, as L-Eval's are.")
    out = None if read_only else output or file.with_name(f"{file.stem}.annotated{file.suffix}")
    if not write:
        check_web()
    with Dataset(file, out) as dataset:
        if take is not None:
            note(f"{take_pages(dataset, take):,} documents taken over from {take}")
        if not write:
            from lbx.web.annotating import AnnotationPages

            note(f"{len(dataset):,} documents; {dataset.changed:,} of them edited")
            routes = AnnotationPages(dataset, new_pairs).routes
            open_site(routes, [_YOU], host=host, port=port, uds=uds, others=others)
        if out is not None:
            _write(dataset, official, new_pairs)


def _write(dataset: Dataset, official: Path | None, new_pairs: int) -> None:
    from lbx.benchmarks.leval.cleaned import lost, official_files
    from lbx.exchange import write_files

    answer(f"{dataset.write()}: {len(dataset):,} documents, {dataset.changed:,} of them edited")
    if official is not None:
        pieces = {name: [text] for name, text in official_files(dataset, new_pairs).items()}
        written = write_files(official, pieces, whose=str(dataset.path), force=True)
        answer(f"{len(written):,} files as L-Eval's own tool writes them, in {official}")
        for text in lost(dataset):
            note(text)
