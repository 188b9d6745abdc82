"""Scoreboard of all runs: a row per run, with columns for the average, categories and tasks of each benchmark."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lbx.benchmarks.registry import unit_of
from lbx.report.format.labels import Row
from lbx.report.ranks import answered_part, sort_score
from lbx.report.rows.paper import OVERALL_COLUMNS

Kind = Literal["average", "category", "task"]


@dataclass(frozen=True, slots=True)
class ScoreColumn:
    """Column of a scoreboard.

    Attributes:
        kind: Average of the benchmark, category of the benchmark's paper, or task.
        name: Name of the benchmark, the category or the task.
    """

    benchmark: str
    kind: Kind
    name: str


@dataclass(frozen=True, slots=True)
class ScoreCell:
    """Score of a run in percent.

    Attributes:
        low, high: Ends of the 95% interval, or None without an interval.
        note: Number of answers, for a tooltip.
        is_partial: Whether the score averages only some of the tasks that other runs answered.
        coverage: "32 of 60 samples" if some samples lack an answer, or "".
        sorts_as: Score with missing answers as 0, by which runs are ordered, or None if it is the score.
    """

    value: float
    low: float | None
    high: float | None
    note: str = ""
    is_partial: bool = False
    coverage: str = ""
    sorts_as: float | None = None


@dataclass(frozen=True, slots=True)
class Scoreboard:
    """Scores by run and column.

    Attributes:
        columns: Averages of the benchmarks, then categories and tasks of each benchmark, that with the most runs first.
        cells: Scores by (run, column).
    """

    columns: Sequence[ScoreColumn]
    cells: Mapping[tuple[str, ScoreColumn], ScoreCell]


def build_scoreboard(
    leaderboard: Sequence[Row], tasks: Iterable[Row], averages: Mapping[str, Sequence[Row]]
) -> Scoreboard:
    """Arrange the rows of reports as a scoreboard.

    Args:
        leaderboard: Rows of the report ``leaderboard``, in order.
        tasks: Rows of the report ``task_scores``.
        averages: Numbers of the papers' averages by benchmark, see ``papers.average_numbers``.
    """
    cells: dict[tuple[str, ScoreColumn], ScoreCell] = {}
    columns: dict[str, dict[ScoreColumn, None]] = {}

    def add(row: Row, kind: Kind, name: str, cell: ScoreCell) -> None:
        column = ScoreColumn(row["benchmark"], kind, name)
        columns.setdefault(row["benchmark"], {})[column] = None
        cells.setdefault((row["run_id"], column), cell)

    task_counts: dict[str, int] = {}
    for row in leaderboard:
        task_counts[row["benchmark"]] = max(row["tasks"], task_counts.get(row["benchmark"], 0))
    for row in leaderboard:
        if row["score"] is not None:
            n_tasks, most_tasks = row["tasks"], task_counts[row["benchmark"]]
            note = f"{n_tasks} of {most_tasks} tasks, " if most_tasks > 1 else ""
            cell = _cell(row, row["score"], 100.0, note + _coverage_note(row))
            sorts_as = sort_score(row)
            cell = replace(
                cell,
                is_partial=n_tasks < most_tasks,
                coverage=cell.coverage or answered_part(row),
                sorts_as=None if sorts_as == row["score"] else 100 * sorts_as,
            )
            add(row, "average", row["benchmark"], cell)
    for benchmark, rows in averages.items():
        for row in rows:
            is_number = row["official"] is not None and math.isfinite(row["official"])
            if row["run_id"] and is_number and row["column"] not in OVERALL_COLUMNS:
                add(row, "category", row["column"], _cell(row, row["official"], 100.0 / unit_of(benchmark)))
    for row in tasks:
        if row["headline"] and row["score"] is not None:
            add(row, "task", row["task"], _cell(row, row["score"], 100.0, _coverage_note(row)))
    run_counts = Counter(row["benchmark"] for row in leaderboard)
    benchmarks = sorted(columns, key=lambda name: -run_counts[name])
    ordered = (column for name in benchmarks for column in _without_single_task(columns[name]))
    return Scoreboard(sorted(ordered, key=lambda column: column.kind != "average"), cells)


def _without_single_task(columns: Iterable[ScoreColumn]) -> list[ScoreColumn]:
    """Leave out the only task of a benchmark, because the task's score is the average."""
    columns = list(columns)
    is_single = sum(column.kind == "task" for column in columns) == 1
    return [column for column in columns if not (is_single and column.kind == "task")]


def _cell(row: Row, value: float, scale: float, note: str = "") -> ScoreCell:
    low, high = row.get("low"), row.get("high")
    ends = [None if end is None else scale * end for end in (low, high)]
    return ScoreCell(scale * value, ends[0], ends[1], note, coverage=coverage_words(row))


def _coverage_note(row: Row) -> str:
    notes = [f"{row['n']:,} scored"]
    if row.get("failed"):
        notes.append(f"{row['failed']:,} failed")
    return ", ".join(notes)


def coverage_words(row: Row) -> str:
    """Describe the coverage of a score, "32 of 60 samples" or "7 of 16 answers", or "" if no answer is missing."""
    coverage = row.get("coverage") or ""
    return coverage if not coverage or coverage.endswith("answers") else f"{coverage} samples"
