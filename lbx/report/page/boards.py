"""Section of the benchmarks' own boards: tables with the runs' marks, and the authors' charts."""

from __future__ import annotations

from lbx.base.commands import as_command
from lbx.report.boards import BOARDS
from lbx.report.cells import sheet
from lbx.report.figures import figures
from lbx.report.figures.boards import board_mark
from lbx.report.page.html import Html, Section, drawings, run_name, table, tag
from lbx.report.page.source import PageSource
from lbx.report.reports import REPORTS
from lbx.store import Table


def boards(source: PageSource) -> Section | None:
    """Build the benchmarks' results in their authors' tables and charts; None without such benchmarks."""
    benchmarks = {row["benchmark"] for row in source.rows("leaderboard")}
    names = [name for name in BOARDS if BOARDS[name].benchmark in benchmarks]
    parts = [part for name in names if (table := source.table(name)) for part in _board(source, name, table)]
    return Section("board", "The benchmarks' leaderboards", parts) if parts else None


def board(source: PageSource, name: str) -> Section:
    """Build the section of one board."""
    table = source.table(name)
    return Section(name, _title_and_unit(name)[0], _board(source, name, table) if table else [])


def _board(source: PageSource, name: str, board_table: Table) -> list[Html]:
    rows, board_sheet = board_table.dicts(), sheet(REPORTS[name], board_table)
    runs = [source.mark(row["run_id"] or row.get("reasoning_run_id")) for row in rows]
    marks = [board_mark(source, row) for row in rows]
    body = [
        [
            run_name(mark, text) if column.name == "model" else text
            for column, text in zip(board_sheet.columns, cells, strict=True)
        ]
        for mark, cells in zip(marks, board_sheet.rows, strict=True)
    ]
    title, unit = _title_and_unit(name)
    table_html = table(
        title,
        board_sheet.columns,
        body,
        marks=runs,
        most_rows=source.most_rows,
        more=f"`{as_command('lbx', 'report', 'FILE', name, '-f', 'csv')}` has all.",
    )
    return [tag("h3", title), tag("p", unit, class_="quiet"), table_html, *drawings(figures(source, name))]


def _title_and_unit(name: str) -> tuple[str, str]:
    title, _, unit = REPORTS[name].title.partition(" (")
    unit = unit.removesuffix(")")
    return title, f"{unit[:1].upper()}{unit[1:]}."
