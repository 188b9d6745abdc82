"""Report definitions for runs and their scores: views, columns, order and formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lbx.base.columns import Column
from lbx.base.marks import MARKS, WORST_FIRST
from lbx.report.shapes import COVERAGE, PUBLISHED, Report

if TYPE_CHECKING:  # the command line lists the reports without loading DuckDB
    from lbx.store import Table

_WHO = (Column("model", "model"), Column("backend", "backend", rank=9), Column("mode", "mode", optional=True, rank=3))
_TASK = (Column("benchmark", "benchmark"), Column("task", "task"))
_TWIN = Column("differs_in", "differs in", optional=True, rank=2)

_MARK_TEXTS = ", ".join(
    f"CASE WHEN g.{mark.name} > 0 THEN '{mark.words} ' || printf('%.3g%%', 100 * g.{mark.name} / g.n) END"
    for mark in MARKS
    if mark.name != "partial"
)
_SCORES_WITH_MARKS = f"""
    SELECT t.*, CASE WHEN t.headline THEN
               nullif(concat_ws('; ', {_MARK_TEXTS}, CASE WHEN g.partial > 0 THEN 'partial: ' || g.lacks END), '')
           END AS marks
    FROM task_scores t LEFT JOIN guards g USING (run_id, benchmark, task)
