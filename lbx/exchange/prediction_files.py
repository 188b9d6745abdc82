"""Reading of prediction files: finding and parsing files, and matching lines with samples.

All checks are made here, before any write.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError, ConflictError, UsageError
from lbx.base.records import Sample
from lbx.benchmarks.base.prediction_lines import (
    FileRows,
    PredictionLine,
    decode_text,
    prediction_file_error,
    read_bytes,
    split_csv_rows,
    split_document_rows,
    split_rows,
)
from lbx.benchmarks.base.predictions import UNMATCHED, Prediction, PredictionFormat, TaskFiles, differences
from lbx.benchmarks.registry import BENCHMARKS, format_names, official_judge
from lbx.opinions.rating_pages import RATING_FORMAT
from lbx.results import Store
from lbx.results.rows import stored_sample

OPINION_FORMATS = (official_judge.JUDGEMENT_FORMAT, RATING_FORMAT)
"""Formats of judgements and of raters' ratings."""
_COMPARED_WITH = "; kept, and compared only with equal rows of other imports with --bundle"


@dataclass(frozen=True, slots=True)
class PredictionFiles:
    """Predictions read from a path.

    Attributes:
        tasks: predictions by task, in file order.
        files: for each file the name, the task (None for several tasks), the number of lines, and whether the file ends
            with a line feed.
        content_sha256: hash of the files' bytes and of options that affect their interpretation.
        ignored_names: names of other files in the folder.
        for_judge: whether the answers are for a judge, and no metric scores them.
        is_stripped: whether reasoning was removed from the answers.
    """

    tasks: Mapping[str, list[Prediction]]
    files: list[dict[str, Any]]
    content_sha256: str
    ignored_names: tuple[str, ...] = ()
    for_judge: bool = False
    is_stripped: bool = False

    @property
    def rows(self) -> Iterable[Prediction]:
        return (prediction for predictions in self.tasks.values() for prediction in predictions)


def find_format(
    name: str, custom_names: Collection[str] = (), *, condition: str = "", further_names: Collection[str] = ()
) -> PredictionFormat:
    """Find the format of a benchmark's prediction files.

    Args:
        custom_names: names of the user's own benchmarks, which are accepted.
        condition: condition for accepting own benchmarks, for the message.
        further_names: formats that another function reads or writes, for the message.

    Raises:
        UsageError: the name is unknown.
    """
    names = [*format_names(), *custom_names]
    prediction_format = BENCHMARKS[name].predictions if name in names else None
    if prediction_format:
        return prediction_format
    names = list(dict.fromkeys([*names, *OPINION_FORMATS, *further_names]))
    near = get_close_matches(name, names, n=1)
    choices = f"Use one of {', '.join(names)}, or your own benchmark by its name{condition} (docs/own-benchmark.md)."
    raise UsageError(f"There is no prediction format {name!r}.", fix=f"Did you mean {near[0]}?" if near else choices)


def read_predictions(prediction_format: PredictionFormat, path: Path, *, e: bool = False) -> PredictionFiles:
    """Read a format's file or folder.

    Args:
        e: whether the folder contains a benchmark's "_e" tasks, which a parent folder "pred_e" implies.

    Raises:
        UsageError: a file is malformed. The message names file and line.
    """
    if not path.exists():
        raise UsageError(
            f"{path} does not exist.", fix="Give the file or folder that the official script wrote, such as pred/MODEL."
        )
    if not prediction_format.folder:
        return _one_file(prediction_format, path)
    task_files, ignored_names = prediction_format.find_files(path) or _task_files(
        prediction_format, path, e or "pred_e" in path.absolute().parts
    )
    tasks: dict[str, list[Prediction]] = {}
    files = []
    companions: set[str] = set()
    digest = hashlib.sha256()
    for task, parts in task_files.items():
        lines: list[PredictionLine] = []
        for file in parts:
            data = read_bytes(file)
            if key := prediction_format.document_key:
                content = split_document_rows(file, data, key)
            else:
                content = split_csv_rows(file, data) if prediction_format.is_csv else split_rows(file, data)
            lines += content.lines
            files.append(file_entry(file, task, content))
            digest.update(f"{task} {len(data)}\n".encode() + data)
            companion = prediction_format.companion(file)
            if companion and companion.is_file():
                data = read_bytes(companion)
                files[-1]["companion"] = decode_text(companion, data)
                companions.add(companion.name)
                digest.update(f"{companion.name} {len(data)}\n".encode() + data)
        tasks[task] = prediction_format.read(task, lines)
    ignored_names = tuple(name for name in ignored_names if name not in companions)
    return PredictionFiles(tasks, files, digest.hexdigest(), ignored_names)


