"""The pages of ``lbx annotate``; needs lbx[web]."""

from __future__ import annotations

from pathlib import Path

from lbx.benchmarks.annotated.dataset import Dataset
from lbx.cli.sites import open_site
from lbx.web.annotating import AnnotationPages


def open_pages(dataset: Dataset, new_pairs: int, *, host: str, port: int, uds: Path | None, others: bool) -> None:
    """Print the link, and answer until Ctrl-C. Raises UsageError: it cannot listen there."""
    open_site(AnnotationPages(dataset, new_pairs).routes, ["you"], host=host, port=port, uds=uds, others=others)
