"""Figures of the benchmarks' boards, as their authors draw them."""

from __future__ import annotations

from lbx.report.board_charts import draw_charts
from lbx.report.boards import BOARDS
from lbx.report.figures.base import Figure, FigureSource
from lbx.report.labels import Row


def board_mark(source: FigureSource, row: Row) -> int:
    """Return the mark of a board's row: a run's, or a published model's."""
    mark = source.mark(row["run_id"] or row.get("reasoning_run_id"))
    return source.mark_of(row["model"]) if mark is None else mark


def board(source: FigureSource, name: str) -> list[Figure]:
    """Draw the charts of a board."""
    data = BOARDS[name]
    pictures = draw_charts(data.board, source.rows(name), lambda row: (str(row["label"]), board_mark(source, row)))
    return [Figure(*picture, benchmark=data.benchmark, is_small=data.board.small_charts) for picture in pictures]
