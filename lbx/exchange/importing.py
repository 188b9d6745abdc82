"""Import of predictions from other programs as runs (``lbx import``)."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError, UsageError
from lbx.base.records import sha256_text
from lbx.base.units import format_count, line_spans
from lbx.base.visible import as_command
from lbx.benchmarks.base.benchmark import needs_model
from lbx.benchmarks.base.prediction_lines import read_bytes
from lbx.benchmarks.base.predictions import NOT_TEXT, UNOFFICIAL_TASKS, Prediction, PredictionFormat
from lbx.benchmarks.registry import BENCHMARKS, IMPORT_FORMATS, custom_names, official_judge
from lbx.engine.reasoning import KNOWN_MARKS, ReasoningMarks, opening_end, split_reasoning
from lbx.exchange.prediction_files import (
    PredictionFiles,
    find_format,
    is_unmatched,
    match_predictions,
    read_predictions,
    refuse_conflicts,
)
from lbx.exchange.tools.harness_runs import HarnessRun
from lbx.exchange.tools.lm_eval_import import read_lm_eval
from lbx.exchange.tools.opencompass_import import read_opencompass
from lbx.opinions.answer_files import has_judge_answers, match_judge_answers, read_judge_answers
from lbx.results import GenerationRow, RunRow, SampleRow, Store
from lbx.results.file.imports import SETTING, Harness, make_import_row, refuse_other_content, write_import
from lbx.results.file.samples import refuse_other_samples

log = logging.getLogger("lbx")

_HARNESSES: Mapping[str, Callable[[Path], HarnessRun]] = {"lm_eval": read_lm_eval, "opencompass": read_opencompass}


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """Run that an import wrote, and counts of the imported lines.

    Attributes:
        benchmark: benchmark family of the run, which is not yet scored.
        counts: {task: number of lines}, including failed answers.
        failed: number of lines with an error instead of an answer.
        ignored: names of other files in the folder.
        notes: a sentence for each line that was changed or that does not match the bundle.
        unmatched: number of lines that match no sample of the bundle.
    """

    run_id: str
    benchmark: str
    counts: Mapping[str, int]
    failed: int
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unmatched: int = 0


@dataclass(frozen=True, slots=True)
class ParsedPredictions:
    """Checked predictions, which are ready to be written as the run ``name`` with ``extra_settings``."""

    prediction_format: PredictionFormat
    prediction_files: PredictionFiles
    name: str
    model: str
    bundle: Bundle | None
    metadata: Mapping[str, str] | None = None
    extra_settings: Mapping[str, Any] = field(default_factory=dict)
    harness: Harness | None = None
    notes: Sequence[str] = ()


def parse_predictions(
    format_name: str,
    path: Path,
    *,
    model: str,
    run_id: str | None = None,
    bundle: Bundle | None = None,
    e: bool = False,
    metadata: Mapping[str, str] | None = None,
    strip_reasoning: bool = False,
) -> ParsedPredictions:
    """Read and check a prediction file or folder without writing. This needs memory of a few times the files' size.

    Args:
        format_name: name of the benchmark, or of an evaluation harness.
        path: a folder of task files or a single file, depending on the format.
        run_id: name of the run. The default is MODEL-FORMAT-HASH with the content's hash, so that other content makes
            another run.
        bundle: bundle with samples that are matched with the lines, so that the run can be compared with runs of lbx
            sample by sample. Lines without a match are imported unchanged. The bundle is not used for families whose
            samples depend on the model.
        e: whether the folder contains a benchmark's "_e" tasks, which a folder "pred_e" in the path implies.
        metadata: free keys and values to store with the run.

    Raises:
        UsageError: the path or a line is malformed, or no line matches a sample of the bundle.
        BundleError: the bundle lacks the data of all tasks, or data of a task is damaged.
    """
    if not model.strip():
        raise UsageError("The model's name is empty.", fix="Pass --model-name NAME.")
    if e and format_name in _HARNESSES:
        raise UsageError(f"--e does not apply to {format_name}, whose files name their tasks.", fix="Leave it out.")
    run = _HARNESSES[format_name](path) if format_name in _HARNESSES else None
    prediction_format, prediction_files = (
        (run.prediction_format, run.prediction_files) if run else _read_official(format_name, path, bundle, e=e)
    )
    if bundle and needs_model(BENCHMARKS[prediction_format.name]):
        log.info(f"The bundle is not used: the samples of {prediction_format.name} depend on the model that was asked.")
        bundle = None
    if bundle is not None:
        prediction_files = (match_judge_answers if prediction_files.for_judge else match_predictions)(
            prediction_format, bundle, prediction_files
        )
    if strip_reasoning:
        prediction_files = without_reasoning(prediction_format, prediction_files)
    name = run_id or f"{model}-{format_name}-{prediction_files.content_sha256[:8]}"
    if run:
        settings = {SETTING: run.harness.to_json()}
        return ParsedPredictions(
            prediction_format, prediction_files, name, model, bundle, metadata, settings, run.harness, run.notes
        )
    settings = (
        official_judge.settings_of_rows([row.line for row in prediction_files.rows])
        if prediction_files.for_judge
        else {}
    )
    return ParsedPredictions(prediction_format, prediction_files, name, model, bundle, metadata, settings)


def _read_official(
    format_name: str, path: Path, bundle: Bundle | None, *, e: bool
) -> tuple[PredictionFormat, PredictionFiles]:
    prediction_format = find_format(
        format_name,
        custom_names(bundle, {}) if bundle else (),
        condition="" if bundle else " and with --bundle, if the bundle contains it",
        further_names=IMPORT_FORMATS,
    )
    family = BENCHMARKS[prediction_format.name]
    if bundle and not prediction_format.known_tasks and not needs_model(family):
        prediction_format = replace(prediction_format, known_tasks=tuple(task.name for task in family.tasks(bundle)))
    if path.is_file():
        with suppress(ValueError, RecursionError):  # other problems are reported by the format's own reader
            row = json.loads(read_bytes(path).partition(b"\n")[0])
            if isinstance(row, dict) and {"judge", *official_judge.WINNER_KEYS} <= row.keys():
                raise UsageError(
                    f"{path} contains a judge's verdicts, not a model's answers.",
                    fix=f"Import it as {official_judge.JUDGEMENT_FORMAT}:",
                    command=as_command("lbx", "import", official_judge.JUDGEMENT_FORMAT, path, "-o", "RESULTS"),
                )
    is_for_judge = has_judge_answers(prediction_format, path, e=e)
    return prediction_format, read_judge_answers(prediction_format, [path]) if is_for_judge else read_predictions(
        prediction_format, path, e=e
    )


def write_predictions(store: Store, parsed_predictions: ParsedPredictions) -> ImportSummary:
    """Write predictions as a run, which stays open until ``Store.finish_run``. A repetition replaces the same rows.

    Raises:
        StoreError: the results file contains other samples under the same names, or another run of this name.
    """
    prediction_format, prediction_files, name, bundle = (
        parsed_predictions.prediction_format,
        parsed_predictions.prediction_files,
        parsed_predictions.name,
        parsed_predictions.bundle,
    )
    refuse_conflicts(prediction_format, store, prediction_files, bundle=bundle is not None)
    refuse_other_content(store, name, prediction_files.content_sha256)
    refuse_other_samples(store, _sample_rows(parsed_predictions), store.path)
    run = _run_row(parsed_predictions)
    answers = (_generation(name, prediction_format, prediction) for prediction in sorted_by_line(prediction_files))
    write_import(store, run, _sample_rows(parsed_predictions), answers)
    return ImportSummary(
        name,
        prediction_format.name,
        {task: len(predictions) for task, predictions in prediction_files.tasks.items()},
        sum(prediction.error is not None for prediction in prediction_files.rows),
        prediction_files.ignored_names,
        (*parsed_predictions.notes, *_setting_notes(run), *_notes(prediction_format, prediction_files)),
        sum(map(is_unmatched, prediction_files.rows)),
    )


def _sample_rows(parsed_predictions: ParsedPredictions) -> Iterator[SampleRow]:
    prediction_format, tasks, bundle = (
        parsed_predictions.prediction_format,
        parsed_predictions.prediction_files.tasks,
        parsed_predictions.bundle,
    )
    return (
        row for task, predictions in tasks.items() for row in sample_rows(prediction_format, task, predictions, bundle)
    )


def _setting_notes(run: RunRow) -> Iterator[str]:
    if tasks := run.settings.get(UNOFFICIAL_TASKS):
        reasons = "; ".join(f"{task}: {reason}" for task, reason in tasks.items())
        yield f"Files with other settings than the authors' get no official numbers ({reasons})."


def _notes(prediction_format: PredictionFormat, prediction_files: PredictionFiles) -> Iterator[str]:
    for predictions in prediction_files.tasks.values() if prediction_format.appends else ():
        if repeats := [prediction for prediction in predictions if prediction.iteration]:
            lines = line_spans([prediction.line.number for prediction in repeats])
            rows = format_count(len(repeats), "row answers", "rows answer")
            first = {prediction.sample_id: prediction.output for prediction in predictions if not prediction.iteration}
            n_different = sum(prediction.output != first.get(prediction.sample_id) for prediction in repeats)
            difference_note = f", {n_different:,} of them with another answer" if n_different else ""
            yield (
                f"{repeats[0].line.location}: {rows} a question again ({lines}){difference_note}; every row "
                "counts, as in the official scorer."
            )
    if prediction_files.is_stripped:
        n_split = sum(prediction.reasoning_closed is not None for prediction in prediction_files.rows)
        yield f"Reasoning was removed from {format_count(n_split, 'answer')}, and is kept as `reasoning`."
    elif blocks := count_blocks(prediction_files):
        n_answers = sum(map(len, prediction_files.tasks.values()))
        yield (
            f"{blocks:,} of {n_answers:,} answers contain a reasoning block (such as <think>...</think>), which "
            "is scored as part of the answer; --strip-reasoning removes it."
        )
    for prediction in prediction_files.rows:
        if prediction.note:
            yield f"{prediction.line.location}: {prediction.note}."
        if prediction.finish_reason == NOT_TEXT:
            yield f'{prediction.line.location}: the answer is not text; "" replaces it.'


def _run_row(parsed_predictions: ParsedPredictions) -> RunRow:
    prediction_format, prediction_files = parsed_predictions.prediction_format, parsed_predictions.prediction_files
    judged = {"judged": True} if prediction_files.for_judge else {}
    judged |= {"strip_reasoning": True} if prediction_files.is_stripped else {}
    row = make_import_row(
        parsed_predictions.harness.name if parsed_predictions.harness else prediction_format.name,
        prediction_files.content_sha256,
        parsed_predictions.bundle,
        run_id=parsed_predictions.name,
        model=parsed_predictions.model,
        versions={prediction_format.name: BENCHMARKS[prediction_format.name].metric_version},
        metadata=parsed_predictions.metadata,
        files=prediction_files.files,
        **prediction_format.settings_of([str(file["name"]) for file in prediction_files.files]),
        **judged,
        **parsed_predictions.extra_settings,
    )
    if (
        parsed_predictions.bundle is None or prediction_files.for_judge
    ):  # a file for a judge never has all samples of a task
        return row
    every = BENCHMARKS[prediction_format.name].tasks(parsed_predictions.bundle, list(prediction_files.tasks))
    return row.with_sample_counts([task for task in every if task.name in prediction_files.tasks])


def sorted_by_line(prediction_files: PredictionFiles) -> Iterator[Prediction]:
    """Yield predictions in file order. The tasks of a file may alternate."""
    if len(prediction_files.files) == 1 or prediction_files.for_judge:
        return iter(sorted(prediction_files.rows, key=lambda prediction: prediction.line.number))
    return iter(prediction_files.rows)


def sample_rows(
    prediction_format: PredictionFormat, task: str, predictions: list[Prediction], bundle: Bundle | None
) -> Iterator[SampleRow]:
    """Yield rows of a task's samples. Samples of a bundle are read again, with their documents."""
    pending = {prediction.sample_id: prediction for prediction in reversed(predictions) if prediction.sample}
    if bundle is not None and not all(map(is_unmatched, predictions)):
        for position, sample in enumerate(BENCHMARKS[prediction_format.name].samples(bundle, task)):
            if pending.pop(sample.sample_id, None):
                yield SampleRow(sample, position)
    for prediction in pending.values():
        assert prediction.sample is not None
        yield SampleRow(prediction.sample, prediction.position)


