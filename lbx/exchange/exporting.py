"""Export of runs as files that the official scorers read or write (``lbx export``).

The answers of a run are in the order of their prediction file, with their scores.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lbx.base.errors import LbxError, StoreError, UsageError
from lbx.base.inputs import path_inside, read_input
from lbx.base.outputs import write_all
from lbx.base.records import ScoredSample
from lbx.base.visible import as_command
from lbx.benchmarks.base.aggregates import numbers_by_task
from lbx.benchmarks.base.predictions import (
    AnswerToExport,
    JudgeResult,
    PredictionFormat,
    ScoredLine,
    ScoredRun,
    file_part,
    rows_by_task,
)
from lbx.benchmarks.registry import BENCHMARKS, EXPORT_FORMATS
from lbx.exchange.prediction_files import find_format
from lbx.results import Store
from lbx.results.file.imports import harness_of
from lbx.results.read.runs import check_runs, metadata
from lbx.results.rows import stored_sample

_IN_THE_DATA, _AS_IMPORTED = "a.position, g.iteration", "g.created_at"


def has_source_rows(run: Mapping[str, Any]) -> bool:
    """Whether a run was imported from files of an official script, which an export restores.

    Otherwise, lbx writes new files: for its own runs, and for answers imported from another evaluation harness.
    """
    return run["backend"] == "import" and harness_of(json.loads(run["settings"])) is None


def answered_tasks(store: Store, prediction_format: PredictionFormat, run_id: str) -> list[str]:
    """List the tasks with answers of a run, in the paper's order."""
    rows = store.query(
        "SELECT DISTINCT task FROM generations WHERE run_id = ? AND benchmark = ?", [run_id, prediction_format.name]
    )
    return prediction_format.sort_tasks({row[0] for row in rows.rows})


def stored_answers(
    store: Store, prediction_format: PredictionFormat, run_id: str, task: str | None = None, order: str = _IN_THE_DATA
) -> Iterator[AnswerToExport]:
    """Yield a run's successful answers to a task, or to all tasks."""
    rows = store.query(
        f"""
        SELECT g.task, a.sample_id, a.language, a.length, a.length_unit, a."references", a.question, a.meta,
               a.position, g.iteration, g.output, g.reasoning, g.steps, g.source_row
        FROM generations g JOIN samples a USING (benchmark, task, sample_id)
        WHERE g.run_id = ? AND g.benchmark = ? AND (g.task = ? OR ? IS NULL) AND g.error IS NULL
        ORDER BY {order}
        """,  # noqa: S608 (our own names)
        [run_id, prediction_format.name, task, task],
    ).dicts()
    for row in rows:
        sample = stored_sample(prediction_format.name, row["task"], row)
        steps = json.loads(row["steps"]) if row["steps"] else []
        answer = row["output"] or "", row["reasoning"], steps, row["source_row"] or "{}"
        yield AnswerToExport(sample, row["position"], row["iteration"], *answer)


_PARTLY_ASKED = """
    SELECT g.task, count(DISTINCT g.sample_id), count(DISTINCT s.question)
    FROM generations g JOIN coverage c USING (run_id, benchmark, task)
    LEFT JOIN samples s USING (benchmark, task, sample_id)
    WHERE g.run_id = ? AND g.benchmark = ?
    GROUP BY g.task, c.bundle_samples HAVING count(DISTINCT g.sample_id) < c.bundle_samples ORDER BY g.task
"""


def _read_settings(store: Store, prediction_format: PredictionFormat, run: Mapping[str, Any]) -> dict[str, Any]:
    """Read a run's settings, with ``asked`` for ``PredictionFormat.label``."""
    rows = store.query(_PARTLY_ASKED, [run["run_id"], prediction_format.name]).rows
    return {**json.loads(run["settings"]), "asked": {task: counts for task, *counts in rows}}


