"""One number, one value: whatever is in a file, every place says of a number what the answers make it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings

import lbx
from lbx.report import page
from lbx.report.format import render
from lbx.report.format.table_cells import sheet
from lbx.report.format.terminal import lines
from lbx.report.query import ReportQuery
from lbx.report.report import Report
from lbx.report.reports import REPORTS, read_report, reports_on_page, write_parquet
from lbx.report.rows import paper as papers
from lbx.report.rows.board import BOARDS
from lbx.report.rows.effective_context import STRIP_SCORE, Strip, strips
from lbx.results import Store, Table
from lbx.results.scoring.reading import open_with_numbers
from tests.consistency import own_reports
from tests.consistency.expected import Expected, expected, opinions, said_by_judges, said_by_people
from tests.consistency.made_files import SETS, MadeFile, MadeRun, made_files, write
from tests.consistency.other_places import OFFICIAL, first_screen, headlines, listed, official_files, page_parts
from tests.consistency.printed import (
    Grid,
    from_csv,
    from_html,
    from_json,
    from_latex,
    from_markdown,
    from_text,
    misprint,
    misprints,
)
from tests.consistency.readers import VIEWS, boards, faults
from tests.consistency.stored_file import File, read_file
from tests.profiles import files

MCQ = ("longbench_v2", "mcq")
FORCED = ReportQuery(allow_different_settings=True)
NOT_OF_ANSWERS = ("reference", "expected")
"""Published figures are no numbers of a file."""


def check(path: Path, *, again: bool = True) -> list[str]:
    """Every fault of a file, a sentence each.

    Args:
        again: whether answers are scored anew; else their stored scores are added up.
    """
    file = read_file(path, again=again)
    with tempfile.TemporaryDirectory() as folder:
        return list(_faults(path, file, Path(folder)))


def _faults(path: Path, file: File, folder: Path) -> Iterator[str]:
    judges, people = said_by_judges(file), said_by_people(file)
    want = expected(file) | judges | people | opinions(judges, people)
    yield from in_views(path, want)
    with open_with_numbers(path, allowed_files=[folder / "one.parquet"]) as store:
        tables = {name: read_report(store, name, FORCED) for name in REPORTS if name not in NOT_OF_ANSWERS}
        for name, (reader, _) in VIEWS.items():
            yield from faults(reader(f"report {name}", tables[name].dicts()), want, {})
        for name in BOARDS:
            yield from faults(boards(name, tables[name].dicts(), want), want, {})
        made = own_reports.made_of(file)
        yield from own_reports.faults(made, tables)
        for name, table in tables.items():
            if table.rows:
                yield from (f"{name}, {why}" for why in in_formats(name, table))
        text, scores = "".join(page.pieces(store, FORCED)), headlines(made)
        yield from on_page(text, tables)
        yield from page_parts(text, tables, scores)
        yield from first_screen(store, tables, want)
        yield from listed(store, scores)
        yield from in_parquet(store, tables["task_scores"], folder / "one.parquet")
        yield from official_files(store, made, folder)


def in_views(path: Path, want: Expected) -> Iterator[str]:
    """The views as a notebook reads them."""
    with lbx.open_results(path) as results:
        for name, (reader, kind) in VIEWS.items():
            relation = results[name]
            rows = [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]
            yield from faults(reader(name, rows), want, {name: kind} if kind else {})


def in_parquet(store: Store, table: Table, path: Path) -> Iterator[str]:
    write_parquet(store, "task_scores", FORCED, path)
    with duckdb.connect() as connection:
        held = connection.execute("FROM read_parquet(?)", [str(path)]).fetchall()
    if held != [tuple(row) for row in table.rows]:
        yield "parquet has other rows of task_scores"


def in_formats(name: str, table: Table) -> Iterator[str]:
    yield from from_csv("".join(render.csv_pieces(table.columns, table.rows)), table)
    yield from from_json("".join(render.json_pieces(table.columns, table.rows)), table)
    if name == "paper":
        made = papers.sheets(table)
        yield from (f"markdown: {why}" for why in in_paper(table, from_markdown("".join(map(render.markdown, made)))))
        yield from (f"latex: {why}" for why in in_paper(table, from_latex("".join(render.latex_pieces(made)))))
        return
    view = REPORTS[name]
    made_one = sheet(view, table)
    if not made_one.rows:
        yield from misprints(view, table, Grid(made_one.title, [], []))
        return
    (grid,) = from_markdown(render.markdown(made_one))
    yield from (f"markdown: {why}" for why in misprints(view, table, grid))
    (grid,) = from_text("\n".join(line.text for line in lines(made_one, ascii_only=True)))
    yield from (f"table: {why}" for why in misprints(view, table, grid))
    blocks = list(from_latex("".join(render.latex_pieces([made_one]))))
    yield from (f"latex: {why}" for why in misprints(view, table, joined(blocks, made_one.columns)))


def joined(blocks: list[Grid], columns: object) -> Grid:
    """The blocks of columns that a wide table is continued in, as one."""
    first, *others = blocks
    fixed = sum(not column.across for column in columns)  # type: ignore[attr-defined]
    heads = first.heads + [head for one in others for head in one.heads[fixed:]]
    body = [line + [cell for one in others for cell in one.lines[at][fixed:]] for at, line in enumerate(first.lines)]
    return Grid(first.title, heads, body)


def in_paper(table: Table, grids: Iterator[Grid]) -> Iterator[str]:
    """Each number of the papers' tables at its place, and no others; the best of a column bold."""
    shown: dict[tuple[str, str, str], list[str]] = {}
    for grid in grids:
        fixed = 2 if grid.heads[0] == "of" else 1
        for line in grid.lines:
            for head, cell in zip(grid.heads[fixed:], line[fixed:], strict=True):
                if cell:
                    shown.setdefault((line[0] if fixed == 2 else "", line[fixed - 1], head), []).append(cell)
    for row in table.dicts():
        if row["table"] is None:
            continue
        cells = shown.get((row["row"], row["run"], row["column"]), [])
        if not any(misprint(cell, row, OFFICIAL) is None for cell in cells) and row["official"] is not None:
            yield f"{row['line']} of {row['run']}: {row['official']!r} is printed {cells}"


