"""What is reported of runs and their scores: from which view, in which columns and order, shown how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lbx.base.marks import MARKS, WORST_FIRST
from lbx.report import notes
from lbx.report.shapes import PUBLISHED, Column, Report

_WHO = (Column("model", "model"), Column("backend", "backend", rank=9), Column("mode", "mode", optional=True, rank=3))
_TASK = (Column("benchmark", "benchmark"), Column("task", "task"))
_TWIN = Column("differs_in", "differs in", optional=True, rank=2)
_COVERAGE = Column("coverage", "samples", optional=True, rank=4)
"""Beside every score of a part of the samples: "3 of 269"."""

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
    """Whether any of these is known of a row."""
    return lambda row: any(row.get(name) is not None for name in columns)


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
            _COVERAGE,
            Column("score", "score", "percent", interval=True),
            Column("score_of", "score is", missing="", rank=2),
            Column("failed", "failed", "count", rank=1),
            Column("truncated", "truncated", "count", unknown=True, rank=7),
            Column("status", "status", rank=5),
        ),
        notes=notes.leaderboard,
        empty="No answer has a score yet. judge_results and rating_results show what judges and people say.",
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
            _COVERAGE,
            Column("score", "score", "percent", interval=True),
            Column("official", "official", "number", rank=2),
            Column("marks", "marks", optional=True, rank=1),
        ),
        rows=_SCORES_WITH_MARKS,
        empty="No answer has been scored yet.",
    ),
    "paper": Report(
        "As the papers print it (official numbers; tasks in the paper's order, then its averages)",
        "benchmark, part, place, position, line, run",
        (Column("benchmark", "benchmark"), Column("line", "task")),
        pivot=("run", Column("official", "official", "number", interval=True)),
        empty="No answer has been scored yet.",
        takes=PUBLISHED,
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
            _COVERAGE,
            Column("score", "score", "percent", interval=True),
            Column("official", "official", "number"),
            Column("partial", "partial", rank=8),
        ),
        empty="No benchmark has a number over several tasks yet.",
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
        notes=notes.guards,
        empty="No run has answered anything yet.",
    ),
    "length_curve": Report(
        "Score by length (percent; a column holds lengths up to its heading)",
        "benchmark, task, length_unit DESC, model, backend, run_id, length_up_to",
        (*_TASK, Column("length_unit", "unit", rank=2), *_WHO, _COVERAGE),
        pivot=("length_up_to", Column("score", "score", "percent", interval=True)),
        empty="No answer has been scored yet.",
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
        notes=notes.truncation_effect,
        empty="No answer has been scored yet.",
        says=lambda row: row["prompts"] != "unknown",
        takes=("--baseline",),
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
        notes=notes.effective_context,
        empty="No answer whose length is known has been scored yet.",
        takes=("--keep", "--at-least"),
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
        notes=notes.cost,
        empty="No answer has been scored yet.",
        says=_any_of("seconds_per_answer", "tokens_per_correct", "hours"),
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
    "comparison": Report(
        "Runs side by side, on the samples that both answered (percent; points: second less first)",
        "",
        (
            Column("run_a", "first run"),
            Column("run_b", "second run"),
            Column("benchmark", "benchmark"),
            Column("task", "task"),
            Column("n", "paired samples", "count"),
            Column("clusters", "clusters", "count", rank=7),
            _COVERAGE,
            Column("score_a", "first", "percent", digits_of=""),
            Column("score_b", "second", "percent", digits_of=""),
            Column("difference", "points", "points", interval=True),
            Column("p_holm", "p", "p", rank=3),
            Column("wins", "wins", "count", rank=5),
            Column("ties", "ties", "count", rank=6),
            Column("losses", "losses", "count", rank=5),
            Column("same_outputs", "same outputs", "count", rank=4),
            Column("detectable", "detectable", "percent", rank=2, digits_of=""),
            Column("verdict", "verdict"),
        ),
        notes=notes.comparison,
        empty="No two runs have answers to the same samples.",
        takes=("--baseline", "--margin", "--force"),
    ),
    "changes": Report(
        "The answers behind a comparison: largest difference first, then other outputs that score alike",
        "",
        (
            Column("run_a", "first run"),
            Column("run_b", "second run"),
            *_TASK,
            Column("sample_id", "sample"),
            Column("score_a", "first", "percent"),
            Column("score_b", "second", "percent"),
            Column("difference", "points", "points"),
            Column("question", "question", rank=3),
            Column("references", "references"),
            Column("output_a", "first says"),
            Column("output_b", "second says"),
            Column("flags_a", "first is", optional=True, rank=1),
            Column("flags_b", "second is", optional=True, rank=1),
        ),
        notes=notes.changes,
        empty="No answer that both runs have differs.",
        takes=("--baseline", "--force", "--tasks", "--rows"),
    ),
    "reference": Report(
        "Published figures of these benchmarks (their lines in the report paper, in its units)",
        "",
        (
            Column("benchmark", "benchmark"),
            Column("line", "task"),
            Column("model", "model"),
            Column("figure", "figure", "number"),
            Column("source", "source", rank=1),
            Column("doubt", "doubt", optional=True),
        ),
        empty="No figures are published of these benchmarks.",
        takes=PUBLISHED,
    ),
    "expected": Report(
        "Runs compared with published figures (agrees: within the run's own 95% interval, give or take half a digit)",
        "",
        (
            Column("benchmark", "benchmark"),
            Column("line", "task"),
            Column("model", "published of", rank=1),
            Column("figure", "published", "number"),
            Column("run", "run"),
            Column("official", "own", "number", interval=True),
            Column("difference", "difference", "number"),
            Column("verdict", "verdict"),
            Column("why", "why", optional=True),
        ),
        empty="Nothing is expected: name a published model by --expect.",
        takes=("--expect", "--reference"),
    ),
}
