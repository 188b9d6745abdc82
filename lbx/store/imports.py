"""Writing of imported runs, in batches of a few megabytes."""

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


def find_import(
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
    """Build the row of a run that was imported from files.

    Args:
        content_sha256: hash of the content that identifies the run.
        bundle: source of the samples that it answers.
        versions: versions of the metrics that will score it.
    """
    settings = {"imported": form, "content_sha256": content_sha256, **settings}
    digest = bundle.digest if bundle else ""
    return RunRow(
        run_id, model, "import", "", versions or {}, digest, settings, {}, __version__, metadata=metadata or None
    )


def refuse_other_content(store: Store, run_id: str, content_sha256: str) -> None:
    """Raise StoreError if a run of this name was imported from files with another hash."""
    for (text,) in store.query("SELECT settings FROM runs WHERE run_id = ? AND backend = 'import'", [run_id]).rows:
        if json.loads(text).get("content_sha256") != content_sha256:
            raise StoreError(
                f"The run {run_id!r} in {store.path} was imported from files with other content.",
                fix="Pass another name with --name NAME, or omit --name to derive the name from the content.",
            )


def write_import(store: Store, run: RunRow, samples: Iterable[SampleRow], generations: Iterable[GenerationRow]) -> None:
    """Write a run and its rows; it stays open until ``Store.finish_run``, and repeating it replaces the same rows.

    Args:
        generations: in file order; their times preserve this order for exports.

    Raises:
        StoreError: the file has other samples under the same names, or another run of this name.
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
    """Split rows into batches for writing; ``size`` returns a row's characters."""
    batch: list[T] = []
    size_so_far = 0
    for row in rows:
        batch.append(row)
        size_so_far += size(row)
        if len(batch) >= _BATCH_ROWS or size_so_far >= _BATCH_CHARACTERS:
            yield batch
            batch, size_so_far = [], 0
    if batch:
        yield batch
