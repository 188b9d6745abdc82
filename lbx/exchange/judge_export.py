"""``lbx export leval_judge`` and ``fastchat``: judgements as their scripts write them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lbx.errors import UsageError
from lbx.exchange.exporting import Exported, not_whole, stored_files, write_files
from lbx.store import Store
from lbx.store.runs import check_runs


def export_judgements(
    store: Store, form: str, runs: Sequence[str], directory: Path, *, force: bool = False
) -> Exported:
    """Write judges' runs as files of this format, those of one file behind each other; imports byte for byte.

    Raises:
        UsageError: no such run, another one's, or a file is there already.
        LbxError: the disk is full or the folder cannot be written; no file has changed then.
    """
    files: dict[str, list[str]] = {}
    rows = 0
    for run_id in dict.fromkeys(runs):
        check_runs(store, [run_id])
        (run,) = store.query("SELECT * FROM runs WHERE run_id = ?", [run_id]).dicts()
        name, lines = _imported(store, form, run)
        rows += len(lines)
        files.setdefault(name, []).extend(lines)
    return Exported(tuple(write_files(directory, files, whose=", ".join(runs), force=force)), rows, {})


def _imported(store: Store, form: str, run: Mapping[str, Any]) -> tuple[str, list[str]]:
    settings = json.loads(run["settings"])
    held = "SELECT count(*), count(source_row) FROM generations WHERE run_id = ? AND benchmark = 'judge'"
    ((rounds, told),) = store.query(held, [run["run_id"]]).rows
    if settings.get("imported") != form or not rounds:
        raise UsageError(
            f"The run {run['run_id']!r} is no judge's that was imported from a file of {form}.",
            fix="`lbx export leval RESULTS --run RUN` writes answers for a judge.",
        )
    files = stored_files(store, run["run_id"], settings)
    if len(files) != 1 or told != files[0].rows or rounds != 2 * told:
        raise not_whole(store, run["run_id"])
    rows = store.query(
        "SELECT source_row FROM generations WHERE run_id = ? AND source_row IS NOT NULL ORDER BY created_at",
        [run["run_id"]],
    ).rows
    return files[0].name, files[0].lines([text for (text,) in rows])
