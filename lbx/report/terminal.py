"""A table as lines of text: for a terminal's width, or as wide as it is for a file.

Where a table is too wide, columns that say the same in every row become its caption, then the least needed go and are
named, then columns of a pivot stand below each other. Words are broken only where a single one is wider than the room.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from lbx.base.visible import one_line
from lbx.report.cells import BLOCKS, Sheet
from lbx.report.shapes import Column

_GAP = "  "
_LEAST_TEXT = 24
"""A longer text is not wrapped into less than this, as long as other columns can go."""
_PLAIN = str.maketrans(
    {"±": "+/-", "×": "x", "–": "-", "─": "-", "…": "...", "·": ",", **dict(zip(BLOCKS, "_.-:=+*#", strict=True))}
)
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]")
_ASCII = re.compile("[ -~]*")
_NARROW = re.compile(f"[ -~±×–─…·{BLOCKS}]*")
"""What lbx itself writes into tables: a column a character."""
_LEFT = ("text", "curve")
_MARK = "\u200e"
"""Left-to-right mark: without it a terminal that turns Arabic or Hebrew text would turn the numbers beside it, too."""
_SEPARATED = re.compile(r".+?(?:[-_/.:,|]+|$)")


class Line(NamedTuple):
    """A line, and what it is: "title", "heading", "note" or "" for all others."""

    text: str
    role: str = ""


def lines(sheet: Sheet, width: int | None = None, *, ascii_only: bool = False) -> Iterator[Line]:
    """The table, with an empty line behind it.

    Args:
        width: columns of the terminal; None where nothing has to fit.
        ascii_only: spell other characters as ``\\u4e2d``, and draw with hyphens.
    """
    sheet = _spelled(sheet, ascii_only)
    notes = list(sheet.notes)
    if sheet.title:
        yield from (Line(text, "title") for text in _wrapped(sheet.title, width))
    left_out: dict[str, None] = {}
    caption, sheet = _captioned(sheet, width)
    yield from (Line(text, "note") for text in _wrapped(caption, width) if text)
    for part in _parts(sheet, width):
        caption, rest = _captioned(part, width)
        yield from (Line(text, "note") for text in _wrapped(caption, width) if text)
        table = _Fitted(rest.columns, rest.rows, width)
        for columns in table.blocks():
            yield Line("")
            yield from table.drawn(columns, "-" if ascii_only else "─")
        yield Line("")
        left_out |= dict.fromkeys(table.left_out)
    if left_out:
        notes.append(f"Too narrow for: {', '.join(left_out)}. --format csv has every column.")
    yield from (Line(text, "note") for note in notes for text in _wrapped(note, width))
    if notes:
        yield Line("")


def _fits(sheet: Sheet, width: int | None) -> bool:
    return width is None or not sheet.rows or _Fitted(sheet.columns, sheet.rows, None).width <= width


def _captioned(sheet: Sheet, width: int | None) -> tuple[str, Sheet]:
    """What is the same in every row, as words, and the table without it; all of it where there is room."""
    if len(sheet.rows) < 2 or _fits(sheet, width):
        return "", sheet
    first = sheet.rows[0]
    same = [
        at
        for at, column in enumerate(sheet.columns)
        if column.kind == "text" and not column.across and all(row[at] == first[at] for row in sheet.rows)
    ]
    kept = [at for at in range(len(sheet.columns)) if at not in same]
    if not kept:
        return "", sheet
    words = ", ".join(f"{sheet.columns[at].heading} {first[at]}" for at in same if first[at] != "-")
    return words, _with_columns(sheet, kept)


def _with_columns(sheet: Sheet, kept: Sequence[int]) -> Sheet:
    rows = [[row[at] for at in kept] for row in sheet.rows]
    return replace(sheet, columns=[sheet.columns[at] for at in kept], rows=rows)


def _parts(sheet: Sheet, width: int | None) -> Iterator[Sheet]:
    """The table, or one for each benchmark: of a pivot that is too wide, and where all that can go is not enough."""
    names = [column.name for column in sheet.columns]
    if not sheet.rows:
        return
    pivot = any(column.across for column in sheet.columns)
    if (
        "benchmark" not in names
        or _fits(sheet, width)
        or not (pivot or _Fitted(sheet.columns, sheet.rows, width).too_wide)
    ):
        yield sheet
        return
    at = names.index("benchmark")
    found: dict[str, list[Sequence[str]]] = {}
    for row in sheet.rows:
        found.setdefault(row[at], []).append(row)
    for rows in found.values():
        kept = [n for n, column in enumerate(sheet.columns) if not column.across or any(row[n] for row in rows)]
        yield _with_columns(replace(sheet, rows=rows), kept)


def _spelled(sheet: Sheet, ascii_only: bool) -> Sheet:
    def said(text: str) -> str:
        text = one_line(text)
        return text.translate(_PLAIN).encode("ascii", "backslashreplace").decode() if ascii_only else text

    columns = [replace(column, heading=said(column.heading)) for column in sheet.columns]
    harmless = (_ASCII if ascii_only else _NARROW).fullmatch
    rows = [row if harmless("".join(row)) else [said(cell) for cell in row] for row in sheet.rows]
    return Sheet(said(sheet.title), columns, rows, [said(note) for note in sheet.notes])


def _width(text: str) -> int:
    if text.isascii() or _NARROW.fullmatch(text):
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _longest_word(text: str) -> int:
    return max(map(_width, text.split()), default=0)


def _wrapped(text: str, width: int | None) -> list[str]:
    """The text in lines, broken between words, else behind a hyphen or the like, else anywhere."""
    if width is None or _width(text) <= width:
        return [text]
    found = [""]
    for word in text.split():
        for number, piece in enumerate(_pieces(word, width)):
            before = " " if found[-1] and not number else ""
            if _width(found[-1] + before + piece) <= width:
                found[-1] += before + piece
            else:
                found.append(piece)
    return found if found[0] else found[1:]


def _pieces(word: str, width: int) -> Iterator[str]:
    if _width(word) <= width:
        yield word
        return
    for part in _SEPARATED.findall(word):
        rest = part
        while rest:
            fits = next(n for n in range(len(rest), 0, -1) if n == 1 or _width(rest[:n]) <= width)
            yield rest[:fits]
            rest = rest[fits:]


class _Fitted:
    """Columns and rows of which as much is left as there is room for."""

    def __init__(self, columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> None:
        self._columns, self._rows, self._width = columns, rows, width
        self._floors: list[int] = []
        self._natural = [max(_width(columns[at].heading), *(_width(row[at]) for row in rows)) for at in self._all()]
        self.kept = self._all()
        self.left_out: list[str] = []
        self.too_wide = False
        if width is not None and self._wide(self._natural) > width:
            self._floors = [self._floor(at) for at in self._all()]
            self._leave_out(width)

    @property
    def width(self) -> int:
        """Of the whole table, with nothing wrapped and nothing left out."""
        return self._wide(self._natural, self._all())

    def _all(self) -> list[int]:
        return list(range(len(self._columns)))

    def _wide(self, widths: Sequence[int], kept: Sequence[int] | None = None) -> int:
        kept = self.kept if kept is None else kept
        return sum(widths[at] for at in kept) + len(_GAP) * (len(kept) - 1)

    def _floor(self, at: int) -> int:
        """The least width without a broken word."""
        heading = _longest_word(self._columns[at].heading)
        if self._columns[at].kind != "text":
            return max(heading, *(_width(row[at]) for row in self._rows))
        longest = max(_longest_word(row[at]) for row in self._rows)
        return max(heading, longest, min(self._natural[at], _LEAST_TEXT))

    def _leave_out(self, width: int) -> None:
        gone = []
        while self._wide(self._floors) > width:
            last = max(self.kept, key=lambda at: (self._columns[at].rank, at))
            if not self._columns[last].rank or len(self.kept) == 1:
                break
            self.kept.remove(last)
            gone.append(last)
        self.left_out = [self._columns[at].heading for at in sorted(gone)]
        self.too_wide = self._wide(self._floors) > width

    def blocks(self) -> Iterator[list[int]]:
        """The columns of each table: one, or as many as the columns of a pivot need."""
        across = [at for at in self.kept if self._columns[at].across]
        if self._width is None or not across or self._wide(self._natural) <= self._width:
            yield self.kept
            return
        fixed = [at for at in self.kept if not self._columns[at].across]
        while across:
            many = len(across)
            while many > 1 and self._wide(self._floors, [*fixed, *across[:many]]) > self._width:
                many -= 1
            yield sorted([*fixed, *across[:many]])
            across = across[many:]

    def drawn(self, kept: Sequence[int], rule: str) -> Iterator[Line]:
        widths = self._widths(kept)
        heading = [_wrapped(self._columns[at].heading, widths[at]) for at in kept]
        tall = max(map(len, heading))
        for line in self._row([[""] * (tall - len(texts)) + texts for texts in heading], widths):
            yield Line(line, "heading")
        yield Line(rule * (sum(widths.values()) + len(_GAP) * (len(kept) - 1)), "heading")
        narrower = {at for at in kept if widths[at] < self._natural[at]}
        for row in self._rows:
            texts = [_wrapped(row[at], widths[at]) if at in narrower else [row[at]] for at in kept]
            yield from map(Line, self._row(texts, widths))

    def _widths(self, kept: Sequence[int]) -> dict[int, int]:
        """Natural ones; where these do not fit, the widest columns that can be wrapped give way first."""
        widths = {at: self._natural[at] for at in kept}
        if self._width is None:
            return widths
        for floors in (self._floors, [4] * len(self._columns)):
            while sum(widths.values()) + len(_GAP) * (len(kept) - 1) > self._width:
                can = [at for at in kept if widths[at] > floors[at]]
                if not can:
                    break
                widths[max(can, key=lambda at: widths[at])] -= 1
        return widths

    def _row(self, texts: Sequence[Sequence[str]], widths: dict[int, int]) -> Iterator[str]:
        for parts in itertools.zip_longest(*texts, fillvalue=""):
            turned = any(not text.isascii() and _RIGHT_TO_LEFT.search(text) for text in parts)
            cells = []
            for text, (at, width) in zip(parts, widths.items(), strict=True):
                marked = text + _MARK if turned and _RIGHT_TO_LEFT.search(text) else text
                wide = width + len(marked) - _width(text)
                cells.append(marked.ljust(wide) if self._columns[at].kind in _LEFT else marked.rjust(wide))
            line = _GAP.join(cells).rstrip()
            yield _MARK + line if turned else line
