"""The tables of a benchmark's paper: which of them it has, and where each of its numbers stands."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from lbx.base.number_key import NumberKey


class Place(NamedTuple):
    """Where a number stands: in which table, in which of a run's rows there ("" where it has but one), which column."""

    table: str
    row: str
    column: str


def by_group(key: NumberKey) -> Place | None:
    """A table for each grouping and one for the tasks; a row for each metric."""
    return Place(key.grouping or "tasks", key.metric, key.name)


@dataclass(frozen=True, slots=True)
class Paper:
    """A benchmark's tables.

    Attributes:
        titles: {table: its title}; other tables are called by their names.
        place: position of a number; None where another number says the same.
        averages: the (table, row)s that hold the benchmark's averages; () where every average of it is one.
        average_heading: what an average is called beside others; None takes its column.
        curves: tables of ``ScoringRules.curves`` instead of stored numbers: {grouping: tasks that may be in it}.
            They are official where every task of the curve is.
    """

    titles: Mapping[str, str] = field(default_factory=dict)
    place: Callable[[NumberKey], Place | None] = by_group
    averages: tuple[tuple[str, str], ...] = ()
    average_heading: Callable[[NumberKey], str] | None = None
    curves: Mapping[str, Collection[str]] = field(default_factory=dict)
