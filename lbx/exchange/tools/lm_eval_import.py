"""Import of lm-evaluation-harness's output for LongBench: ``results_<time>.json``, ``samples_<task>_<time>.jsonl``."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lbx.base.errors import UsageError
from lbx.base.units import format_count
from lbx.base.visible import as_command
from lbx.benchmarks.base.prediction_lines import (
    PredictionLine,
    describe_value,
    parse_document,
    prediction_file_error,
    read_bytes,
    split_rows,
)
from lbx.benchmarks.base.predictions import Prediction
from lbx.benchmarks.registry import BENCHMARKS, longbench_harnesses
from lbx.exchange.prediction_files import PredictionFiles, file_entry
from lbx.exchange.tools.harness_runs import HarnessRun, judge_task, sort_tasks
from lbx.exchange.tools.run_records import TASK_PREFIX
from lbx.results.file.imports import Harness, HarnessTask, finite_number

NAME = "lm_eval"

_TIME = r"\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}(?:\.\d{1,6})?"
_SAMPLES = re.compile(rf"samples_(.+)_({_TIME})\.jsonl")
_RESULTS = re.compile(rf"(?!samples_).+_({_TIME})\.json")
_PREFIX, _V2_PREFIX = "longbench_", "longbench2_"
_SETTINGS = ("max_length", "max_model_len", "truncation_side", "revision", "dtype")
_MOST_SAMPLES = 1 << 31
_LONGEST_SETTING = 100


@dataclass(frozen=True, slots=True)
class _HarnessEvaluation:
    """Files of a call of lm_eval: the names contain the same time."""

    time: str
    samples: Mapping[str, Path]
    results: Path | None = None


def read_lm_eval(path: Path) -> HarnessRun:
    """Read a folder of output, a results file with samples files in the same folder, or a single samples file.

    Raises:
        UsageError: the files contain no LongBench answer or several evaluations, or a file is malformed.
    """
    evaluation = _find_evaluation(path)
    tasks = _select_tasks(path, evaluation.samples)
    prediction_format = longbench_harnesses.HarnessFormat("longbench", BENCHMARKS["longbench"].catalogue.names)
    digest = hashlib.sha256()
    results: dict[str, Any] = {}
    if evaluation.results:
        data = read_bytes(evaluation.results)
        digest.update(data)
        results = parse_document(evaluation.results, data)
    predictions, files, harness_tasks = {}, [], {}
    for task, file in tasks.items():
        data = read_bytes(file)
        digest.update(f"{task} {len(data)}\n".encode() + data)
        content = split_rows(file, data)
        files.append(file_entry(file, task, content))
        settings = _TaskSettings(results, f"{_PREFIX}{task}")
        settings.check_count(file, len(content.lines))
        rows = [_row(line) for line in content.lines]
        _require_one_row_each(content.lines, rows)
        predictions[task] = prediction_format.read_rows(task, rows)
        harness_tasks[task] = _harness_task(task, settings, content.lines, predictions[task])
    ignored = [file.name for name, file in evaluation.samples.items() if file not in tasks.values()]
    config = _object(results, "config")
    run_settings: dict[str, Any] = {
        name: value
        for source in (_object(config, "model_args"), results)
        for name in _SETTINGS
        if (value := _short_value(source.get(name))) is not None
    }
    if model := _short_value(config.get("model")):
        run_settings["model"] = model
    harness = Harness(
        NAME,
        str(_short_value(results.get("lm_eval_version")) or ""),
        evaluation.time,
        run_settings | {"chat_template": bool(results.get("chat_template"))} if results else {},
        harness_tasks,
    )
    return HarnessRun(
        prediction_format, PredictionFiles(predictions, files, digest.hexdigest(), tuple(ignored)), harness
    )


def _find_evaluation(path: Path) -> _HarnessEvaluation:
    if not path.exists():
        raise UsageError(f"{path} does not exist.", fix="Give lm_eval's output folder, or one of its files.")
    if path.is_file():
        if match := _SAMPLES.fullmatch(path.name):
            found = _evaluations(path.parent).get(match[2])
            return _HarnessEvaluation(match[2], {match[1]: path}, found.results if found else None)
        if match := _RESULTS.fullmatch(path.name):
            found = _evaluations(path.parent)[match[1]]
            return _HarnessEvaluation(match[1], found.samples, path)
        raise UsageError(
            f"{path} is not named like a file of lm_eval.",
            fix="Its files are called results_<time>.json and samples_<task>_<time>.jsonl; the name contains the task.",
        )
    evaluations = _evaluations(path)
    if not evaluations:
        folders = [entry for entry in sorted(path.iterdir()) if entry.is_dir() and _evaluations(entry)]
        if len(folders) == 1:
            return _find_evaluation(folders[0])
        if folders:
            raise UsageError(
                f"{path} contains the output of several models.", fix=f"Give one of: {_join_names(map(str, folders))}."
            )
        raise UsageError(
            f"{path} contains no output of lm_eval.",
            fix="Its files are called results_<time>.json and samples_<task>_<time>.jsonl.",
        )
    if len(evaluations) > 1:
        choices = [str(each.results or next(iter(each.samples.values()))) for each in evaluations.values()]
        raise UsageError(
            f"{path} contains {len(evaluations)} evaluations, at {', '.join(evaluations)}: they may differ in their "
            "settings.",
            fix=f"Import each as a run of its own. Give one of: {_join_names(choices)}.",
        )
    return next(iter(evaluations.values()))


def _evaluations(folder: Path) -> dict[str, _HarnessEvaluation]:
    """Find the evaluations in a folder, as {time: evaluation}."""
    samples: dict[str, dict[str, Path]] = {}
    results: dict[str, Path] = {}
    for entry in sorted(folder.iterdir()):
        if match := _SAMPLES.fullmatch(entry.name):
            samples.setdefault(match[2], {})[match[1]] = entry
        elif match := _RESULTS.fullmatch(entry.name):
            if match[1] in results:
                raise UsageError(
                    f"{folder} contains two results files of {match[1]}: {results[match[1]].name} and {entry.name}.",
                    fix="Remove one of them.",
                )
            results[match[1]] = entry
    times = sorted({*samples, *results})
    return {time: _HarnessEvaluation(time, samples.get(time, {}), results.get(time)) for time in times}


def _select_tasks(path: Path, samples: Mapping[str, Path]) -> dict[str, Path]:
    """Select the files of LongBench v1's and E's tasks. Raises UsageError if there are none."""
    known = BENCHMARKS["longbench"].catalogue.names
    files = {name.removeprefix(_PREFIX): file for name, file in samples.items() if name.startswith(_PREFIX)}
    tasks = sort_tasks({task: file for task, file in files.items() if task in known})
    if tasks:
        return tasks
    if not samples:
        raise UsageError(
            f"{path} contains no answers: lm_eval was called without --log_samples.",
            fix="Call lm_eval again with --log_samples.",
        )
    if own := [name for name in samples if name.startswith(TASK_PREFIX)]:
        raise UsageError(
            f"{samples[own[0]]} was exported by lbx: it lacks most of the run.",
            fix="Use the results file that it was exported from:",
            command=as_command("lbx", "merge", "RESULTS", "-o", "results.duckdb"),
        )
    if any(name.startswith(_V2_PREFIX) for name in samples):
        raise UsageError(
            f"{path} contains LongBench v2 as lm_eval measures it: by the likelihood of each choice, without answers "
            "that could be scored.",
            fix="Only its LongBench v1 and LongBench-E tasks can be imported.",
        )
    raise UsageError(
        f"{path} contains no LongBench task, but {_join_names(sorted(samples))}.",
        fix="lbx imports lm_eval's tasks longbench_<task> and longbench_<task>_e.",
    )


def _row(line: PredictionLine) -> longbench_harnesses.HarnessRow:
    document, position = line.require("doc"), line.require("doc_id")
    if not isinstance(document, dict):
        raise prediction_file_error(line.location, f"'doc' must be an object, not {describe_value(document)}")
    if isinstance(position, bool) or not isinstance(position, int) or not 0 <= position < _MOST_SAMPLES:
        raise prediction_file_error(line.location, "'doc_id' must be a whole number from 0")
    if "answers" not in document:
        raise prediction_file_error(line.location, "'doc' has no 'answers', which are the references")
    identifier = document.get("_id")
    return longbench_harnesses.HarnessRow(
        line.location,
        line.number,
        position,
        _answers(line),
        document["answers"],
        document.get("all_classes"),
        document.get("length"),
        _first_text(document, "question", "input"),
        _first_text(document, "context"),
        identifier if isinstance(identifier, str) else "",
    )


def _answers(line: PredictionLine) -> Sequence[object]:
    """Return the answer of each repetition, or the filter's answer if there is only one repetition."""
    filtered, every = line.require("filtered_resps"), line.require("resps")
    if not isinstance(filtered, list) or len(filtered) != 1 or isinstance(filtered[0], list | dict):
        raise prediction_file_error(line.location, "'filtered_resps' must be a list of one answer")
    if not isinstance(every, list) or len(every) != 1 or not isinstance(every[0], list) or not every[0]:
        raise prediction_file_error(line.location, "'resps' must be a list with one list of answers")
    if len(every[0]) == 1:
        return filtered
    if filtered[0] != every[0][0]:
        raise prediction_file_error(
            line.location, "its filter combined several answers into one, so it is unclear which of them counts"
        )
    return every[0]


