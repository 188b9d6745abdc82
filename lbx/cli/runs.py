"""Commands of ``lbx runs``: list, rename, remove, note, extract, texts."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from lbx.base.database import database_files
from lbx.base.errors import StoreError, UsageError
from lbx.base.units import format_count, format_size
from lbx.base.visible import as_command
from lbx.cli.output import answer, answer_json, note
from lbx.cli.runs_options import (
    ExtractRunsOptions,
    ListRunsOptions,
    ListTextsOptions,
    NoteRunOptions,
    RemoveRunsOptions,
    RenameRunOptions,
)
from lbx.cli.table_output import show_table
from lbx.opinions.journal import journal_of
from lbx.options.option import parse_key_values
from lbx.report.format.sheets import plain, plain_columns
from lbx.results import Store, Table
from lbx.results.file.opening import require_file
from lbx.results.file.texts import ANSWERS, NO_TEXTS
from lbx.results.read.runs import ListedRun, listed_runs, metadata, resolve_runs, set_metadata
from lbx.results.scoring.reading import open_with_numbers
from lbx.results.whole.edits import new_results_file, rewrite_file
from lbx.results.whole.extracting import UNKNOWN, copy_runs, text_columns
from lbx.results.whole.run_changes import RemovalSummary, describe_dependents, open_for_changes, remove_runs, rename_run


def list_runs(options: ListRunsOptions) -> None:
    with Store(options.results, allow_writer=True) as store:
        runs = listed_runs(store)
    file_bytes = sum(part.stat().st_size for part in database_files(options.results))
    if options.as_json:
        rows = [plain(asdict(run)) for run in runs]
        answer_json(
            json.dumps({"results": str(options.results), "file_bytes": file_bytes, "runs": rows}, ensure_ascii=False)
        )
        return
    columns = ("run", "kind", "state", "answers", "failed", "size", "started", "newest answer", "model", "facts")
    if runs:
        show_table("", plain_columns(Table(columns, [_row(run) for run in runs])))
    answer(f"{format_count(len(runs), 'run')} in {options.results} ({format_size(file_bytes)})")


def _row(run: ListedRun) -> tuple[object, ...]:
    total = run.bundle_answers or 0
    return (
        run.run_id,
        run.kind,
        run.state,
        f"{run.answers:,} of {total:,}" if run.answers < total else f"{run.answers:,}",
        f"{run.failures:,}" if run.failures else "",
        format_size(run.size_bytes),
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
        answer(f"{results} was rewritten: {format_size(sizes[0])} before, {format_size(sizes[1])} now")
    else:
        command = as_command("lbx", "runs", "remove", results, "--vacuum")
        note(f"Removed texts stay in free blocks of the file, which keeps its size, until it is rewritten: {command}")


def _print_removal(removal: RemovalSummary | None, results: Path, sizes: tuple[int, int] | None) -> None:
    removed = asdict(removal) if removal else {}
    vacuumed = dict(zip(("bytes_before", "bytes_after"), sizes, strict=True)) if sizes else None
    answer_json(json.dumps({"results": str(results), **removed, "vacuum": vacuumed}, ensure_ascii=False))


def _show_removal(removal: RemovalSummary, results: Path) -> None:
    if removal.comparisons:
        answer(f"Removed the comparison by position {', '.join(removal.comparisons)} from {results}")
    if removal.runs:
        questions = format_count(removal.samples, "question or judge's round", "questions and judges' rounds")
        answer(f"Removed {', '.join(removal.runs)} and {questions} that no other run uses from {results}")
    if dependents := describe_dependents(removal.dependents):
        answer(f"Removed with them: {dependents}")
    if removal.dependents.numbers:
        answer(f"Computed again without them: {format_count(removal.dependents.numbers, 'number')} of other runs")
    if removal.judges:
        answer(f"Judges without any judgement left, and removed: {', '.join(removal.judges)}")


def note_facts(options: NoteRunOptions) -> None:
    changes = parse_key_values("A fact", options.facts)
    opened = open_for_changes(options.results) if changes else Store(options.results, allow_writer=True)
    with opened as store:
        (run,) = resolve_runs(store, [options.run])
        facts = set_metadata(store, run, changes) if changes else metadata(store, run)
    if options.as_json:
        answer_json(json.dumps(facts, ensure_ascii=False))
        return
    for line in [f"{key}={value}" for key, value in facts.items()] or [f"No facts are recorded about {run}."]:
        answer(line)


def extract_runs(options: ExtractRunsOptions) -> None:
    if options.keep_answers and not options.without_texts:
        raise UsageError(
            "--keep-answers needs --without-texts; without it, all texts are copied.", fix="Leave it out, or pass both."
        )
    require_file(options.results)
    texts = (ANSWERS if options.keep_answers else NO_TEXTS) if options.without_texts else None
    with new_results_file(options.output) as part:
        with open_with_numbers(options.results, allowed_files=[part]) as store:
            summary = copy_runs(store, part, resolve_runs(store, options.runs), texts)
        if texts:
            _check_removal(options.results, part)
    if options.as_json:
        answer_json(json.dumps({"results": str(options.output), **asdict(summary)}, ensure_ascii=False))
        return
    judges = f" and {format_count(len(summary.judges), 'judge')}" if summary.judges else ""
    answer(f"{format_count(len(summary.runs), 'run')}{judges} in {options.output}")
    if (journal := journal_of(options.results)).exists():
        collect = as_command("lbx", "rate", options.results, "--collect")
        note(f"{journal} has ratings that are not in the results file; {collect} moves them.")
    if summary.removed_facts:
        columns = ", ".join(f"{name} ({format_count(rows, 'row')})" for name, rows in summary.removed_facts.items())
        note(
            f"Texts of several words, such as sentences and lists of CPU features, were removed from {columns}: only "
            "numbers, names, paths and hashes are kept there."
        )
    if summary.texts:
        kept = "no texts" if summary.texts == NO_TEXTS else "no texts except the models' answers"
        note(f"The file has {kept}. List remaining texts with: {as_command('lbx', 'runs', 'texts', options.output)}")


def _check_removal(source: Path, copy: Path) -> None:
    """Raise StoreError if a copy without texts contains texts in columns of names, where lbx never writes texts."""
    with Store(copy, read_only=True) as store:
        for column in text_columns(store):
            if column.origin == UNKNOWN:
                raise StoreError(
                    f"{source} has texts in the column {column.column} of the table {column.table}, which is for "
                    "names. No file was written.",
                    fix="Rename a run or judge with `lbx runs rename`. If it is another name, ask the author, or "
                    "name runs without such texts.",
                )


def list_texts(options: ListTextsOptions) -> None:
    with Store(options.results, allow_writer=True) as store:
        columns = text_columns(store)
    if options.as_json:
        rows = [asdict(column) for column in columns]
        answer_json(json.dumps({"results": str(options.results), "texts": rows}, ensure_ascii=False))
        return
    if columns:
        cells = [(f"{c.table}.{c.column}", c.origin, f"{c.rows:,}", format_size(c.size_bytes)) for c in columns]
        show_table("", plain_columns(Table(("column", "origin", "rows", "size"), cells)))
    total = sum(column.size_bytes for column in columns)
    answer(f"{format_count(len(columns), 'column')} with texts in {options.results} ({format_size(total)})")
