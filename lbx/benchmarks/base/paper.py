"""The tables of a benchmark's paper: which of them it has, and where each of its numbers stands."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

OVERALL = "overall"


class Place(NamedTuple):
    """Where a number stands: in which table, in which of a run's rows there ("" where it has but one), which column."""

    table: str
    row: str
    column: str


class Line(NamedTuple):
    """A line of the view ``paper``, taken apart: a task's number ("mcq, easy"), or a group's ("domain Law: f1")."""

    group: str
    name: str
    metric: str

    @classmethod
    def of(cls, text: str, part: int) -> Line:
        """From the columns ``line`` and ``part``, which is 0 for tasks."""
        if part == 0:
            task, _, metric = text.partition(", ")
            return cls("", task, metric)
        what, _, metric = text.rpartition(": ")
        group, _, name = what.partition(" ")
        return cls(group, name or OVERALL, metric)


def by_group(line: Line) -> Place | None:
    """A table for each grouping and one for the tasks; a row for each metric."""
    return Place(line.group, line.metric, line.name) if line.group else Place("tasks", line.metric, line.name)


@dataclass(frozen=True, slots=True)
class Paper:
    """A benchmark's tables.

    Attributes:
        titles: {table: its title}; other tables are called by their names.
        place: where a line stands; None where another one says the same.
        averages: the (table, row)s that hold the benchmark's averages; () where every average of it is one.
        average_heading: what an average is called beside others; None takes its column.
        curves: tables of ``ScoringRules.curves`` instead of stored numbers: {group of lines: tasks that may be in it}.
            They are official where every task of the curve is.
    """

    titles: Mapping[str, str] = field(default_factory=dict)
    place: Callable[[Line], Place | None] = by_group
    averages: tuple[tuple[str, str], ...] = ()
    average_heading: Callable[[Line], str] | None = None
    curves: Mapping[str, Collection[str]] = field(default_factory=dict)