def in_strip(strip: Strip, grid: Grid) -> Iterator[str]:
    """What a strip says otherwise than its rows: scores with intervals, and nothing for other lengths."""
    for row, cells in zip(strip.rows, grid.lines, strict=True):
        for length, text in zip(strip.lengths, cells, strict=False):
            cell = row.cells.get(length)
            if text if cell is None or cell["score"] is None else misprint(text, cell, STRIP_SCORE):
                yield f"{text!r} up to {length}"
        if cells[len(strip.lengths)] != row.line["works_to"]:
            yield f"{cells} for {row.line['works_to']}"


def on_page(text: str, tables: dict[str, Table]) -> Iterator[str]:
    """The tables of a page: those of reports, a table a benchmark."""
    grids: dict[str, list[Grid]] = {}
    for grid in from_html(text):
        grids.setdefault(grid.title, []).append(grid)
    for name, table in tables.items():
        if (name not in reports_on_page() and name not in BOARDS) or not table.rows or name == "paper":
            continue
        if name == "effective_context":
            for strip in strips(table.dicts()):
                yield from (f"page: {strip.title}: {why}" for why in in_strip(strip, grids[strip.title][0]))
            continue
        view = REPORTS[name]
        title = view.title.split(" (")[0]
        parts = {title: table}
        if "benchmark" in table.columns and name not in BOARDS:
            view = replace(view, columns=[column for column in view.columns if column.name != "benchmark"])
            at = table.columns.index("benchmark")
            parts = {
                f"{title}: {benchmark}": Table(table.columns, [row for row in table.rows if row[at] == benchmark])
                for benchmark in dict.fromkeys(row[at] for row in table.rows)
            }
        for caption, part in parts.items():
            grid = grids.get(caption, [Grid(caption, [], [])])[0]
            rows = part.dicts()
            # A column of nothing but "-" is left out.
            columns = [
                column
                for column in view.columns
                if column.heading in grid.heads or any(row.get(column.name) is not None for row in rows)
            ]
            shown = replace(view, columns=columns)
            yield from (f"page: {caption}: {why}" for why in misprints(shown, part, _with_ordered_columns(grid, shown)))


