"""Commands of ``lbx runs``."""

from __future__ import annotations

import json
from dataclasses import asdict

from lbx.base.commands import as_command
from lbx.base.database import files_of
from lbx.base.option import key_values
from lbx.base.units import format_count, size
from lbx.cli.output import answer, answer_json, note
from lbx.cli.run_options import ListRunsOptions, NoteRunOptions, RenameRunOptions
from lbx.cli.tables import show_table
from lbx.report.sheets import plain, plain_columns
from lbx.running.stored_runs import open_for_changes, rename_run
from lbx.store import Store, Table
from lbx.store.listed_runs import ListedRun, listed_runs
from lbx.store.runs import metadata, resolve_runs, set_metadata


def list_runs(options: ListRunsOptions) -> None:
    with Store(options.results, allow_writer=True) as store:
        runs = listed_runs(store)
    file_bytes = sum(part.stat().st_size for part in files_of(options.results))
    if options.as_json:
        rows = [plain(asdict(run)) for run in runs]
        answer_json(
            json.dumps({"results": str(options.results), "file_bytes": file_bytes, "runs": rows}, ensure_ascii=False)
        )
        return
    columns = ("run", "kind", "state", "answers", "failed", "size", "started", "newest answer", "model", "facts")
    if runs:
        show_table("", plain_columns(Table(columns, [_row(run) for run in runs])))
    answer(f"{format_count(len(runs), 'run')} in {options.results} ({size(file_bytes)})")


def _row(run: ListedRun) -> tuple[object, ...]:
    return (
        run.run_id,
        run.kind,
        run.state,
        f"{run.answers:,}",
        f"{run.failures:,}" if run.failures else "",
        size(run.size_bytes),
        f"{run.started_at:%Y-%m-%d %H:%M}",
        f"{run.newest_at:%Y-%m-%d %H:%M}" if run.newest_at else "",
        run.model,
        ", ".join(f"{key}={value}" for key, value in run.facts.items()),
    )


def rename(options: RenameRunOptions) -> None:
    old = rename_run(options.results, options.run, options.new_name)
    if options.as_json:
        answer_json(json.dumps({"results": str(options.results), "old": old, "new": options.new_name}))
        return
    answer(f"{old} is now {options.new_name} in {options.results}")
    note(f"To continue it, repeat its command with {as_command('--name', options.new_name)}")


def note_facts(options: NoteRunOptions) -> None:
    changes = key_values("lbx runs note", options.said)
    opened = open_for_changes(options.results) if changes else Store(options.results, allow_writer=True)
    with opened as store:
        (run,) = resolve_runs(store, [options.run])
        facts = set_metadata(store, run, changes) if changes else metadata(store, run)
    if options.as_json:
        answer_json(json.dumps(facts, ensure_ascii=False))
        return
    for line in [f"{key}={value}" for key, value in facts.items()] or [f"No facts are recorded about {run}."]:
        answer(line)