def _require_one_row_each(lines: Sequence[PredictionLine], rows: Sequence[longbench_harnesses.HarnessRow]) -> None:
    counts = Counter(row.position for row in rows)
    for line, row in zip(lines, rows, strict=True):
        if counts[row.position] > 1:
            raise prediction_file_error(
                line.location,
                f"{counts[row.position]} rows have the doc_id {row.position}: several evaluations or filters are mixed",
            )


@dataclass(frozen=True, slots=True)
class _TaskSettings:
    """A task's values in the results file. Each may be missing."""

    results: Mapping[str, Any]
    name: str

    def of_task(self, key: str) -> Any:
        """Return the task's value in an object such as "versions", or None if it is missing."""
        return _object(self.results, key).get(self.name)

    def table(self, key: str) -> Mapping[str, Any]:
        """Return the task's value in an object if the value is an object, or else {}."""
        return _object(_object(self.results, key), self.name)

    @property
    def version(self) -> float | None:
        return finite_number(self.of_task("versions"))

    def count(self, key: str) -> int | None:
        value = self.table("n-samples").get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def check_count(self, file: Path, n_rows: int) -> None:
        expected = self.count("effective")
        if expected is not None and expected != n_rows:
            raise prediction_file_error(
                str(file), f"it has {format_count(n_rows, 'row')}, but its results file counts {expected:,}"
            )


