"""HTML by hand: every text that goes in is escaped and shown as ``base.visible`` has it, unless it is HTML already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape

from lbx.base.visible import one_line, visible
from lbx.report.charts import mark_classes, symbol
from lbx.report.shapes import Column

MOST_ROWS = 1000
_LONG_WORD = 40
"""What may be broken, where it would make a column too wide."""


class Html(str):
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
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(one_line(cut(value)))}"'
        for key, value in attributes.items()
        if value
    )
    return Html(f"<{name}{told}>{''.join(map(html, parts))}</{name}>")


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page under a heading of its own, which links lead to."""

    name: str
    title: str
    parts: Sequence[str]

    def html(self) -> Html:
        head = tag("h2", self.title, id=f"{self.name}-title")
        return tag("section", head, *self.parts, id=self.name, aria_labelledby=f"{self.name}-title")


def figure(title: str, chart: str, caption: str = "") -> Html:
    """A chart under its title. A wide one scrolls by itself, where the page is narrow."""
    below = tag("figcaption", caption, class_="quiet") if caption else ""
    return tag("figure", tag("figcaption", title), _scroll(title, Html(chart)), below)


def charts(figures: Iterable[tuple[str, str]]) -> Html:
    """Small charts beside each other, as many as have room."""
    return tag(
        "div", *(tag("figure", tag("figcaption", title), Html(chart)) for title, chart in figures), class_="charts"
    )


@lru_cache(256, typed=True)
def run_name(mark: int, label: str) -> Html:
    """A run's mark and its name."""
    return Html(symbol(mark) + html(label))


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
    kinds = [
        f"{'number' if c.kind != 'text' else ''}{_run_class(mark)}".strip()
        for c, mark in zip(columns, of_column, strict=True)
    ]
    heads = (
        tag("th", html(c.heading) if mark is None else run_name(mark, c.heading), scope="col", class_=kind)
        for c, kind, mark in zip(columns, kinds, of_column, strict=True)
    )
    lines = []
    for i, row in enumerate(rows[:MOST_ROWS]):
        of_run = _run_class(marks[i]) if marks else ""
        cells = "".join(map(_cell, row, kinds))
        lines.append(f'<tr class="{of_run.strip()}">{cells}</tr>' if of_run else f"<tr>{cells}</tr>")
    left_out = f"The first {MOST_ROWS:,} of {len(rows):,} rows. {more}" if len(rows) > MOST_ROWS else ""
    body = Html("\n".join(lines))
    whole = tag("table", tag("caption", title), tag("thead", tag("tr", *heads)), tag("tbody", body))
    return Html(_scroll(title, whole) + (tag("p", left_out, class_="quiet") if left_out else ""))


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
    return "" if mark is None else f" {mark_classes(mark).split()[1]}"


def _scroll(title: str, body: str) -> Html:
    return tag("div", Html(body), class_="scroll", tabindex="0", role="region", aria_label=title)
