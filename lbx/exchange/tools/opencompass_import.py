"""Import of OpenCompass's predictions for LongBench: ``predictions/<model>/LongBench_<task>.json``, whole or in parts.

    {"0": {"origin_prompt": "...", "prediction": "...", "gold": ["..."]}, "1": ...}

Parts (``LongBench_<task>_0.json``, ``_1.json``) are each numbered from "0".
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lbx.base.errors import UsageError
from lbx.base.units import format_count
from lbx.benchmarks.base.prediction_lines import (
    PredictionLine,
    describe_value,
    parse_document,
    prediction_file_error,
    read_bytes,
    require_references,
)
from lbx.benchmarks.registry import BENCHMARKS, longbench_harnesses
from lbx.exchange.prediction_files import PredictionFiles
from lbx.exchange.tools.harness_runs import HarnessRun, judge_task, sort_tasks
from lbx.results.file.imports import Harness, HarnessTask, finite_number

NAME = "opencompass"

_PREDICTIONS, _RESULTS = "predictions", "results"
_FILE = re.compile(r"LongBench_(.+?)(?:_([0-9]{1,6}))?\.json")
_UNFINISHED = re.compile(r"tmp_LongBench_.+")
_V2 = re.compile(r"LongBench_?v2.*\.json", re.IGNORECASE)
_TIME = re.compile(r"[0-9]{8}_[0-9]{6}")
_END_TOKENS = (
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|end|>", "<end_of_turn>", "<eos>", "</s>",
    "<eoa>", "<｜end▁of▁sentence｜>", "<|user|>", "<|observation|>", "[UNUSED_TOKEN_145]",
)  # fmt: skip
"""Texts of end tokens, which predictions contain and OpenCompass's postprocessor removes."""


@dataclass(frozen=True, slots=True)
class _OpenCompassAnswer:
    """An answer in a file, with the references, and whether the prompt consists of roles."""

    location: str
    has_roles: bool
    outputs: Sequence[str]
    references: object
    classes: object


def read_opencompass(path: Path) -> HarnessRun:
    """Read a work folder of an evaluation, a model's folder of predictions, or a file.

    Raises:
        UsageError: the files contain no LongBench answer, several evaluations or models, or an unfinished evaluation,
            a part is missing, or a file is malformed.
    """
    task_files, ignored, model_folder = _find_files(path)
    prediction_format = longbench_harnesses.HarnessFormat(
        "longbench", BENCHMARKS["longbench"].catalogue.names, by_position=True
    )
    digest = hashlib.sha256()
    predictions, files, tasks = {}, [], {}
    n_ends = 0
    for task, parts in task_files.items():
        answers: list[_OpenCompassAnswer] = []
        for part in parts:
            data = read_bytes(part)
            digest.update(f"{task} {len(data)}\n".encode() + data)
            values = parse_document(part, data)
            keys = [str(position) for position in range(len(values))]
            if missing := next((key for key in keys if key not in values), None):
                raise prediction_file_error(
                    str(part),
                    f"its {format_count(len(values), 'entry', 'entries')} must have the keys 0, 1, 2, ...; "
                    f"{missing} is missing",
                )
            if not keys:
                raise prediction_file_error(str(part), "it contains no answers")
            read = [_answer(f"{part}, entry {key}", values[key]) for key in keys]
            files.append({"name": part.name, "task": task, "rows": len(read), "final_newline": False})
            answers += read
        without_ends = [[_without_end(text) for text in answer.outputs] for answer in answers]
        n_ends += sum(list(answer.outputs) != texts for answer, texts in zip(answers, without_ends, strict=True))
        rows = [
            longbench_harnesses.HarnessRow(
                answer.location, position + 1, position, texts, answer.references, answer.classes
            )
            for position, (answer, texts) in enumerate(zip(answers, without_ends, strict=True))
        ]
        predictions[task] = prediction_format.read_rows(task, rows)
        other = longbench_harnesses.OPENCOMPASS_OTHER.get(task)
        score = _harness_score(model_folder, task)
        differences: list[str] = []
        if task in longbench_harnesses.OPENCOMPASS_PROMPTS:
            differences.append(longbench_harnesses.OPENCOMPASS_PROMPTS[task])
        if longbench_harnesses.is_bare(task) and any(answer.has_roles for answer in answers):
            differences.append("a chat template, which the official script does not use for this task")
        if len(answers) != (every := longbench_harnesses.SAMPLES[task]):
            differences.append(f"{len(answers):,} samples, and LongBench has {every:,}")
        tasks[task] = judge_task(
            HarnessTask(None, "score" if score is not None else "", score),
            obstacles=[other] if other else [],
            differences=differences,
            unknowns=[
                "whether prompts were cut (OpenCompass cuts from the left, unless its settings differ)",
                "OpenCompass's version and settings, such as limits of answers (none in its _rawprompt tasks)",
            ],
        )
    time = next((part for part in reversed(path.absolute().parts) if _TIME.fullmatch(part)), "")
    notes = [f"End tokens were removed from {format_count(n_ends, 'answer')}, as OpenCompass does."] if n_ends else []
    prediction_files = PredictionFiles(predictions, files, digest.hexdigest(), ignored)
    return HarnessRun(prediction_format, prediction_files, Harness(NAME, time=time, tasks=tasks), notes)