def _generation(run_id: str, prediction_format: PredictionFormat, prediction: Prediction) -> GenerationRow:
    reasoning = prediction.reasoning
    if reasoning is None and isinstance(prediction.line.values.get("reasoning"), str):
        reasoning = prediction.line.values["reasoning"]
    return GenerationRow(
        run_id,
        prediction_format.name,
        prediction.task,
        prediction.sample_id,
        prediction.iteration,
        output=prediction.output,
        reasoning=reasoning,
        reasoning_closed=prediction.reasoning_closed,
        finish_reason=prediction.finish_reason,
        error=prediction.error,
        error_type="imported" if prediction.error is not None else None,
        steps=prediction.steps,
        source_row=prediction.line.raw or None,
    )


def import_published_run(store: Store, bundle: Bundle, name: str, *, length_hint: bool = True) -> str:
    """Import a model's published answers to the judged questions as a run, unless the file already contains the run.

    The samples come from the bundle. To a question that is marked for both the judge and people, two answers exist:
    iteration 0 (for the judge) and iteration 1.

    Returns:
        The run's name, "published-NAME", with the suffix "-no-length-hint" without a length hint.

    Raises:
        BundleError: the bundle lacks these answers, or all of the questions.
        StoreError: the results file contains other answers, or other samples, under these names.
    """
    run_id = official_judge.published_run_id(name, length_hint=length_hint)
    prediction_format = find_format(official_judge.BENCHMARK)
    files_by_model = official_judge.published_files(bundle, length_hint=length_hint)
    if name in files_by_model:
        published_files = [path for relative_path in files_by_model[name] if (path := bundle.file(relative_path))]
    else:
        hint = "with" if length_hint else "without"
        raise BundleError(
            f"The bundle at {bundle.root} has no published answers of {name!r} {hint} a length hint.",
            fix=f"It has those for {', '.join(files_by_model)}."
            if files_by_model
            else f"Bundle {official_judge.TITLE} on a connected machine first.",
            command=""
            if files_by_model
            else as_command("lbx", "bundle", BENCHMARKS[official_judge.BENCHMARK].data.recipe),
        )
    prediction_files = read_judge_answers(prediction_format, published_files)
    rows = store.query("SELECT settings FROM runs WHERE run_id = ? AND status = 'done'", [run_id]).rows
    if any(json.loads(settings).get("content_sha256") == prediction_files.content_sha256 for (settings,) in rows):
        return run_id
    prediction_files = match_judge_answers(prediction_format, bundle, prediction_files)
    metadata = {"published": True, "length_hint": length_hint}
    done = write_predictions(
        store, ParsedPredictions(prediction_format, prediction_files, run_id, name, bundle, extra_settings=metadata)
    )
    store.finish_run(done.run_id, "done")
    return done.run_id


