"""Rows of the table ``numbers``, one class for each kind, with the columns of an interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from lbx.base.number_key import NumberKind
from lbx.store.rows import TableRow

if TYPE_CHECKING:
    from lbx.statistics.estimates import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalRow(TableRow):
    """Uncertainty of a number, in the unit of its score.

    Attributes:
        low, high: of the 95% interval; None for the reason in ``method``.
        se, df: standard error, and its degrees of freedom.
        clusters: number of documents (``cluster_by``: "document", "question", or "sample" if unknown).
        method: "t", "logit", "exact", or why there is no interval: "one cluster", "all alike", "all alike in a part" or
            "no number".
        within: share of se squared that more answers to the same samples would remove; None with one answer each.
    """

    low: float | None = None
    high: float | None = None
    clusters: int | None = None
    cluster_by: str | None = None
    method: str | None = None
    se: float | None = None
    df: float | None = None
    within: float | None = None


INTERVAL_COLUMNS = tuple(column.name for column in fields(IntervalRow))
"""Columns of an interval, in tables, views and reports."""
BOUND_COLUMNS = ("low", "high", "method", "cluster_by")
"""Columns that a row with several intervals has for each."""


def interval_columns(interval: Interval, cluster_by: str) -> dict[str, Any]:
    """Convert an interval to the columns ``INTERVAL_COLUMNS``."""
    return {name: cluster_by if name == "cluster_by" else getattr(interval, name) for name in INTERVAL_COLUMNS}


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberRow(IntervalRow):
    """Row of ``numbers``, of the kind of its class.

    Attributes:
        answered, asked: number of samples that count, and of all samples that were asked.
        failed_as_0, failed_as_1: the number if all uncounted answers were wrong, or right; None if an import does not
            list its failures.
    """

    answered: int | None = None
    asked: int | None = None
    failed_as_0: float | None = None
    failed_as_1: float | None = None

    @property
    def kind(self) -> NumberKind:
        """The kind of the number's key."""
        return _KINDS[type(self)]

    def values(self) -> dict[str, object]:
        # "super()" needs the class: slots create another one.
        return {**_NO_KEY, "kind": self.kind, **super(NumberRow, self).values()}


_NO_KEY: Mapping[str, object] = {
    **dict.fromkeys(("task", "grouping", "name", "metric", "judge", "against", "questions", "length_unit"), ""),
    "length_up_to": 0,
}


@dataclass(frozen=True, slots=True)
class ResultRow(NumberRow):
    """A number of a task, as aggregated by the official script.

    ``position`` orders a task's numbers, ``task_position`` the tasks as in their paper; ``in_paper`` marks numbers in
    the paper's tables. A score of 1 is ``unit`` in ``official``.
    """

    run_id: str
    benchmark: str
    task: str
    metric: str
    metric_version: int
    n: int
    score: float | None
    official: float | None
    headline: bool
    position: int
    partial: bool = False
    task_position: int | None = None
    unit: float | None = 100.0
    in_paper: bool = True


@dataclass(frozen=True, slots=True)
class GroupRow(NumberRow):
    """A number over several tasks, or over a part of the samples across tasks.

    A score of 1 is ``unit`` more in ``official`` than a score of 0; None if unknown.
    """

    run_id: str
    benchmark: str
    grouping: str
    name: str
    metric: str
    metric_version: int
    n: int
    score: float | None
    official: float | None
    partial: bool
    position: int
    unit: float | None = 100.0


@dataclass(frozen=True, slots=True)
class OpinionRow(GroupRow):
    """Aggregated opinion of a judge or of raters on a run's answers.

    Attributes:
        judge: the judge's run, or the set of ratings.
        against: run that it was compared with; "" without a comparison.
        questions: "all", or the mark of the counted questions.
    """

    judge: str = ""
    against: str = ""
    questions: str = ""


@dataclass(frozen=True, slots=True)
class BenchmarkRow(NumberRow):
    """A benchmark's overall score; see the view ``leaderboard``."""

    run_id: str
    benchmark: str
    metric_version: int
    n: int
    score: float | None


@dataclass(frozen=True, slots=True)
class LengthRow(NumberRow):
    """A task's headline metric over the samples of a range of lengths.

    Attributes:
        length_unit: the benchmark's unit of document lengths, or "prompt tokens" of the model before truncation.
        length_up_to: upper bound, a power of two; the range starts at half of it. 0 if lengths are unknown.
    """

    run_id: str
    benchmark: str
    task: str
    metric: str
    metric_version: int
    length_unit: str
    position: int
    length_up_to: int
    n: int
    score: float | None


_KINDS: Mapping[type[NumberRow], NumberKind] = {
    ResultRow: "task",
    GroupRow: "group",
    OpinionRow: "opinion",
    BenchmarkRow: "mean",
    LengthRow: "length",
}
