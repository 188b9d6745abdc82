"""Scores by length that authors draw and no script of theirs prints: made of a run's answers when they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from lbx.statistics.estimates import Interval


class LengthCurve(NamedTuple):
    """A run's curve.

    Attributes:
        tasks: those that count.
        n, fewest: their answers, and how many the fewest are that a task has at a length.
        points: by length, in 0..1.
        clustered: whether the documents of all answers are known.
    """

    tasks: tuple[str, ...]
    n: int
    fewest: int
    points: Mapping[str, Interval]
    clustered: bool

    @property
    def cluster_by(self) -> str:
        """What the intervals' clusters are."""
        return "document" if self.clustered else "sample"
