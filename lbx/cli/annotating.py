"""What ``lbx annotate`` does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lbx.base.errors import UsageError
from lbx.base.units import counted
from lbx.cli.output import answer, note
from lbx.cli.people_options import Annotate
from lbx.cli.web import of_web
from lbx.exchange.annotation.dataset import Dataset
from lbx.exchange.annotation.tool_pages import lost, official_files, take_pages
from lbx.exchange.exporting import write_files

if TYPE_CHECKING:
    from lbx.web.annotating import AnnotationPages


def annotate(options: Annotate) -> None:
    """See ``lbx annotate``."""
    file, output = options.file, options.output
    if options.read_only and (output or options.take or options.official or options.write):
        raise UsageError("--read-only writes nothing: it does not go with -o, --take, --official, --write.")
    if file.is_dir():
        raise UsageError(f"{file} is a folder.", fix="Give a file with a JSON object a line, as L-Eval's are.")
    out = None if options.read_only else output or file.with_name(f"{file.stem}.annotated{file.suffix}")
    pages_of: type[AnnotationPages] | None = None if options.write else of_web("web.annotating:AnnotationPages")
    with Dataset(file, out) as dataset:
        if options.take is not None:
            note(f"{counted(take_pages(dataset, options.take), 'document')} taken over from {options.take}")
        if pages_of:
            note(f"{counted(len(dataset), 'document')}; {dataset.changed:,} of them edited")
            of_web("cli.sites:open_site")(pages_of(dataset, options.new_pairs).routes, ["you"], options)
        if out is not None:
            _write(dataset, options.official, options.new_pairs)


def _write(dataset: Dataset, official: Path | None, new_pairs: int) -> None:
    answer(f"{dataset.write()}: {counted(len(dataset), 'document')}, {dataset.changed:,} of them edited")
    if official is not None:
        pieces = {name: [text] for name, text in official_files(dataset, new_pairs).items()}
        written = write_files(official, pieces, whose=str(dataset.path), force=True)
        answer(f"{counted(len(written), 'file')} as L-Eval's own tool writes them, in {official}")
        for text in lost(dataset):
            note(text)
