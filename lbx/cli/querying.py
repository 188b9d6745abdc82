"""Command ``lbx sql``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from lbx.base.errors import LbxError
from lbx.base.outputs import whole_place
from lbx.base.resources import limited_data
from lbx.cli.options import SqlFormat
from lbx.cli.output import answer_json, answer_text, note, parquet_file
from lbx.cli.read_options import Sql
from lbx.cli.tables import check_output, show_sheets
from lbx.report import render
from lbx.report.sheets import Sheet, plain_columns
from lbx.scoring.reading import read_added_up, say_moment
from lbx.store import Store, Table
from lbx.store.queries import TimeLimit, asked, attach_files, count_rows, export_parquet, named_files
from lbx.store.snapshots import Snapshot

_MOST_ROWS = 1_000
"""Maximum number of rows of a table for people: fitting its columns requires all rows."""


def answer_query(options: Sql) -> None:
    limit = TimeLimit(options.timeout_s or math.inf)
    if not options.memory_mib:
        _answer(options, limit)
        return
    try:
        with limited_data(options.memory_mib << 20):
            _answer(options, limit)
    except MemoryError as exc:
        raise LbxError(
            f"The query needs more than {options.memory_mib:,} MiB of memory.",
            fix="Query less data at a time, or allow more memory with --memory MIB.",
        ) from exc


def _answer(options: Sql, limit: TimeLimit) -> None:
    results, query, attached, output = options.results, options.query, options.attached, options.output
    check_output(output)
    if options.output_format is SqlFormat.PARQUET:
        output = parquet_file(output)
        with whole_place(output) as place, _opened(results, attached, place) as store:
            rows = export_parquet(store, query, place, limit)
        note(f"{rows:,} rows in {output}")
        return
    with _opened(results, attached) as store:
        if options.output_format is SqlFormat.TABLE:
            _show_table(store, query, output, limit)
            return
        with asked(store, query, limit) as answer:
            if options.output_format is SqlFormat.JSON:
                answer_json(render.json_pieces(answer.columns, answer.rows), output)
            else:
                answer_text(render.csv_pieces(answer.columns, answer.rows), output)


@contextmanager
def _opened(results: Path, attached: Sequence[str], part: Path | None = None) -> Iterator[Store]:
    """Open the results file and attach others; use one thread if a parquet file is written."""
    files = named_files(attached, results)
    snapshots = {name: snapshot for name, path in files.items() if (snapshot := _snapshot(path))}
    files |= {name: snapshot.path for name, snapshot in snapshots.items()}
    beside = [*files.values(), *([part] if part else [])]
    with read_added_up(results, beside=beside, threads=1 if part else 0) as store:
        attach_files(store, files, read_added_up)
        yield store


def _snapshot(path: Path) -> Snapshot | None:
    with Store(path, beside_writer=True) as store:
        say_moment(store)
        return store.snapshot


def _show_table(store: Store, query: str, output: Path | None, limit: TimeLimit) -> None:
    with asked(store, query, limit) as answer:
        table = Table(answer.columns, list(islice(answer.rows, _MOST_ROWS)))
        whole = next(answer.rows, None) is None
    show_sheets([Sheet("", *plain_columns(table))], output)
    if not whole:
        rows = count_rows(store, query, limit)
        note(
            f"These are the first {_MOST_ROWS:,} of {rows:,} rows. Use --format csv, json or parquet for all, "
            "or OFFSET in the query for the others."
        )
