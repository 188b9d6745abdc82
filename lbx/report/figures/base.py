"""Figures of reports, the source of their rows, and points and series made from rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

from lbx.report.charts import Point, Series
from lbx.report.labels import Row


@dataclass(frozen=True, slots=True)
class Figure:
    """Chart of a report.

    Attributes:
        svg: The chart, without its title.
        caption: Sentence about the chart; equal captions of neighbouring figures are shown once.
        benchmark: Benchmark of the chart's numbers; "" for charts of several.
        is_small: Whether the chart belongs in a grid with its neighbours.
        mark: Run that all of the chart belongs to.
    """

    title: str
    svg: str
    caption: str = ""
    benchmark: str = ""
    is_small: bool = False
    mark: int | None = None


class FigureSource(Protocol):
    """Rows of reports, and the runs' names and marks."""

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a report; [] if it is empty. Raises UsageError if the report refuses the query."""

    def label(self, run_id: object) -> str:
        """Return a run's name for readers."""

    def mark(self, run_id: object) -> int | None:
        """Return the number that determines a run's colour and shape; None if the run is unknown."""

    def mark_of(self, name: str) -> int:
        """Return the mark of a run or a published model."""


def point_of_row(row: Row, scale: float = 100.0, value: str = "score", of: str = "") -> Point:
    """Return a row's value with its interval; ``of`` is the prefix of the interval's columns."""
    ends = (row.get(name) for name in (value, f"{of}low", f"{of}high"))
    number, low, high = (None if end is None else scale * end for end in ends)
    return Point(number, low, high, f"{row['n']:,} answers" if row.get("n") else "")


def group_rows(rows: Iterable[Row], *names: str) -> Iterable[tuple[Any, list[Row]]]:
    """Group neighbouring rows with equal values in the named columns, as (value or values, rows)."""
    for key, group in groupby(rows, key=lambda row: tuple(row[name] for name in names)):
        yield (key[0] if len(names) == 1 else key), list(group)


def run_series(source: FigureSource, run_id: str, points: Sequence[Point | None]) -> Series:
    """Return a run's points with its name and mark."""
    return Series(source.label(run_id), source.mark_of(run_id), points)
