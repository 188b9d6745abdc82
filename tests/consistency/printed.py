"""What formats print, held against the rows that they print: each number at its printed digits.

Every format is taken apart on its own, into tables of headings and cells; none of lbx's code that prints is used.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from lbx.base.columns import Column
from lbx.report.report import Report
from lbx.results import Table

Row = Mapping[str, Any]
NUMBER = r"[-+]?[\d,]+(?:\.\d+)?(?:e[-+]?\d+)?"
_SCALES = {"percent": 100, "points": 100, "share": 100}
_WORDS = ("text", "flag")


@dataclass
class Grid:
    """A printed table."""

    title: str
    heads: list[str]
    lines: list[list[str]]
    bold: set[tuple[int, int]] = field(default_factory=set)


# Formats, taken apart


def from_markdown(text: str) -> Iterator[Grid]:
    for part in re.split(r"^## ", text, flags=re.M)[1:]:
        title, _, rest = part.partition("\n")
        lines = [_markdown_cells(line) for line in rest.splitlines() if line.startswith("| ")]
        if lines:
            head, body = [cell for cell, _ in lines[0]], lines[2:]
            bold = {(at, n) for at, line in enumerate(body) for n, (_, strong) in enumerate(line) if strong}
            yield Grid(_unescaped(title), head, [[cell for cell, _ in line] for line in body], bold)


def _markdown_cells(line: str) -> list[tuple[str, bool]]:
    found = []
    for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]:
        text = cell.strip()
        strong = len(text) > 4 and text.startswith("**") and text.endswith("**")
        found.append((_unescaped(text[2:-2] if strong else text), strong))
    return found


def _unescaped(text: str) -> str:
    if fence := re.fullmatch(r"(`+) (.*) \1", text, re.S):
        return fence[2].replace("\\|", "|")
    return re.sub(r"\\([\\|*#>+-])", r"\1", text)


def from_text(text: str) -> Iterator[Grid]:
    """A file's table in ASCII: columns are apart where two or more characters are blank in all of its lines."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if at and re.fullmatch("-+", line):
            body = list(itertools.takewhile(str.strip, lines[at + 1 :]))
            whole = [lines[at - 1], *body]
            width = max(map(len, whole))
            inked = "".join(" x"[any(row[n : n + 1].strip() for row in whole)] for n in range(width))
            spans = [found.span() for found in re.finditer(r"x(?: ?x)*", inked)]
            head, *rest = ([row[begin:end].strip() for begin, end in spans] for row in whole)
            yield Grid("", head, rest)


_LATEX = {
    r"\textbackslash{}": "\\", r"\_": "_", r"\%": "%", r"\&": "&", r"\#": "#", r"\$": "$", r"\{": "{", r"\}": "}",
    r"\textasciitilde{}": "~", r"\textasciicircum{}": "^", r"\textless{}": "<", r"\textgreater{}": ">",
    r"\textbar{}": "|", r"\textquotedbl{}": '"', r"\textasciigrave{}": "`", r"\textquotesingle{}": "'",
    "-{}": "-", ",{}": ",", r"$\pm$": "±", r"$\times$": "×", "---": "—",
    "--": "–", r"\ldots{}": "…",
}  # fmt: skip
_ESCAPES = re.compile("|".join(re.escape(mark) for mark in sorted(_LATEX, key=len, reverse=True)))


def from_latex(text: str) -> Iterator[Grid]:
    for part in re.findall(r"\\caption\{(.*?)\}\n(?:.*?)\\toprule\n(.*?)\\bottomrule", text, re.S):
        head, _, body = part[1].partition("\\midrule\n")
        spans = [2 if "\\multicolumn{2}" in cell else 1 for cell in _latex_cells(head)]
        heads = [_latex_text(re.sub(r"\\multicolumn\{2\}\{c\}", "", cell)) for cell in _latex_cells(head)]
        lines, bold = [], set()
        for at, line in enumerate(body.strip().split(" \\\\\n")):
            cells, made = _latex_cells(line), []
            for n, span in enumerate(spans):
                held = [cells.pop(0) for _ in range(span)]
                if any("\\bfseries" in one for one in held):
                    bold.add((at, n))
                made.append(" ".join(filter(None, map(_latex_text, held))))
            lines.append(made)
        yield Grid(_latex_text(part[0]), heads, lines, bold)


def _latex_cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)&", line.strip().removesuffix("\\\\"))]


def _latex_text(text: str) -> str:
    text = re.sub(r"\\foreignletters\{(.*?)\}\{[^}]*\}", r"\1", text)
    text = re.sub(r"\\bfseries ?|\\scriptsize ?", "", text.strip())
    while text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    return _ESCAPES.sub(lambda mark: _LATEX[mark[0]], text).strip()


class _Tables(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.grids: list[Grid] = []
        self._open: list[str] = []
        self._drawn = 0
        self._same: list[list[str]] = []
        """Heading and value of each column that the caption has, because all rows are alike in it."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "svg":
            self._drawn += 1
        if tag == "table":
            self.grids.append(Grid("", [], []))
            self._same = []
        elif dict(attrs).get("class") == "same":
            self._same.append(["", ""])
        elif tag == "tr" and "tbody" in self._open:
            self.grids[-1].lines.append([])
        elif tag == "td":
            self.grids[-1].lines[-1].append("")
            if "best" in (dict(attrs).get("class") or "").split():
                self.grids[-1].bold.add((len(self.grids[-1].lines) - 1, len(self.grids[-1].lines[-1]) - 1))
        elif tag == "th":
            self.grids[-1].heads.append("")
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self._drawn -= tag == "svg"
        if tag == "table" and self._same:
            grid = self.grids[-1]
            grid.heads += [heading for heading, _ in self._same]
            for line in grid.lines:
                line += [value for _, value in self._same]
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not self.grids or "table" not in self._open or self._drawn:
            return
        grid = self.grids[-1]
        if "td" in self._open:
            grid.lines[-1][-1] += data
        elif "th" in self._open:
            grid.heads[-1] += data
        elif "caption" in self._open:
            if self._open.count("span") == 2:
                self._same[-1][0] += data
            elif "b" in self._open:
                self._same[-1][1] += data
            elif "span" not in self._open:
                grid.title += "" if data == "; " else data.removesuffix(". In all rows: ")


def from_html(text: str) -> list[Grid]:
    parser = _Tables()
    parser.feed(text)
    return parser.grids


def from_csv(text: str, table: Table) -> Iterator[str]:
    """Faults: csv has the rows' own columns, unrounded."""
    head, *lines = csv.reader(io.StringIO(text))
    if head != list(table.columns) or len(lines) != len(table.rows):
        yield f"csv has {head}, {len(lines)} lines"
        return
    for line, row in zip(lines, table.rows, strict=True):
        for name, text_, value in zip(head, line, row, strict=True):
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if (text_ == "") != (not math.isfinite(value)) or (text_ and float(text_) != value):
                yield f"csv: {name} is {text_!r}, not {value!r}"


def from_json(text: str, table: Table) -> Iterator[str]:
    rows = json.loads(text)
    if len(rows) != len(table.rows):
        yield f"json has {len(rows)} rows of {len(table.rows)}"
    for told, row in zip(rows, table.dicts(), strict=False):
        for name, value in row.items():
            if isinstance(value, int | float) and told[name] != (value if math.isfinite(value) else None):
                yield f"json: {name} is {told[name]!r}, not {value!r}"


# Cells held against values


def misprint(text: str, row: Row, column: Column) -> str | None:
    """Why a printed cell does not say what the row has; None where it does."""
    value = row.get(column.name)
    if column.kind in _WORDS:
        return None
    if value is None or not math.isfinite(value):
        return None if text == column.missing else f"{text!r} stands for nothing"
    if text == "<0.001" and column.kind == "p":
        return None if value < 0.001 else f"{text!r} for {value!r}"
    scale = _SCALES.get(column.kind, 1)
    found = re.match(rf"({NUMBER})(?: (.*))?$", text.replace("+/-", "±"))
    if not found:
        return f"{text!r} is no number; the row has {value!r}"
    if not _at_its_digits(found[1], scale * value):
        return f"{text!r} for {scale * value!r}"
    low, high = (row.get(column.interval_prefix + end) for end in ("low", "high"))
    said = found[2] or ""
    if not column.interval or low is None or high is None:
        return f"{text!r} has an interval, the row none" if "±" in said or "[" in said else None
    if half := re.fullmatch(rf"± ({NUMBER})", said):
        width = scale * (high - low) / 2
        least = 10.0 ** -len(half[1].partition(".")[2])
        return None if _at_its_digits(half[1], max(width, least)) else f"{text!r} with half an interval of {width!r}"
    if ends := re.fullmatch(rf"\[({NUMBER}), ({NUMBER})\]", said):
        right = _at_its_digits(ends[1], scale * low) and _at_its_digits(ends[2], scale * high)
        return None if right else f"{text!r} for [{scale * low!r}, {scale * high!r}]"
    return f"{text!r} without its interval"


def _at_its_digits(text: str, value: float) -> bool:
    text = text.replace(",", "")
    digits, _, power = text.partition("e")
    unit = 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
    if "." not in digits and abs(value) >= 1e6:  # six digits of a large number
        unit = max(unit, 10.0 ** (math.floor(math.log10(abs(value))) - 5))
    return abs(float(text) - value) <= 0.5000001 * unit + 1e-12 * abs(value)


def misprints(view: Report, table: Table, grid: Grid) -> Iterator[str]:
    """What a printed table says otherwise than the rows."""
    rows = [row for row in table.dicts() if view.is_informative is None or view.is_informative(row)]
    faults = {column.name for column in view.columns if column.never_zero}
    if not rows or (faults and not faults & {column.name for column in shown_columns(view, rows, grid)}):
        yield from [f"{len(grid.lines)} lines of nothing"] if grid.lines else ()
    elif view.pivot is None:
        yield from _plain(view, rows, grid)
    else:
        yield from _pivoted(view, rows, grid)


def shown_columns(view: Report, rows: Sequence[Row], grid: Grid) -> list[Column]:
    """Those that have something; how a run was asked may stand in its label instead."""
    return [
        column
        for column in view.columns
        if column.name in rows[0]
        and (not (column.optional or column.unknown) or any(row[column.name] is not None for row in rows))
        and (not column.never_zero or any(row[column.name] for row in rows))
        and (column.name not in ("mode", "differs_in") or column.heading in grid.heads)
    ]


def _plain(view: Report, rows: Sequence[Row], grid: Grid) -> Iterator[str]:
    columns = shown_columns(view, rows, grid)
    places = _places(columns, grid)
    if len(places) != len(columns) or len(grid.lines) != len(rows):
        yield f"{len(grid.lines)} lines of {grid.heads} for {len(rows)} rows of {[one.heading for one in columns]}"
        return
    for line, row in zip(grid.lines, rows, strict=True):
        for column, place in zip(columns, places, strict=True):
            if why := misprint(line[place], row, column):
                yield f"{column.name}: {why}"


def _places(columns: Sequence[Column], grid: Grid) -> list[int]:
    """Where the columns stand: in their order, but for those of LaTeX that continue in another table."""
    heads = [column.heading for column in columns]
    if grid.heads == heads:
        return list(range(len(heads)))
    return [grid.heads.index(head) for head in heads if grid.heads.count(head) == 1]


def _pivoted(view: Report, rows: Sequence[Row], grid: Grid) -> Iterator[str]:
    """A line for each key, a column for each of the pivot's values: as many numbers as rows, in the rows' order."""
    assert view.pivot is not None
    across, number = view.pivot
    columns = shown_columns(view, rows, grid)
    keys: dict[tuple[Any, ...], dict[Any, Row]] = {}
    for row in rows:
        told = (row[column.name] for column in view.columns if column.name in row)
        key = (None if across == "run" else row["run_id"], *told)
        keys.setdefault(key, {})[row[across]] = row
    held = {row[across] for row in rows if row[across] is not None or row[number.name] is not None}
    values = sorted(held, key=lambda value: (value is None, value))
    if len(keys) != len(grid.lines) or len(grid.heads) < len(columns) + len(values):
        yield f"{len(grid.lines)} lines of {grid.heads} for {len(keys)} of {values}"
        return
    for line, of_key in zip(grid.lines, keys.values(), strict=True):
        first = next(iter(of_key.values()))
        for n, column in enumerate(columns):
            if why := misprint(line[n], first, column):
                yield f"{column.name}: {why}"
        for n, value in enumerate(values, len(columns)):
            if value not in of_key:
                if line[n]:
                    yield f"{line[n]!r} where nothing is"
            elif why := misprint(line[n], of_key[value], number):
                yield f"{value}: {why}"