def _find_files(path: Path) -> tuple[dict[str, list[Path]], tuple[str, ...], Path]:
    """Find the files of each task in the order of parts, the names of other files, and the model's folder."""
    if not path.exists():
        raise UsageError(f"{path} does not exist.", fix="Give OpenCompass's folder of one evaluation, or a file.")
    if path.is_file():
        return _task_files(path, [path], alone=True), (), path.parent
    folder = _model_folder(path)
    entries = sorted(folder.iterdir())
    if unfinished := [entry for entry in entries if _UNFINISHED.fullmatch(entry.name)]:
        raise UsageError(
            f"{unfinished[0]} is of an unfinished evaluation.",
            fix="Let OpenCompass finish it (its option -r continues), or give the files of the finished tasks one by "
            "one.",
        )
    files = [entry for entry in entries if _FILE.fullmatch(entry.name) and not _V2.fullmatch(entry.name)]
    ignored = tuple(entry.name for entry in entries if entry not in files)
    return _task_files(folder, files), ignored, folder


def _model_folder(path: Path) -> Path:
    """Find the only folder of a model's predictions at or below a path."""
    if _has_files(path):
        return path
    predictions = path / _PREDICTIONS if (path / _PREDICTIONS).is_dir() else path
    folders = [entry for entry in sorted(predictions.iterdir()) if entry.is_dir() and _has_files(entry)]
    if len(folders) == 1:
        return folders[0]
    evaluations = [entry for entry in sorted(path.iterdir()) if entry.is_dir() and (entry / _PREDICTIONS).is_dir()]
    if len(folders) + len(evaluations) > 1:
        kind = "models" if folders else "evaluations"
        raise UsageError(
            f"{path} contains the predictions of several {kind}.",
            fix=f"Give one of: {', '.join(map(str, folders or evaluations))}.",
        )
    if evaluations:
        return _model_folder(evaluations[0])
    raise UsageError(
        f"{path} contains no LongBench predictions of OpenCompass.",
        fix="They are called predictions/<model>/LongBench_<task>.json.",
    )


def _has_files(folder: Path) -> bool:
    return any(pattern.fullmatch(entry.name) for entry in folder.iterdir() for pattern in (_FILE, _V2, _UNFINISHED))


def _task_files(path: Path, files: Sequence[Path], *, alone: bool = False) -> dict[str, list[Path]]:
    known = set(longbench_harnesses.SAMPLES)
    by_task: dict[str, dict[int | None, Path]] = {}
    unknown = []
    for file in files:
        match = _FILE.fullmatch(file.name)
        task, part = (match[1], None if match[2] is None else int(match[2])) if match else ("", None)
        if task not in known or _V2.fullmatch(file.name):
            unknown.append(file)
            continue
        parts = by_task.setdefault(task, {})
        if part in parts:
            raise UsageError(f"{parts[part]} and {file} are the same part.", fix="Remove one of them.")
        parts[part] = file
    if not by_task:
        raise _no_task_error(path, unknown)
    return {task: _sort_parts(task, parts, alone=alone) for task, parts in sort_tasks(by_task).items()}


