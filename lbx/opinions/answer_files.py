"""Import and export of answers for the official judge.

Each file contains a model's answers to several tasks. The file's lines do not name the task, only whether the judge or
people rate the answer.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import UsageError
from lbx.base.records import Sample
from lbx.base.visible import as_command
from lbx.benchmarks.base.benchmark import marks_in
from lbx.benchmarks.base.prediction_lines import read_bytes, split_rows
from lbx.benchmarks.base.predictions import Prediction, PredictionFormat, file_part
from lbx.benchmarks.registry import BENCHMARKS, judged_samples, official_judge
from lbx.exchange.exporting import ExportSummary, write_files
from lbx.exchange.prediction_files import (
    PredictionFiles,
    UnmatchedNames,
    bundled_samples,
    file_entry,
    find_format,
    mismatch_reason,
    require_some_match,
    task_in_name,
)
from lbx.options.asking import Mode
from lbx.results import Store
from lbx.results.read.runs import check_runs

_FAMILY = BENCHMARKS[official_judge.BENCHMARK]


def read_judge_answers(prediction_format: PredictionFormat, paths: Sequence[Path]) -> PredictionFiles:
    """Read a model's files, in the given order. Raises UsageError if a file or a line is malformed."""
    rows: list[Prediction] = []
    files, digest = [], hashlib.sha256()
    for path in paths:
        data = read_bytes(path)
        content = split_rows(path, data)
        before = len(rows)
        rows += (
            replace(row, line=replace(row.line, number=before + row.position), position=before + row.position)
            for row in prediction_format.read_judge_rows(content.lines)
        )
        folder = {"folder": path.parent.name} if len(paths) > 1 else {}
        files.append({**file_entry(path, None, content), **folder})
        digest.update(data)
    return PredictionFiles(group_by_task(rows), files, digest.hexdigest(), for_judge=True)


def has_judge_answers(prediction_format: PredictionFormat, path: Path, *, e: bool = False) -> bool:
    """Whether a file contains answers for a judge: the name matches no task, and the first line is for a judge."""
    if (
        not prediction_format.folder
        or prediction_format.document_key
        or not path.is_file()
        or task_in_name(prediction_format, path, e) in prediction_format.known_tasks
    ):
        return False
    return prediction_format.is_judge_row(split_rows(path, read_bytes(path)).lines[0])


def match_judge_answers(
    prediction_format: PredictionFormat, bundle: Bundle, prediction_files: PredictionFiles
) -> PredictionFiles:
    """Match answers with the bundle's samples by question and reference.

    A question with both marks is a single sample, and the question's second line is the sample's second iteration. A
    question that is not in the bundle is imported with the content of the file (``prediction_files.match``).

    Raises:
        UsageError: no line matches a sample.
        BundleError: the bundle lacks all of the tasks, or data of a task is damaged.
    """
    family = BENCHMARKS[prediction_format.name]
    tasks = [
        task.name for task in family.tasks(bundle, family.catalogue.open_tasks) if family.catalogue.is_open(task.name)
    ]
    if not tasks:
        raise family.data.missing_data_error(bundle, f"any of the open tasks of {prediction_format.name}")
    samples_of: dict[object, list[tuple[int, Sample]]] = defaultdict(list)
    for task in tasks:
        for position, sample in enumerate(bundled_samples(prediction_format, bundle, task)):
            samples_of[sample.question, sample.references].append((position, sample))
    times: Counter[object] = Counter()
    matched, unmatched_names = [], UnmatchedNames(prediction_format, 0)
    for row in prediction_files.rows:
        assert row.sample is not None
        mark = row.sample.meta["evaluation"]
        pairs = samples_of.get((row.sample.question, row.sample.references), ())
        free = [pair for pair in pairs if (pair[1].key, mark) not in times]
        if not free:
            in_bundle = (row.sample.question, row.sample.references) in samples_of
            matched.append(unmatched_names.row(row, mismatch_reason(is_known=in_bundle)))
            continue
        position, sample = next((pair for pair in free if mark in marks_in(pair[1].meta)), free[0])
        matched.append(
            replace(
                row, task=sample.task, sample_id=sample.sample_id, position=position, sample=sample,
                iteration=times[sample.key],
            )
        )  # fmt: skip
        times.update([sample.key, (sample.key, mark)])
    require_some_match(bundle, matched)
    return replace(prediction_files, tasks=group_by_task(matched))


