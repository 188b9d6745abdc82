"""Commands of ``lbx runs``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from lbx.base.commands import as_command
from lbx.base.database import files_of
from lbx.base.errors import UsageError
from lbx.base.option import key_values
from lbx.base.units import format_count, size
from lbx.cli.output import answer, answer_json, note
from lbx.cli.run_options import ListRunsOptions, NoteRunOptions, RemoveRunsOptions, RenameRunOptions
from lbx.cli.tables import show_table
from lbx.report.sheets import plain, plain_columns
from lbx.running.stored_runs import (
    RemovalSummary,
    describe_dependents,
    open_for_changes,
    remove_runs,
    rename_run,
)
from lbx.store import Store, Table
from lbx.store.edits import rewrite_file
from lbx.store.runs import ListedRun, listed_runs, metadata, resolve_runs, set_metadata


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
    total = run.bundle_answers or 0
    return (
        run.run_id,
        run.kind,
        run.state,
        f"{run.answers:,} of {total:,}" if run.answers < total else f"{run.answers:,}",
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


def remove(options: RemoveRunsOptions) -> None:
    if not options.runs and not options.vacuum:
        raise UsageError("No run to remove.", fix="Name one, or pass --vacuum to only rewrite the file.")
    results = options.results
    removal = remove_runs(results, options.runs, with_dependents=options.with_dependents) if options.runs else None
    sizes = None
    try:
        sizes = rewrite_file(results) if options.vacuum else None
    finally:  # the runs are removed even if the file cannot be rewritten
        if options.as_json and (removal or sizes):
            _print_removal(removal, results, sizes)
        elif removal:
            _show_removal(removal, results)
    if options.as_json:
        return
    if sizes:
        answer(f"{results} was rewritten: {size(sizes[0])} before, {size(sizes[1])} now")
    else:
        command = as_command("lbx", "runs", "remove", results, "--vacuum")
        note(f"Removed texts stay in free blocks of the file, which keeps its size, until it is rewritten: {command}")


def _print_removal(removal: RemovalSummary | None, results: Path, sizes: tuple[int, int] | None) -> None:
    removed = asdict(removal) if removal else {}
    vacuumed = dict(zip(("bytes_before", "bytes_after"), sizes, strict=True)) if sizes else None
    answer_json(json.dumps({"results": str(results), **removed, "vacuum": vacuumed}, ensure_ascii=False))


def _show_removal(removal: RemovalSummary, results: Path) -> None:
    questions = format_count(removal.samples, "question or judge's round", "questions and judges' rounds")
    answer(f"Removed {', '.join(removal.runs)} and {questions} that no other run uses from {results}")
    if dependents := describe_dependents(removal.dependents):
        answer(f"Removed with them: {dependents}")
    if removal.dependents.numbers:
        answer(f"Computed again without them: {format_count(removal.dependents.numbers, 'number')} of other runs")
    if removal.judges:
        answer(f"Judges without any judgement left, and removed: {', '.join(removal.judges)}")


def note_facts(options: NoteRunOptions) -> None:
    changes = key_values("A fact", options.facts)
    opened = open_for_changes(options.results) if changes else Store(options.results, allow_writer=True)
    with opened as store:
        (run,) = resolve_runs(store, [options.run])
        facts = set_metadata(store, run, changes) if changes else metadata(store, run)
    if options.as_json:
        answer_json(json.dumps(facts, ensure_ascii=False))
        return
    for line in [f"{key}={value}" for key, value in facts.items()] or [f"No facts are recorded about {run}."]:
        answer(line)
