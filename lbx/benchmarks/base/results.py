"""A run as the official scorers' result files are made of it: its answers in the order of their prediction file."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lbx.base.records import GroupScore, ScoredSample, TaskScore
from lbx.base.visible import cell


@dataclass(frozen=True, slots=True)
class ScoredLine:
    """A scored row of a prediction file.

    Attributes:
        row: reads the row, as the official scorer does.
        failed: whether the official scorer would stop over it, or counts it as a failure.
    """

    scored: ScoredSample
    output: str
    row: Callable[[], Mapping[str, Any]]
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    """What a judge made of a run by the official rubric, over all rounds that it was asked.

    Attributes:
        judge: the judge's model.
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
        model: as prediction files name it (``PredictionFormat.label``).
        settings, metadata: of the row in ``runs``.
        made: False for an imported run, of whose settings nothing is known.
        file: name of the file it was imported from, or would be exported to; "" where it is several.
        finished: when the run ended, UTC.
        numbers: task -> metric -> its number, as ``Benchmark.aggregate`` makes them.
        groups: the family's numbers over several tasks.
    """

    run_id: str
    model: str
    settings: Mapping[str, Any]
    metadata: Mapping[str, str]
    made: bool
    file: str
    finished: datetime
    lines: Sequence[ScoredLine]
    numbers: Mapping[str, Mapping[str, TaskScore]]
    groups: Sequence[GroupScore]
    judged: Sequence[Judged] = ()

    @property
    def tasks(self) -> dict[str, list[ScoredSample]]:
        return rows_by_task(self.lines)


def rows_by_task(lines: Iterable[ScoredLine]) -> dict[str, list[ScoredSample]]:
    by_task: dict[str, list[ScoredSample]] = {}
    for line in lines:
        by_task.setdefault(line.scored.sample.task, []).append(line.scored)
    return by_task


def _never_join(path: str, first: str, second: str) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class ResultFormat:
    """The files that an official scorer writes.

    Attributes:
        write: a run's files by their paths, {} where the scorer writes none. Numbers are over the answers that are
            there. Raises UsageError: the scorer would stop, or the run lacks scores that its numbers are made of.
        join: two runs' texts for one path as one; None where such a file is about one run.
        growing_file: a file that keeps the runs that it has already.
        holds_predictions: whether prediction files belong beside the results, in a folder with the model's name.
    """

    write: Callable[[ScoredRun], dict[str, str]]
    join: Callable[[str, str, str], str | None] = _never_join
    growing_file: str = ""
    holds_predictions: bool = False


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows as CSV: a column for each key, in the order in which they first appear; what a row lacks is empty.

    Texts are told as in every CSV that lbx writes: see ``lbx.base.visible.cell``.
    """
    cells = [
        {cell(key): cell(value) if isinstance(value, str) else value for key, value in row.items()} for row in rows
    ]
    columns = dict.fromkeys(key for row in cells for key in row)
    file = io.StringIO()
    writer = csv.DictWriter(file, list(columns), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(cells)
    return file.getvalue()


def joined_tables(first: str, second: str) -> str:
    """The rows of two such texts as one."""
    return table([row for text in (first, second) for row in csv.DictReader(io.StringIO(text))])
