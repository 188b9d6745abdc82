"""Builders of HTML elements. Every text that is no ``Html`` is escaped, and spelled by ``base.visible``.

Frequent elements of a page are macros in ``templates/parts.html``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

from markupsafe import Markup

from lbx.base.columns import Column
from lbx.base.templates import template_environment
from lbx.base.visible import one_line, visible
from lbx.report.draw.figures import Figure
from lbx.report.draw.svg import run_class, symbol

MOST_ROWS = 1000
_LONG_WORD, _LONG_TEXT = 40, 48
"""Number of characters up to which a word, and a text, in a cell is not broken into lines."""


class Html(Markup):
    """Text that is already HTML."""

    __slots__ = ()


def truncate_text(text: str, most: int = 1000) -> str:
    """Cut a text to ``most`` characters and an ellipsis, because names may be of any length."""
    return text if len(text) <= most else text[:most] + "…"


def html(value: str) -> Html:
    """Escape and cut a text, unless it is already HTML."""
    return value if isinstance(value, Html) else Html(escape(visible(truncate_text(value))))


def tag(name: str, /, *parts: str, **attributes: str) -> Html:
    """Build an HTML element. Names of attributes that are Python keywords end with an underscore."""
    html_attributes = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(one_line(truncate_text(value)))}"'
        for key, value in attributes.items()
        if value
    )
    return Html(f"<{name}{html_attributes}>{''.join(map(html, parts))}</{name}>")


class Note(Html):
    """Paragraph of additional information, which a page shows once even if several tables need it."""

    __slots__ = ()


def quiet(text: str) -> Note:
    """Build a paragraph of additional information."""
    return Note(tag("p", text, class_="quiet"))


@dataclass(frozen=True, slots=True)
class Section:
    """Section of a page with a heading and an anchor.

    Attributes:
        name: Anchor.
        parts: HTML elements below the heading.
        is_collapsible: Whether a click on the heading shows and hides the elements.
    """

    name: str
    title: str
    parts: Sequence[str]
    is_collapsible: bool = False

    def html(self) -> Html:
        """Build the HTML. Anchors of tables and figures are "section/title", numbered from the second of a title on."""
        anchors: Counter[str] = Counter()

        def anchor(match: re.Match[str]) -> str:
            anchors[match[1]] += 1
            number = f"-{anchors[match[1]]}" if anchors[match[1]] > 1 else ""
            return f' id="{escape(one_line(self.name))}/{match[1]}{number}"'

        section = part("fold" if self.is_collapsible else "section", self.name, self.title, self.parts)
        return Html(_ANCHOR.sub(anchor, section))


_ANCHOR = re.compile(r' data-anchor="([^"]*)"')  # never in a text, where quotation marks are escaped


def anchor_of(title: str) -> str:
    """Make the end of the anchor of a table or a chart: the words of the title."""
    return "-".join(re.findall(r"\w+", one_line(title[:200]).lower()))[:80] or "untitled"


def drawings(figures: Iterable[Figure]) -> list[Html]:
    """Build HTML of figures with titles. Small neighbouring figures form a grid below common captions."""
    parts: list[Html] = []
    for is_small, group in groupby(figures, key=lambda figure: figure.is_small):
        neighbours = list(group)
        if is_small:
            parts += [quiet(caption) for caption in dict.fromkeys(f.caption for f in neighbours) if caption]
            parts.append(
                part("charts", [(f.title, anchor_of(f.title), Html(f.svg), run_class(f.mark)) for f in neighbours])
            )
        else:
            parts += [part("figure", f.title, anchor_of(f.title), Html(f.svg), f.caption) for f in neighbours]
    return parts


@lru_cache(256, typed=True)
def run_name(mark: int, label: str) -> Html:
    """Build HTML of the mark and label of a run."""
    return Html(symbol(mark)) + html(label)


def table(
    title: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    *,
    marks: Sequence[int | None] = (),
    column_marks: Sequence[int | None] = (),
    more: str = "",
    benchmark: str | None = None,
    most_rows: int = MOST_ROWS,
    constants: Sequence[tuple[Column, str]] = (),
) -> Html:
    """Build an HTML table that scrolls sideways. Long tables are cut to the first rows of each run, with a note.

    Cells without a class are numbers, because a large page contains a hundred thousand of them.

    Args:
        marks: Mark of each row's run.
        column_marks: Mark of each column's run.
        more: Sentence that says where the remaining rows are.
        benchmark: Benchmark of all rows, or "" if a column contains it, so that numbers become links to answers. With
            None there are no links.
        constants: Columns with the same value in all rows, which the caption shows.
    """
    of_column = list(column_marks) or [None] * len(columns)
    of_row = marks or [None] * len(rows)
    kinds = [
        f"{'t ' if c.kind == 'text' else ''}{run_class(mark)}".strip()
        for c, mark in zip(columns, of_column, strict=True)
    ]
    names = [
        c.heading if mark is None else run_name(mark, c.heading) for c, mark in zip(columns, of_column, strict=True)
    ]
    kept_rows, extent = _first_rows_of_each(of_row, most_rows)
    body_rows = ((run_class(of_row[at]), Html("".join(map(_cell, rows[at], kinds)))) for at in kept_rows)
    linked_columns = [] if benchmark is None else [column.name for column in columns]
    left_out = f"{extent} of {len(rows):,} rows. {more}" if extent else ""
    heads, same = list(zip(kinds, names, strict=True)), [(column.heading, value) for column, value in constants]
    return part("table", title, anchor_of(title), heads, body_rows, left_out, benchmark, linked_columns, same)


def _first_rows_of_each(runs: Sequence[int | None], most_rows: int) -> tuple[Sequence[int], str]:
    """Select rows of a table: the same number for each run, so that every choice of runs shows rows.

    Returns the indices, and words for them, or "" for all rows.
    """
    counts = Counter(runs)
    if len(runs) <= most_rows:
        return range(len(runs)), ""
    if len(counts) == 1 or len(counts) > most_rows:
        return range(most_rows), f"The first {most_rows:,}"
    each = max(k for k in range(1, most_rows) if sum(min(k, count) for count in counts.values()) <= most_rows)
    seen: Counter[int | None] = Counter()
    kept_rows = []
    for at, run in enumerate(runs):
        seen[run] += 1
        if seen[run] <= each:
            kept_rows.append(at)
    return kept_rows, f"The first {each:,} {'row' if each == 1 else 'rows'} of each run, {len(kept_rows):,}"


@lru_cache(4096, typed=True)  # typed: an Html and an equal str differ
def _cell(value: str, kind: str) -> str:
    is_text = kind.startswith("t") and not isinstance(value, Html)
    if is_text and (len(value) > _LONG_TEXT or any(len(word) > _LONG_WORD for word in value.split())):
        kind = f"{kind} long"
    if isinstance(value, Best):
        kind = f"{kind} best".strip()
    return f'<td class="{kind}">{html(value)}</td>' if kind else f"<td>{html(value)}</td>"


class Best(str):
    """Text of a cell that contains the best value of a row."""

    __slots__ = ()


_TEMPLATES = template_environment(Path(__file__).parent / "templates", html)


def part(name: str, *values: Any) -> Html:
    """Render a macro of the template ``parts.html``."""
    return Html(getattr(_TEMPLATES.get_template("parts.html").module, name)(*values))


def render(name: str, **values: Any) -> list[str]:
    """Render a template in pieces."""
    return list(_TEMPLATES.get_template(name).generate(values))
