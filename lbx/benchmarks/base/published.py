"""What is published of a benchmark: the form of files that others make of it, and what its figures add up to.

Figures that come with lbx are in the family's folder, in published.csv: a line of the report ``paper`` a column, see
PUBLISHED.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lbx.base.number_key import NumberKey

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PublishedFigures:
    """How they are read and checked.

    Attributes:
        columns: what a file has, beside "benchmark" and "model", whose rows ``figures`` reads; () for no such form.
        figures: (model, number, figure) of a row in that form.
        several_rows: whether the figures of one model stand in several rows of it.
        means: (a mean, {each of its parts: how many questions it has, 0 where that is not said}).
    """

    columns: Sequence[str] = ()
    figures: Callable[[Row], Iterable[tuple[str, NumberKey, str]]] = lambda row: ()
    several_rows: bool = True
    means: Sequence[tuple[NumberKey, Mapping[NumberKey, int]]] = field(default=())