_JUDGED = """
    SELECT judge, against_run_id, n_wins, n_draws, win_rate FROM judge_results
    WHERE run_id = ? AND benchmark = ? AND rubric = ? AND kind = 'pair' AND questions = 'all' AND task IS NULL
    ORDER BY judge, judge_id, against_run_id
"""


def scored_run(store: Store, prediction_format: PredictionFormat, run: Mapping[str, Any]) -> ScoredRun:
    """Read the scored answers that a run's prediction file contains.

    Args:
        run: row of the table ``runs``.

    Raises:
        UsageError: no answer is scored.
    """
    settings, is_own_run = _read_settings(store, prediction_format, run), not has_source_rows(run)
    if run["backend"] == "endpoint" and settings.get("backend.tokenizer") is None:
        settings["context_window"] = None  # it counts characters: the server's window in tokens is unknown
    label = prediction_format.label(run["model"], settings) if is_own_run else run["model"]
    find = partial(_new_lines, label=label) if is_own_run else _imported_lines
    lines = list(find(store, prediction_format, run["run_id"]))
    if not lines:
        raise UsageError(
            f"No answer of the run {run['run_id']!r} to {prediction_format.name} has a score.",
            fix="Score it first.",
            command=as_command("lbx", "score", store.path),
        )
    file = ""
    if not prediction_format.folder:
        file = prediction_format.file_name(label, "") if is_own_run else settings["files"][0]["name"]
    family, rows = BENCHMARKS[prediction_format.name], rows_by_task(lines)
    return ScoredRun(
        run["run_id"],
        label,
        settings,
        metadata(store, run["run_id"]),
        is_own_run,
        file,
        run["finished_at"] or run["started_at"],
        lines,
        numbers_by_task(family.aggregate, rows),
        family.groups(rows),
        [
            JudgeResult(**row)
            for row in store.query(_JUDGED, [run["run_id"], prediction_format.name, prediction_format.name]).dicts()
        ],
    )


def _new_lines(store: Store, prediction_format: PredictionFormat, run_id: str, label: str) -> Iterator[ScoredLine]:
    scores = _NewestScores(store, run_id, prediction_format.name)
    for task in answered_tasks(store, prediction_format, run_id):
        for answer in stored_answers(store, prediction_format, run_id, task):
            if not prediction_format.omission_reason(answer):
                yield from scores.line(answer, partial(prediction_format.row_with_reasoning, label, task, answer))


def _imported_lines(store: Store, prediction_format: PredictionFormat, run_id: str) -> Iterator[ScoredLine]:
    scores = _NewestScores(store, run_id, prediction_format.name)
    for answer in stored_answers(store, prediction_format, run_id, order=_AS_IMPORTED):
        yield from scores.line(answer, partial(json.loads, answer.source_row.removeprefix("\ufeff")))


class _NewestScores:
    """The newest scores of a run's answers to a benchmark."""

    def __init__(self, store: Store, run_id: str, benchmark: str) -> None:
        self._by_answer: dict[tuple[str, str, int], tuple[dict[str, float], bool, bool]] = {}
        for task, sample_id, iteration, metrics, lacks, failed in store.query(
            "SELECT task, sample_id, iteration, map_from_entries(list((metric, score))), bool_or(partial IS NOT NULL), "
            "bool_or(error IS NOT NULL) FROM scores WHERE run_id = ? AND benchmark = ? GROUP BY ALL",
            [run_id, benchmark],
        ).rows:
            self._by_answer[task, sample_id, iteration] = (dict(metrics), lacks, failed)

    def line(self, answer: AnswerToExport, row: Any) -> Iterator[ScoredLine]:
        """Yield an answer with scores. An answer without scores, such as one for a judge, is skipped."""
        sample = answer.sample
        if texts := self._by_answer.get((sample.task, sample.sample_id, answer.iteration)):
            scores, lacks, failed = texts
            reasoned = answer.reasoning is not None
            scored = ScoredSample(sample, scores, answer.iteration, lacks, reasoned=reasoned)
            yield ScoredLine(scored, answer.output, row, failed)