def _one_file(prediction_format: PredictionFormat, path: Path) -> PredictionFiles:
    data = read_bytes(path)
    content = split_rows(path, data, array=prediction_format.array)
    tasks: dict[str, list[Prediction]] = {}
    for prediction in prediction_format.read("", content.lines):
        tasks.setdefault(prediction.task, []).append(prediction)
    return PredictionFiles(tasks, [file_entry(path, None, content)], hashlib.sha256(data).hexdigest())


def file_entry(path: Path, task: str | None, content: FileRows) -> dict[str, Any]:
    file = {"name": path.name, "task": task, "rows": len(content.lines), "final_newline": content.final_newline}
    return file if content.separator == "\n" else {**file, "separator": content.separator}


def _task_files(prediction_format: PredictionFormat, path: Path, e: bool) -> TaskFiles:
    """Find the files of a folder by task, and the names of other files. ``path`` may also be a single file."""
    suffixes = (".csv",) if prediction_format.is_csv else (".jsonl", ".jsonl.gz")
    files: dict[str, Path] = {}
    ignored, unknown_files = [], []
    for entry in [path] if path.is_file() else sorted(path.iterdir()):
        name = entry.name
        if entry == path:
            pass
        elif name.startswith(".") or entry.is_dir() or not name.endswith(suffixes):
            ignored.append(name + "/" * entry.is_dir())
            continue
        task = task_in_name(prediction_format, entry, e)
        if task not in prediction_format.known_tasks:
            if entry != path and not get_close_matches(task, prediction_format.known_tasks, n=1):
                ignored.append(name)  # kept as rows for a judge; these files are named after models
                unknown_files.append((entry, task))
                continue
            raise _unknown_task_error(prediction_format, entry, task)
        if task in files:
            raise UsageError(
                f"{path} contains two files of the task {task}: {files[task].name} and {name}.",
                fix="If each has a part of the answers, join them into one file; otherwise remove one of them.",
            )
        files[task] = entry
    if not files:
        raise (
            _unknown_task_error(prediction_format, *unknown_files[0])
            if unknown_files
            else _no_file_error(prediction_format, path)
        )
    order = {task: position for position, task in enumerate(prediction_format.known_tasks)}
    return TaskFiles({task: [files[task]] for task in sorted(files, key=order.__getitem__)}, tuple(ignored))


def task_in_name(prediction_format: PredictionFormat, file: Path, e: bool) -> str:
    """Name of the task that a file's name contains. The family may not know the task."""
    task = prediction_format.task_of(file.name.partition(".")[0], e=e)
    return task if task in prediction_format.known_tasks else _only_task_in_name(prediction_format, file, e) or task


def _only_task_in_name(prediction_format: PredictionFormat, file: Path, e: bool) -> str | None:
    """Return the only task whose name occurs in the file's name, as in "qasper-MODEL.jsonl", or else None."""
    stem = file.name.removesuffix(".gz").removesuffix(".jsonl")
    inside = {
        (match.start(), match.end()): match[0]
        for name in prediction_format.known_tasks
        for match in re.finditer(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])", stem)
    }
    # "qasper" is part of "qasper_e" too: only matches outside a longer match count.
    tasks = {
        prediction_format.task_of(name, e=e)
        for (start, end), name in inside.items()
        if not any(begin <= start and end <= stop and (begin, stop) != (start, end) for begin, stop in inside)
    }
    return tasks.pop() if len(tasks) == 1 else None


def _unknown_task_error(prediction_format: PredictionFormat, file: Path, task: str) -> UsageError:
    near = get_close_matches(task, prediction_format.known_tasks, n=3)
    hint = f"Did you mean {' or '.join(near)}? " if near else ""
    return UsageError(
        f"{file}: {prediction_format.name} has no task {task!r}.",
        fix=f"{hint}The task is the file's name up to the first dot; move files that are not predictions elsewhere.",
    )