def _with_ordered_columns(grid: Grid, view: Report) -> Grid:
    """The grid with the report's columns in their order, before those of a pivot."""
    wanted = [column.heading for column in view.columns]
    order = sorted(
        range(len(grid.heads)),
        key=lambda n: wanted.index(grid.heads[n]) if grid.heads[n] in wanted else len(wanted) + n,
    )
    if any(len(line) != len(grid.heads) for line in grid.lines):
        return grid
    bold = {(line, order.index(n)) for line, n in grid.bold}
    return Grid(grid.title, [grid.heads[n] for n in order], [[line[n] for n in order] for line in grid.lines], bold)


SOME_FAILED = MadeRun("a", "model", (0, 0, 0, 0, 7, 7, 7, 7, 7, 3, 7, 7, 7), iterations=4, counts=0)
FOUND = {
    "v2, of which every output is empty": MadeFile((MCQ,), 3, 99, (MadeRun("a", "model", (4,)),)),
    "a question of two figures, side by side": MadeFile(
        (("leval", "sci_fi"),), 2, 99, (MadeRun("a", "model", (0, 1)), MadeRun("b", "model", (2, 3)))
    ),
    "L-Eval, judged beside another benchmark": MadeFile(
        (("leval", "quality"), ("mine", "t")), 3, 99, (MadeRun("a", "model", (0, 1, 2)),), judged=(0, 1)
    ),
    "marked twice for one judge": MadeFile(
        (("leval", "quality"),), 13, 99, (MadeRun("a", "model", (0,)),), judged=(0, 1, 2)
    ),
    "LV-Eval, one dataset": MadeFile((("lveval", "factrecall_en_16k"),), 3, 99, (MadeRun("a", "model", (0, 1)),)),
    "RULER, an effective length without an interval": MadeFile(
        SETS["RULER, a length"], 1, 1, (MadeRun("a", "model", (0,)),)
    ),
    **{
        f"calls that failed in some iterations, {name}": MadeFile(
            tasks, 4, 99, (SOME_FAILED, MadeRun("b", "other", (0, 3), iterations=4, counts=0))
        )
        for name, tasks in {
            "mine": (("mine", "t"), ("mine", "u")),
            "means of means": (("leval", "gov_report_summ"),),
            "RULER": SETS["RULER, some"],
            "HELMET": SETS["HELMET, some"],
            "HELMET, judged tasks": SETS["HELMET, judged"],
            "LongBench Pro": (("longbench_pro", "t3.1"), ("longbench_pro", "t4.1")),
        }.items()
    },
    "iterations that a killed run did not ask": MadeFile(
        (("mine", "t"),), 4, 99, (MadeRun("a", "model", (0, 9, 0, 3, 9), iterations=3, counts=2),)
    ),
    "RULER, a question at three lengths": MadeFile(
        SETS["RULER, some"], 3, 99, (MadeRun("a", "model", (0, 1, 3)), MadeRun("b", "model", (1, 2)))
    ),
}
"""Files that once had two values of one number."""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_before(name: str, tmp_path: Path) -> None:
    found = check(write(tmp_path / "made.duckdb", FOUND[name]))
    assert not found, "\n".join(found[:20])


@settings(max_examples=files(300), suppress_health_check=list(HealthCheck))
@given(made_files())
def test_every_place_says_what_the_answers_make(made: MadeFile) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = check(write(Path(folder) / "made.duckdb", made))
    assert not found, "\n".join(found[:20])


def test_published_predictions(imports: Path) -> None:
    """Some ten thousand answers, with their stored scores: that these are right `just golden` shows."""
    found = check(imports, again=False)
    assert not found, "\n".join(found[:20])