_MAX_GROWN_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """Files that an export wrote, and counts.

    Attributes:
        rows: number of lines of prediction files, or of answers that the results cover.
        left_out: {reason: number of answers left out}, such as "failed", "further iterations", "empty answers".
    """

    files: tuple[Path, ...]
    rows: int
    left_out: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _RunFiles:
    """Content of a run's files.

    Attributes:
        files: {path: pieces of text}.
        rows: number of answers in the files.
        left_out: {reason: number of answers left out}.
    """

    files: Mapping[str, Sequence[str]]
    rows: int
    left_out: Mapping[str, int]


def export(
    store: Store,
    format_name: str,
    run_id: str | Sequence[str],
    directory: Path,
    *,
    results: bool = False,
    force: bool = False,
) -> ExportSummary:
    """Write runs' answers to a benchmark family as official prediction files.

    Files of an imported run are restored byte for byte. Documents are not stored, so the files contain none.

    Args:
        format_name: name of the benchmark.
        run_id: name of a run, or names of several runs that write different files.
        directory: folder for the files, created if missing.
        results: whether to write the official scorer's output for these files instead, byte for byte.

    Raises:
        UsageError: a run is unknown or contains no answers to this benchmark, a file already exists, or with
            ``results`` the scorer writes no file, would stop, or needs missing scores.
        LbxError: the disk is full or the folder cannot be written. All files are then unchanged.
    """
    run_ids = [run_id] if isinstance(run_id, str) else list(dict.fromkeys(run_id))
    files: dict[str, Sequence[str]] = {}
    rows, left_out = 0, Counter[str]()
    for name in run_ids:
        check_runs(store, [name])
        (run,) = store.query("SELECT * FROM runs WHERE run_id = ?", [name]).dicts()
        prediction_format = find_format(
            format_name,
            [benchmark for benchmark in _answered_benchmarks(store, name) if benchmark not in set(BENCHMARKS)],
            further_names=EXPORT_FORMATS,
        )
        run_files = (_result_files if results else _prediction_files)(store, prediction_format, run)
        if not run_files.files:
            benchmarks = _answered_benchmarks(store, name)
            if prediction_format.name in benchmarks:
                raise UsageError(
                    f"The run {name!r} has no answer to {prediction_format.name} that can be exported: all failed, or "
                    "are left out.",
                    fix=f"`{as_command('lbx', 'report', store.path, 'failures')}` shows the reasons for failures.",
                )
            raise UsageError(
                f"The run {name!r} has no answers to {prediction_format.name}.",
                fix=f"It has answers to {', '.join(benchmarks)}." if benchmarks else "It has no answers yet.",
            )
        for relative_path, pieces in run_files.files.items():
            files[relative_path] = (
                _join_runs(prediction_format, relative_path, files[relative_path], pieces)
                if relative_path in files
                else pieces
            )
        rows += run_files.rows
        left_out.update(run_files.left_out)
    targets = {
        _target_path(directory, relative_path, ", ".join(run_ids)): pieces for relative_path, pieces in files.items()
    }
    result_format = BENCHMARKS[prediction_format.name].results
    grown = directory / ((result_format and result_format.growing_file) or ".")
    if grows := grown in targets and grown.is_file():
        text = read_input(grown, _MAX_GROWN_BYTES).decode("utf-8", "backslashreplace")  # invalid UTF-8 is no JSON
        targets[grown] = _join_runs(prediction_format, grown.name, [text], targets[grown])
    if not force:
        _refuse_existing(path for path in targets if not (grows and path == grown))
    _write_all(targets)
    return ExportSummary(tuple(targets), rows, dict(left_out))


