"""``lbx import`` and ``lbx export`` of files of people's ratings."""

from __future__ import annotations

import dataclasses
import json
import math

from lbx.base.counts import counted
from lbx.base.layout import Bundle
from lbx.benchmarks import BENCHMARKS
from lbx.benchmarks.leval import export, files, ratings
from lbx.cli.exchange_options import Export, Import
from lbx.cli.output import answer, answer_json, notes
from lbx.exchange.exporting import write_files
from lbx.scoring.adding_up import add_up_completed
from lbx.store import Store


def import_ratings(options: Import) -> None:
    """Raises UsageError: the path or the rater is wrong; StoreError: the results file is."""
    output = options.output
    Store.check(output)
    opened = Bundle(options.bundle) if options.bundle else None
    rated = files.read(options.path, options.rater)  # before the results file is made
    with Store(output) as store:
        done = ratings.import_ratings(store, rated, bundle=opened, set_id=options.set_id)
        add_up_completed(store, BENCHMARKS)
    if options.as_json:
        means = {key: mean if math.isfinite(mean) else None for key, mean in done.means.items()}
        answer_json(json.dumps({"results": str(output), **dataclasses.asdict(done), "means": means}))
        return
    answer(
        f"{done.set_id}: {counted(done.ratings, 'rating')} by {done.rater} of {counted(done.questions, 'question')}, "
        f"in {output}"
    )
    for key, mean in done.means.items():
        answer(f"{key}: {mean}")
    notes(done.notes)


def export_ratings(options: Export) -> None:
    """Raises UsageError: no such set or rater, a document is nowhere, a file already exists."""
    opened = Bundle(options.bundle) if options.bundle else None
    with Store(options.results, read_only=True) as store:
        texts = export.export_ratings(store, options.set_id, options.rater, bundle=opened, documents=options.documents)
    pieces = {name: [text] for name, text in texts.items()}
    written = write_files(options.output, pieces, whose=options.rater or "the rater", force=options.force)
    if options.as_json:
        answer_json(json.dumps({"files": [str(path) for path in written]}))
        return
    answer(f"{len(written)} files in {options.output}")
