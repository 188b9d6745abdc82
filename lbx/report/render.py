"""Formats of tables for files and programs: markdown, csv, json."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from lbx.base.visible import escape_json, one_line, spreadsheet_cell
from lbx.report.sheets import Sheet, plain
from lbx.store import Table

_MARKDOWN = re.compile(r"`|<[a-z/!?]|&(?:#|\w+;)|\]\s*[(\[:]|\[\^|!\[|@[\w-]|://|www\.", re.IGNORECASE)
"""Text that markdown turns into links, pictures, HTML or footnotes."""
_OPENS, _CLOSES = re.compile(r"(?<!\w)_+[^\s_]"), re.compile(r"[^\s_]_+(?!\w)")
"""Underscores around words, which markdown turns into emphasis; those within words are literal."""


def markdown(sheet: Sheet) -> str:
    """Render a GitHub-flavoured table under a heading. Cells with markup become code."""
    parts = [f"## {_escape(one_line(sheet.title))}"]
    if sheet.rows:
        rule = ["---" if column.kind == "text" else "---:" for column in sheet.columns]
        head = [_escape(one_line(column.heading)) for column in sheet.columns]
        body = [
            [f"**{_escape(cell)}**" if (at, n) in sheet.best else _escape(cell) for n, cell in enumerate(row)]
            for at, row in enumerate(sheet.rows)
        ]
        lines = [head, rule, *body]
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join([*parts, *(_escape(one_line(note)) for note in sheet.notes)]) + "\n"


def _escape(cell: str) -> str:
    cell = cell.replace("\n", " ")
    emphasis = _OPENS.search(cell) and _CLOSES.search(cell)
    if not (_MARKDOWN.search(cell) or emphasis or cell.count("$") > 1 or cell.count("~") > 1):
        return re.sub(r"[\\|*]|^[#>+-](?= )", r"\\\g<0>", cell)
    longest = max(map(len, re.findall("`+", cell)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {cell} {fence}".replace("|", "\\|")


def csv_pieces(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield csv line by line, with the view's own columns and unrounded values.

    Control characters are escaped. Texts that spreadsheets would take for formulas get an apostrophe as a prefix.
    Numbers are unchanged, and NaN and infinity are empty. JSON and parquet keep every text unchanged.
    """
    line = io.StringIO()
    writer = csv.writer(line, lineterminator="\n")
    for row in itertools.chain([columns], rows):
        writer.writerow([_csv_cell(value) for value in row])
        yield line.getvalue()
        line.seek(0)
        line.truncate()


def _csv_cell(value: object) -> object:
    if value is None or type(value) is int:
        return value
    text = plain(value)
    return text if text is None or isinstance(text, (bool, int, float)) else spreadsheet_cell(str(text))


def json_pieces(columns: Sequence[str], rows: Iterable[Sequence[object]], indent: str = "") -> Iterator[str]:
    """Yield an array of objects, one per line: with one value per line, Python would take ten times as long."""
    encode = json.JSONEncoder(ensure_ascii=False).encode
    before = "[\n"
    for row in rows:
        yield f"{before}{indent}  {escape_json(encode(dict(zip(columns, map(plain, row), strict=True))))}"
        before = ",\n"
    yield "[]" if before == "[\n" else f"\n{indent}]"


def json_of_tables(tables: Mapping[str, Table]) -> Iterator[str]:
    """Yield several tables as an object of arrays."""
    before = "{"
    for name, table in tables.items():
        yield f"{before}\n  {json.dumps(name)}: "
        yield from json_pieces(table.columns, table.rows, "  ")
        before = ","
    yield "\n}"
