"""Aggregates that match the official scripts to the last digit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lbx.base.records import GroupScore, ScoredSample, TaskScore
from lbx.benchmarks.base.columns import ScoredRows
from lbx.statistics.estimates import Estimate, Floats, Stratum, number_by_appearance


def mean(values: Sequence[float] | Floats, scale: float = 1) -> float:
    """Return scale x sum / n of a list that is not empty, in this order of operations.

    The sum runs left to right, rounding at each step. (From Python 3.12 on ``sum`` compensates, and gives another
    last digit; numpy's ``sum`` adds pairs, its ``cumsum`` one after the other.)
    """
    return scale * float(np.asarray(values, float).cumsum()[-1]) / len(values)


def numpy_percent(values: Sequence[float], digits: int) -> float:
    """Return 100 x numpy's mean (pairwise sums), rounded numpy's way: 21.425 becomes 21.42, but 21.43 in Python."""
    return float(np.round(100 * np.mean(values), digits))


def task_score(name: str, rows: Sequence[ScoredSample], metric: str, digits: int | None) -> list[TaskScore]:
    """Return a metric's mean over the questions that have it; [] without any.

    ``official`` is the script's number, the mean over answers in percent with ``digits``: 100 * sum / n, not
    100 * (sum / n), as the last digit can differ.
    """
    rows, values = ScoredRows.of(rows).with_metric(metric)
    if not len(values):
        return []
    official = None if digits is None else round(mean(values, 100), digits)
    n = len(values)
    rows, values = question_means(rows, values)
    return [TaskScore(name, n, mean(values), official, estimate=estimate(rows, values))]


def question_means(rows: Sequence[ScoredSample], values: Floats) -> tuple[ScoredRows, Floats]:
    """Average the answers of each question into one row, unless all questions have equally many answers.

    Without this, questions with failed answers would count less than others.
    """
    of = ScoredRows.of(rows)
    first, codes = number_by_appearance(of.column("samples"))
    counts = np.bincount(codes)
    if (counts == counts[:1]).all():
        return of, values
    return of.take(first), np.bincount(codes, values) / counts


def estimate(rows: Sequence[ScoredSample], values: Iterable[float], *, linear: bool = True) -> Estimate:
    """Estimate the mean of the rows' values. A row with an unknown document is a cluster by itself."""
    of = ScoredRows.of(rows)
    stratum = Stratum(1.0, of.column("samples"), of.column("clusters"), np.fromiter(values, float, len(of)))
    return Estimate((stratum,), bool(of.column("clustered").all()), linear)


def numbers_by_task(
    aggregate: Callable[[str, Sequence[ScoredSample]], list[TaskScore]], tasks: Mapping[str, Sequence[ScoredSample]]
) -> dict[str, dict[str, TaskScore]]:
    """Return {task: {metric: number}} of the tasks that have any."""
    by_task = {task: {score.metric: score for score in aggregate(task, rows)} for task, rows in tasks.items()}
    return {task: scores for task, scores in by_task.items() if scores}


@dataclass(frozen=True, slots=True)
class Average:
    """A mean of tasks' numbers, or of such means, with equal weights regardless of the number of samples.

    Attributes:
        n: number of scores under it.
        score: the mean of the parts' scores, in 0..1.
        percent: the unrounded mean of the parts' official figures, which are rounded.
        partial: whether any score lacks a part.
        estimate: see ``TaskScore``; None if a part has none.
    """

    n: int
    score: float
    percent: float
    complete: bool
    partial: bool
    estimate: Estimate | None

    @classmethod
    def of(cls, parts: Sequence[TaskScore | Average], *, complete: bool) -> Average | None:
        """Return the mean of the parts, or None if there are none."""
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

    def group(self, grouping: str, name: str, metric: str = "average", *, digits: int = 1) -> GroupScore:
        """Return the mean as a group's score; ``official`` is rounded to ``digits``, or None if a part is missing."""
        official = round(self.percent, digits) if self.complete else None
        return GroupScore(grouping, name, metric, self.n, self.score, official, self.partial, self.estimate)


def first_overall(groups: Sequence[GroupScore], heads: Sequence[TaskScore]) -> GroupScore | None:
    """Return a benchmark's overall score: its first "overall" group, else the mean of its tasks' headlines."""
    overall = next((group for group in groups if group.grouping == "overall"), None)
    mean_of_tasks = None if overall else Average.of(heads, complete=False)
    return mean_of_tasks.group("overall", "all") if mean_of_tasks else overall


def average(parts: Sequence[Estimate | None]) -> Estimate | None:
    """Return the mean of estimates with equal weights; None if any is unknown."""
    estimates = [part for part in parts if part is not None]
    return Estimate.average(estimates) if len(estimates) == len(parts) else None


def _percent_of(part: TaskScore | Average) -> float:
    if isinstance(part, Average):
        return part.percent
    return 100 * part.score if part.official is None else part.official
