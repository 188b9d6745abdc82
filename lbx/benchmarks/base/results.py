"""A run in the form that official scorers' result files need: its answers in the order of their prediction file."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lbx.base.records import GroupScore, ScoredSample, TaskScore
from lbx.base.visible import spreadsheet_cell


@dataclass(frozen=True, slots=True)
class ScoredLine:
    """A scored row of a prediction file.

    Attributes:
        row: reads the row, as the official scorer does.
        failed: whether the official scorer would stop at it, or counts it as a failure.
    """

    scored_sample: ScoredSample
    output: str
    row: Callable[[], Mapping[str, Any]]
    failed: bool = False


@dataclass(frozen=True, slots=True)
class JudgeResult:
    """Result of judging a run by the official rubric, over all rounds.

    Attributes:
        against_run_id: the run that it was compared with.
        win_rate: in 0..1; None without a verdict.
    """

    judge: str
    against_run_id: str
    n_wins: int
    n_draws: int
    win_rate: float | None


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """A run's scored answers to one benchmark.

    Attributes:
        model: name in prediction files (``PredictionFormat.label``).
        settings, metadata: from the row in ``runs``.
        has_settings: False for an imported run, which has unknown settings.
        file: name of the file it was imported from, or would be exported to; "" for several.
        finished_at: end of the run, UTC.
        numbers: {task: {metric: number}}, from ``Benchmark.aggregate``.
        groups: the family's numbers over several tasks.
    """

    run_id: str
    model: str
    settings: Mapping[str, Any]
    metadata: Mapping[str, str]
    has_settings: bool
    file: str
    finished_at: datetime
    lines: Sequence[ScoredLine]
    numbers: Mapping[str, Mapping[str, TaskScore]]
    groups: Sequence[GroupScore]
    judge_results: Sequence[JudgeResult] = ()

    @property
    def tasks(self) -> dict[str, list[ScoredSample]]:
        return rows_by_task(self.lines)


def rows_by_task(lines: Iterable[ScoredLine]) -> dict[str, list[ScoredSample]]:
    by_task: dict[str, list[ScoredSample]] = {}
    for line in lines:
        by_task.setdefault(line.scored_sample.sample.task, []).append(line.scored_sample)
    return by_task


def _never_join(path: str, first: str, second: str) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class ResultFormat:
    """The files that an official scorer writes.

    Attributes:
        write: returns a run's files by path, {} if the scorer writes none. Numbers are over the answers that are
            present. Raises UsageError: the scorer would stop, or the run lacks scores that its numbers need.
        join: merges two runs' texts for one path; None for a file about a single run.
        growing_file: a file that keeps the runs that it already has.
        holds_predictions: whether prediction files belong next to the results, in a folder with the model's name.
    """

    write: Callable[[ScoredRun], dict[str, str]]
    join: Callable[[str, str, str], str | None] = _never_join
    growing_file: str = ""
    holds_predictions: bool = False


def to_csv(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows as CSV with a column for each key, in the order of first appearance; missing values are empty.

    Texts are escaped as in every CSV that lbx writes, by ``lbx.base.visible.spreadsheet_cell``.
    """
    cells = [
        {
            spreadsheet_cell(key): spreadsheet_cell(value) if isinstance(value, str) else value
            for key, value in row.items()
        }
        for row in rows
    ]
    columns = dict.fromkeys(key for row in cells for key in row)
    file = io.StringIO()
    writer = csv.DictWriter(file, list(columns), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(cells)
    return file.getvalue()


def join_csv(first: str, second: str) -> str:
    """Concatenate the rows of two CSV texts."""
    return to_csv([row for text in (first, second) for row in csv.DictReader(io.StringIO(text))])
