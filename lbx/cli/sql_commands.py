"""``lbx sql``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lbx.cli.options import Results, SqlFormat


def sql(
    results: Results,
    query: Annotated[str, typer.Argument(help="One SQL query; docs/results.md lists tables and views.")],
    output_format: Annotated[SqlFormat, typer.Option("--format", "-f", help="How to print.")] = SqlFormat.TABLE,
    attached: Annotated[
        list[str] | None,
        typer.Option(
            "--attach",
            metavar="NAME=FILE",
            help="Another results file, to read: its tables and views are NAME.runs, NAME.task_scores ... "
            "Can be repeated.",
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file.")] = None,
) -> None:
    """Query a results file with SQL, read-only.

    Example: lbx sql results.duckdb "SELECT task, avg(prompt_tokens) FROM generations GROUP BY task" --format json
    """
    from lbx.cli.querying import answer_query

    answer_query(results=results, query=query, output_format=output_format, attached=attached, output=output)