def _no_file_error(prediction_format: PredictionFormat, path: Path) -> UsageError:
    suffix = ".csv" if prediction_format.is_csv else ".jsonl"
    inside = [
        entry.name
        for entry in sorted(path.iterdir())
        if entry.is_dir()
        and any(
            task_in_name(prediction_format, file, e=False) in prediction_format.known_tasks
            for file in entry.glob(f"*{suffix}")
        )
    ]
    return UsageError(
        f"{path} contains no file of a {prediction_format.name} task.",
        fix=f"Give one of its folders: {', '.join(inside)}."
        if inside
        else f"Files are named after tasks, such as {prediction_format.known_tasks[0]}{suffix}.",
    )


def match_predictions(
    prediction_format: PredictionFormat, bundle: Bundle, prediction_files: PredictionFiles
) -> PredictionFiles:
    """Match predictions with the bundle's samples, without their documents.

    Equal samples are used in the data's order, so that a file in that order is matched line by line. For a line without
    a match, the sample in the file is used under a name that begins with ``UNMATCHED``, with the reason as a note.

    Raises:
        UsageError: no line matches a sample, or an unmatched line cannot be scored by itself. The message names file
            and line.
        BundleError: the bundle lacks the data of all tasks, or data of a task is damaged.
    """
    bundle_tasks = {
        task.name for task in BENCHMARKS[prediction_format.name].tasks(bundle, list(prediction_files.tasks))
    }
    tasks = {}
    for task, predictions in prediction_files.tasks.items():
        if task in bundle_tasks or not bundle_tasks & prediction_files.tasks.keys():
            tasks[task] = _match_by_key(
                prediction_format, bundled_samples(prediction_format, bundle, task), predictions
            )
        else:
            # Name the rows of a task that the bundle lacks; one note, at the first row, covers all
            alone, answers, why = (
                UnmatchedNames(prediction_format, 0),
                [],
                "its task is not in the bundle (the same applies to all its rows)",
            )
            for prediction in predictions:
                answers.append(alone.row(prediction, why) if prediction.sample else prediction)
                why = "" if is_unmatched(answers[-1]) else why
            tasks[task] = answers
    require_some_match(bundle, [row for predictions in tasks.values() for row in predictions if row.sample])
    return replace(prediction_files, tasks=tasks)


def require_some_match(bundle: Bundle, rows: Sequence[Prediction]) -> None:
    """Raise UsageError if no prediction matches a sample of the bundle."""
    if rows and all(map(is_unmatched, rows)):
        first = rows[0]
        raise UsageError(
            f"{first.line.location}: {first.note.removesuffix(_COMPARED_WITH)}; no other row matches a sample of "
            f"the bundle at {bundle.root} either. No rows were imported.",
            fix="Import without --bundle, or give the bundle with their questions.",
        )


def bundled_samples(prediction_format: PredictionFormat, bundle: Bundle, task: str) -> list[Sample]:
    """Read a task's samples without documents. Raises BundleError if the data is missing or damaged."""
    try:
        return [replace(sample, context="") for sample in BENCHMARKS[prediction_format.name].samples(bundle, task)]
    except BundleError as exc:
        fix = f"{exc.fix} Without --bundle, the predictions can still be imported.".lstrip()
        raise BundleError(exc.cause, fix=fix, command=exc.command) from exc


def is_unmatched(prediction: Prediction) -> bool:
    """Whether a prediction matches no sample of the bundle, so that its own sample is used."""
    return prediction.sample_id.startswith(UNMATCHED)


def _match_by_key(
    prediction_format: PredictionFormat, samples: list[Sample], predictions: list[Prediction]
) -> list[Prediction]:
    free: dict[object, deque[int]] = defaultdict(deque)
    free_positions: dict[tuple[int, object], deque[int]] = {}
    keys, prediction_keys = prediction_format.match_keys(samples, predictions)
    for position, key in enumerate(keys):
        free[key].append(position)
    matched, alone = [], UnmatchedNames(prediction_format, len(samples))
    times: Counter[object] = Counter()
    for row, key in zip(predictions, prediction_keys, strict=True):
        iteration = times[key] // max(1, len(free.get(key, ()))) if prediction_format.appends else row.iteration
        times[key] += 1
        prediction = replace(row, iteration=iteration)
        candidates = free_positions.setdefault((prediction.iteration, key), deque(free.get(key, ())))
        problem = _describe_mismatch(prediction_format, prediction, samples[candidates[0]]) if candidates else ""
        if candidates and not problem:
            sample, position = samples[candidates[0]], candidates.popleft()
            matched.append(replace(prediction, sample=sample, sample_id=sample.sample_id, position=position))
        elif not candidates and prediction_format.accepts_unmatched(prediction):
            matched.append(prediction)
        else:
            if problem:
                why = f"it answers the bundle's {samples[candidates[0]].key}, but {problem}"
            else:
                why = mismatch_reason(is_known=bool(free.get(key)))
            matched.append(alone.row(prediction, why))
    return (
        _match_by_position(prediction_format, samples, predictions) if any(map(is_unmatched, matched)) else []
    ) or matched


