"""Formats of prediction files: their files, the meaning of rows, and the rows that lbx writes.

A run in the form that official scorers' result files need: its answers in the order of their prediction file.
"""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from lbx.base.number import Number
from lbx.base.records import Sample, ScoredSample, canonical_json, sha256_text
from lbx.base.visible import spreadsheet_cell
from lbx.benchmarks.base.prediction_lines import PredictionLine

NOT_TEXT = "not_text"
"""finish_reason of an imported answer that is not text in its file (null, a number); its output becomes ""."""

NO_TASK = "judged"
"""Task of a judged question if neither its file nor a bundle has a task for it."""

UNMATCHED = "unmatched-"
"""Prefix of the names of samples that the bundle lacks."""


def judged_sample(benchmark: str, question: str, reference: str, mark: str) -> Sample:
    """Return a judged question that no bundle has; equal questions get equal names in all files."""
    name = sha256_text(canonical_json([question, reference, mark, None]))[:16]
    return Sample(benchmark, NO_TASK, name, "", question, (reference,), meta={"evaluation": mark})


SplitReasoning = Callable[[str], tuple[str | None, str, bool | None]]
"""Splits an output into reasoning, answer, and whether the reasoning closed; (None, output, None) without any."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """One parsed row of a prediction file.

    Attributes:
        line: the row's line, verbatim.
        task, sample_id, iteration: the key of its generation.
        position: the sample's position in the data; without a bundle, the row's in its file, from 0.
        sample: the sample it answers; None if the file has nothing about it (an error's row).
        output: the answer; None without one.
        error: the file's reason for a missing answer.
        reasoning, reasoning_closed: the model's reasoning before its answer, and whether that ended.
        marked_right: whether the file marks the answer right or wrong; None without a mark.
        note: a sentence on how the row was read, if not literally.
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
    """One stored answer, as input of an export.

    ``position`` is the sample's position in the data, ``source_row`` the line that an imported answer was read from.
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
    """An exported file: ``name`` may have folders; ``omitted_counts`` counts omitted answers by reason."""

    name: str
    rows: Sequence[Mapping[str, Any]]
    omitted_counts: Mapping[str, int] = field(default_factory=dict)


class TaskFiles(NamedTuple):
    """Files of a path by task, in the order of their rows, and the names of its other entries."""

    files: Mapping[str, Sequence[Path]]
    ignored_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PredictionFormat(ABC):
    """A format of prediction files.

    Attributes:
        name: benchmark of the authors who made it.
        known_tasks: tasks that files can be about.
    """

    name: str
    known_tasks: tuple[str, ...]

    folder: ClassVar[bool]
    """Whether it is a folder with a file for each task, rather than a single file."""
    array: ClassVar[bool] = False
    """Whether its scorer also reads a file that is one JSON array."""
    appends: ClassVar[bool] = False
    """Whether its script appends to an existing file and its scorer counts every row.

    A question that is answered again is then a further iteration.
    """
    has_own_content: ClassVar[bool] = True
    """Whether a row has enough content to be scored without its sample in a bundle."""
    reasoning_key: ClassVar[str] = "reasoning"
    score_keys: ClassVar[tuple[str, ...]] = ()
    """Keys of ``Sample.meta`` that scores depend on: samples that differ in any of them are different."""
    fillable_keys: ClassVar[frozenset[str]] = frozenset()
    """Keys of ``scored`` that a file may leave out if another source has them."""

    def task_of(self, stem: str, *, e: bool) -> str:
        """Return the task of a folder format's file from its name up to the first dot; it may be an unknown task."""
        return stem

    def find_files(self, path: Path) -> TaskFiles | None:
        """Return the files of a path, if folders or chunks determine their tasks; by default None, and names do.

        Raises UsageError: no file has a task, or a task cannot be determined.
        """
        return None

    def sort_tasks(self, tasks: Collection[str]) -> list[str]:
        """Return those of the tasks that files can be about, in the paper's order."""
        return [task for task in self.known_tasks or sorted(tasks) if task in tasks]

    @abstractmethod
    def read(self, task: str, lines: Sequence[PredictionLine]) -> list[Prediction]:
        """Return a file's rows, each with its sample. Raises UsageError naming file and line."""

    @abstractmethod
    def match_key(self, sample: Sample) -> object:
        """Return the values that match a file's sample with the bundle's."""

    def match_keys(
        self, samples: Sequence[Sample], predictions: Sequence[Prediction]
    ) -> tuple[list[object], list[object]]:
        """Return values of a bundle's samples and of a file's rows that are equal if the row answers the sample."""
        rows = [self.match_key(row.sample) if row.sample else row.sample_id for row in predictions]
        return [*map(self.match_key, samples)], rows

    def is_judge_row(self, line: PredictionLine) -> bool:
        """Return whether a row is from a judge's file; such a file has several tasks, and its model's name."""
        return False

    def read_judge_rows(self, lines: Sequence[PredictionLine]) -> list[Prediction]:
        """Return the rows of a judge's file, as ``read``; ``meta["evaluation"]`` is a sample's kind of judge."""
        raise NotImplementedError

    def unmatched_name(self, sample: Sample) -> str:
        """Return a name for a sample that the bundle does not have; equal samples get equal names in all files."""
        score_values = [sample.meta.get(key) for key in self.score_keys]
        content = [self.match_key(sample), sample.question, sample.references, sample.length, score_values]
        return f"{UNMATCHED}{sha256_text(canonical_json(content))[:16]}"

    def accepts_unmatched(self, prediction: Prediction) -> bool:
        """Return whether to accept a row that answers no sample of the bundle."""
        return prediction.sample is None

    def may_match_by_position(self, prediction: Prediction, sample: Sample) -> bool:
        """Return whether a row may answer the sample at its position in the data despite a different ``match_key``.

        Called only if a file's rows do not match, and used only if true for every row of the file.
        """
        return False

    def split_reasoning(self, prediction: Prediction, split: SplitReasoning) -> Prediction:
        """Return the row with its reasoning split from its answer."""
        reasoning, answer, closed = split(prediction.output or "")
        if reasoning is None:
            return prediction
        reasoning = "\n\n".join(filter(None, (prediction.reasoning, reasoning)))
        return replace(prediction, output=answer, reasoning=reasoning, reasoning_closed=closed)

    def contradiction(self, prediction: Prediction, sample: Sample) -> str | None:
        """Return why the file's own mark of the answer is impossible with this sample, or None."""
        return None

    def export_path(self, model: str, task: str | None, name: str) -> str:
        """Return the path for an imported file when it is exported again."""
        return name

    def label(self, model: str, settings: Mapping[str, Any]) -> str:
        """Return the name that files use for a model that was asked with these settings of a run."""
        return model

    @abstractmethod
    def file_name(self, model: str, task: str) -> str:
        """Return the path of a task's answers; the same for every task in a format with a single file."""

    @abstractmethod
    def row(self, model: str, task: str, answer: AnswerToExport) -> dict[str, Any]:
        """Return one answer in the form that its scorer reads."""

    def row_with_reasoning(self, model: str, task: str, answer: AnswerToExport) -> dict[str, Any]:
        """Return the row, with reasoning under a key that scorers never read: official files have only the answer."""
        row = self.row(model, task, answer)
        return row if answer.reasoning is None else {**row, self.reasoning_key: answer.reasoning}

    def omission_reason(self, answer: AnswerToExport) -> str:
        """Return the reason why an answer has no row in a file, as a label for counts; "" if it has one."""
        return "further iterations" if answer.iteration else ""

    def export(self, model: str, task: str, answers: Sequence[AnswerToExport]) -> ExportedFile:
        """Export the answers without an ``omission_reason`` as a file; the caller joins the tasks of one file.

        Args:
            answers: in the data's order, then by iteration.
        """
        exported_answers = [answer for answer in answers if not self.omission_reason(answer)]
        rows = [self.row_with_reasoning(model, task, answer) for answer in exported_answers]
        omitted_counts = Counter(why for answer in answers if (why := self.omission_reason(answer)))
        return ExportedFile(self.file_name(model, task), rows, omitted_counts)

    def make_prediction(self, line: PredictionLine, position: int, sample: Sample, key: str) -> Prediction:
        """Return the prediction of a row with its answer under ``key``; a value that is not text becomes "", marked."""
        output = line.require(key)
        answer = (output, None) if isinstance(output, str) else ("", NOT_TEXT)
        return Prediction(line, sample.task, sample.sample_id, position, sample, answer[0], finish_reason=answer[1])


def differences(
    first: Sample, second: Sample, score_keys: Sequence[str], fillable_keys: Collection[str] = frozenset()
) -> str:
    """Return names of fields that two samples of one name disagree on; "" if they agree.

    Only fields that both have and scoring reads are compared.

    Args:
        score_keys: keys of ``meta``; a missing key counts as null.
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
    """Return a model's name as a part of a path, as the official scripts do: the text after the last slash."""
    return model.rstrip("/").rpartition("/")[2].strip(".") or "model"


def _are_equal(first: object, second: object) -> bool:
    # The results file cannot store a lone surrogate; its replacement is not a difference.
    return _storable_json(first) == _storable_json(second)


def _storable_json(value: object) -> str:
    return canonical_json(value).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


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
