"""Rows of the table ``numbers``, which scoring computes and reports read, and the keys that identify them.

``lbx.report.format.labels`` formats an identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from lbx.base.records import NO_COLUMN, TableRow

if TYPE_CHECKING:
    from lbx.statistics.estimates import Estimate

NumberKind = Literal["task", "group", "length", "mean", "opinion"]

ALL = "all"
"""Name of the only group of a grouping such as "overall"; the questions of an opinion that covers all questions."""
OVERALL = "overall"


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberKey:
    """Key of a number: identifies it within a run, or, without ``run``, the same number in every run.

    Attributes:
        kind: number of a task, of a group of samples across tasks, or of a length, mean of a benchmark, or opinion of
            judges or raters.
        grouping, group: e.g. "domain" and "Law"; the group is ``ALL`` if it is the only one.
        metric: "" for a task's headline; "f1/0-4k" for the headline over a subset of the samples.
        judge: a judge's run, or a set of ratings.
        against: the other run in a comparison of answers.
        questions: "all", or the mark of the judged questions.
    """

    run: str = ""
    benchmark: str = ""
    kind: NumberKind = "task"
    task: str = ""
    grouping: str = ""
    group: str = ""
    metric: str = ""
    judge: str = ""
    against: str = ""
    questions: str = ""

    @property
    def name(self) -> str:
        """Name of the task or group in tables."""
        return self.task or (OVERALL if self.group == ALL else self.group)


def task_number(task: str, metric: str = "") -> NumberKey:
    """Key of a task's number in any run, by default of the headline metric."""
    return NumberKey(kind="task", task=task, metric=metric)


def group_number(grouping: str, group: str = ALL, *, metric: str) -> NumberKey:
    """Key of a number of a group of samples, in any run."""
    return NumberKey(kind="group", grouping=grouping, group=group, metric=metric)


@dataclass(frozen=True, slots=True, kw_only=True)
class Number(TableRow):
    """Number computed from scores or opinions: a row of ``numbers``, with a field for each column.

    A benchmark returns numbers of a task (with its ``metric``) or of a group (with ``grouping``, ``name``, ``metric``).
    ``lbx.results.scoring.aggregation`` completes them with names, position, interval and bounds for failed answers.
    Columns that a kind of number does not have are None, or "" and 0 if they are part of its key.

    Attributes:
        kind: "task"; "group": over several tasks, or over a subset of the samples across tasks; "length": a task's
            headline over the samples of a range of lengths; "mean": a benchmark's overall score, see the view
            ``leaderboard``; "opinion": aggregated opinion of a judge or of raters on a run's answers.
        grouping: criterion of a group: "overall", "category", "length", "language", "domain" ...
        name: the group: "single-document QA", "8k", "en"; "all" under "overall".
        metric: a task's metric, or the statistic of a group: "average", "accuracy", "pass@3" ...
        judge: the judge's run, or the set of ratings.
        against: run that the opinion compares the answers with, or "" without a comparison.
        questions: "all", or the mark of the counted questions.
        length_unit: the benchmark's unit of document lengths, or "prompt tokens" of the model before truncation.
        length_up_to: upper bound, a power of two; the range starts at half of it. 0 if lengths are unknown.
        score: in 0..1.
        official: the number that the benchmark's own script prints, or None if it prints none, or none for these rows.
        unit: a score of 1 is ``unit`` more in ``official`` than a score of 0, or None if unknown.
        headline: whether ``metric`` is the task's metric for averages and curves.
        in_paper: whether the paper's tables contain the number.
        position: orders a task's numbers, or a benchmark's groups; ``task_position`` the tasks as in their paper.
        low, high: of the 95% interval, in the unit of the score, or None for the reason in ``method``.
        clusters: number of documents (``cluster_by``: "document", "question", or "sample" if unknown).
        method: "t", "logit", "exact", or why there is no interval: "one cluster", "all alike", "all alike in a part" or
            "no number".
        se, df: standard error, and its degrees of freedom.
        within: share of se squared that more answers to the same samples would remove, or None with one answer each.
        answered, asked: number of samples that count, and of all samples that were asked.
        failed_as_0, failed_as_1: the number if all uncounted answers were wrong, or right; None if an import does not
            list its failures.
        estimate: the samples' contributions to ``score``, from which its interval is computed; not a column.
        answers: number of answers, if ``n`` counts questions; not a column.
    """

    run_id: str = ""
    benchmark: str = ""
    kind: NumberKind = "task"
    task: str = ""
    grouping: str = ""
    name: str = ""
    metric: str = ""
    judge: str = ""
    against: str = ""
    questions: str = ""
    length_unit: str = ""
    length_up_to: int = 0
    metric_version: int = 0
    n: int
    score: float
    official: float | None = None
    unit: float | None = None
    partial: bool | None = False
    headline: bool | None = None
    in_paper: bool | None = None
    position: int | None = None
    task_position: int | None = None
    low: float | None = None
    high: float | None = None
    clusters: int | None = None
    cluster_by: str | None = None
    method: str | None = None
    se: float | None = None
    df: float | None = None
    within: float | None = None
    answered: int | None = None
    asked: int | None = None
    failed_as_0: float | None = None
    failed_as_1: float | None = None
    estimate: Estimate | None = field(default=None, compare=False, repr=False, metadata=NO_COLUMN)
    answers: int | None = field(default=None, compare=False, metadata=NO_COLUMN)

    @property
    def key(self) -> NumberKey:
        """Key of the number, including the run."""
        return key_of({name: getattr(self, name) for name in _KEY_FIELDS})


_KEY_FIELDS = {"run_id": "run", "name": "group"} | {
    name: name for name in ("benchmark", "kind", "task", "grouping", "metric", "judge", "against", "questions")
}
"""Fields of ``NumberKey`` by column."""
_COLUMNS = [column.name for column in fields(Number)]
INTERVAL_COLUMNS = tuple(_COLUMNS[_COLUMNS.index("low") : _COLUMNS.index("within") + 1])
"""Columns of an interval, in tables, views and reports."""
COMPLETENESS_COLUMNS = tuple(_COLUMNS[_COLUMNS.index("answered") : _COLUMNS.index("failed_as_1") + 1])
"""Columns of the samples that a number counts, and of its bounds for failed answers."""


def key_of(row: Mapping[str, Any]) -> NumberKey:
    """Return the key of a number's row."""
    return NumberKey(**{key_field: row[column] for column, key_field in _KEY_FIELDS.items()})
