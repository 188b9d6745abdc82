"""A task's scored samples as columns; sample objects are made only for benchmarks that need them.

A results file of a year has a hundred thousand answers. Most numbers are means of scores, which columns give in a
hundredth of the time that as many objects take: ``lbx.benchmarks.base.aggregates`` uses only columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from lbx.base.records import ScoredSample
from lbx.statistics.estimates import Codes, Floats, coded

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Columns:
    """Scored answers as columns, in the data's order.

    Attributes:
        of: columns by name; "samples" and "clusters" as in ``Stratum``, and "clustered": whether a row's cluster is
            known.
        scores: {metric: (values, mask of the answers that have it)}; a mask of None means all of them.
        make: returns a slice of the answers as samples.
    """

    of: Mapping[str, Array]
    scores: Mapping[str, tuple[Floats, Bools | None]]
    make: Callable[[slice], list[ScoredSample]]

    @cached_property
    def made(self) -> list[ScoredSample]:
        return self.make(slice(None))


class ScoredRows(Sequence[ScoredSample]):
    """Answers, or some of them: a sequence of samples with columns that can be read without creating samples."""

    def __init__(self, whole: Columns, places: Codes | None = None) -> None:
        self._whole, self._places = whole, places
        self._taken: dict[str, Array] = {}

    def __len__(self) -> int:
        return len(self._whole.of["samples"]) if self._places is None else len(self._places)

    def __getitem__(self, at: Any) -> Any:
        if at != 0 or not len(self):
            return self._made[at]
        place = 0 if self._places is None else int(self._places[0])
        return self._whole.make(slice(place, place + 1))[0]  # of many tasks only the first row is read

    def __iter__(self) -> Iterator[ScoredSample]:
        return iter(self._made)

    @classmethod
    def of(cls, rows: Sequence[ScoredSample]) -> ScoredRows:
        """Return the answers as columns.

        Rows given as single samples get only the columns that ``Columns`` lists.
        """
        if isinstance(rows, cls):
            return rows
        samples = [f"{row.sample.task}/{row.sample.sample_id}" for row in rows]
        of = {
            "samples": coded(samples),
            "clusters": coded(row.cluster or sample for row, sample in zip(rows, samples, strict=True)),
            "clustered": np.array([bool(row.cluster) for row in rows], bool),
        }
        scores: dict[str, tuple[Floats, Bools | None]] = {}
        for metric in dict.fromkeys(metric for row in rows for metric in row.scores):
            present = np.array([metric in row.scores for row in rows], bool)
            scores[metric] = (np.array([row.scores.get(metric, 0.0) for row in rows], float), present)
        return cls(Columns(of, scores, lambda places: [*rows[places]]))

    @property
    def _made(self) -> list[ScoredSample]:
        made = self._whole.made if len(self) else []
        return made if self._places is None else [made[at] for at in self._places.tolist()]

    def column(self, name: str) -> Array:
        """Return a column of these rows; the same array each time."""
        if name not in self._taken:
            whole = self._whole.of[name]
            self._taken[name] = whole if self._places is None else whole[self._places]
        return self._taken[name]

    def at(self, chosen: Codes | Bools | list[int]) -> ScoredRows:
        """Return some of the rows, by index or by mask."""
        places = np.arange(len(self)) if self._places is None else self._places
        return ScoredRows(self._whole, places[chosen] if len(chosen) else places[:0])

    def where(self, meant: Callable[[ScoredSample], bool]) -> ScoredRows:
        """Return the rows that satisfy a predicate."""
        return self.at(np.fromiter(map(meant, self), bool, len(self)))

    def having(self, metric: str) -> tuple[ScoredRows, Floats]:
        """Return the rows that have a metric, and its values."""
        values, present = self._scores(metric)
        return (self, values) if present is None else (self.at(present), values[present])

    def _scores(self, metric: str) -> tuple[Floats, Bools | None]:
        if metric not in self._whole.scores:
            return np.zeros(len(self)), np.zeros(len(self), bool)
        values, present = self._whole.scores[metric]
        if self._places is None:
            return values, present
        return values[self._places], None if present is None else present[self._places]

    @classmethod
    def joined(cls, parts: Sequence[ScoredRows]) -> ScoredRows:
        """Concatenate several tasks' rows."""
        if len(parts) < 2:
            return parts[0] if parts else cls.of(())
        scores: dict[str, tuple[Floats, Bools | None]] = {}
        for metric in dict.fromkeys(metric for part in parts for metric in part._whole.scores):
            values, present = zip(*(part._scores(metric) for part in parts), strict=True)
            every = [np.ones(len(part), bool) if one is None else one for part, one in zip(parts, present, strict=True)]
            scores[metric] = (np.concatenate(values), np.concatenate(every))
        of = {name: np.concatenate([part.column(name) for part in parts]) for name in parts[0]._whole.of}
        return cls(Columns(of, scores, lambda places: [row for part in parts for row in part][places]))
