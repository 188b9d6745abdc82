"""What is published of a benchmark: figures that come with lbx, and the form of the files that others make of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PublishedFigures:
    """Where they are, and how they are read and checked.

    Attributes:
        file: those that come with lbx, a line of the report ``paper`` a column; see PUBLISHED.md.
        columns: what a file has, beside "benchmark" and "model", whose rows ``figures`` reads; () for no such form.
        figures: (model, line, figure) of a row in that form.
        several_rows: whether the figures of one model stand in several rows of it.
        means: (a mean, {each of its parts: how many questions it has, 0 where that is not said}).
    """

    file: Path | None = None
    columns: Sequence[str] = ()
    figures: Callable[[Row], Iterable[tuple[str, str, str]]] = lambda row: ()
    several_rows: bool = True
    means: Sequence[tuple[str, Mapping[str, int]]] = field(default=())
