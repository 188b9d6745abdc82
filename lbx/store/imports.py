"""Runs that were made elsewhere: their rows, written in parts of a few megabytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from lbx.base.errors import StoreError
from lbx.base.layout import Bundle
from lbx.base.version import __version__
from lbx.store.rows import GenerationRow, RunRow, SampleRow
from lbx.store.store import Store

T = TypeVar("T")

_BATCH_ROWS = 500
_BATCH_CHARACTERS = 8_000_000


def import_of(
    form: str,
    content_sha256: str,
    bundle: Bundle | None,
    *,
    run_id: str,
    model: str,
    versions: Mapping[str, int] | None = None,
    metadata: Mapping[str, str] | None = None,
    **settings: Any,
) -> RunRow:
    """The row of a run that is made of files.

    Args:
        form: the files' format.
        content_sha256: of what makes it this run, and no other.
        bundle: whose samples it answers.
        versions: of the metrics that are to score it.
        settings: what else is to be known of it.
    """
    settings = {"imported": form, "content_sha256": content_sha256, **settings}
    digest = bundle.digest if bundle else ""
    return RunRow(
        run_id, model, "import", "", versions or {}, digest, settings, {}, __version__, metadata=metadata or None
    )


def refuse_other_content(store: Store, run_id: str, content_sha256: str) -> None:
    """Raise StoreError where a run of this name was imported from files of another hash."""
    for (text,) in store.query("SELECT settings FROM runs WHERE run_id = ? AND backend = 'import'", [run_id]).rows:
        if json.loads(text).get("content_sha256") != content_sha256:
            raise StoreError(
                f"The run {run_id!r} in {store.path} was imported from files with other content.",
                fix="Give this one another name: --name NAME, or none: one is then made from the content.",
            )


def write_import(store: Store, run: RunRow, samples: Iterable[SampleRow], generations: Iterable[GenerationRow]) -> None:
    """Enter a run and its rows, which stays open until ``Store.finish_run``; the same again replaces the same rows.

    Args:
        generations: in the order of their file, in which their times let an export find them again.

    Raises:
        StoreError: the file holds other samples under the same names, or another run of this name.
    """
    store.begin_run(run)
    try:
        for some in _batches(samples, lambda row: len(row.sample.context)):
            store.write(samples=some)
        now = datetime.now(UTC)
        timed = (replace(row, created_at=now + timedelta(microseconds=at)) for at, row in enumerate(generations))
        for part in _batches(timed, lambda row: len(row.output or "") + len(row.source_row or "")):
            store.write(generations=part)
    except BaseException:
        store.finish_run(run.run_id, "interrupted")
        raise


def _batches(rows: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Rows in parts that are written at once; ``size`` in characters."""
    batch: list[T] = []
    held = 0
    for row in rows:
        batch.append(row)
        held += size(row)
        if len(batch) >= _BATCH_ROWS or held >= _BATCH_CHARACTERS:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch
