"""Renderer of sheets as lines of text, fitted to the width of a terminal, or at natural width for files.

If a table is too wide, columns with the same text in every row become the caption. Then the least important columns are
omitted (a note names them), and the columns of a pivot are split into several tables, one below the other. A word that
is wider than the available width is broken after a hyphen or another separator, and within its parts only if these are
wider as well.

rich measures and wraps texts, but lines are joined here: rich's own tables, which wrap and style every cell again, take
52 s of CPU for 100,000 rows of six columns, and this module 2 s if no cell is wrapped.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from itertools import zip_longest
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from lbx.base.columns import Column
from lbx.base.visible import one_line
from lbx.report.format.sheets import SHADES, Sheet

_GAP = "  "
_LEAST_TEXT = 24
"""Minimum width of a wrapped text column while other columns can still be omitted."""
_LEAST = 4
_PLAIN = str.maketrans({"±": "+/-", "×": "x", "–": "-", "─": "-", "…": "...", "·": ",", "≥": ">=", "┃": "|"})
_MARK = "\u200e"
"""Left-to-right mark. Without it, terminals that reorder Arabic or Hebrew text also reorder neighbouring numbers."""
_RIGHT_TO_LEFT = re.compile(
    "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff](?:[^ ]| (?! ))*"
)
"""Text of a cell from the first right-to-left letter to the end of the cell."""


class OutputLine(NamedTuple):
    """Line of output with a role: "title", "heading", "note", "shaded" (for a line with shaded cells) or ""."""

    text: str
    role: str = ""


def lines(sheet: Sheet, width: int | None = None, *, ascii_only: bool = False) -> Iterator[OutputLine]:
    """Render a sheet as lines, followed by an empty line.

    Args:
        width: Number of columns of the terminal, or None for unlimited.
        ascii_only: Whether to spell other characters as ``\\u4e2d``, and draw with hyphens.
    """
    sheet = _spell_sheet(sheet, ascii_only)
    left_out: dict[str, None] = {}
    yield from _prose(sheet.title, "title", width)
    caption, sheet = _with_caption(sheet, width)
    yield from _prose(caption, "note", width)
    for part in _parts(sheet, width):
        caption, rest = _with_caption(part, width)
        yield from _prose(caption, "note", width)
        table = _FittedTable(rest, width)
        for columns in table.blocks():
            yield OutputLine("")
            yield from table.draw(columns, "-" if ascii_only else "─")
        yield OutputLine("")
        left_out |= dict.fromkeys(table.left_out)
    notes = [*sheet.notes]
    if left_out:
        hidden = f"Columns hidden (terminal too narrow): {', '.join(left_out)}."
        notes.append(f"{hidden} `lbx report FILE REPORT --format csv` prints every column.")
    for note in notes:
        yield from _note(note, width)
    if notes:
        yield OutputLine("")


def _prose(text: str, role: str, width: int | None) -> Iterator[OutputLine]:
    return (OutputLine(line, role) for line in _wrap_text(text, width) if line)


def _note(text: str, width: int | None) -> Iterator[OutputLine]:
    """Wrap a note between words only, so that a path that is longer than a line can be copied."""
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if line and width is not None and _cells_of(longer) > width:
            yield OutputLine(line, "note")
            longer = word
        line = longer
    if line:
        yield OutputLine(line, "note")


def _spell_sheet(sheet: Sheet, ascii_only: bool) -> Sheet:
    def spell(text: str, column: Column | None = None) -> str:
        text = one_line(text)
        if not ascii_only:
            return text
        text = text.lstrip(SHADES) if column and column.kind == "shade" else text
        return text.translate(_PLAIN).encode("ascii", "backslashreplace").decode()

    columns = [replace(column, heading=spell(column.heading)) for column in sheet.columns]
    rows = [list(map(spell, row, columns)) for row in sheet.rows]
    return Sheet(spell(sheet.title), columns, rows, [spell(note) for note in sheet.notes])


def _fits(sheet: Sheet, width: int | None) -> bool:
    return width is None or not sheet.rows or _total_width(_natural_widths(sheet)) <= width


def _natural_widths(sheet: Sheet) -> list[int]:
    columns = zip(*sheet.rows, strict=True)
    return [max(_cells_of(c.heading), *map(_cells_of, texts)) for c, texts in zip(sheet.columns, columns, strict=True)]


def _total_width(widths: Collection[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _with_caption(sheet: Sheet, width: int | None) -> tuple[str, Sheet]:
    """Move columns with the same text in every row into a caption, if the sheet is too wide."""
    if len(sheet.rows) < 2 or _fits(sheet, width):
        return "", sheet
    first = sheet.rows[0]
    same = [
        at
        for at, column in enumerate(sheet.columns)
        if column.kind == "text" and not column.across and all(row[at] == first[at] for row in sheet.rows)
    ]
    indices = [at for at in range(len(sheet.columns)) if at not in same]
    if not indices:
        return "", sheet
    words = ", ".join(f"{sheet.columns[at].heading} {first[at]}" for at in same if first[at] != "-")
    return words, _with_columns(sheet, indices)


def _with_columns(sheet: Sheet, indices: Sequence[int]) -> Sheet:
    rows = [[row[at] for at in indices] for row in sheet.rows]
    return replace(sheet, columns=[sheet.columns[at] for at in indices], rows=rows)


def _parts(sheet: Sheet, width: int | None) -> Iterator[Sheet]:
    """Split a sheet that is too wide into one for each benchmark.

    This applies to pivots, and to sheets that are too wide even without all columns that can be omitted.
    """
    if not sheet.rows:
        return
    names = [column.name for column in sheet.columns]
    pivot = any(column.across for column in sheet.columns)
    if "benchmark" not in names or _fits(sheet, width) or not (pivot or _FittedTable(sheet, width).too_wide):
        yield sheet
        return
    benchmarks: dict[str, list[Sequence[str]]] = {}
    for row in sheet.rows:
        benchmarks.setdefault(row[names.index("benchmark")], []).append(row)
    for rows in benchmarks.values():
        indices = [at for at, column in enumerate(sheet.columns) if not column.across or any(row[at] for row in rows)]
        yield _with_columns(replace(sheet, rows=rows), indices)


def _wrap_text(text: str, width: int | None) -> list[str]:
    """Wrap a text between words, or between the parts of a word that is wider than a line."""
    if width is None or _cells_of(text) <= width:
        return [text]
    broken = " ".join("\n".join(_break_word(word, width)) for word in text.split(" "))
    return [line.plain.rstrip() for line in Text(broken).wrap(_CONSOLE, width)]


def _break_word(word: str, width: int) -> list[str]:
    """Break a word that is wider than a line between parts."""
    if _cells_of(word) <= width:
        return [word]
    lines = [""]
    for part in _WORD_PART.findall(word):
        if lines[-1] and _cells_of(lines[-1] + part) > width:
            lines.append("")
        lines[-1] += part
    return lines


_WORD_PART = re.compile(r"[^-_/:]*[-_/:]+|[^-_/:]+")
"""Part of a word up to and including separators, such as "Qwen2.5-" of "Qwen2.5-7B"."""


_CONSOLE = Console(width=80, file=StringIO())
"""Console that ``Text.wrap`` requires; never written to."""


class _FittedTable:
    """Sheet reduced to the columns that fit into a width.

    Attributes:
        left_out: Headings of the omitted columns.
        too_wide: Whether words have to be broken even without all columns that can be omitted.
    """

    def __init__(self, sheet: Sheet, width: int | None) -> None:
        self._columns, self._rows, self._width = sheet.columns, sheet.rows, width
        self._natural = self._floors = _natural_widths(sheet)
        self._indices = list(range(len(self._columns)))
        self.left_out: list[str] = []
        self.too_wide = False
        if width is not None and _total_width(self._natural) > width:
            self._floors = [self._floor(at) for at in self._indices]
            self._drop_columns(width)

    def _floor(self, at: int) -> int:
        """Smallest width of a column without a broken word."""
        heading = _longest_word(self._columns[at].heading)
        if self._columns[at].kind != "text":
            return max(heading, *(_cells_of(row[at]) for row in self._rows))
        longest = max(_longest_word(row[at]) for row in self._rows)
        return max(heading, longest, min(self._natural[at], _LEAST_TEXT))

    def _drop_columns(self, width: int) -> None:
        all_indices = self._indices
        candidates = sorted(
            (at for at in all_indices if self._columns[at].rank), key=lambda at: (self._columns[at].rank, at)
        )
        while _total_width([self._floors[at] for at in self._indices]) > width:
            if not candidates or len(self._indices) == 1:
                self.too_wide = True
                break
            last = candidates.pop()
            if not self._tells_rows_apart(last):
                self._indices = [at for at in self._indices if at != last]
        self.left_out = [self._columns[at].heading for at in all_indices if at not in self._indices]

    def _tells_rows_apart(self, column: int) -> bool:
        """Whether a column is needed to tell rows apart that are equal in all other remaining names and keys."""
        if self._columns[column].kind != "text":
            return False
        keys = [
            at
            for at in self._indices
            if self._columns[at].kind == "text" or not (self._columns[at].rank or self._columns[at].interval)
            if not self._columns[at].across
        ]
        with_column = {tuple(row[at] for at in keys) for row in self._rows}
        return len({tuple(row[at] for at in keys if at != column) for row in self._rows}) < len(with_column)

    def blocks(self) -> Iterator[list[int]]:
        """Yield the columns of each table. A pivot that is too wide needs several tables."""
        across = [at for at in self._indices if self._columns[at].across]
        if (
            self._width is None
            or not across
            or _total_width([self._natural[at] for at in self._indices]) <= self._width
        ):
            yield self._indices
            return
        fixed = [at for at in self._indices if not self._columns[at].across]
        # Shades are compared along a row, so that names are broken before the row is.
        is_shaded = any(self._columns[at].kind == "shade" for at in across)
        floors = self._part_floors(fixed) if is_shaded else self._floors
        while across:
            many = len(across)
            while many > 1 and _total_width([floors[at] for at in [*fixed, *across[:many]]]) > self._width:
                many -= 1
            yield sorted([*fixed, *across[:many]])
            across = across[many:]

    def draw(self, indices: Sequence[int], rule: str) -> Iterator[OutputLine]:
        widths = self._widths(indices)
        heading = [_wrap_text(self._columns[at].heading, widths[at]) for at in indices]
        tall = max(map(len, heading))
        for line in self._row([[""] * (tall - len(texts)) + texts for texts in heading], widths):
            yield OutputLine(line, "heading")
        yield OutputLine(rule * _total_width(widths.values()), "heading")
        role = "shaded" if any(self._columns[at].kind == "shade" for at in indices) else ""
        for row in self._rows:
            texts = [
                _wrap_text(row[at], width) if width < self._natural[at] else [row[at]] for at, width in widths.items()
            ]
            yield from (OutputLine(line, role) for line in self._row(texts, widths))

    def _widths(self, indices: Sequence[int]) -> dict[int, int]:
        """Choose column widths: natural ones, or narrowed, the widest wrappable columns first, until the table fits.

        Words are broken if the table does not fit otherwise, at first only names between their parts.
        """
        widths = {at: self._natural[at] for at in indices}
        for floors in (self._floors, self._part_floors(indices), [_LEAST] * len(self._columns)):
            while self._width is not None and _total_width(widths.values()) > self._width:
                can = [at for at in indices if widths[at] > floors[at]]
                if not can:
                    break
                widths[max(can, key=lambda at: widths[at])] -= 1
        return widths

    def _part_floors(self, indices: Sequence[int]) -> list[int]:
        floors = [*self._floors]
        for at in indices:
            if self._columns[at].kind == "text":
                texts = [self._columns[at].heading, *(row[at] for row in self._rows)]
                parts = (part for text in texts for word in text.split() for part in _WORD_PART.findall(word))
                floors[at] = max(map(_cells_of, parts), default=_LEAST)
        return floors

    def _row(self, texts: Sequence[Sequence[str]], widths: Mapping[int, int]) -> Iterator[str]:
        for parts in zip_longest(*texts, fillvalue=""):
            cells = []
            for text, (at, width) in zip(parts, widths.items(), strict=True):
                room = width + len(text) - _cells_of(text)
                cells.append(text.ljust(room) if self._columns[at].kind == "text" else text.rjust(room))
            line = _GAP.join(cells).rstrip()
            turned = "" if line.isascii() else _RIGHT_TO_LEFT.sub(rf"\g<0>{_MARK}", line)
            yield f"{_MARK}{turned}" if _MARK in turned else line


def _longest_word(text: str) -> int:
    return max(map(_cells_of, text.split()), default=0)


def _cells_of(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)
