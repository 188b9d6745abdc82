"""Identity of a reported number, separate from its value. ``lbx.report.format.labels`` formats it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NumberKind = Literal["task", "group", "length", "mean", "opinion"]

ALL = "all"
"""Name of the only group of a grouping such as "overall"; the questions of an opinion that covers all questions."""
OVERALL = "overall"


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberKey:
    """Identity of a number in a run; without ``run``, of that number in any run.

    Attributes:
        kind: number of a task, of a group of samples across tasks, or of a length, mean of a benchmark, or opinion of
            judges or raters.
        grouping, group: e.g. "domain" and "Law"; the group is ``ALL`` if it is the only one.
        metric: "" for a task's headline. A part of the headline is identified by its name ("f1/0-4k").
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
    """Key of a task's number in any run; without a metric, its headline."""
    return NumberKey(kind="task", task=task, metric=metric)


def group_number(grouping: str, group: str = ALL, *, metric: str) -> NumberKey:
    """Key of the number of a group of samples, in any run."""
    return NumberKey(kind="group", grouping=grouping, group=group, metric=metric)