def _harness_task(
    task: str, settings: _TaskSettings, lines: Sequence[PredictionLine], predictions: Sequence[Prediction]
) -> HarnessTask:
    metric, score = _harness_score(settings, lines)
    remarks: list[str] = []
    long = sum("\n" in (prediction.output or "").lstrip("\n") for prediction in predictions)
    if long and longbench_harnesses.scores_first_line(task):
        remarks.append(f"its own score counts the whole of {format_count(long, 'answer')} with several lines")
    if settings.version is not None and settings.version <= longbench_harnesses.LM_EVAL_FIRST_REFERENCE:
        remarks.append("its own score counts only the first reference")
    unknowns: list[str] = []
    # All prompts fit if their bytes do, because a token has at least one byte
    window = finite_number(settings.results.get("max_length"))
    if not (window is not None and all(_prompt_size(line) <= window for line in lines)):
        unknowns.append("whether prompts were cut (lm_eval cuts from the left)")
    if settings.results and not settings.results.get("chat_template") and not longbench_harnesses.is_bare(task):
        unknowns.append("whether the model needs a chat template (none was used)")
    version = settings.version
    if version is not None and version < longbench_harnesses.LM_EVAL_VERSIONS.start:
        obstacles = [
            f"task version {version:g}: up to version {longbench_harnesses.LM_EVAL_VERSIONS.start - 1}, prompts "
            r"contained \n as two characters, and answers were sampled"
        ]
    else:
        obstacles = []
    if settings.version is None:
        gaps = ["no results file has the task's version and settings"]
    elif settings.version >= longbench_harnesses.LM_EVAL_VERSIONS.stop:
        gaps = [f"task version {settings.version:g} is newer than this lbx"]
    else:
        gaps = []
    return judge_task(
        HarnessTask(settings.version, metric, score),
        obstacles=obstacles,
        gaps=gaps,
        differences=list(_differences(task, settings, predictions)),
        unknowns=unknowns,
        remarks=remarks,
    )


