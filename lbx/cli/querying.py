"""Command ``lbx sql``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from lbx.base.errors import LbxError
from lbx.base.outputs import atomic_path
from lbx.base.resources import limit_data
from lbx.cli.options import SqlFormat
from lbx.cli.output import answer_json, answer_text, note, require_output_file
from lbx.cli.read_options import SqlOptions
from lbx.cli.table_output import check_output, show_sheets
from lbx.report.format import render
from lbx.report.format.sheets import Sheet, plain_columns
from lbx.results import Store, Table
from lbx.results.file.snapshots import Snapshot
from lbx.results.read.queries import TimeLimit, attach_files, count_rows, export_parquet, open_query, parse_attachments
from lbx.results.scoring.reading import log_snapshot, open_with_numbers

_MAX_ROWS = 1_000
"""Maximum number of rows of a table for people, because all rows are needed to fit the columns."""


def answer_query(options: SqlOptions) -> None:
    limit = TimeLimit(options.timeout_s or math.inf)
    if not options.memory_mib:
        _run_query(options, limit)
        return
    try:
        with limit_data(options.memory_mib << 20):
            _run_query(options, limit)
    except MemoryError as exc:
        raise LbxError(
            f"The query needs more than {options.memory_mib:,} MiB of memory.",
            fix="Query less data at a time, or allow more memory with --memory MIB.",
        ) from exc


def _run_query(options: SqlOptions, limit: TimeLimit) -> None:
    results, query, attached, output = options.results, options.query, options.attached, options.output
    check_output(output)
    if options.output_format is SqlFormat.PARQUET:
        output = require_output_file(output, "Parquet")
        with atomic_path(output) as path, _open_store(results, attached, path) as store:
            rows = export_parquet(store, query, path, limit)
        note(f"{rows:,} rows in {output}")
        return
    with _open_store(results, attached) as store:
        if options.output_format is SqlFormat.TABLE:
            _show_table(store, query, output, limit)
            return
        with open_query(store, query, limit) as answer:
            if options.output_format is SqlFormat.JSON:
                answer_json(render.json_pieces(answer.columns, answer.rows), output)
            else:
                answer_text(render.csv_pieces(answer.columns, answer.rows), output)


@contextmanager
def _open_store(results: Path, attachments: Sequence[str], parquet_path: Path | None = None) -> Iterator[Store]:
    """Open the results file and attach others, with one thread if a parquet file is written."""
    files = parse_attachments(attachments, results)
    snapshots = {name: snapshot for name, path in files.items() if (snapshot := _snapshot(path))}
    files |= {name: snapshot.path for name, snapshot in snapshots.items()}
    allowed_files = [*files.values(), *([parquet_path] if parquet_path else [])]
    with open_with_numbers(results, allowed_files=allowed_files, threads=1 if parquet_path else 0) as store:
        attach_files(store, files, open_with_numbers)
        yield store


def _snapshot(path: Path) -> Snapshot | None:
    with Store(path, allow_writer=True) as store:
        log_snapshot(store)
        return store.snapshot


def _show_table(store: Store, query: str, output: Path | None, limit: TimeLimit) -> None:
    with open_query(store, query, limit) as answer:
        table = Table(answer.columns, list(islice(answer.rows, _MAX_ROWS)))
        is_complete = next(answer.rows, None) is None
    show_sheets([Sheet("", *plain_columns(table))], output)
    if not is_complete:
        rows = count_rows(store, query, limit)
        note(
            f"These are the first {_MAX_ROWS:,} of {rows:,} rows. Use --format csv, json or parquet for all, "
            "or OFFSET in the query for the others."
        )
