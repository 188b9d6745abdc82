"""Tables as people and programs read them."""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
from html.parser import HTMLParser

import pytest

from lbx.report import render
from lbx.report.reports import REPORTS
from lbx.report.shapes import Column, Report
from lbx.store import Table

NASTY = "<b>\"x\" & 'y'</b>{0}|\\ \n</td>"


class Cells(HTMLParser):
    """The texts of a page's cells as a browser shows them, and what tags there are."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag in ("td", "th", "h2"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells and data.strip("\n"):
            self.cells[-1] += data


def test_html_shows_any_text_as_it_is() -> None:
    view = Report(NASTY, "", (Column("a", NASTY), Column("b", "number", "percent")))
    page = render.html([(view.title, render.cells(view, Table(["a", "b"], [(NASTY, 0.5), (None, None)])))])
    parser = Cells()
    parser.feed(page)
    assert parser.cells == [NASTY, NASTY, "number", NASTY, "50.00", "-", "-"]
    assert set(parser.tags) == {"html", "head", "meta", "title", "style", "body", "h2", "table", "tr", "th", "td"}
    assert "://" not in page, "the page needs nothing from elsewhere"


def test_markdown_keeps_a_cell_in_its_cell() -> None:
    view = Report("Title", "", (Column("a", "text"), Column("b", "n", "count")))
    text = render.markdown(view.title, render.cells(view, Table(["a", "b"], [("x|y\\\nz", 12345.4)])))
    assert text == "## Title\n\n| text | n |\n| --- | ---: |\n| x\\|y\\\\ z | 12,345 |\n"


def test_kinds() -> None:
    kinds = ("count", "percent", "points", "number", "text")
    view = Report("", "", [Column(kind, kind, kind) for kind in kinds])
    rows = [(1234567, 0.12345, -0.5, 33.33, 7), (0, 1.0, 0.004, 100.0, "x"), (None,) * 5]
    assert render.cells(view, Table(kinds, rows))[1] == [
        ["1,234,567", "12.35", "-50.00", "33.33", "7"],
        ["0", "100.00", "+0.40", "100", "x"],
        ["-"] * 5,
    ]


def test_an_optional_column_is_there_where_a_row_has_it() -> None:
    view = Report("", "", (Column("a", "A"), Column("b", "B", optional=True)))
    for values, shown in (([None, None], ["A"]), ([None, ""], ["A", "B"]), ([None, 0], ["A", "B"]), ([], ["A"])):
        columns, body = render.cells(view, Table(["a", "b"], [("x", value) for value in values]))
        assert [column.heading for column in columns] == shown
        assert [len(row) for row in body] == [len(shown)] * len(values)


def test_a_pivot_has_a_line_for_each_run() -> None:
    """Two runs that look the same stay two lines."""
    view = REPORTS["length_curve"]
    names = ["run_id", "benchmark", "task", "length_unit", "model", "backend", "mode", "length_up_to", "score"]
    rows = [
        ("r1", "b", "t", "words", "m", "hf", None, 1024, 0.5),
        ("r1", "b", "t", "words", "m", "hf", None, 131072, 1.0),
        ("r2", "b", "t", "words", "m", "hf", None, 4096, 0.25),
    ]
    columns, body = render.cells(view, Table(names, rows))
    assert [column.heading for column in columns][-3:] == ["1,024", "4,096", "131,072"]
    assert "mode" not in [column.heading for column in columns]
    assert [row[-3:] for row in body] == [["50.00", "", "100.00"], ["", "25.00", ""]]


def test_a_pivot_by_run_joins_the_runs_lines() -> None:
    view = REPORTS["paper"]
    names = ["run", "run_id", "benchmark", "line", "official"]
    rows = [
        ("b (cot)", "r2", "longbench", "qasper", 12.5),
        ("a", "r1", "longbench", "qasper", None),
        ("a", "r1", "longbench", "lcc", 50.0),
    ]
    columns, body = render.cells(view, Table(names, rows))
    assert [column.heading for column in columns] == ["benchmark", "task", "a", "b (cot)"]
    assert body == [["longbench", "qasper", "-", "12.5"], ["longbench", "lcc", "50", ""]]
    assert render.cells(view, Table(names, []))[1] == []


def test_programs_get_every_digit_and_every_text() -> None:
    table = Table(
        ["a", "b", "c", "d"],
        [(1 / 3, NASTY, None, [datetime.datetime(2026, 1, 2, 3, 4, 5), b"\0"]), (True, "", {"k": (1, 2)}, 10**20)],
    )
    rows = list(csv.reader(io.StringIO(render.csv_text(table))))
    assert rows[0] == ["a", "b", "c", "d"]
    assert rows[1][:3] == [repr(1 / 3), NASTY, ""]
    found = json.loads(render.json_text(table))
    assert found == [
        {"a": 1 / 3, "b": NASTY, "c": None, "d": ["2026-01-02T03:04:05", str(b"\0")]},
        {"a": True, "b": "", "c": {"k": [1, 2]}, "d": 10**20},
    ]
    assert json.loads(render.json_text({"x": table, "y": Table(["n"], [])})) == {"x": found, "y": []}


def test_what_is_no_number_is_null_in_json() -> None:
    table = Table(["a"], [(math.nan,), (-math.inf,), ([math.inf, 1.5],)])
    assert json.loads(render.json_text(table), parse_constant=pytest.fail) == [
        {"a": None}, {"a": None}, {"a": [None, 1.5]}
    ]  # fmt: skip
    assert render.csv_text(Table(["a"], table.rows[:2])) == "a\nnan\n-inf\n"
    assert render.plain_columns(table)[1][0] == ["nan"]


def test_a_terminal_s_table_shows_marks_of_its_own_language_as_text() -> None:
    from rich.console import Console

    console = Console(file=io.StringIO(), width=100)
    console.print(render.rich_table("[red]t[/red]", render.plain_columns(Table(["x"], [("[bold]a[/bold]",), (None,)]))))
    assert isinstance(console.file, io.StringIO)
    assert "[bold]a[/bold]" in console.file.getvalue()