def _harness_score(settings: _TaskSettings, lines: Sequence[PredictionLine]) -> tuple[str, float | None]:
    """Return the harness's metric and score of a task, from the results file or else the mean of the lines' scores."""
    names = lines[0].values.get("metrics")
    metrics = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    metric = next((name for name in metrics if name != "score"), "")
    score = finite_number(settings.table("results").get(f"{metric},none"))
    if score is None and metric:
        values = [finite_number(line.values.get(metric)) for line in lines]
        known = [value for value in values if value is not None]
        score = sum(known) / len(known) if len(known) == len(values) else None
    return metric, score


def _differences(task: str, settings: _TaskSettings, predictions: Sequence[Prediction]) -> Iterator[str]:
    results, plain = settings.results, task.removesuffix("_e")
    if plain in longbench_harnesses.LM_EVAL_PROMPTS:
        yield longbench_harnesses.LM_EVAL_PROMPTS[plain]
    if results.get("chat_template") and longbench_harnesses.is_bare(task):
        yield "a chat template, which the official script does not use for this task"
    if results.get("system_instruction"):
        yield "a system instruction"
    if settings.of_task("n-shot"):
        yield "further examples in the prompt"
    if _object(results, "config").get("gen_kwargs"):
        yield "other settings of generation (gen_kwargs)"
    if _object(settings.table("configs"), "generation_kwargs").get("do_sample"):
        yield "sampled answers"
    asked = len({prediction.position for prediction in predictions})
    # The evaluated data may be a part of LongBench itself.
    every = max(settings.count("original") or 0, longbench_harnesses.SAMPLES.get(task, 0))
    if asked < every:
        yield f"only {asked:,} of {every:,} samples"
    empty = sum(prediction.output == "" for prediction in predictions)
    if empty and longbench_harnesses.scores_first_line(task):
        yield f"{format_count(empty, 'empty answer')}: answers end at a line end, also at one before the answer"


def _prompt_size(line: PredictionLine) -> float:
    """Compute an upper bound of the tokens of a prompt and the answer, or infinity if unknown."""
    first = _object(_object(line.values, "arguments"), "gen_args_0")
    prompt, new_tokens = first.get("arg_0"), finite_number(_object(first, "arg_1").get("max_gen_toks"))
    if not isinstance(prompt, str) or new_tokens is None:
        return float("inf")
    return len(prompt.encode("utf-8", "replace")) + 1 + new_tokens


def _object(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = values.get(key)
    return value if isinstance(value, dict) else {}


def _short_value(value: object) -> str | float | None:
    """Return a value that is a short text or a number, or None for other values."""
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_SETTING else None
    return finite_number(value)


def _first_text(document: Mapping[str, Any], *names: str) -> str:
    return next((value for name in names if isinstance(value := document.get(name), str)), "")


def _join_names(names: Any, most: int = 6) -> str:
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
