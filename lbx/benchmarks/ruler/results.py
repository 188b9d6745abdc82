"""RULER's result files (summary.csv and submission.csv for each length) and prediction files.

Source: write_evaluation and write_submission of
https://github.com/NVIDIA/RULER/blob/c3f5e3b4f87f97e048793bb510a3a6b19a46bf3a/scripts/eval/evaluate.py

The result files equal evaluate.py's byte for byte. Predictions are not escaped for spreadsheets, because the official
reader of submission.csv would read the escapes as text of the prediction.

The path of a prediction file is MODEL/synthetic/LENGTH/pred/TASK.jsonl.

Source: call_api.py and evaluate.py of
https://github.com/NVIDIA/RULER/tree/c3f5e3b4f87f97e048793bb510a3a6b19a46bf3a/scripts

    {"index": 1181, "pred": "...", "input": "...", "outputs": ["..."], "others": {}, "truncation": -1, "length": 4005}

The length follows from the folder, or from the file's name: TASK_LENGTH.jsonl. Chunks TASK-0.jsonl, TASK-1.jsonl, ...
are joined in the order of their names as text, TASK-10 before TASK-2. ``index`` repeats in niah's files, so samples are
numbered by lines.

The samples depend on the tokenizer. A row contains all that scoring needs. The sample's id includes a digest of the
file's questions, so that files of other samples never share an id. Rows at which evaluate.py stops are refused.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lbx.base.errors import UsageError
from lbx.base.records import Sample, canonical_json, sha256_text
from lbx.benchmarks.base.prediction_lines import PredictionLine, prediction_file_error, row_length
from lbx.benchmarks.base.predictions import (
    AnswerToExport,
    Prediction,
    PredictionFormat,
    ResultFormat,
    ScoredLine,
    ScoredRun,
    TaskFiles,
    file_part,
)
from lbx.benchmarks.metrics.ruler import clean_prediction
from lbx.benchmarks.ruler.aggregates import WITHOUT_REFERENCES, metrics_of
from lbx.benchmarks.ruler.tasks import LENGTHS, TASKS, split_task, task_name

_FILE = re.compile(rf"({'|'.join(TASKS)})(?:_([1-9][0-9]*))?(-[0-9]+)?\.jsonl(?:\.gz)?", re.ASCII)
_LENGTH = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_LAYOUT = "The authors' layout is MODEL/synthetic/LENGTH/pred/TASK.jsonl, such as vt.jsonl in 4096/pred."


class RulerFormat(PredictionFormat):
    folder = True
    score_keys = (WITHOUT_REFERENCES,)

    def find_files(self, path: Path) -> TaskFiles:
        """Find the prediction files of a path by task. The path may be a file or any of MODEL/synthetic/LENGTH/pred."""
        folders = [] if path.is_file() else _prediction_folders(path)
        entries = [path] if path.is_file() else [entry for folder in folders for entry in sorted(folder.iterdir())]
        files: dict[str, list[Path]] = {}
        ignored_names = []
        for entry in entries:
            match = _FILE.fullmatch(entry.name)
            if match and not entry.is_dir():
                files.setdefault(_task(entry, match), []).append(entry)
            elif not entry.name.startswith("."):
                ignored_names.append(entry.name + "/" * entry.is_dir())
        if not files:
            raise UsageError(f"{path} has no prediction file of a {self.name} task.", fix=_LAYOUT)
        for task, parts in files.items():
            # A task has one file, or chunks in one folder
            are_chunks = all((match := _FILE.fullmatch(file.name)) and match[3] for file in parts)
            if len(parts) > 1 and not (are_chunks and len({file.parent for file in parts}) == 1):
                raise UsageError(
                    f"{parts[0]} and {parts[1]} are both files of the task {task}.",
                    fix="evaluate.py would keep only some of them. Leave one out, or give one folder.",
                )
        return TaskFiles({task: files[task] for task in self.sort_tasks(files)}, tuple(ignored_names))

    def sort_tasks(self, tasks: Collection[str]) -> list[str]:
        """Sort tasks of any length by length, then in the authors' order."""
        return [
            task.name for task in sorted(split_names(tasks), key=lambda task: (task.length, TASKS.index(task.base)))
        ]

    def read(self, task: str, lines: Sequence[PredictionLine]) -> list[Prediction]:
        """Parse the rows of a file. If the first reference is null, all rows score 0, as in evaluate.py."""
        first = _references(lines[0])
        without_references = first[0] is None
        references = [_all_text(line, without_references=without_references) for line in lines]
        content = [
            [list(texts), *(line.require(key) for key in ("input", "index")), row_length(line)]
            for texts, line in zip(references, lines, strict=True)
        ]
        digest = sha256_text(canonical_json(content))[:8]
        predictions = []
        notes: dict[str, int] = {}  # each is given once, for the file's first row of its kind
        for number, (line, texts) in enumerate(zip(lines, references, strict=True)):
            for key in ("input", "index"):
                line.require(key)
            if not isinstance(line.require("others"), dict):
                raise prediction_file_error(line.location, "'others' must be an object; evaluate.py stops at this row")
            sample_id = f"{number:04d}-{digest}"
            sample = _sample((self.name, task, sample_id), line, texts, without_references=without_references)
            if not texts:
                note = "its first reference is null, so that every answer of the file scores 0, as by evaluate.py"
            elif isinstance(line.values.get("outputs"), str):
                note = "'outputs' is text and no list, so that each of its characters is a reference, as by evaluate.py"
            elif "" in texts:
                note = "a reference is empty, so that every answer contains it, as by evaluate.py"
            else:
                note = ""
            note *= notes.setdefault(note, number) == number
            predictions.append(Prediction(line, task, sample_id, number, sample, line.text("pred"), note=note))
        return predictions

    def match_key(self, sample: Sample) -> object:
        return sample.sample_id

    def export_path(self, model: str, task: str | None, name: str) -> str:
        """Path in the authors' layout, where file names state no length."""
        parts = next(split_names([task or ""]), None)
        return f"{_folder(model, parts.length)}/{name.replace(parts.name, parts.base, 1)}" if parts else name

    def file_name(self, model: str, task: str) -> str:
        base, length = split_task(task)
        return f"{_folder(model, length)}/{base}.jsonl"

    def row(self, model: str, task: str, answer: AnswerToExport) -> dict[str, Any]:
        sample = answer.sample
        return {
            "index": sample.meta.get("index", answer.position),
            "pred": answer.output,
            "input": "",
            "outputs": list(sample.references),
            "others": {},
            "truncation": -1,
            "length": sample.length,
        }


