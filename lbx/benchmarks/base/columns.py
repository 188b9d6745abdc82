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
from lbx.statistics.estimates import Codes, Floats, encode_labels

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ScoreColumns:
    """Scored answers as columns, in the data's order.

    Attributes:
        arrays: columns by name; "samples" and "clusters" as in ``Stratum``, and "clustered": whether a row's cluster is
            known.
        scores: {metric: (values, mask of the answers that have it)}; a mask of None means all of them.
        make_samples: returns a slice of the answers as samples.
    """

    arrays: Mapping[str, Array]
    scores: Mapping[str, tuple[Floats, Bools | None]]
    make_samples: Callable[[slice], list[ScoredSample]]

    @cached_property
    def samples(self) -> list[ScoredSample]:
        return self.make_samples(slice(None))


class ScoredRows(Sequence[ScoredSample]):
    """Answers, or some of them: a sequence of samples with columns that can be read without creating samples."""

    def __init__(self, columns: ScoreColumns, indices: Codes | None = None) -> None:
        self._columns, self._indices = columns, indices
        self._column_cache: dict[str, Array] = {}

    def __len__(self) -> int:
        return len(self._columns.arrays["samples"]) if self._indices is None else len(self._indices)

    def __getitem__(self, at: Any) -> Any:
        if at != 0 or not len(self):
            return self._samples[at]
        index = 0 if self._indices is None else int(self._indices[0])
        return self._columns.make_samples(slice(index, index + 1))[0]  # of many tasks only the first row is read

    def __iter__(self) -> Iterator[ScoredSample]:
        return iter(self._samples)

    @classmethod
    def of(cls, rows: Sequence[ScoredSample]) -> ScoredRows:
        """Convert answers to columns.

        Rows given as single samples get only the columns that ``ScoreColumns`` lists.
        """
        if isinstance(rows, cls):
            return rows
        samples = [f"{row.sample.task}/{row.sample.sample_id}" for row in rows]
        of = {
            "samples": encode_labels(samples),
            "clusters": encode_labels(row.cluster or sample for row, sample in zip(rows, samples, strict=True)),
            "clustered": np.array([bool(row.cluster) for row in rows], bool),
        }
        scores: dict[str, tuple[Floats, Bools | None]] = {}
        for metric in dict.fromkeys(metric for row in rows for metric in row.scores):
            present = np.array([metric in row.scores for row in rows], bool)
            scores[metric] = (np.array([row.scores.get(metric, 0.0) for row in rows], float), present)
        return cls(ScoreColumns(of, scores, lambda places: [*rows[places]]))

    @property
    def _samples(self) -> list[ScoredSample]:
        samples = self._columns.samples if len(self) else []
        return samples if self._indices is None else [samples[at] for at in self._indices.tolist()]

    def column(self, name: str) -> Array:
        """Return a column of these rows; the same array each time."""
        if name not in self._column_cache:
            full_column = self._columns.arrays[name]
            self._column_cache[name] = full_column if self._indices is None else full_column[self._indices]
        return self._column_cache[name]

    def take(self, selection: Codes | Bools | list[int]) -> ScoredRows:
        """Return some of the rows, by index or by mask."""
        indices = np.arange(len(self)) if self._indices is None else self._indices
        return ScoredRows(self._columns, indices[selection] if len(selection) else indices[:0])

    def filter(self, predicate: Callable[[ScoredSample], bool]) -> ScoredRows:
        """Return the rows that satisfy a predicate."""
        return self.take(np.fromiter(map(predicate, self), bool, len(self)))

    def with_metric(self, metric: str) -> tuple[ScoredRows, Floats]:
        """Return the rows that have a metric, and its values."""
        values, present = self._scores(metric)
        return (self, values) if present is None else (self.take(present), values[present])

    def _scores(self, metric: str) -> tuple[Floats, Bools | None]:
        if metric not in self._columns.scores:
            return np.zeros(len(self)), np.zeros(len(self), bool)
        values, present = self._columns.scores[metric]
        if self._indices is None:
            return values, present
        return values[self._indices], None if present is None else present[self._indices]

    @classmethod
    def concatenate(cls, parts: Sequence[ScoredRows]) -> ScoredRows:
        """Concatenate several tasks' rows."""
        if len(parts) < 2:
            return parts[0] if parts else cls.of(())
        scores: dict[str, tuple[Floats, Bools | None]] = {}
        for metric in dict.fromkeys(metric for part in parts for metric in part._columns.scores):
            values, present = zip(*(part._scores(metric) for part in parts), strict=True)
            masks = [
                np.ones(len(part), bool) if mask is None else mask for part, mask in zip(parts, present, strict=True)
            ]
            scores[metric] = (np.concatenate(values), np.concatenate(masks))
        of = {name: np.concatenate([part.column(name) for part in parts]) for name in parts[0]._columns.arrays}
        return cls(ScoreColumns(of, scores, lambda places: [row for part in parts for row in part][places]))
