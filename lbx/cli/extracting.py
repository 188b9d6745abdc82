"""Commands ``lbx runs extract`` and ``lbx runs texts``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from lbx.base.commands import as_command
from lbx.base.errors import StoreError, UsageError
from lbx.base.units import format_count, size
from lbx.cli.output import answer, answer_json, note
from lbx.cli.run_options import ExtractRunsOptions, ListTextsOptions
from lbx.cli.tables import show_table
from lbx.judging.journal import journal_of
from lbx.report.sheets import plain_columns
from lbx.scoring.reading import open_with_numbers
from lbx.store import Store, Table
from lbx.store.edits import new_results_file
from lbx.store.extracting import UNKNOWN, copy_runs, text_columns
from lbx.store.opening import require_file
from lbx.store.runs import resolve_runs
from lbx.store.texts import NO_TEXTS


def extract_runs(options: ExtractRunsOptions) -> None:
    if options.keep and not options.without_texts:
        raise UsageError(
            "--keep needs --without-texts; without it, all texts are copied.", fix="Leave it out, or pass both."
        )
    require_file(options.results)
    texts = str(options.keep or NO_TEXTS) if options.without_texts else None
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
        note(f"Sentences were removed from {columns}: only numbers, names, paths and hashes are kept there.")
    if summary.texts:
        kept = "no texts" if summary.texts == NO_TEXTS else "no texts except the models' answers"
        note(f"The file has {kept}. List remaining texts with: {as_command('lbx', 'runs', 'texts', options.output)}")


def _check_removal(source: Path, copy: Path) -> None:
    """Raise StoreError if a copy without texts has texts in columns of names, where lbx never writes them."""
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
        cells = [(f"{c.table}.{c.column}", c.origin, f"{c.rows:,}", size(c.size_bytes)) for c in columns]
        show_table("", plain_columns(Table(("column", "origin", "rows", "size"), cells)))
    total = sum(column.size_bytes for column in columns)
    answer(f"{format_count(len(columns), 'column')} with texts in {options.results} ({size(total)})")
