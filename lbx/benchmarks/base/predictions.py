"""Base classes for the formats of prediction files and of official scorers' result files.

A format reads prediction files, matches their rows with samples, and writes rows. ``ScoredRun`` is the input of result
files: a run's scored answers in the order of the prediction file.
"""

from __future__ import annotations

import csv
import io
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from lbx.base.csv_cells import escape_formula
from lbx.base.number import Number
from lbx.base.records import Sample, ScoredSample, canonical_json, sha256_text
from lbx.benchmarks.base.prediction_lines import PredictionLine

NOT_TEXT = "not_text"
"""finish_reason of an imported answer that is not text in the file (null, a number). The stored output is ""."""

UNOFFICIAL_TASKS = "unofficial_tasks"
"""Setting of an imported run: {task: reason why its numbers are not official}."""

NO_TASK = "judged"
"""Task of a judged question if neither the file nor a bundle states a task."""

UNMATCHED = "unmatched-"
"""Prefix of the ids of samples that the bundle lacks."""


def judged_sample(benchmark: str, question: str, reference: str, mark: str) -> Sample:
    """Make a sample of a judged question that no bundle contains. Equal questions get equal ids in all files."""
    name = sha256_text(canonical_json([question, reference, mark, None]))[:16]
    return Sample(benchmark, NO_TASK, name, "", question, (reference,), meta={"evaluation": mark})


