"""``lbx sql``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lbx.cli.options import Results, SqlFormat
from lbx.cli.output import answer_text, note, stdout
from lbx.errors import UsageError
from lbx.paths import part_of


def sql(
    results: Results,
    query: Annotated[str, typer.Argument(help="One SQL query; docs/results.md lists tables and views.")],
    output_format: Annotated[SqlFormat, typer.Option("--format", "-f", help="How to print.")] = SqlFormat.TABLE,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where to write (parquet).")] = None,
) -> None:
    """Query a results file with SQL, read-only.

    Example: lbx sql results.duckdb "SELECT task, avg(prompt_tokens) FROM generations GROUP BY task" --format json
    """
    from lbx.report import render
    from lbx.store import Store

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
        text = render.json_text(table) + "\n"
    elif output_format is SqlFormat.CSV:
        text = render.csv_text(table)
    else:
        stdout().print(render.rich_table("", render.plain_columns(table)))
        return
    if output is None:
        answer_text(text)
    elif output.exists() and not output.is_file():
        output.write_text(text, "utf-8")  # a device or a pipe
    else:
        part = part_of(output)
        try:
            part.write_text(text, "utf-8")
            part.replace(output)
        finally:
            part.unlink(missing_ok=True)
