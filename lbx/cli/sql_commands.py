"""``lbx sql``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lbx.cli.options import Results, SqlFormat
from lbx.cli.output import answer_json, answer_text, check_output, note, show_sheets
from lbx.errors import UsageError
from lbx.paths import part_of


def sql(
    results: Results,
    query: Annotated[str, typer.Argument(help="One SQL query; docs/results.md lists tables and views.")],
    output_format: Annotated[SqlFormat, typer.Option("--format", "-f", help="How to print.")] = SqlFormat.TABLE,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file.")] = None,
) -> None:
    """Query a results file with SQL, read-only.

    Example: lbx sql results.duckdb "SELECT task, avg(prompt_tokens) FROM generations GROUP BY task" --format json
    """
    from lbx.report import render
    from lbx.report.cells import Sheet, plain_columns
    from lbx.store import Store

    check_output(output)
    if output_format is SqlFormat.PARQUET:
        if output is None:
            raise UsageError("Parquet is not for terminals.", fix="Say where to write it: -o FILE.parquet.")
        with Store(results, read_only=True, beside=[part_of(output)]) as store:
            rows = store.export_parquet(query, output)
        note(f"{rows:,} rows in {output}")
        return
    with Store(results, read_only=True) as store:
        table = store.ask(query)
    if output_format is SqlFormat.JSON:
        answer_json(render.json_pieces(table.columns, table.rows), output)
    elif output_format is SqlFormat.CSV:
        answer_text(render.csv_pieces(table.columns, table.rows), output)
    else:
        show_sheets([Sheet("", *plain_columns(table))], output)
