"""The files of RULER's evaluate.py: summary.csv and submission.csv for each length.

Source: write_evaluation and write_submission of
https://github.com/NVIDIA/RULER/blob/c3f5e3b4f87f97e048793bb510a3a6b19a46bf3a/scripts/eval/evaluate.py

They are equal to its files byte for byte: predictions are not escaped for spreadsheets, because the official reader of
submission.csv would take the escapes for a part of the prediction.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from lbx.base.errors import UsageError
from lbx.benchmarks.base.results import ResultFormat, ScoredLine, ScoredRun
from lbx.benchmarks.ruler.aggregates import metrics_of
from lbx.benchmarks.ruler.predictions import PREDICTIONS
from lbx.benchmarks.ruler.tasks import split_task
from lbx.metrics.ruler import clean_prediction


class _TaskResult(NamedTuple):
    """A task's name without its length, its number, and the (id, prediction) of each row."""

    base: str
    score: float | None
    rows: Sequence[tuple[object, str]]

    @property
    def nulls(self) -> str:
        """Number of predictions without text, of all: "4/62"."""
        return f"{sum(not prediction for _, prediction in self.rows)}/{len(self.rows)}"


def _result_files(run: ScoredRun) -> dict[str, str]:
    """Return summary.csv (summary-TASK.csv for a single task) and submission.csv of each length, by path."""
    lines: dict[str, list[ScoredLine]] = {}
    for line in run.lines:
        lines.setdefault(line.scored_sample.sample.task, []).append(line)
    by_folder: dict[str, list[_TaskResult]] = {}
    for task in PREDICTIONS.sort_tasks(run.numbers):
        folder = PREDICTIONS.file_name(run.model, task).rpartition("/")[0]
        score = run.numbers[task][metrics_of(task)[0]].official
        rows = [_row(task, number, line) for number, line in enumerate(lines[task], start=1)]
        by_folder.setdefault(folder, []).append(_TaskResult(split_task(task)[0], score, rows))
    files = {}
    for folder, results in by_folder.items():
        suffix = "" if len(results) > 1 else f"-{results[0].base}"
        files[f"{folder}/summary{suffix}.csv"] = _summary(results)
        files[f"{folder}/submission.csv"] = _submission(results)
    return files


RESULTS = ResultFormat(_result_files)


def _row(task: str, number: int, line: ScoredLine) -> tuple[object, str]:
    """Return the id and the cleaned prediction of a row.

    Raises UsageError: evaluate.py stops at the row, or pandas would change the ids of others.
    """
    values: Mapping[str, object] = line.row()
    others, row_id = values.get("others"), values.get("index")
    if isinstance(others, Mapping):
        row_id = others.get("id", row_id)
    if line.failed:
        raise _row_error(task, number, "it has no reference, at which evaluate.py stops")
    if isinstance(row_id, bool) or not isinstance(row_id, (int, str)):
        raise _row_error(task, number, f"its id is {row_id!r}, and must be a whole number or text")
    if not (_is_encodable(str(values.get("pred"))) and _is_encodable(str(row_id))):
        raise _row_error(task, number, "its text has a lone surrogate, at which evaluate.py stops")
    return row_id, clean_prediction(line.output)


def _row_error(task: str, number: int, reason: str) -> UsageError:
    return UsageError(
        f"submission.csv cannot have row {number} of {task}: {reason}.",
        fix="Correct the prediction file and import it again. The report `paper` has the scores of all tasks.",
    )


def _is_encodable(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _summary(results: Sequence[_TaskResult]) -> str:
    rows: list[Iterable[object]] = [
        range(len(results) + 1),
        ("Tasks", *(result.base for result in results)),
        ("Score", *(result.score for result in results)),
        ("Nulls", *(result.nulls for result in results)),
    ]
    return _write_csv(rows)


def _submission(results: Sequence[_TaskResult]) -> str:
    rows = [(result.base, *row) for result in results for row in result.rows]
    return _write_csv([("Task", "ID", "Prediction"), *rows])


def _write_csv(rows: Iterable[Iterable[object]]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()
