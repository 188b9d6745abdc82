"""Functions that draw the figures of reports, by report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.resources import files

from lbx.report.boards import BOARDS
from lbx.report.figures import boards, lengths, opinions, scores
from lbx.report.figures.base import Figure, FigureSource

FIGURES: Mapping[str, Callable[[FigureSource], Iterable[Figure]]] = {
    "leaderboard": scores.leaderboard,
    "task_scores": scores.tasks,
    "comparison": scores.comparison,
    "length_curve": lengths.length_curves,
    "effective_context": lengths.effective_context,
    "needles": lengths.needles,
    "cost": scores.cost,
    "judge_results": opinions.judge_results,
    "rating_results": opinions.rating_results,
    **{name: partial(boards.board, name=name) for name, entry in BOARDS.items() if entry.board.charts},
}
"""Functions that draw the figures of reports."""
CHART_STYLE = files("lbx.report").joinpath("charts.css").read_text("utf-8")
"""Style sheet of charts, with the palettes of pages."""


def figures(source: FigureSource, name: str) -> list[Figure]:
    """Draw the figures of a report; [] if it has none, or too few rows.

    Raises:
        UsageError: The report refuses the query.
    """
    return list(FIGURES[name](source)) if name in FIGURES else []
