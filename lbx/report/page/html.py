"""HTML: every text that goes in is escaped and shown as ``base.visible`` has it, unless it is HTML already.

What a page has many of is in ``templates/parts.html``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any

from markupsafe import Markup

from lbx.base.columns import Column
from lbx.base.templates import templates
from lbx.base.visible import one_line, visible
from lbx.report.svg import mark_classes, symbol

MOST_ROWS = 1000
_LONG_WORD = 40
"""What may be broken, where it would make a column too wide."""


class Html(Markup):
    """Text that is HTML already."""

    __slots__ = ()


def cut(text: str, most: int = 1000) -> str:
    """The text, or its beginning: names have no limit, and a page has one."""
    return text if len(text) <= most else text[:most] + "…"


def html(value: str) -> Html:
    """Any text as HTML that shows it, or its beginning."""
    return value if isinstance(value, Html) else Html(escape(visible(cut(value))))


def tag(name: str, /, *parts: str, **attributes: str) -> Html:
    """An element. Attributes' names end with an underscore where Python takes them for a word of its own."""
    html_attributes = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(one_line(cut(value)))}"'
        for key, value in attributes.items()
        if value
    )
    return Html(f"<{name}{html_attributes}>{''.join(map(html, parts))}</{name}>")


def quiet(text: str) -> Html:
    """A paragraph that says something beside."""
    return tag("p", text, class_="quiet")


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page under a heading of its own, which links lead to."""

    name: str
    title: str
    parts: Sequence[str]

    def html(self) -> Html:
        return _part("section", self.name, self.title, self.parts)


def figure(title: str, chart: str, caption: str = "") -> Html:
    """A chart under its title."""
    return _part("figure", title, Html(chart), caption)


def charts(figures: Iterable[tuple[str, str]]) -> Html:
    """Small charts beside each other, as many as have room."""
    return _part("charts", [(title, Html(chart)) for title, chart in figures])


@lru_cache(256, typed=True)
def run_name(mark: int, label: str) -> Html:
    """A run's mark and its name."""
    return Html(symbol(mark)) + html(label)


def table(
    title: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    *,
    marks: Sequence[int | None] = (),
    column_marks: Sequence[int | None] = (),
    more: str = "",
) -> Html:
    """A table that scrolls sideways by itself. Of a long one the beginning, and a line that says so.

    Args:
        marks: of each row: the run that it is about.
        column_marks: of each column: the run that it is about.
        more: where the rest of a long table is, a sentence.
    """
    of_column = list(column_marks) or [None] * len(columns)
    of_row = marks or [None] * len(rows)
    kinds = [
        f"{'number ' if c.kind != 'text' else ''}{_run_class(mark)}".strip()
        for c, mark in zip(columns, of_column, strict=True)
    ]
    names = [
        c.heading if mark is None else run_name(mark, c.heading) for c, mark in zip(columns, of_column, strict=True)
    ]
    shown = (
        (_run_class(mark), Html("".join(map(_cell, row, kinds))))
        for row, mark in zip(rows[:MOST_ROWS], of_row[:MOST_ROWS], strict=True)
    )
    left_out = f"The first {MOST_ROWS:,} of {len(rows):,} rows. {more}" if len(rows) > MOST_ROWS else ""
    return _part("table", title, list(zip(kinds, names, strict=True)), shown, left_out)


@lru_cache(4096, typed=True)  # HTML is not the text that reads the same
def _cell(value: str, kind: str) -> str:
    words = "number" not in kind and not isinstance(value, Html) and len(value) > _LONG_WORD
    if words and any(len(word) > _LONG_WORD for word in value.split()):
        kind = f"long {kind}".strip()
    if isinstance(value, Best):
        kind = f"{kind} best"
    return f'<td class="{kind}">{html(value)}</td>' if kind else f"<td>{html(value)}</td>"


class Best(str):
    """A cell that no other of its row beats."""

    __slots__ = ()


def _run_class(mark: int | None) -> str:
    return "" if mark is None else mark_classes(mark).split()[1]


_TEMPLATES = templates(Path(__file__).parent / "templates", html)


def _part(name: str, *values: Any) -> Html:
    return Html(getattr(_TEMPLATES.get_template("parts.html").module, name)(*values))


def rendered(name: str, **values: Any) -> list[str]:
    """A template with values, in pieces."""
    return list(_TEMPLATES.get_template(name).generate(values))
