"""Stored answers of a run in the order of their prediction file, with their scores."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from lbx.base.commands import as_command
from lbx.base.errors import UsageError
from lbx.base.records import ScoredSample
from lbx.benchmarks.base.aggregates import numbers_by_task
from lbx.benchmarks.base.predictions import (
    AnswerToExport,
    JudgeResult,
    PredictionFormat,
    ScoredLine,
    ScoredRun,
    rows_by_task,
)
from lbx.benchmarks.registry import BENCHMARKS
from lbx.store import Store
from lbx.store.imports import harness_of
from lbx.store.rows import stored_sample
from lbx.store.runs import metadata

_IN_THE_DATA, _AS_IMPORTED = "a.position, g.iteration", "g.created_at"


def has_source_rows(run: Mapping[str, Any]) -> bool:
    """Whether a run was imported from files of an official script, which an export restores.

    lbx writes the files of its own runs, and of answers that were imported from another evaluation harness.
    """
    return run["backend"] == "import" and harness_of(json.loads(run["settings"])) is None


def answered_tasks(store: Store, form: PredictionFormat, run_id: str) -> list[str]:
    """Tasks with generations of a run, in the paper's order."""
    rows = store.query("SELECT DISTINCT task FROM generations WHERE run_id = ? AND benchmark = ?", [run_id, form.name])
    return form.sort_tasks({row[0] for row in rows.rows})


def stored_answers(
    store: Store, form: PredictionFormat, run_id: str, task: str | None = None, order: str = _IN_THE_DATA
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
        [run_id, form.name, task, task],
    ).dicts()
    for row in rows:
        sample = stored_sample(form.name, row["task"], row)
        steps = json.loads(row["steps"]) if row["steps"] else []
        answer = row["output"] or "", row["reasoning"], steps, row["source_row"] or "{}"
        yield AnswerToExport(sample, row["position"], row["iteration"], *answer)


_JUDGED = """
    SELECT judge, against_run_id, n_wins, n_draws, win_rate FROM judge_results
    WHERE run_id = ? AND benchmark = ? AND rubric = ? AND kind = 'pair' AND questions = 'all' AND task IS NULL
    ORDER BY judge, judge_id, against_run_id
"""


def scored_run(store: Store, form: PredictionFormat, run: Mapping[str, Any]) -> ScoredRun:
    """Return the scored answers that a run's prediction file contains.

    Args:
        run: row of the table ``runs``.

    Raises:
        UsageError: no answer is scored.
    """
    settings, is_own_run = json.loads(run["settings"]), not has_source_rows(run)
    if run["backend"] == "endpoint" and settings.get("backend.tokenizer") is None:
        settings["context_window"] = None  # it counts characters: the server's window in tokens is unknown
    label = form.label(run["model"], settings) if is_own_run else run["model"]
    find = partial(_own_lines, label=label) if is_own_run else _imported_lines
    lines = list(find(store, form, run["run_id"]))
    if not lines:
        raise UsageError(
            f"No answer of the run {run['run_id']!r} to {form.name} has a score.",
            fix="Score it first.",
            command=as_command("lbx", "score", store.path),
        )
    file = ""
    if not form.folder:
        file = form.file_name(label, "") if is_own_run else settings["files"][0]["name"]
    family, rows = BENCHMARKS[form.name], rows_by_task(lines)
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
        [JudgeResult(**row) for row in store.query(_JUDGED, [run["run_id"], form.name, form.name]).dicts()],
    )


def _own_lines(store: Store, form: PredictionFormat, run_id: str, label: str) -> Iterator[ScoredLine]:
    scores = _NewestScores(store, run_id, form.name)
    for task in answered_tasks(store, form, run_id):
        for answer in stored_answers(store, form, run_id, task):
            if not form.omission_reason(answer):
                yield from scores.line(answer, partial(form.row_with_reasoning, label, task, answer))


def _imported_lines(store: Store, form: PredictionFormat, run_id: str) -> Iterator[ScoredLine]:
    scores = _NewestScores(store, run_id, form.name)
    for answer in stored_answers(store, form, run_id, order=_AS_IMPORTED):
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
        """Yield the answer with its scores; skip an unscored answer, such as rows for a judge."""
        sample = answer.sample
        if texts := self._by_answer.get((sample.task, sample.sample_id, answer.iteration)):
            scores, lacks, failed = texts
            reasoned = answer.reasoning is not None
            scored = ScoredSample(sample, scores, answer.iteration, lacks, reasoned=reasoned)
            yield ScoredLine(scored, answer.output, row, failed)
