"""What ``lbx annotate`` does."""

from __future__ import annotations

from pathlib import Path

from lbx.base.errors import UsageError
from lbx.benchmarks.annotated.dataset import Dataset
from lbx.benchmarks.leval.cleaned import lost, official_files, take_pages
from lbx.cli.output import answer, note
from lbx.cli.web import check_web
from lbx.exchange import write_files


def annotate_file(
    *,
    file: Path,
    output: Path | None,
    new_pairs: int,
    read_only: bool,
    take: Path | None,
    official: Path | None,
    write: bool,
    host: str,
    port: int,
    uds: Path | None,
    others: bool,
) -> None:
    """See ``lbx annotate``."""
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
            from lbx.cli.annotation_pages import open_pages

            note(f"{len(dataset):,} documents; {dataset.changed:,} of them edited")
            open_pages(dataset, new_pairs, host=host, port=port, uds=uds, others=others)
        if out is not None:
            _write(dataset, official, new_pairs)


def _write(dataset: Dataset, official: Path | None, new_pairs: int) -> None:
    answer(f"{dataset.write()}: {len(dataset):,} documents, {dataset.changed:,} of them edited")
    if official is not None:
        pieces = {name: [text] for name, text in official_files(dataset, new_pairs).items()}
        written = write_files(official, pieces, whose=str(dataset.path), force=True)
        answer(f"{len(written):,} files as L-Eval's own tool writes them, in {official}")
        for text in lost(dataset):
            note(text)
