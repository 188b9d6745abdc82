"""Results files in notebooks: reports as objects, and tables and views as DuckDB relations."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lbx.base.errors import UsageError
from lbx.base.outputs import write_file
from lbx.base.tables import suggest_names
from lbx.options.option import fields_of
from lbx.report import reports
from lbx.report.draw import figures as drawings
from lbx.report.format.labels import headline, with_progress
from lbx.report.format.sheets import Sheet
from lbx.report.format.terminal import lines
from lbx.report.page.html import quiet, table
from lbx.report.page.source import PageSource
from lbx.report.query import ReportQuery
from lbx.results import Store, Table
from lbx.results.read.queries import Relations
from lbx.results.read.runs import resolve_runs
from lbx.results.scoring.reading import open_with_numbers

if TYPE_CHECKING:
    import pandas
    import pyarrow


@dataclass(frozen=True, repr=False)
class Chart:
    """Charts of a report, which notebooks show as a picture.

    Attributes:
        svg: The charts as a self-contained SVG file.
    """

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the charts to a file.

        Args:
            path: Path with the ending .svg or .png. The latter needs ``lbx[png]``.

        Raises:
            UsageError: The path has another ending.
            LbxError: The renderer for PNG is not installed, or finds no font.
        """
        path = Path(path)
        if path.suffix not in (".svg", ".png"):
            raise UsageError(f"{path} ends neither with .svg nor with .png.", fix="Choose one of these formats.")
        write_file(path, self.svg if path.suffix == ".svg" else drawings.render_png(self.svg))


@dataclass(frozen=True, repr=False)
class Report:
    """Report of a results file, which stays valid after the file is closed. Notebooks show it as a table.

    ``str(report)`` is the output of ``lbx report``, fitted to the terminal.

    Attributes:
        progress: Progress of unfinished runs, or "" if all are finished.
        notes: Notes from the file, in addition to notes on the rows.
        figures: The figures that ``chart`` joins.
    """

    name: str
    table: Table
    progress: str = ""
    notes: Sequence[str] = ()
    figures: Sequence[drawings.Figure] = ()

    @property
    def columns(self) -> list[str]:
        """Names of the columns, as in CSV."""
        return list(self.table.columns)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """Rows of unrounded values."""
        return list(self.table.rows)

    def __repr__(self) -> str:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        return "\n".join(line.text for sheet in self._sheets(in_text=True) for line in lines(sheet, width)).rstrip()

    def _repr_html_(self) -> str:
        parts: list[str] = []
        for sheet in self._sheets(in_text=False):
            if sheet.rows:
                parts.append(table(sheet.title, sheet.columns, sheet.rows, more=".rows has all."))
            parts += map(quiet, sheet.notes)
        return "".join(parts)

    def _sheets(self, *, in_text: bool) -> list[Sheet]:
        sheets = reports.REPORTS[self.name].sheets(self.table, self.notes, in_text=in_text)
        return with_progress(sheets, self.progress)

    def chart(self) -> Chart:
        """Draw the charts of the report. Raises UsageError if it has no charts, or too few rows."""
        drawings.require_figures([self.name], self.figures)
        title = headline(reports.REPORTS[self.name].caption, self.progress)
        return Chart(drawings.svg_file(title, self.figures))

    def to_pandas(self) -> pandas.DataFrame:
        """Convert the rows to a DataFrame. Raises UsageError without pandas."""
        return _import_library("pandas").DataFrame(self.rows, columns=self.columns)

    def to_arrow(self) -> pyarrow.Table:
        """Convert the rows to an Arrow table. Raises UsageError without pyarrow."""
        columns = zip(*self.rows, strict=True) if self.rows else [()] * len(self.columns)
        return _import_library("pyarrow").table(dict(zip(self.columns, map(list, columns), strict=True)))


def _import_library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as exc:
        raise UsageError(
            f"The library {name} is not installed.", fix="Install it in this environment, or use .rows and .columns."
        ) from exc


class Results(Relations):
    """Results file, open for reading. Use it as a context manager.

    ``results.report("leaderboard")`` is a report. As a mapping, it contains tables and views as DuckDB relations:
    ``results["task_scores"].fetchall()`` is a list of rows, ``.df()`` a pandas DataFrame if pandas is installed.
    Relations are lazy, and invalid once the file is closed. Reports stay valid.
    """

    def report(self, name: str, **options: Any) -> Report:
        """Read a report.

        Args:
            name: Name of the report as for ``lbx report``: "leaderboard", "task_scores", "comparison", ...
            options: Fields of ``lbx.report.query.ReportQuery``: runs, tasks, baseline, margin, ...

        Raises:
            UsageError: The report, an option or a run does not exist, or the report refuses the options.
        """
        names = reports.reports_of(name)
        if len(names) > 1:
            raise UsageError(f"{name} is several reports.", fix=f"Name one of: {', '.join(names)}.")
        source = PageSource(self._store, _make_query(self._store, name, options))
        definition = reports.REPORTS[name]
        rows = source.table(name) or Table([column.name for column in definition.columns], [])
        notes = definition.read_notes(self._store, rows) if definition.read_notes else ()
        return Report(name, rows, source.progress, notes, drawings.figures(source, name))


def _make_query(store: Store, name: str, options: dict[str, Any]) -> ReportQuery:
    known = [option.name for option in fields(ReportQuery) if option.name != "baseline_file"]  # opened before reports
    for option in options:
        if option not in known:
            raise UsageError(f"Reports have no option {option!r}.", fix=suggest_names(option, known))
    reports.check_options([name], [fields_of(ReportQuery)[option].option_name for option in options])
    several = {"runs", "models", "references", "expected_models", "tasks"}
    values: dict[str, Any] = {
        option: (value,) if option in several and isinstance(value, str | os.PathLike) else value
        for option, value in options.items()
    }
    values["runs"] = resolve_runs(store, values.get("runs", ()))
    values["references"] = tuple(map(Path, values.get("references", ())))
    values.setdefault("with_published_models", bool(values["references"] or values.get("models")))
    return ReportQuery(**values)


def open_results(path: str | os.PathLike[str]) -> Results:
    """Open a results file as ``Results``. If the file is being written, only committed data is read.

    Raises:
        StoreError: The file is not a results file.
    """
    return Results(open_with_numbers(Path(path)))
