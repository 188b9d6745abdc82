"""``lbx import`` and ``lbx export`` of files of people's ratings."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from lbx.base.layout import Bundle
from lbx.benchmarks import BENCHMARKS
from lbx.cli.output import answer, answer_json, notes
from lbx.exchange import write_files
from lbx.scoring.adding_up import add_up_completed
from lbx.store import Store

if TYPE_CHECKING:
    from lbx.benchmarks.base.official_judge import RatingForm


def import_ratings(
    form: RatingForm,
    path: Path,
    output: Path,
    *,
    rater: str | None,
    set_id: str | None,
    bundle: Path | None,
    as_json: bool,
) -> None:
    """Raises UsageError: the path or the rater is wrong; StoreError: the results file is."""
    Store.check(output)
    opened = Bundle(bundle) if bundle else None
    files, (write, _) = form.read(path, rater), form.load()  # before the results file is made
    with Store(output) as store:
        done = write(store, files, bundle=opened, set_id=set_id)
        add_up_completed(store, BENCHMARKS)
    if as_json:
        means = {key: mean if math.isfinite(mean) else None for key, mean in done.means.items()}
        answer_json(json.dumps({"results": str(output), **dataclasses.asdict(done), "means": means}))
        return
    answer(f"{done.set_id}: {done.ratings:,} ratings by {done.rater} of {done.questions:,} questions, in {output}")
    for key, mean in done.means.items():
        answer(f"{key}: {mean}")
    notes(done.notes)


def export_ratings(
    form: RatingForm,
    results: Path,
    output: Path,
    *,
    set_id: str | None,
    rater: str | None,
    bundle: Path | None,
    documents: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Raises UsageError: no such set or rater, a document is nowhere, a file is there already."""
    opened, (_, export) = Bundle(bundle) if bundle else None, form.load()
    with Store(results, read_only=True) as store:
        files = export(store, set_id, rater, bundle=opened, documents=documents)
    written = write_files(
        output, {name: [text] for name, text in files.items()}, whose=rater or "the rater", force=force
    )
    if as_json:
        answer_json(json.dumps({"files": [str(path) for path in written]}))
        return
    answer(f"{len(written)} files in {output}")