PREDICTIONS = RulerFormat("ruler", tuple(task_name(base, length) for length in LENGTHS for base in TASKS))


def _folder(model: str, length: int) -> str:
    return f"{file_part(model)}/synthetic/{length}/pred"


class TaskName(NamedTuple):
    """Name of a task, split into base and length."""

    name: str
    base: str
    length: int


def split_names(names: Iterable[str]) -> Iterator[TaskName]:
    """Yield each name of a RULER task, split into base and length. Other names are skipped."""
    for name in names:
        base, _, length = name.rpartition("_")
        if base in TASKS and _LENGTH.fullmatch(length):
            yield TaskName(name, base, int(length))


def _prediction_folders(path: Path) -> list[Path]:
    """Return the folder if it contains a prediction file, or else the folders "pred" of all lengths below it."""
    if any(_FILE.fullmatch(entry.name) for entry in path.iterdir()):
        return [path]
    folders = [folder for pattern in ("pred", "*/pred", "synthetic/*/pred") for folder in path.glob(pattern)]
    return sorted(folder for folder in folders if folder.is_dir())


def _task(file: Path, match: re.Match[str]) -> str:
    base, named_length, _ = match.groups()
    parent = file.absolute().parent
    folder_length = parent.parent.name if parent.name == "pred" and _LENGTH.fullmatch(parent.parent.name) else None
    if named_length and folder_length and named_length != folder_length:
        raise UsageError(
            f"{file}: the file's name has the length {named_length}, its folder {folder_length}.",
            fix="Correct one of them. No rows were imported.",
        )
    length = named_length or folder_length
    if length is None or not _LENGTH.fullmatch(length):
        raise UsageError(
            f"{file}: the length of its samples is unknown: neither the folder nor the file's name has it.",
            fix=f"{_LAYOUT} Move the files to such a folder, or rename them: {base}_4096.jsonl for a length of 4096.",
        )
    return task_name(base, int(length))


def _references(line: PredictionLine) -> list[object]:
    """Read the references of a row as evaluate.py does: the references of a string are its characters."""
    values = line.values
    references = values["outputs"] if "outputs" in values else [values.get("output", "")]
    if not isinstance(references, (list, str)) or not references:
        raise prediction_file_error(line.location, "'outputs' must be a list of texts; evaluate.py stops at this row")
    return list(references)


def _all_text(line: PredictionLine, *, without_references: bool) -> tuple[str, ...]:
    if without_references:
        return ()
    references = _references(line)
    texts = [text for text in references if isinstance(text, str)]
    if len(texts) < len(references):
        raise prediction_file_error(line.location, "'outputs' has a value that is no text, at which evaluate.py stops")
    return tuple(texts)


def _sample(
    names: tuple[str, str, str], line: PredictionLine, references: tuple[str, ...], *, without_references: bool
) -> Sample:
    _, length = split_task(names[1])
    meta: dict[str, Any] = {"max_length": length}
    if isinstance(line.values["index"], int):
        meta["index"] = line.values["index"]
    if without_references:
        meta[WITHOUT_REFERENCES] = True
    return Sample(
        *names,
        context="",
        question="",
        references=references,
        length=max(row_length(line), 0),
        length_unit="tokens",
        meta=meta,
    )


class _TaskResult(NamedTuple):
    """Result of a task for summary.csv and submission.csv.

    Attributes:
        base: the task's name without the length.
        score: the task's official number.
        rows: (id, prediction) of each row.
    """

    base: str
    score: float | None
    rows: Sequence[tuple[object, str]]

    @property
    def null_share(self) -> str:
        """Number of predictions without text, and of all predictions: "4/62"."""
        return f"{sum(not prediction for _, prediction in self.rows)}/{len(self.rows)}"


def _result_files(run: ScoredRun) -> dict[str, str]:
    """Write summary.csv (summary-TASK.csv for a single task) and submission.csv for each length: {path: text}."""
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
        submitted = [(result.base, *row) for result in results for row in result.rows]
        files[f"{folder}/submission.csv"] = _write_csv([("Task", "ID", "Prediction"), *submitted])
    return files


RESULTS = ResultFormat(_result_files)


def _row(task: str, number: int, line: ScoredLine) -> tuple[object, str]:
    """Return (id, cleaned prediction) of a row.

    Raises:
        UsageError: evaluate.py stops at the row, or pandas would change the ids of other rows.
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
        ("Nulls", *(result.null_share for result in results)),
    ]
    return _write_csv(rows)


def _write_csv(rows: Iterable[Iterable[object]]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()
