"""Figures of reports, for the page, files and notebooks."""

from lbx.report.figures.base import Figure, FigureSource
from lbx.report.figures.drawing import CHART_STYLE, FIGURES, figures
from lbx.report.figures.files import check_figures, render_png, svg_file

__all__ = [
    "CHART_STYLE",
    "FIGURES",
    "Figure",
    "FigureSource",
    "check_figures",
    "figures",
    "render_png",
    "svg_file",
]