def mismatch_reason(*, is_known: bool) -> str:
    """Return the reason why a prediction is unmatched. ``is_known`` means that the question is in the bundle."""
    if is_known:
        return "an earlier row already answers the question that it matches"
    return "no question of the bundle matches it"


class UnmatchedNames:
    """Naming of predictions that match no sample of the bundle. Equal predictions get equal names, in any file.

    Args:
        n_samples: number of samples in the bundle, which precede the unmatched predictions.
    """

    def __init__(self, prediction_format: PredictionFormat, n_samples: int) -> None:
        self._prediction_format, self._n_samples = prediction_format, n_samples
        self._times: Counter[tuple[str, int]] = Counter()

    def row(self, prediction: Prediction, why: str) -> Prediction:
        """Give a prediction its own sample, and a reason as a note. Raises UsageError if it cannot be scored."""
        sample, prediction_format = prediction.sample, self._prediction_format
        if sample is None or not prediction_format.has_own_content:
            raise prediction_file_error(prediction.line.location, why)
        name = prediction_format.unmatched_name(sample)
        self._times[name, prediction.iteration] += 1
        if (times := self._times[name, prediction.iteration]) > 1:
            name += f"-{times}"
        return replace(
            prediction,
            sample=replace(sample, sample_id=name),
            sample_id=name,
            position=self._n_samples + prediction.position,
            note="; ".join(filter(None, (prediction.note, why))) + _COMPARED_WITH * bool(why),
        )


def _match_by_position(
    prediction_format: PredictionFormat, samples: list[Sample], predictions: list[Prediction]
) -> list[Prediction]:
    """Match predictions with samples at the same positions. Returns [] if that fails."""
    pairs = list(zip(predictions, samples, strict=False))
    if len(pairs) < len(predictions) or not all(prediction_format.may_match_by_position(*pair) for pair in pairs):
        return []
    matched = [
        replace(prediction, sample=sample, sample_id=sample.sample_id, position=position)
        for position, (prediction, sample) in enumerate(pairs)
    ]
    note = "from here on, rows differ from the bundle and are matched by position and reference answer"
    return [replace(matched[0], note=note), *matched[1:]]


def _describe_mismatch(prediction_format: PredictionFormat, prediction: Prediction, sample: Sample) -> str:
    if prediction.sample is None:
        return ""
    other = differences(prediction.sample, sample, prediction_format.score_keys, prediction_format.fillable_keys)
    return f"differs from it in {other}" if other else prediction_format.contradiction(prediction, sample) or ""


def refuse_conflicts(
    prediction_format: PredictionFormat, store: Store, prediction_files: PredictionFiles, *, bundle: bool
) -> None:
    """Raise ConflictError if the results file contains a sample of the same name with other references."""
    for task, predictions in prediction_files.tasks.items():
        rows = store.query(
            "SELECT * FROM samples WHERE benchmark = ? AND task = ?", [prediction_format.name, task]
        ).dicts()
        stored_samples = {row["sample_id"]: stored_sample(prediction_format.name, task, row) for row in rows}
        for prediction in predictions:
            sample = stored_samples.get(prediction.sample_id)
            problem = _describe_mismatch(prediction_format, prediction, sample) if sample else ""
            if sample and problem:
                raise ConflictError(
                    f"{prediction.line.location}: {store.path} already contains a {sample.key}, from another "
                    f"revision of the data: the line {problem}. No rows were imported.",
                    fix="Import into a separate results file (-o FILE)"
                    + ("." if bundle else ", or pass the bundle (--bundle DIR): its samples have names of their own."),
                )
