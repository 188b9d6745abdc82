"""Tables as people and programs read them: on a terminal, as markdown, csv, json."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
from collections.abc import Mapping, Sequence
from html import escape

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from lbx.report.cells import Cells, plain
from lbx.store import Table
from lbx.visible import cell, json_escaped, one_line

_STYLE = """
body { font-family: system-ui, sans-serif; margin: 2em }
table { border-collapse: collapse }
th, td { padding: .2em .8em; border-bottom: 1px solid #ddd; vertical-align: top }
.left { text-align: left }
.right { text-align: right; font-variant-numeric: tabular-nums }
"""
_STYLE_SUM = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = f"default-src 'none'; style-src 'sha256-{_STYLE_SUM}'; base-uri 'none'; form-action 'none'"
"""No script, no picture, no connection, and no style but ours, should something from a results file get that far."""
_PAGE = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="referrer" content="no-referrer"><title>lbx report</title><style>{_STYLE}</style></head><body>
{{}}
</body></html>
"""

_MARKDOWN = re.compile(r"[`<>\[\]!&~@$]|[*_]{2}|://|www\.", re.IGNORECASE)
"""What markdown makes links, pictures, HTML or emphasis of."""


def rich_table(title: str, made: Cells) -> RichTable:
    """For a terminal."""
    columns, rows = made
    table = RichTable(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(Text(column.heading), justify="left" if column.kind == "text" else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    return table


def markdown(title: str, made: Cells) -> str:
    """A GitHub-flavoured table under a heading. Cells that could become more than text are code."""
    columns, rows = made
    rule = ["---" if column.kind == "text" else "---:" for column in columns]
    lines = [[_escape(c.heading) for c in columns], rule, *([_escape(cell) for cell in row] for row in rows)]
    return f"## {title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _escape(cell: str) -> str:
    cell = cell.replace("\n", " ")
    if not _MARKDOWN.search(cell):
        return cell.replace("\\", "\\\\").replace("|", "\\|")
    longest = max(map(len, re.findall("`+", cell)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {cell} {fence}".replace("|", "\\|")


def html(tables: Sequence[tuple[str, Cells]]) -> str:
    """A page that needs nothing from elsewhere."""
    parts = []
    for title, (columns, rows) in tables:
        sides = ["left" if column.kind == "text" else "right" for column in columns]
        head = "".join(f'<th class="{side}">{escape(c.heading)}</th>' for c, side in zip(columns, sides, strict=True))
        body = "\n".join(
            "<tr>"
            + "".join(f'<td class="{side}">{escape(cell)}</td>' for cell, side in zip(row, sides, strict=True))
            + "</tr>"
            for row in rows
        )
        parts.append(f"<h2>{escape(title)}</h2>\n<table>\n<tr>{head}</tr>\n{body}\n</table>")
    return _PAGE.replace("{}", "\n".join(parts))


def csv_text(table: Table) -> str:
    """The view's own columns and unrounded values; ``json_text`` and parquet have every text to the letter.

    Control characters are spelled out. A text that a spreadsheet would take for a formula has an apostrophe before it;
    numbers are left alone, and what is none (NaN, infinity) is empty.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_csv_cell(name) for name in table.columns])
    writer.writerows([[_csv_cell(value) for value in row] for row in table.rows])
    return out.getvalue()


def _csv_cell(value: object) -> object:
    said = plain(value)
    return said if said is None or isinstance(said, (bool, int, float)) else cell(str(said))


def json_text(tables: Mapping[str, Table] | Table) -> str:
    """One table as an array of objects; several as an object of arrays."""
    value = _objects(tables) if isinstance(tables, Table) else {name: _objects(t) for name, t in tables.items()}
    return json_escaped(json.dumps(value, ensure_ascii=False, indent=2))


def _objects(table: Table) -> list[dict[str, object]]:
    return [{name: plain(value) for name, value in row.items()} for row in table.dicts()]