def _no_task_error(path: Path, files: Sequence[Path]) -> UsageError:
    if any(_V2.fullmatch(file.name) for file in [path, *files, *(path.iterdir() if path.is_dir() else ())]):
        return UsageError(
            f"{path} contains LongBench v2 as OpenCompass measures it: it has a prompt of its own, and numbers with it "
            "are not comparable.",
            fix="Only its LongBench v1 tasks can be imported.",
        )
    if _UNFINISHED.fullmatch(path.name):
        return UsageError(f"{path} is of an unfinished evaluation.", fix="Let OpenCompass finish it first.")
    names = f"{files[0].name} is not such a file" if files else "there is none"
    return UsageError(
        f"{path}: LongBench predictions of OpenCompass are called LongBench_<task>.json, and {names}.",
        fix="lbx imports the 21 tasks of LongBench v1.",
    )


def _sort_parts(task: str, parts: Mapping[int | None, Path], *, alone: bool) -> list[Path]:
    """Sort the parts of a task. Raises UsageError if a part is missing, or there is a file of the whole task, too."""
    numbered = sorted((number, file) for number, file in parts.items() if number is not None)
    if None in parts and numbered:
        raise UsageError(
            f"There are {parts[None]} and a part of it, {numbered[0][1].name}: they may be of different evaluations.",
            fix="Remove one or the other.",
        )
    if not numbered:
        return [parts[None]]
    if alone:
        others = [entry for entry in numbered[0][1].parent.iterdir() if _is_part(entry, task)]
        if len(others) > 1 or numbered[0][0] != 0:
            raise UsageError(
                f"{numbered[0][1]} is one of {len(others)} parts of {task}, each numbered from 0.",
                fix=f"Give the folder, which has all parts: {numbered[0][1].parent}.",
            )
    if missing := sorted({*range(numbered[-1][0] + 1)} - {number for number, _ in numbered}):
        raise UsageError(
            f"{numbered[0][1].parent} lacks part {missing[0]} of {task} (LongBench_{task}_{missing[0]}.json), so the "
            "questions of the later parts are unknown.",
            fix="Add the missing part, or leave the task out.",
        )
    return [file for _, file in numbered]


def _is_part(file: Path, task: str) -> bool:
    match = _FILE.fullmatch(file.name)
    return bool(match and match[1] == task and match[2])


def _answer(location: str, values: object) -> _OpenCompassAnswer:
    if not isinstance(values, dict):
        raise prediction_file_error(location, f"it must be an object, not {describe_value(values)}")
    if "prediction" not in values:
        raise prediction_file_error(location, "the key 'prediction' is missing")
    prediction = values["prediction"]
    outputs = prediction if isinstance(prediction, list) else [prediction]
    if not outputs or not all(isinstance(output, str) for output in outputs):
        reason = f"'prediction' must be text or a list of texts, not {describe_value(prediction)}"
        raise prediction_file_error(location, reason)
    line, key = PredictionLine(location, 0, "", values), "gold"
    if isinstance(line.require(key), dict):
        line, key = replace(line, values=values[key]), "answers"
    gold, classes = require_references(line, key, with_numbers=True), line.values.get("all_classes")
    return _OpenCompassAnswer(location, isinstance(values.get("origin_prompt"), list), outputs, gold, classes)


def _without_end(text: str) -> str:
    """Remove end tokens, and the white space between them, from the end of an answer."""
    shorter = text
    while any(shorter.rstrip().endswith(token) for token in _END_TOKENS):
        shorter = shorter.rstrip()
        shorter = next(shorter.removesuffix(token) for token in _END_TOKENS if shorter.endswith(token))
    return shorter


def _harness_score(model_folder: Path, task: str) -> float | None:
    """Read OpenCompass's score of a task in 0..1 from the folder of results. Returns None without a score."""
    if model_folder.parent.name != _PREDICTIONS:
        return None
    path = model_folder.parent.parent / _RESULTS / model_folder.name / f"LongBench_{task}.json"
    if not path.is_file():
        return None
    score = finite_number(parse_document(path, read_bytes(path)).get("score"))
    return None if score is None else score / 100
