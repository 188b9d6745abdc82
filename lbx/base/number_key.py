"""Identity of a number, apart from its value. Text is made of it in ``lbx.report.labels``, and never read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["task", "group", "length", "mean", "opinion"]

ALL = "all"
"""The group of a grouping that has but one, as "overall"; the questions of an opinion about all of them."""
OVERALL = "overall"


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberKey:
    """Identity of a number of a run; without ``run``, of the same number of any run.

    Attributes:
        kind: of a task, of a group of samples across tasks, of a length, a benchmark's mean, or an opinion of judges or
            raters.
        grouping, group: "domain" and "Law"; the group ``ALL`` where the grouping has but one.
        metric: "" for a task's headline. A part of the headline ("f1/0-4k") goes by the name of that part.
        judge: a judge's run, or a set of ratings.
        against: the run whose answers were compared with.
        questions: "all", or the mark of the judged questions.
        length_up_to: longest length that counts.
        version: of the metric.
    """

    run: str = ""
    benchmark: str = ""
    kind: Kind = "task"
    task: str = ""
    grouping: str = ""
    group: str = ""
    metric: str = ""
    judge: str = ""
    against: str = ""
    questions: str = ""
    length_up_to: int | None = None
    version: int | None = None

    @property
    def name(self) -> str:
        """The task, or the group, as tables call it."""
        return self.task or (OVERALL if self.group == ALL else self.group)


def task_number(task: str, metric: str = "") -> NumberKey:
    """Key of a task's number in any run; of its headline without a metric."""
    return NumberKey(kind="task", task=task, metric=metric)


def group_number(grouping: str, group: str = ALL, *, metric: str) -> NumberKey:
    """Key of a group's number in any run."""
    return NumberKey(kind="group", grouping=grouping, group=group, metric=metric)