_OPENING = re.compile(r"\s*(<([\w:-]{0,20}(?:think|thought|reason)[\w:-]{0,20})>)", re.IGNORECASE)
_MAX_BLOCKS = 100
"""Maximum number of reasoning blocks that are removed from an answer."""


def split_blocks(text: str) -> tuple[str | None, str, bool | None]:
    """Split a text into (reasoning, answer, whether the reasoning was closed).

    Reasoning is the first block and blocks that directly follow it. Without a block: (None, text, None).
    """
    blocks: list[str] = []
    closed, tags = None, _reasoning_tags(text)
    while tags and len(blocks) < _MAX_BLOCKS:
        closed = tags.close in text
        reasoning, text = split_reasoning(text, marks=tags)
        blocks.append(reasoning or "")
        tags = _opening_tags(text)
    return ("\n\n".join(filter(None, blocks)), text, closed) if blocks else (None, text, None)


def count_blocks(prediction_files: PredictionFiles) -> int:
    """Count the answers that contain a block of reasoning."""
    return sum(_reasoning_tags(prediction.output or "") is not None for prediction in prediction_files.rows)


def without_reasoning(prediction_format: PredictionFormat, prediction_files: PredictionFiles) -> PredictionFiles:
    """Move blocks of reasoning out of answers. The content hash changes, so that the import makes another run.

    Raises:
        UsageError: an answer cannot be scored without the block.
    """
    tasks = {
        task: [prediction_format.split_reasoning(row, split_blocks) for row in rows]
        for task, rows in prediction_files.tasks.items()
    }
    return replace(
        prediction_files,
        tasks=tasks,
        content_sha256=sha256_text(f"{prediction_files.content_sha256} without reasoning"),
        is_stripped=True,
    )


def _reasoning_tags(text: str) -> ReasoningMarks | None:
    """Find the marks of the first block of reasoning in a text."""
    matches = (tags for tags in KNOWN_MARKS if split_reasoning(text, marks=tags)[0] is not None)
    return _opening_tags(text) or next(matches, None)


def _opening_tags(text: str) -> ReasoningMarks | None:
    """Find the marks of a block of reasoning at the start of a text."""
    if opening := _OPENING.match(text):
        return ReasoningMarks(opening[1], f"</{opening[2]}>")
    return next((tags for tags in KNOWN_MARKS if opening_end(text, tags.open)), None)