def write_files(
    directory: Path, files: Mapping[str, Iterable[str]], *, run_names: str, force: bool = False
) -> tuple[Path, ...]:
    """Write {path: pieces of text} to a folder, all or none.

    Raises:
        UsageError: a file already exists.
        StoreError: a path leads out of the folder.
        LbxError: the disk is full or the folder cannot be written. All files are then unchanged.
    """
    targets = {_target_path(directory, relative_path, run_names): pieces for relative_path, pieces in files.items()}
    if not force:
        _refuse_existing(targets)
    _write_all(targets)
    return tuple(targets)


def _join_runs(
    prediction_format: PredictionFormat, relative_path: str, first: Sequence[str], second: Sequence[str]
) -> list[str]:
    result_format = BENCHMARKS[prediction_format.name].results
    text = result_format.join(relative_path, "".join(first), "".join(second)) if result_format else None
    if text is None:
        raise UsageError(
            f"{relative_path} cannot be extended with another run: the file format describes a single run, or lbx did "
            "not write this file.",
            fix="Export each run into a separate folder.",
        )
    return [text]


def _prediction_files(store: Store, prediction_format: PredictionFormat, run: Mapping[str, Any]) -> _RunFiles:
    if has_source_rows(run):
        (files, companions), left_out = _imported_files(store, prediction_format, run), Counter[str]()
    else:
        files, companions, left_out = _new_files(store, prediction_format, run)
    n_rows = sum(map(len, files.values()))
    return _RunFiles({**files, **{path: [text] for path, text in companions.items()}}, n_rows, left_out)


def _result_files(store: Store, prediction_format: PredictionFormat, run: Mapping[str, Any]) -> _RunFiles:
    result_format = BENCHMARKS[prediction_format.name].results
    predictions = _prediction_files(store, prediction_format, run)
    if not predictions.files:
        return predictions
    scored = scored_run(store, prediction_format, run)
    files = {
        relative_path: [text] for relative_path, text in (result_format.write(scored) if result_format else {}).items()
    }
    if result_format is None or not files:
        raise UsageError(
            f"The run {run['run_id']!r} cannot be exported as an official result file: {prediction_format.name} has no "
            "such format, or the run has no score for one.",
            fix="Leave out --results to export only the answers, or score the run again.",
        )
    if result_format.holds_predictions:
        files |= {
            f"{file_part(scored.model)}/{relative_path}": list(lines)
            for relative_path, lines in predictions.files.items()
        }
    return _RunFiles(files, len(scored.lines), predictions.left_out)


def _target_path(directory: Path, name: str, run_id: str) -> Path:
    try:
        return path_inside(directory, name)
    except ValueError as exc:
        raise StoreError(
            f"The run {run_id!r} contains the file name {name!r}, which cannot be written: {exc}.",
            fix="No files were exported. Ask the author of the results file.",
        ) from exc


def _answered_benchmarks(store: Store, run_id: str) -> list[str]:
    benchmarks = store.query("SELECT DISTINCT benchmark FROM generations WHERE run_id = ? ORDER BY ALL", [run_id])
    return [row[0] for row in benchmarks.rows]