"""  # noqa: S608 (our own names)


def _any_of(*columns: str) -> Callable[[Mapping[str, Any]], bool]:
    """Return a predicate: a row has a value in any of these columns."""
    return lambda row: any(row.get(name) is not None for name in columns)


def _leaderboard_notes(made: Table) -> list[str]:
    notes = [
        f"{row.get('label') or row['model']}, {row['benchmark']}: {row['answered']:,} of {row['asked']:,} samples "
        f"answered; with the others all wrong or all right the score is {100 * row['failed_as_0']:.1f} to "
        f"{100 * row['failed_as_1']:.1f}."
        for row in made.dicts()
        if None not in (row["answered"], row["asked"], row["failed_as_0"], row["failed_as_1"])
        and row["answered"] < row["asked"]
    ]
    if any(row.get("place") for row in made.dicts()):
        notes.append("A place is a range where other runs are not significantly better or worse (Holm, 5%).")
    return notes


def _guards_notes(made: Table) -> list[str]:
    sure = any(value is not None for row in made.dicts() for name, value in row.items() if name.endswith("_low"))
    return ["Beside rates stand 95% intervals. JSON and csv have counts, too."] if sure else []


def _truncation_effect_notes(made: Table) -> list[str]:
    parts = {row["prompts"] for row in made.dicts()}
    notes = []
    if "whole less cut, unpaired" in parts:
        notes.append("The cut prompts are the longer ones: whole less cut is not due to the cut alone.")
    if "second less first, paired" in parts:
        notes.append("Pairs: the run's score less that of the run against, on samples whose prompt neither cut.")
    return notes


def _effective_context_notes(made: Table) -> list[str]:
    rows = made.dicts()
    notes = [
        f"Effective: the longest length at which it and all shorter ones have {rule}; retained and lost: by each "
        "length's 95% interval. Compared are lengths with 30 samples, on tasks that have 10 at each of them."
        for rule in dict.fromkeys(row["rule"] for row in rows)
    ]
    if any(row["why"] for row in rows):
        notes.append(
            "No length is claimed of which more than 5% of the prompts were cut, or may have been, and none whose "
            "score is not significantly above guessing (where that is less, above 10)."
        )
    for row in rows:
        where = f"{row['benchmark']}, {row['length_unit']}"
        left = f"; left out, with fewer at some length: {row['left_out']}" if row["left_out"] else ""
        notes.append(
            f"{where}: {row['task_names']}{left}."
            if row["tasks"]
            else f"{where}: no two lengths can be compared on the same tasks."
        )
    return list(dict.fromkeys(notes))


def _cost_notes(made: Table) -> list[str]:
    rows, notes = made.dicts(), []
    if any(row["unbeaten"] is not None for row in rows):
        notes.append(
            "Unbeaten: no other run on the same tasks scores as much in fewer seconds an answer. Seconds on different "
            "hardware are no comparison."
        )
    if any(row["benchmark"] == "judge" for row in rows):
        notes.append("A judge has no score, so a correct answer has no price.")
    if untimed := {row["run_id"] for row in rows if row["untimed_sessions"]}:
        notes.append(f"Of {len(untimed):,} runs hours are a lower bound: a session was killed or is still running.")
    return notes


SCORES: dict[str, Report] = {
    "leaderboard": Report(
        "Leaderboard (each benchmark's one score, percent)",
        "",
        (
            Column("place", "place", optional=True),
            *_WHO,
            _TWIN,
            Column("benchmark", "benchmark"),
            Column("tasks", "tasks", "count", rank=6),
            Column("n", "scored", "count", rank=4),
            COVERAGE,
            Column("score", "score", "percent", interval=True),
            Column("score_of", "score is", missing="", rank=2),
            Column("failed", "failed", "count", rank=1),
            Column("truncated", "truncated", "count", unknown=True, rank=7),
            Column("status", "status", rank=5),
        ),
        notes=_leaderboard_notes,
        empty="No answer has a score yet. judge_results and rating_results show what judges and people say.",
        reads="coverage",
        page=1,
    ),
    "task_scores": Report(
        "Scores by task (percent; official: as the benchmark's own script prints it)",
        "benchmark, task_position, task, position, metric, model, backend, run_id",
        (
            *_TASK,
            Column("metric", "metric"),
            *_WHO,
            _TWIN,
            Column("n", "scored", "count", rank=4),
            COVERAGE,
            Column("score", "score", "percent", interval=True),
            Column("official", "official", "number", rank=2),
            Column("marks", "marks", optional=True, rank=1),
        ),
        rows=_SCORES_WITH_MARKS,
        empty="No answer has been scored yet.",
        reads="coverage",
        page=4,
    ),
    "paper": Report(
        "As the papers print it (official numbers; tasks in the paper's order, then its averages)",
        "benchmark, part, place, position, line, run",
        (Column("benchmark", "benchmark"), Column("line", "task")),
        pivot=("run", Column("official", "official", "number", interval=True)),
        empty="No answer has been scored yet.",
        takes=PUBLISHED,
        reads="coverage",
        page=2,
    ),
    "group_scores": Report(
        "Scores over several tasks (percent; official: as the benchmark's own script prints it)",
        "benchmark, model, backend, run_id, position",
        (
            *_WHO,
            Column("benchmark", "benchmark"),
            Column("grouping", "by"),
            Column("name", "group"),
            Column("metric", "metric"),
            Column("n", "scored", "count", rank=4),
            COVERAGE,
            Column("score", "score", "percent", interval=True),
            Column("official", "official", "number"),
            Column("partial", "partial", rank=8),
        ),
        empty="No benchmark has a number over several tasks yet.",
        reads="numbers",
    ),
    "guards": Report(
        "What may have spoilt scores (percent of the answers for which it is known)",
        "",
        (
            *_TASK,
            *_WHO,
            Column("n", "asked", "count"),
            *(
                Column(
                    f"{mark.name}_rate",
                    mark.heading,
                    "percent",
                    interval=True,
                    of=f"{mark.name}_",
                    unknown=True,
                    rank=mark.rank,
                )
                for mark in WORST_FIRST
            ),
            Column("tokens_cut", "tokens cut", "count", unknown=True, rank=7),
        ),
        notes=_guards_notes,
        empty="No run has answered anything yet.",
        page=16,
    ),
    "length_curve": Report(
        "Score by length (percent; a column holds lengths up to its heading)",
        "benchmark, task, length_unit DESC, model, backend, run_id, length_up_to",
        (*_TASK, Column("length_unit", "unit", rank=2), *_WHO, COVERAGE),
        pivot=("length_up_to", Column("score", "score", "percent", interval=True)),
        empty="No answer has been scored yet.",
        reads="numbers",
        page=10,
    ),
    "truncation": Report(
        "Truncation",
        "benchmark, task, model, backend, run_id",
        (
            *_TASK,
            *_WHO,
            Column("n", "answered", "count"),
            Column("truncated", "prompts cut", "count", unknown=True),
            Column("share", "share %", "percent", unknown=True),
            Column("mean_tokens_cut", "tokens cut, mean", "count", unknown=True, rank=4),
            Column("longest_prompt", "longest prompt", "count", unknown=True, rank=3),
            Column("longest_prompt_sent", "as sent", "count", unknown=True, rank=3),
            Column("answers_cut", "answers at their limit", "count", unknown=True, rank=2),
        ),
        empty="No run has answered anything yet.",
        says=_any_of("truncated", "longest_prompt", "longest_prompt_sent", "answers_cut"),
        page=14,
    ),
    "truncation_effect": Report(
        "Prompts read whole, and prompts that were cut (scores and differences in percent)",
        "",
        (
            *_WHO,
            _TWIN,
            *(Column("benchmark", "benchmark"), Column("task", "task", missing="mean of tasks")),
            Column("tasks", "tasks", "count", optional=True, rank=3),
            Column("prompts", "prompts"),
            Column("against", "against", optional=True, rank=4),
            Column("n", "samples", "count"),
            Column("clusters", "clusters", "count", rank=5),
            Column("score", "score", "percent", interval=True),
            Column("p", "p", "p", optional=True),
        ),
        notes=_truncation_effect_notes,
        empty="No answer has been scored yet.",
        says=lambda row: row["prompts"] != "unknown",
        takes=("--baseline",),
        page=13,
    ),
    "effective_context": Report(
        "Effective context (scores in percent; a column holds lengths up to its heading)",
        "",
        (
            *_WHO,
            _TWIN,
            Column("benchmark", "benchmark"),
            Column("length_unit", "unit", rank=2),
            Column("tasks", "tasks", "count", rank=1),
            Column("effective", "effective", "count", missing="no claim"),
            Column("kept_to", "retained to (95%)", "count", missing="no claim"),
            Column("lost_from", "lost from (95%)", "count", missing="not seen"),
            Column("why", "why no more", optional=True),
        ),
        pivot=("length_up_to", Column("score", "score", "percent", interval=True)),
        notes=_effective_context_notes,
        empty="No answer whose length is known has been scored yet.",
        takes=("--keep", "--at-least"),
        page=11,
    ),
    "needles": Report(
        "Needles found, by length and depth (percent; a column holds one length)",
        "",
        (
            *_WHO,
            _TWIN,
            *(Column("benchmark", "benchmark"), Column("task", "task", missing="mean of tasks")),
            Column("length_unit", "unit", rank=3),
            Column("depth", "depth %", "share"),
        ),
        pivot=("length", Column("score", "score", "percent", interval=True)),
        empty="No needle has been asked for yet: --tasks needle does that.",
        page=12,
    ),
    "cost": Report(
        "What scores cost (score in percent; seconds are the model's, tokens those that were computed)",
        "",
        (
            *_WHO,
            _TWIN,
            *(Column("benchmark", "benchmark"), Column("task", "task", missing="all tasks")),
            Column("n", "samples", "count", rank=5),
            Column("score", "score", "percent", interval=True),
            Column("seconds_per_answer", "s an answer", "quantity", unknown=True),
            Column("unbeaten", "unbeaten", "flag", missing="", optional=True),
            Column(
                "seconds_per_correct",
                "s a correct one",
                "quantity",
                interval=True,
                of="seconds_per_correct_",
                optional=True,
            ),
            Column(
                "tokens_per_correct",
                "tokens a correct one",
                "quantity",
                interval=True,
                of="tokens_per_correct_",
                optional=True,
                rank=1,
            ),
            Column("prefill_tokens_s", "prefill tokens/s", "quantity", unknown=True, rank=2),
            Column("decode_tokens_s", "decode tokens/s", "quantity", unknown=True, rank=2),
            Column("cached_share", "prompt never computed %", "percent", unknown=True, rank=3),
            Column("seconds_saved", "s so saved", "quantity", unknown=True, rank=4),
            Column("hours", "hours", "quantity", unknown=True, rank=1),
            Column("hours_of", "hours of", optional=True, rank=1),
        ),
        notes=_cost_notes,
        empty="No answer has been scored yet.",
        says=_any_of("seconds_per_answer", "tokens_per_correct", "hours"),
        page=15,
    ),
    "failures": Report(
        "Failed samples",
        "benchmark, task, sample_id, iteration, model, backend, run_id",
        (*_TASK, Column("sample_id", "sample"), *_WHO, Column("error", "error")),
        empty="No sample failed.",
    ),
    "estimates": Report(
        "What each session was expected to take, and what it took (ratio: seconds taken for each estimated one)",
        "started_at, run_id, session",
        (
            Column("run_id", "run"),
            Column("session", "session", "count"),
            Column("status", "status", rank=3),
            Column("workers", "workers", "count", rank=9),
            Column("planned_samples", "samples planned", "count", rank=4),
            Column("samples", "done", "count"),
            Column("planned_distinct_tokens", "distinct tokens planned", "count", rank=8),
            Column("computed_prompt_tokens", "computed", "count", rank=7),
            Column("planned_new_tokens", "answer tokens expected", "count", rank=6),
            Column("output_tokens", "made", "count", rank=5),
            Column("estimated_s", "estimated s", "quantity"),
            Column("wall_s", "took s", "quantity"),
            Column("ratio", "ratio", "quantity"),
            Column("estimate_basis", "estimate based on", rank=10),
        ),
        empty="No call of lbx run is recorded: runs that were imported have none.",
    ),
}
