"""``lbx import`` of files of judgements: leval_judge, fastchat."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lbx.cli.output import RunBar, answer, answer_json, notes

if TYPE_CHECKING:
    from lbx.base.layout import Bundle
    from lbx.store import Store

JUDGE_FORMATS = ("leval_judge", "fastchat")


def import_judge(
    form: str,
    path: Path,
    output: Path,
    *,
    model: str | None,
    name: str | None,
    bundle: Bundle | None,
    metadata: Mapping[str, str],
    as_json: bool,
) -> None:
    """Raises UsageError, BundleError, StoreError: see ``lbx.exchange.write_judgements``."""
    from lbx.exchange import understand_judgements, write_judgements
    from lbx.store import Store

    read = understand_judgements(form, path, model=model, run_id=name, bundle=bundle, metadata=metadata)
    with Store(output) as store:
        done = write_judgements(store, read)
        for run in done:
            score_import(store, run.run_id, 1)
    if as_json:
        answer_json(json.dumps({"results": str(output), "runs": [dataclasses.asdict(run) for run in done]}))
        return
    for run in done:
        failed = f", {run.failed:,} of them errors" if run.failed else ""
        answer(f"{run.run_id}: {run.rounds:,} rounds about {' and '.join(run.compared)}{failed}; results in {output}")
        for line in run.numbers:
            answer(line)
        notes(run.notes)


def score_import(store: Store, run_id: str, workers: int) -> None:
    """Score a run that was just imported, and close it."""
    from lbx.running.rescoring import score_with

    status = "interrupted"
    try:
        with RunBar() as bar:
            score_with(store, None, run_ids=[run_id], workers=workers, listener=bar)
        status = "done"
    finally:
        store.finish_run(run_id, status)