SplitReasoning = Callable[[str], tuple[str | None, str, bool | None]]
"""Function that splits an output into (reasoning, answer, whether the reasoning closed).

It returns (None, output, None) for an output without reasoning.
"""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Answer of a prediction file, parsed from one row.

    Attributes:
        line: the row, verbatim.
        task, sample_id, iteration: the key of the generation.
        position: the sample's position in the data, or without a bundle the row's position in the file, from 0.
        sample: the sample that the row answers, or None if the row (of an error) does not describe a sample.
        output: the answer, or None without an answer.
        error: reason for a missing answer, from the file.
        reasoning: the model's reasoning before the answer.
        reasoning_closed: whether the reasoning ended.
        marked_right: whether the file marks the answer as right, or None without a mark.
        note: sentence on how the row was read, if not literally.
    """

    line: PredictionLine
    task: str
    sample_id: str
    position: int
    sample: Sample | None
    output: str | None = None
    error: str | None = None
    iteration: int = 0
    reasoning: str | None = None
    reasoning_closed: bool | None = None
    finish_reason: str | None = None
    steps: Sequence[Mapping[str, Any]] | None = None
    marked_right: bool | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class AnswerToExport:
    """Stored answer, as input of an export.

    ``position`` is the sample's position in the data, and ``source_row`` the line from which an imported answer was
    read.
    """

    sample: Sample
    position: int
    iteration: int
    output: str
    reasoning: str | None = None
    steps: Sequence[Mapping[str, Any]] = ()
    source_row: str = "{}"


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """File of an export.

    Attributes:
        name: path below the folder of the export.
        omitted_counts: {reason: number of omitted answers}.
    """

    name: str
    rows: Sequence[Mapping[str, Any]]
    omitted_counts: Mapping[str, int] = field(default_factory=dict)


class TaskFiles(NamedTuple):
    """Prediction files of a folder by task, in the order of their rows, and the names of the folder's other entries."""

    files: Mapping[str, Sequence[Path]]
    ignored_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PredictionFormat(ABC):
    """Format of prediction files.

    Attributes:
        name: benchmark of the authors who defined the format.
        known_tasks: tasks that files can be about.
    """

    name: str
    known_tasks: tuple[str, ...]

    folder: ClassVar[bool]
    """Whether predictions are a folder with a file for each task, rather than a single file."""
    is_csv: ClassVar[bool] = False
    """Whether files are CSV with a header, rather than JSON lines."""
    array: ClassVar[bool] = False
    """Whether the official scorer also reads a file that is one JSON array."""
    document_key: ClassVar[str] = ""
    """Key of the list of rows if a file is one JSON object, or ""."""
    appends: ClassVar[bool] = False
    """Whether the official script appends to an existing file and the official scorer counts every row.

    A question that is answered again is then a further iteration.
    """
    has_own_content: ClassVar[bool] = True
    """Whether a row contains enough to be scored without a bundle."""
    reasoning_key: ClassVar[str] = "reasoning"
    score_keys: ClassVar[tuple[str, ...]] = ()
    """Keys of ``Sample.meta`` that scores depend on. Samples that differ in any of these keys are different samples."""
    fillable_keys: ClassVar[frozenset[str]] = frozenset()
    """Keys of ``score_keys`` that a file may leave out if another source contains them."""

    def task_of(self, stem: str, *, e: bool) -> str:
        """Task of a folder format's file, from its name up to the first dot. The task may be unknown to the family."""
        return stem

    def find_files(self, path: Path) -> TaskFiles | None:
        """Find the prediction files of a path with tasks that follow from folders or chunks.

        Returns None, the default, if tasks follow from file names.

        Raises:
            UsageError: no file is of a known task, or a task cannot be determined.
        """
        return None

    def companion(self, file: Path) -> Path | None:
        """Path of a text file that may describe a prediction file. Imports keep the text without parsing."""
        return None

    def companions(self, model: str, task: str, settings: Mapping[str, Any]) -> dict[str, str]:
        """Texts by path that describe the exported answers of a run with these settings to a task."""
        return {}

    def sort_tasks(self, tasks: Collection[str]) -> list[str]:
        """Sort tasks in the paper's order, without tasks that files cannot be about."""
        return [task for task in self.known_tasks or sorted(tasks) if task in tasks]

    @abstractmethod
    def read(self, task: str, lines: Sequence[PredictionLine]) -> list[Prediction]:
        """Parse a file's lines into predictions with samples. Raises UsageError naming file and line."""

    @abstractmethod
    def match_key(self, sample: Sample) -> object:
        """Key that is equal for a prediction file's sample and the bundle's sample that it represents."""

    def match_keys(
        self, samples: Sequence[Sample], predictions: Sequence[Prediction]
    ) -> tuple[list[object], list[object]]:
        """Match keys of a bundle's samples, and of a file's predictions, equal if the prediction answers the sample."""
        rows = [self.match_key(row.sample) if row.sample else row.sample_id for row in predictions]
        return [*map(self.match_key, samples)], rows

    def is_judge_row(self, line: PredictionLine) -> bool:
        """Whether a row is from a file of answers for a judge, which covers several tasks."""
        return False

    def read_judge_rows(self, lines: Sequence[PredictionLine]) -> list[Prediction]:
        """Parse a file of answers for a judge, like ``read``. A question's mark is ``Sample.meta["evaluation"]``."""
        raise NotImplementedError

    def unmatched_name(self, sample: Sample) -> str:
        """Id for a sample that the bundle does not contain. Equal samples get equal ids in all files."""
        score_values = [sample.meta.get(key) for key in self.score_keys]
        content = [self.match_key(sample), sample.question, sample.references, sample.length, score_values]
        return f"{UNMATCHED}{sha256_text(canonical_json(content))[:16]}"

    def accepts_unmatched(self, prediction: Prediction) -> bool:
        """Whether to accept a prediction that answers no sample of the bundle."""
        return prediction.sample is None

    def may_match_by_position(self, prediction: Prediction, sample: Sample) -> bool:
        """Whether a prediction may answer the sample at its position in the data despite a different ``match_key``.

        It is called only if keys do not match, and positions are used only if it is true for the whole file.
        """
        return False

    def split_reasoning(self, prediction: Prediction, split: SplitReasoning) -> Prediction:
        """Move the reasoning of a prediction from ``output`` to ``reasoning``."""
        reasoning, answer, closed = split(prediction.output or "")
        if reasoning is None:
            return prediction
        reasoning = "\n\n".join(filter(None, (prediction.reasoning, reasoning)))
        return replace(prediction, output=answer, reasoning=reasoning, reasoning_closed=closed)

    def contradiction(self, prediction: Prediction, sample: Sample) -> str | None:
        """Reason why the file's mark of the answer (right or wrong) is impossible with this sample, or None."""
        return None

    def export_path(self, model: str, task: str | None, name: str) -> str:
        """Path at which an export writes an imported file again."""
        return name

    def label(self, model: str, settings: Mapping[str, Any]) -> str:
        """Name that prediction files use for a model that was asked with these settings of a run.

        The setting ``asked`` is {task: (samples, questions) asked} for tasks that the run asked only in part.
        """
        return model

    def settings_of(self, names: Sequence[str]) -> dict[str, Any]:
        """Settings of the run that the names of its prediction files state."""
        return {}

    @abstractmethod
    def file_name(self, model: str, task: str) -> str:
        """Path of the file with a task's answers, the same for every task in a format with a single file."""

    @abstractmethod
    def row(self, model: str, task: str, answer: AnswerToExport) -> dict[str, Any]:
        """Row for one answer, as the official scorer reads it."""

    def row_with_reasoning(self, model: str, task: str, answer: AnswerToExport) -> dict[str, Any]:
        """Row for one answer, with the reasoning under a key that official scorers never read."""
        row = self.row(model, task, answer)
        return row if answer.reasoning is None else {**row, self.reasoning_key: answer.reasoning}

    def omission_reason(self, answer: AnswerToExport) -> str:
        """Reason to omit an answer from the file, as a label for counts, or "" if it is exported."""
        return "further iterations" if answer.iteration else ""

    def export(self, model: str, task: str, answers: Sequence[AnswerToExport]) -> ExportedFile:
        """Export the answers that have no ``omission_reason`` as a file. The caller joins the tasks of a single file.

        Args:
            answers: in the data's order, then by iteration.
        """
        exported_answers = [answer for answer in answers if not self.omission_reason(answer)]
        rows = [self.row_with_reasoning(model, task, answer) for answer in exported_answers]
        omitted_counts = Counter(why for answer in answers if (why := self.omission_reason(answer)))
        return ExportedFile(self.file_name(model, task), rows, omitted_counts)

    def format_rows(self, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        """Format the rows of a file, each with its line end, and a CSV file's header with the first.

        CSV is not escaped for spreadsheets: official readers would read the escapes as text of the answers.
        """
        if not self.is_csv:
            return [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        columns = list(dict.fromkeys(key for row in rows for key in row))
        lines = [_csv_line([row.get(column, "") for column in columns]) for row in rows]
        return [_csv_line(columns) + lines[0], *lines[1:]] if lines else []

    def make_prediction(self, line: PredictionLine, position: int, sample: Sample, key: str) -> Prediction:
        """Make a prediction from the answer under ``key``. A value that is not text becomes "" with ``NOT_TEXT``."""
        output = line.require(key)
        answer = (output, None) if isinstance(output, str) else ("", NOT_TEXT)
        return Prediction(line, sample.task, sample.sample_id, position, sample, answer[0], finish_reason=answer[1])


def differences(
    first: Sample, second: Sample, score_keys: Sequence[str], fillable_keys: Collection[str] = frozenset()
) -> str:
    """Names of the fields that differ between two samples with the same id, or "" if they agree.

    Compared are only fields that scoring reads and that both samples contain.

    Args:
        score_keys: keys of ``Sample.meta`` to compare. A missing key counts as null.
        fillable_keys: keys that may be missing from ``first``.
    """
    mismatches = [
        name
        for name in ("references", "question", "length")
        if getattr(first, name)
        and getattr(second, name)
        and not _are_equal(getattr(first, name), getattr(second, name))
    ]
    score_keys = [key for key in score_keys if key in first.meta or key not in fillable_keys]
    mismatches += [key for key in score_keys if not _are_equal(first.meta.get(key), second.meta.get(key))]
    return ", ".join(mismatches)


def file_part(model: str) -> str:
    """Name of a model for use in a path, as in the official scripts: the text after the last slash."""
    return model.rstrip("/").rpartition("/")[2].strip(".") or "model"


def _are_equal(first: object, second: object) -> bool:
    # The results file cannot store a lone surrogate; its replacement is not a difference.
    return _storable_json(first) == _storable_json(second)


def _storable_json(value: object) -> str:
    return canonical_json(value).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@dataclass(frozen=True, slots=True)
class ScoredLine:
    """Scored row of a prediction file.

    Attributes:
        row: returns the row's values, as the official scorer reads them.
        failed: whether the official scorer would stop at the row, or counts it as a failure.
    """

    scored_sample: ScoredSample
    output: str
    row: Callable[[], Mapping[str, Any]]
    failed: bool = False


@dataclass(frozen=True, slots=True)
class JudgeResult:
    """Result of judging a run by the official rubric, over all rounds.

    Attributes:
        against_run_id: the run that the judged run was compared with.
        win_rate: share in 0..1, or None without a verdict.
    """

    judge: str
    against_run_id: str
    n_wins: int
    n_draws: int
    win_rate: float | None


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """Scored answers of a run to one benchmark, as input of official result files.

    Attributes:
        model: name in prediction files (``PredictionFormat.label``).
        settings, metadata: values of the table ``runs``.
        has_settings: whether the settings are known, False for an imported run.
        file: name of the file that the run was imported from, or would be exported to, or "" for several files.
        finished_at: end of the run, in UTC.
        numbers: {task: {metric: number}} from ``Benchmark.aggregate``.
        groups: numbers over several tasks, from ``Benchmark.groups``.
    """

    run_id: str
    model: str
    settings: Mapping[str, Any]
    metadata: Mapping[str, str]
    has_settings: bool
    file: str
    finished_at: datetime
    lines: Sequence[ScoredLine]
    numbers: Mapping[str, Mapping[str, Number]]
    groups: Sequence[Number]
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
    """Result files that an official scorer writes.

    Attributes:
        write: returns {path: text} for a run, {} if the scorer writes no files. Numbers are over the answers that are
            present. Raises UsageError if the scorer would stop, or the run lacks scores that the numbers need.
        join: merges the texts of two runs for one path, or returns None for a file about a single run.
        growing_file: path of a file to which runs are added.
        holds_predictions: whether prediction files belong next to the results, in a folder with the model's name.
    """

    write: Callable[[ScoredRun], dict[str, str]]
    join: Callable[[str, str, str], str | None] = _never_join
    growing_file: str = ""
    holds_predictions: bool = False


def _csv_line(cells: Sequence[object]) -> str:
    file = io.StringIO()
    # The writer of Python 3.11 leaves "\r" unquoted, which readers take for the end of the line.
    if any("\r" in str(cell) for cell in cells):
        csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL).writerow(cells)
    else:
        csv.writer(file, lineterminator="\n").writerow(cells)
    return file.getvalue()


def to_csv(rows: Sequence[Mapping[str, object]]) -> str:
    """Format rows as CSV with a column for each key, in the order of first appearance. Missing values are empty.

    Texts are escaped as in every CSV that lbx writes, by ``lbx.base.csv_cells.escape_formula``.
    """
    cells = [
        {escape_formula(key): escape_formula(value) if isinstance(value, str) else value for key, value in row.items()}
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
