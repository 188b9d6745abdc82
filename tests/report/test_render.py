"""Tables as people and programs read them."""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
import re

import pytest

from lbx.base.columns import Column
from lbx.report.format import render
from lbx.report.format.sheets import Sheet
from lbx.report.format.table_cells import sheet
from lbx.report.report import Report
from lbx.results import Table

NASTY = "<b>\"x\" & 'y'</b>{0}|\\ \n</td>"


def _csv(table: Table) -> str:
    return "".join(render.csv_pieces(table.columns, table.rows))


def _json(table: Table) -> str:
    return "".join(render.json_pieces(table.columns, table.rows))


def test_markdown_keeps_a_cell_in_its_cell() -> None:
    view = Report("", "Title", (Column("a", "text"), Column("b", "n", "count")))
    text = render.markdown(sheet(view, Table(["a", "b"], [("x|y\\\nz", 12345.4)])))
    assert text == "## Title\n\n| text | n |\n| --- | ---: |\n| x\\|y\\\\ z | 12,345 |\n"


def test_markdown_has_a_hostile_name_as_text_wherever_it_stands() -> None:
    name = "m\x1b[31m\u202e<img src=x>\n# Title"
    said = "` m\\x1b[31m\\u202e<img src=x>\\n# Title `"
    text = render.markdown(Sheet(name, [Column("n", name)], [["1"]], [name]))
    assert text == f"## {said}\n\n| {said} |\n| --- |\n| 1 |\n\n{said}\n"


@pytest.mark.parametrize("text", [
    "1.5 [0.3, 7.9]", "<0.001", "M & N", "a~b", "first > second", "why!", "me @ home", "5 $", "single_en", "_", "a < b",
    "Qwen2.5-7B_Q4_K_M", "-",
])  # fmt: skip
def test_markdown_has_no_code_marks_around_what_is_text(text: str) -> None:
    shown = render.markdown(Sheet("T", [Column("n", "n")], [[text]], [text])).splitlines()
    assert (shown[4], shown[-1]) == (f"| {text} |", text)


@pytest.mark.parametrize("text", [
    "<b>", "</td>", "<!--", "&amp;", "&#60;", "[a](b)", "[a]: b", "[a][b]", "[^1]", "![a]", "@someone", "a@b.de", "x://y",
    "WWW.x", "$x$", "~~x~~", "~x~", "__x__", "so _x_ it", "`x",
])  # fmt: skip
def test_markdown_has_as_code_what_would_become_more(text: str) -> None:
    (cell,) = re.findall(r"^\| (`.*`) \|$", render.markdown(Sheet("T", [Column("n", "n")], [[text]])), re.M)
    assert text in cell


def test_markdown_keeps_a_command_in_a_note_as_code_and_no_more() -> None:
    note, hostile = "Compare it with `lbx rate` and _people_.", "m` <b> of `lbx rate`"
    shown = render.markdown(Sheet("T", [Column("n", "n")], [["1"]], [note.replace("_", ""), hostile])).splitlines()
    assert shown[-3:] == [note.replace("_", ""), "", f"`` {hostile} ``"]


def test_markdown_escapes_what_one_mark_keeps_from_being_more() -> None:
    text = render.markdown(
        Sheet("T", [Column("n", "n")], [["GPT-4*"], ["*x* **y**"]], ["* published elsewhere", "# x"])
    )
    assert "| GPT-4\\* |" in text and "| \\*x\\* \\*\\*y\\*\\* |" in text
    assert "\n\\* published elsewhere\n" in text and text.endswith("\n\\# x\n")


def test_programs_get_every_digit_and_every_text() -> None:
    table = Table(
        ["a", "b", "c", "d"],
        [(1 / 3, NASTY, None, [datetime.datetime(2026, 1, 2, 3, 4, 5), b"\0"]), (True, "", {"k": (1, 2)}, 10**20)],
    )
    rows = list(csv.reader(io.StringIO(_csv(table))))
    assert rows[0] == ["a", "b", "c", "d"]
    assert rows[1][:3] == [repr(1 / 3), NASTY, ""]
    found = json.loads(_json(table))
    assert found == [
        {"a": 1 / 3, "b": NASTY, "c": None, "d": ["2026-01-02T03:04:05", str(b"\0")]},
        {"a": True, "b": "", "c": {"k": [1, 2]}, "d": 10**20},
    ]
    assert json.loads("".join(render.json_of_tables({"x": table, "y": Table(["n"], [])}))) == {"x": found, "y": []}


def test_json_is_a_line_a_row() -> None:
    table = Table(["a", "b"], [(1, {"x": ["\n", 2]}), (None, "\x1b"), (0.5, [])])
    found = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert (
        _json(table)
        == '[\n  {"a": 1, "b": {"x": ["\\n", 2]}},\n  {"a": null, "b": "\\u001b"},\n  {"a": 0.5, "b": []}\n]'
    )
    assert json.loads(_json(table)) == found
    assert _json(Table(["a"], [])) == "[]"
    tables = {"x": table, "y": Table(["a"], [])}
    assert json.loads("".join(render.json_of_tables(tables))) == {"x": found, "y": []}


def test_what_is_no_number_is_null() -> None:
    table = Table(["a"], [(math.nan,), (-math.inf,), ([math.inf, 1.5],)])
    assert json.loads(_json(table), parse_constant=pytest.fail) == [
        {"a": None}, {"a": None}, {"a": [None, 1.5]}
    ]  # fmt: skip
    assert _csv(Table(["a", "b"], [(1.5, math.nan), (-math.inf, 2)])) == "a,b\n1.5,\n,2\n"