def group_by_task(rows: Sequence[Prediction]) -> dict[str, list[Prediction]]:
    tasks: dict[str, list[Prediction]] = {}
    for row in rows:
        tasks.setdefault(row.task, []).append(row)
    return tasks


def export_judge_answers(
    store: Store, metric: str, runs: Sequence[str], bundle: Bundle, directory: Path, *, force: bool = False
) -> ExportSummary:
    """Write each run's answers to judged questions as MODEL.pred.jsonl, over all open tasks in the authors' order.

    Args:
        metric: key of ``official_judge.ANSWER_FILES``.
        bundle: source of the authors' order of questions, and of the prompts.

    Raises:
        UsageError: the metric or a run is unknown, a run was imported or contains no such answer, or a file exists.
        BundleError: the bundle contains no open task, or data of a task is damaged.
    """
    if metric not in official_judge.ANSWER_FILES:
        metrics = ", ".join(official_judge.ANSWER_FILES)
        raise UsageError(f"Unknown answers for a judge: {metric!r}.", fix=f"Use {metrics}.")
    marks = official_judge.ANSWER_FILES[metric]
    questions = [(sample, mark) for sample, mark in judged_samples(bundle) if mark in marks]
    files: dict[str, list[str]] = {}
    left_out: Counter[str] = Counter()
    for run_id in dict.fromkeys(runs):
        check_runs(store, [run_id])
        (run,) = store.query("SELECT * FROM runs WHERE run_id = ?", [run_id]).dicts()
        model, rows = _answer_lines(store, run, bundle, questions)
        if not rows:
            asks = as_command("lbx", "run", "--tasks", official_judge.BENCHMARK)
            raise UsageError(
                f"The run {run_id!r} has no answer to a question of {metric} in the bundle at {bundle.root}.",
                fix=f"Run them together with the questions that metrics score: `{asks}`.",
            )
        left_out["not answered"] += len(questions) - len(rows)
        if files.setdefault(f"{model}.pred.jsonl", rows) is not rows:
            raise UsageError(
                f"Two of the runs use the model {model} and would write the same file.",
                fix="Export them one at a time.",
            )
    written = write_files(directory, files, run_names=", ".join(runs), force=force)
    return ExportSummary(written, sum(map(len, files.values())), dict(+left_out))


def _answer_lines(
    store: Store, run: Mapping[str, Any], bundle: Bundle, questions: Sequence[tuple[Sample, str]]
) -> tuple[str, list[str]]:
    """Build the name of a run's model for file names, and the lines of the model's file."""
    settings = json.loads(run["settings"])
    if settings.get("imported") == _FAMILY.name:
        raise UsageError(
            f"The run {run['run_id']!r} was imported.", fix="Leave out --judged to export its files unchanged."
        )
    model = file_part(find_format(_FAMILY.name).label(run["model"], settings))
    mode = Mode(length_hint=settings.get("length_hint") is not False)
    answers = {
        (task, name): output
        for task, name, output in store.query(
            "SELECT task, sample_id, output FROM generations WHERE run_id = ? AND benchmark = ? AND iteration = 0 "
            "AND error IS NULL",
            [run["run_id"], _FAMILY.name],
        ).rows
    }
    lines = []
    for sample, mark in questions:
        if (output := answers.get((sample.task, sample.sample_id))) is not None:
            row = official_judge.answer_row(model, sample, mark, _prompt(bundle, sample, mode), output)
            lines.append(json.dumps(row) + "\n")
    return model, lines


def _prompt(bundle: Bundle, sample: Sample, mode: Mode) -> str:
    """Build a sample's prompt with "{}" in place of the document and of the question."""
    prompt = _FAMILY.prompt(bundle, replace(sample, context="{}", question="{}"), mode)
    return f"{prompt.system}{prompt.before}{prompt.document}{prompt.after}"
