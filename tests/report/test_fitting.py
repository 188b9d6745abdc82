"""Tables on terminals of any width, in files, and in ASCII."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from lbx.base.columns import Column
from lbx.report.format.sheets import Sheet
from lbx.report.format.table_cells import sheet
from lbx.report.format.terminal import lines
from lbx.report.reports import REPORTS
from lbx.results import Table
from tests.command_line import Lbx
from tests.page_parts import results_file

BOARD = (
    Column("model", "model"),
    Column("backend", "backend", rank=9),
    Column("benchmark", "benchmark"),
    Column("n", "scored", "count", rank=4),
    Column("score", "score", "percent", interval=True),
    Column("status", "status of the run", rank=5),
)
ROWS = [
    ["Qwen2.5-7B-Instruct-1M", "llamacpp", "longbench_v2", "503", "28.2 ± 3.9", "done"],
    ["llama3-8b-instruct", "llamacpp", "longbench", "4,750", "45.97 ± 0.91", "interrupted"],
    ["glm-4-9b-chat-1m", "llamacpp", "leval", "1,150", "38.1 ± 1.2", "done"],
]


def text(table: Sheet, width: int | None = None, *, ascii_only: bool = False) -> str:
    return "\n".join(line.text for line in lines(table, width, ascii_only=ascii_only))


def words(rows: Sequence[Sequence[str]]) -> set[str]:
    return {word for row in rows for cell in row for word in cell.split()}


def test_a_wide_terminal_has_every_column() -> None:
    shown = text(Sheet("Board", BOARD, ROWS), 160)
    assert shown == text(Sheet("Board", BOARD, ROWS))
    assert words(ROWS) <= set(shown.split())


def test_what_is_constant_becomes_the_caption_and_what_is_least_needed_goes_and_is_named() -> None:
    shown = text(Sheet("Board", BOARD, ROWS), 80).splitlines()
    assert shown[1] == "backend llamacpp"
    assert words([[row[at] for at in (0, 2, 3, 4, 5)] for row in ROWS]) <= set("\n".join(shown).split())
    assert max(map(len, shown)) <= 80
    narrow = text(Sheet("Board", BOARD, ROWS), 50)
    assert "Columns hidden (terminal too narrow): scored, status of the run." in " ".join(narrow.split())
    assert "interrupted" not in narrow and words([[row[0], row[2], row[4]] for row in ROWS]) <= set(narrow.split())
    assert narrow.count("─\n") == 1
    assert max(map(len, narrow.splitlines())) <= 50


def test_a_column_that_tells_rows_apart_stays() -> None:
    columns = [
        Column("model", "model"),
        Column("unit", "unit", rank=9),
        Column("n", "scored", "count", rank=1),
        Column("score", "score", "percent", interval=True),
    ]
    models, units = ("llama3-8b-instruct", "glm-4-9b-chat-1m"), ("words", "characters")
    rows = [[model, unit, "8", "45.97 ± 0.91"] for model in models for unit in units]
    shown = text(Sheet("Needles", columns, rows), 48)
    assert set(units) <= set(shown.split()) and "Columns hidden (terminal too narrow): scored." in " ".join(
        shown.split()
    )
    assert max(map(len, shown.splitlines())) <= 48
    apart = [[f"{row[0]}-{number}", *row[1:]] for number, row in enumerate(rows)]
    assert "Columns hidden (terminal too narrow): unit." in " ".join(text(Sheet("Needles", columns, apart), 48).split())


@pytest.mark.parametrize("name", REPORTS)
def test_rows_of_a_report_differ_at_80_columns_too(name: str) -> None:
    """Rows of a benchmark differ from the first one in one name each, so no name can be left out."""
    columns = list(REPORTS[name].columns)
    first = [chr(ord("a") + at) for at in range(len(columns))]
    names = [at for at, column in enumerate(columns) if column.kind == "text" and column.name != "benchmark"]
    rows = [first, *([cell * (1 + (at == other)) for at, cell in enumerate(first)] for other in names)]
    drawn = list(lines(Sheet("", columns, rows), 80))
    rule = max(at for at, line in enumerate(drawn) if line.text.startswith("─"))
    shown = [line.text for line in drawn[rule + 1 :] if line.text and not line.role]
    assert len(set(shown)) == len(shown) == len(rows)


def test_a_pivot_is_continued_below() -> None:
    columns = [Column("task", "task"), *(Column(f"r{n}", f"run-number-{n}", "number", across=True) for n in range(36))]
    rows = [[task, *(f"{n}.25" for n in range(36))] for task in ("qasper", "trec")]
    shown = text(Sheet("Paper", columns, rows), 80)
    assert max(map(len, shown.splitlines())) <= 80
    assert {f"run-number-{n}" for n in range(36)} | {f"{n}.25" for n in range(36)} <= set(shown.split())
    assert shown.count("qasper") == shown.count("trec") == shown.count("─\n") > 1


def test_each_benchmark_has_a_table_of_its_own_where_one_is_too_wide() -> None:
    columns = [
        Column("benchmark", "benchmark"),
        *(Column(f"run{n}", f"a-model-of-benchmark-{n}", "number", across=True) for n in range(4)),
    ]
    rows = [["longbench", "1", "2", "", ""], ["leval", "", "", "3", "4"], ["longbench", "5", "6", "", ""]]
    shown = text(Sheet("Paper", columns, rows), 60)
    headings = [line.split() for line in shown.splitlines() if line.startswith("benchmark")]
    assert headings == [["benchmark", f"a-model-of-benchmark-{n}", f"a-model-of-benchmark-{n + 1}"] for n in (0, 2)]


def test_wide_and_right_to_left_letters_keep_their_columns() -> None:
    rows = [["模型一", "1.00"], ["نموذج", "22.00"], ["[bold]x[/bold]", "333.00"], ["\x1b[31mred", "4.00"]]
    shown = text(Sheet("", [Column("m", "model"), Column("s", "score", "percent")], rows)).splitlines()[3:7]
    assert {cell_len(line.replace("\u200e", "")) for line in shown} == {cell_len(shown[2])}
    assert shown[1].startswith("\u200eنموذج\u200e ") and "\u200e" not in shown[0]
    assert "[bold]x[/bold]" in shown[2] and r"\x1b[31mred" in shown[3]


def test_ascii() -> None:
    columns = [Column("m", "model"), Column("s", "score", "percent")]
    shown = text(Sheet("A – B", columns, [["模型", "44.9 ± 6.3"]], ["1 × 2"]), 80, ascii_only=True)
    assert shown.isascii()
    assert "A - B" in shown and r"\u6a21\u578b  44.9 +/- 6.3" in shown and "1 x 2" in shown


def test_nothing_to_show_is_said() -> None:
    for name, view in REPORTS.items():
        shown = text(sheet(view, Table([column.name for column in view.columns], [])), 80)
        assert " ".join(view.empty.split()) in " ".join(shown.split()), name
        assert "─" not in shown


def test_lengths_of_every_task_fit_a_screen_with_shades() -> None:
    names = ["run_id", "benchmark", "task", "length_unit", "model", "label", "length_up_to", "n", "score"]
    cells = ((1 << at, 9 + at % 2, at / 17) for at in range(10, 15))
    rows = [("r", "b", "t", "words", "m", "a-model-of-some-size", *cell) for cell in (*cells, (None, 10, 0.1))]
    (drawn,) = REPORTS["length_curve"].sheets(Table(names, rows), in_text=True)
    assert [column.heading for column in drawn.columns][2:] == [*(f"{1 << n}k" for n in range(5)), "unknown"]
    assert drawn.rows[0][2:5] == ["f  59", "▓  65", "f  71"]
    shown = text(drawn, 80)
    assert max(map(len, shown.splitlines())) <= 80 and shown.count("a-model-of-some-size") == 1


def test_names_are_broken_between_their_parts() -> None:
    name = "Qwen2.5-7B-Instruct-1M-GGUF-Q4_K_M"
    columns = [Column("m", "model"), Column("t", "task"), Column("s", "score", "percent", interval=True)]
    shown = text(Sheet("", columns, [[name, "passage_retrieval_en", "44.9 [38.6, 51.2]"]]), 50).splitlines()
    pieces = [line.split("  ")[0].strip() for line in shown[3:] if line]
    assert "".join(pieces) == name and all(piece.endswith(("-", "_")) for piece in pieces[:-1])


@example([["", "", ""], ["", "000000000\x1f\x1f\x1f", ""]], 20)  # the one column that says anything
@given(st.lists(st.lists(st.text(max_size=40), min_size=3, max_size=3), min_size=1, max_size=4), st.integers(20, 200))
def test_no_line_is_wider_than_the_terminal(cells: list[list[str]], width: int) -> None:
    columns = [Column("a", "a"), Column("b", "one of the headings", rank=1), Column("c", "c")]
    for line in lines(Sheet("", columns, cells), width):
        assert cell_len(line.text.replace("\u200e", "")) <= width
        assert "\n" not in line.text


def test_a_large_table_is_drawn_line_by_line() -> None:
    out = io.StringIO()
    rows = [["longbench", f"{n}", f"{n} is a message of some words " * 5] for n in range(2000)]
    columns = [Column("benchmark", "benchmark"), Column("n", "n", "count"), Column("error", "error")]
    for line in lines(Sheet("", columns, rows), 80):
        out.write(line.text + "\n")
    assert out.getvalue().count("words") == 10_000


def test_a_pipe_has_every_column_of_a_report_unless_columns_says_how_wide_it_is(tmp_path: Path) -> None:
    lbx, runs = Lbx(), [f"a-model-of-some-size-{n}-with-a-long-name" for n in range(6)]
    path, out = results_file(tmp_path / "r.duckdb", runs), tmp_path / "out"

    def widest(*arguments: object, columns: str = "") -> int:
        done = lbx("report", path, *arguments, environment={"COLUMNS": columns})
        assert done.returncode == 0, done.stderr
        lines = (done.stdout or out.read_text("utf-8")).splitlines()
        return max(cell_len(line) for line in lines if " " in line.strip())  # a path cannot be broken

    assert 80 < widest() <= 120 and widest("-o", out) <= 120
    assert widest("guards") > 120
    assert widest("guards", columns="70") <= 70 and widest(columns="80") <= 80
    assert widest("guards", "-o", out, columns="70") > 120