def _imported_files(
    store: Store, prediction_format: PredictionFormat, run: Mapping[str, Any]
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Read the original lines of each imported file, and the texts of companions.

    The last line ends with a line feed only if it did in the file.
    """
    settings = json.loads(run["settings"])
    if settings.get("imported") != prediction_format.name:
        return {}, {}
    stored = stored_files(store, run["run_id"], settings)
    files: dict[str, list[str]] = {}
    companions: dict[str, str] = {}
    totals: Counter[str | None] = Counter()
    for file in stored:
        totals[file.task] += file.rows
    begins: Counter[str | None] = Counter()
    for file in stored:
        rows = store.query(
            "SELECT source_row FROM generations WHERE run_id = ? AND benchmark = ? AND (task = ? OR ? IS NULL) "
            "ORDER BY created_at",
            [run["run_id"], prediction_format.name, file.task, file.task],
        ).rows
        if len(rows) == totals[file.task]:
            begin = begins[file.task]
            rows = rows[begin : begin + file.rows]
            begins[file.task] += file.rows
        relative_path = "/".join(
            filter(None, (file.folder, prediction_format.export_path(run["model"], file.task, file.name)))
        )
        if len(rows) != file.rows or not rows or relative_path in files:
            raise incomplete_import_error(store, run["run_id"])
        files[relative_path] = file.lines([text for (text,) in rows])
        companion = prediction_format.companion(Path(relative_path))
        if companion and file.companion:
            companions[str(companion)] = file.companion
    return files, companions


def incomplete_import_error(store: Store, run_id: str) -> StoreError:
    """Build the error for an import that lacks some of the files' lines."""
    return StoreError(
        f"The import {run_id!r} in {store.path} is not complete.", fix="Import the files again, then export."
    )


def stored_files(store: Store, run_id: str, settings: Mapping[str, Any]) -> list[StoredFile]:
    """List the files that a run was imported from. Raises StoreError if the run's settings do not list files."""
    try:
        return [StoredFile(**file) for file in settings["files"]]
    except (KeyError, TypeError, ValueError) as exc:
        raise StoreError(
            f"{store.path} does not record the files from which {run_id!r} was imported.",
            fix="Import the files again, then export.",
        ) from exc


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An imported file, stored as an element of ``PredictionFiles.files``. ``name`` must be a single path component.

    ``companion`` is the text of ``PredictionFormat.companion``.
    """

    name: str
    task: str | None
    rows: int
    final_newline: bool
    separator: str = "\n"
    folder: str = ""
    companion: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.companion, str):
            raise TypeError(self.companion)
        for text in (self.name, self.folder, self.separator):
            if not isinstance(text, str) or "/" in text:
                raise ValueError(text)

    def lines(self, rows: Sequence[str]) -> list[str]:
        """Join rows with the file's separator. The last line ends with it only if it did in the file."""
        lines = [f"{row}{self.separator}" for row in rows]
        if not self.final_newline:
            lines[-1] = lines[-1].removesuffix(self.separator)
        return lines


def _new_files(
    store: Store, prediction_format: PredictionFormat, run: Mapping[str, Any]
) -> tuple[dict[str, list[str]], dict[str, str], Counter[str]]:
    settings = _read_settings(store, prediction_format, run)
    label = prediction_format.label(run["model"], settings)
    files: dict[str, list[str]] = {}
    companions: dict[str, str] = {}
    left_out: Counter[str] = Counter()
    for task in answered_tasks(store, prediction_format, run["run_id"]):
        file = prediction_format.export(
            label, task, list(stored_answers(store, prediction_format, run["run_id"], task))
        )
        left_out.update(file.omitted_counts)
        if file.rows:
            files.setdefault(file.name, []).extend(prediction_format.format_rows(file.rows))
            companions |= prediction_format.companions(label, task, settings)
    failed = "SELECT count(*) FROM generations WHERE run_id = ? AND benchmark = ? AND error IS NOT NULL"
    left_out["failed"] = store.query(failed, [run["run_id"], prediction_format.name]).rows[0][0]
    return files, companions, +left_out


def _refuse_existing(targets: Iterable[Path]) -> None:
    existing = [path for path in targets if path.exists()]
    if existing:
        more = (
            f" and {len(existing) - 1} more {'files' if len(existing) > 2 else 'file'} already exist"
            if existing[1:]
            else ""
        )
        fix = "Choose another folder, or replace them with --force."
        raise UsageError(f"{existing[0]}{more or ' already exists'}.", fix=fix)


def _write_all(targets: Mapping[Path, Iterable[str]]) -> None:
    try:
        write_all({path: (text.encode("utf-8", "replace") for text in pieces) for path, pieces in targets.items()})
    except OSError as exc:
        raise LbxError(
            f"{exc.filename or 'The export'} cannot be written: {exc.strerror or exc}.",
            fix="No files were exported. Fix the cause (such as a full disk, or a folder that you may not write "
            "to) and try again.",
        ) from exc
