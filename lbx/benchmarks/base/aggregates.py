"""Means and other aggregates of scores that match the official scripts to the last digit.

A task's scored samples are columns (``ScoredRows``). Sample objects are made only for benchmarks that need them.

A results file of a year contains a hundred thousand answers. Most numbers are means of scores, and a mean over columns
takes a hundredth of the time of a mean over objects, so means are computed on columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from lbx.base.number import Number
from lbx.base.records import ScoredSample
from lbx.statistics.estimates import Codes, Estimate, Floats, Stratum, encode_labels, number_by_appearance

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ScoreColumns:
    """Columns of a task's scored answers, in the data's order.

    Attributes:
        arrays: columns by name: "samples" and "clusters" as in ``Stratum``, and "clustered", whether the answer's
            cluster is known.
        scores: {metric: (values, mask of the answers with this metric)}. A mask of None means all answers.
        make_samples: returns the sample objects of a slice of the answers.
    """

    arrays: Mapping[str, Array]
    scores: Mapping[str, tuple[Floats, Bools | None]]
    make_samples: Callable[[slice], list[ScoredSample]]

    @cached_property
    def samples(self) -> list[ScoredSample]:
        return self.make_samples(slice(None))


class ScoredRows(Sequence[ScoredSample]):
    """Sequence of scored samples with columns that can be read without creating sample objects.

    It contains all rows of ``ScoreColumns``, or those at some indices.
    """

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
        """Convert scored samples to ``ScoredRows``.

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
        """Return a column of these rows, as the same array on each call."""
        if name not in self._column_cache:
            full_column = self._columns.arrays[name]
            self._column_cache[name] = full_column if self._indices is None else full_column[self._indices]
        return self._column_cache[name]

    def take(self, selection: Codes | Bools | list[int]) -> ScoredRows:
        """Select rows by indices or by a mask."""
        indices = np.arange(len(self)) if self._indices is None else self._indices
        return ScoredRows(self._columns, indices[selection] if len(selection) else indices[:0])

    def filter(self, predicate: Callable[[ScoredSample], bool]) -> ScoredRows:
        """Select the rows with samples that satisfy a predicate."""
        return self.take(np.fromiter(map(predicate, self), bool, len(self)))

    def with_metric(self, metric: str) -> tuple[ScoredRows, Floats]:
        """Return the rows with a score of this metric, and the scores."""
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
        """Concatenate the rows of several tasks."""
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


def mean(values: Sequence[float] | Floats, scale: float = 1) -> float:
    """Mean of a list that is not empty, computed as (scale x sum) / n.

    The sum runs left to right, rounding at each step. (From Python 3.12 on ``sum`` compensates, and gives another
    last digit; numpy's ``sum`` adds pairs, its ``cumsum`` one after the other.)
    """
    return scale * float(np.asarray(values, float).cumsum()[-1]) / len(values)


def numpy_percent(values: Sequence[float], digits: int) -> float:
    """Mean in percent as numpy computes and rounds it: sums are pairwise, and 21.425 becomes 21.42 (Python: 21.43)."""
    return float(np.round(100 * np.mean(values), digits))


def task_score(name: str, rows: Sequence[ScoredSample], metric: str, digits: int | None) -> list[Number]:
    """Mean of a metric over the questions with a score of it, as a list of one number, or [] without such questions.

    ``official`` is the script's number, the mean over answers in percent with ``digits``: 100 * sum / n, not
    100 * (sum / n), as the last digit can differ.
    """
    rows, values = ScoredRows.of(rows).with_metric(metric)
    if not len(values):
        return []
    official = None if digits is None else round(mean(values, 100), digits)
    n = len(values)
    rows, values = question_means(rows, values)
    return [Number(metric=name, n=n, score=mean(values), official=official, estimate=estimate(rows, values))]


def question_means(rows: Sequence[ScoredSample], values: Floats) -> tuple[ScoredRows, Floats]:
    """Average the answers of each question into one row, unless all questions have the same number of answers.

    Without this, questions with failed answers would count less than others.
    """
    of = ScoredRows.of(rows)
    first, codes = number_by_appearance(of.column("samples"))
    counts = np.bincount(codes)
    if (counts == counts[:1]).all():
        return of, values
    return of.take(first), np.bincount(codes, values) / counts


def estimate(rows: Sequence[ScoredSample], values: Iterable[float], *, linear: bool = True) -> Estimate:
    """Estimate the mean of ``values``, one for each row. A row with an unknown document is a cluster by itself."""
    of = ScoredRows.of(rows)
    stratum = Stratum(1.0, of.column("samples"), of.column("clusters"), np.fromiter(values, float, len(of)))
    return Estimate((stratum,), bool(of.column("clustered").all()), linear)


def numbers_by_task(
    aggregate: Callable[[str, Sequence[ScoredSample]], list[Number]], tasks: Mapping[str, Sequence[ScoredSample]]
) -> dict[str, dict[str, Number]]:
    """Aggregate each task into {task: {metric: number}}, without the tasks that have no number."""
    by_task = {task: {score.metric: score for score in aggregate(task, rows)} for task, rows in tasks.items()}
    return {task: scores for task, scores in by_task.items() if scores}


@dataclass(frozen=True, slots=True)
class Average:
    """Mean of tasks' numbers, or of such means, with equal weights regardless of the number of samples.

    Attributes:
        n: number of scores in it.
        score: the mean of the members' scores, in 0..1.
        percent: the unrounded mean of the members' official scores, which are rounded.
        complete: whether no member is missing, so that the mean is official.
        partial: whether any score is partial (``Number.partial``).
        estimate: estimate of the mean (``Number.estimate``), or None if a member has no estimate.
    """

    n: int
    score: float
    percent: float
    complete: bool
    partial: bool
    estimate: Estimate | None

    @classmethod
    def of(cls, parts: Sequence[Number | Average], *, complete: bool) -> Average | None:
        """Average the numbers of ``parts``, or return None if ``parts`` is empty."""
        if not parts:
            return None
        return cls(
            n=sum(part.n for part in parts),
            score=mean([part.score for part in parts]),
            percent=mean([_percent_of(part) for part in parts]),
            complete=complete and all(part.complete for part in parts if isinstance(part, Average)),
            partial=any(part.partial for part in parts),
            estimate=average([part.estimate for part in parts]),
        )

    def to_group_number(self, grouping: str, name: str, metric: str = "average", *, digits: int = 1) -> Number:
        """Number of a group: this mean, with ``official`` rounded to ``digits``, or None if a member is missing."""
        official = round(self.percent, digits) if self.complete else None
        return Number(
            kind="group",
            grouping=grouping,
            name=name,
            metric=metric,
            n=self.n,
            score=self.score,
            official=official,
            partial=self.partial,
            estimate=self.estimate,
        )


def overall_number(groups: Sequence[Number], headlines: Sequence[Number]) -> Number | None:
    """Overall number of a benchmark: the first group called "overall", or else the mean of the tasks' headlines."""
    overall = next((group for group in groups if group.grouping == "overall"), None)
    mean_of_tasks = None if overall else Average.of(headlines, complete=False)
    return mean_of_tasks.to_group_number("overall", "all") if mean_of_tasks else overall


def average(parts: Sequence[Estimate | None]) -> Estimate | None:
    """Average estimates with equal weights, or return None if any estimate is unknown."""
    estimates = [part for part in parts if part is not None]
    return Estimate.average(estimates) if len(estimates) == len(parts) else None


def _percent_of(part: Number | Average) -> float:
    if isinstance(part, Average):
        return part.percent
    return 100 * part.score if part.official is None else part.official
