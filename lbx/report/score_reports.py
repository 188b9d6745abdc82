"""Report definitions for runs and their scores: views, columns, order and formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lbx.base.columns import Column
from lbx.base.marks import MARKS, WORST_FIRST
from lbx.base.units import format_count
from lbx.report.report_types import COVERAGE, PUBLISHED, ReportDefinition
from lbx.statistics import FEW, LEVEL

if TYPE_CHECKING:  # the command line lists the reports without loading DuckDB
    from lbx.results import Table

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
    return lambda row: any(row.get(name) is not None for name in columns)


def _leaderboard_notes(table: Table) -> list[str]:
    notes = [
        f"{row.get('label') or row['model']}, {row['benchmark']}: {row['answered']:,} of {row['asked']:,} answers; "
        f"the score is {100 * row['failed_as_0']:.1f} to {100 * row['failed_as_1']:.1f} with the others all "
        "wrong to all right."
        for row in table.dicts()
        if None not in (row["answered"], row["asked"], row["failed_as_0"], row["failed_as_1"])
        and row["answered"] < row["asked"]
    ]
    rows = table.dicts()
    for same in {(row["benchmark"], row.get("place")): None for row in rows}:
        group = [row for row in rows if (row["benchmark"], row.get("place")) == same]
        if text := describe_few_documents(group):
            notes.append(f"{same[0]}: {text}.")
    if any(row.get("place") for row in rows):
        notes.append("A place is a range if some other runs are not significantly better or worse (Holm, 5%).")
    return notes


def describe_few_documents(rows: Sequence[Mapping[str, Any]]) -> str:
    """Describe that runs with one range of places have too few documents for any difference, or return "".

    Few documents are compared by an exact test, with p of at least 2^(1 - documents), which Holm's correction
    multiplies by the number of pairs.
    """
    documents, pairs = max((row.get("clusters") or 0 for row in rows), default=0), len(rows) * (len(rows) - 1) // 2
    if not pairs or not documents or any(row.get("place") != f"1-{len(rows)}" for row in rows):
        return ""
    least = next((n for n in range(1, FEW) if pairs * 2.0 ** (1 - n) < LEVEL), FEW)
    if documents >= least:
        return ""
    noun = next((row["cluster_by"] for row in rows if row.get("cluster_by")), "document")
    return f"{format_count(documents, noun)} cannot separate {len(rows):,} runs: at least {least} are needed"


def _guards_notes(table: Table) -> list[str]:
    sure = any(value is not None for row in table.dicts() for name, value in row.items() if name.endswith("_low"))
    return ["Rates are followed by 95% intervals. JSON and csv also have counts."] if sure else []


def _truncation_effect_notes(table: Table) -> list[str]:
    parts = {row["prompts"] for row in table.dicts()}
    notes = []
    if "whole less cut, unpaired" in parts:
        notes.append(
            "Longer prompts are cut more often: the cut is not the only cause of the difference between whole and cut."
        )
    if "second less first, paired" in parts:
        notes.append("Pairs: the run's score minus the other run's, on samples with prompts that neither run cut.")
    return notes


def _effective_context_notes(table: Table) -> list[str]:
    rows = table.dicts()
    notes = [
        f"Effective: the longest length such that it and all shorter lengths score {rule}. Retained and lost depend on "
        "each length's 95% interval. Lengths with at least 30 samples are compared, on tasks with at least 10 samples "
        "at each of these lengths."
        for rule in dict.fromkeys(row["rule"] for row in rows)
    ]
    if any(row["why"] for row in rows):
        notes.append(
            "A length is not claimed if more than 5% of its prompts were cut or may have been cut, or if its score is "
            "not significantly above guessing (or above 10, if guessing scores less)."
        )
    runs = [row for row in rows if row["run_id"] is not None]
    if len(runs) < len(rows):
        notes.append("* published elsewhere, without an interval")
    for row in runs:
        location = f"{row['benchmark']}, {row['length_unit']}"
        omitted = f"; left out, with too few samples at some length: {row['left_out']}" if row["left_out"] else ""
        notes.append(
            f"{location}: {row['task_names']}{omitted}."
            if row["tasks"]
            else f"{location}: no two lengths can be compared on the same tasks."
        )
    return list(dict.fromkeys(notes))


def _cost_notes(table: Table) -> list[str]:
    rows, notes = table.dicts(), []
    if any(row["unbeaten"] is not None for row in rows):
        notes.append(
            "Unbeaten: no other run on the same tasks scores as high in fewer seconds per answer. Seconds on "
            "different hardware are not comparable."
        )
    if any(row["benchmark"] == "judge" for row in rows):
        notes.append("A judge has no score, so it has no cost per correct answer.")
    if uncounted := {row["run_id"] for row in rows if row["uncounted"]}:
        notes.append(
            f"Tokens of {format_count(len(uncounted), 'run')} leave out answers whose server or file gives no counts."
        )
    if untimed := {row["run_id"] for row in rows if row["untimed_sessions"]}:
        notes.append(
            f"Hours of {format_count(len(untimed), 'run')} are a lower bound: a session was killed or is still running."
        )
    return notes


SCORES: dict[str, ReportDefinition] = {
    "leaderboard": ReportDefinition(
        "Leaderboard (the headline score of each benchmark, percent)",
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
        empty="No answer has a score yet. The reports judge_results and rating_results have verdicts and ratings.",
        reads="coverage",
        page=1,
    ),
    "task_scores": ReportDefinition(
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
    "paper": ReportDefinition(
        "Numbers as printed in the papers (official; tasks in the paper's order, then its averages)",
        "benchmark, part, place, position, line, run",
        (Column("benchmark", "benchmark"), Column("line", "task")),
        pivot=("run", Column("official", "official", "number", interval=True)),
        empty="No answer has been scored yet.",
        takes=PUBLISHED,
        reads="coverage",
        page=2,
    ),
    "group_scores": ReportDefinition(
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
    "guards": ReportDefinition(
        "Possible faults in scores (percent of the answers with known values)",
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
        empty="No run has answers yet.",
        page=16,
    ),
    "length_curve": ReportDefinition(
        "Score by length (percent; each column covers lengths up to its heading)",
        "benchmark, task, length_unit DESC, model, backend, run_id, length_up_to",
        (*_TASK, Column("length_unit", "unit", rank=2), *_WHO, COVERAGE),
        pivot=("length_up_to", Column("score", "score", "percent", interval=True)),
        empty="No answer has been scored yet.",
        reads="numbers",
        page=10,
    ),
    "truncation": ReportDefinition(
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
        empty="No run has answers yet.",
        says=_any_of("truncated", "longest_prompt", "longest_prompt_sent", "answers_cut"),
        page=14,
    ),
    "truncation_effect": ReportDefinition(
        "Scores of complete and of truncated prompts (scores and differences in percent)",
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
    "effective_context": ReportDefinition(
        "Effective context (scores in percent; each column covers lengths up to its heading)",
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
            Column("why", "limited because", optional=True),
        ),
        pivot=("length_up_to", Column("score", "score", "percent", interval=True)),
        notes=_effective_context_notes,
        empty="No answer of known length has been scored yet.",
        takes=("--keep", "--at-least", *PUBLISHED),
        page=11,
    ),
    "needles": ReportDefinition(
        "Needles found, by length and depth (percent; one length per column)",
        "",
        (
            *_WHO,
            _TWIN,
            *(Column("benchmark", "benchmark"), Column("task", "task", missing="mean of tasks")),
            Column("length_unit", "unit", rank=3),
            Column("depth", "depth %", "share"),
        ),
        pivot=("length", Column("score", "score", "percent", interval=True)),
        empty="No needle task has been run yet. Run one with --tasks needle.",
        page=12,
    ),
    "cost": ReportDefinition(
        "Cost of scores (score in percent; seconds of the model, computed tokens)",
        "",
        (
            *_WHO,
            _TWIN,
            *(Column("benchmark", "benchmark"), Column("task", "task", missing="all tasks")),
            Column("n", "samples", "count", rank=5),
            Column("score", "score", "percent", interval=True),
            Column("seconds_per_answer", "s per answer", "quantity", unknown=True),
            Column("unbeaten", "unbeaten", "flag", missing="", optional=True),
            Column(
                "seconds_per_correct",
                "s per correct one",
                "quantity",
                interval=True,
                of="seconds_per_correct_",
                optional=True,
            ),
            Column(
                "tokens_per_correct",
                "tokens per correct one",
                "quantity",
                interval=True,
                of="tokens_per_correct_",
                optional=True,
                rank=1,
            ),
            Column("prefill_tokens_s", "prefill tokens/s", "quantity", unknown=True, rank=2),
            Column("decode_tokens_s", "decode tokens/s", "quantity", unknown=True, rank=2),
            Column("cached_share", "prompt tokens cached %", "percent", unknown=True, rank=3),
            Column("seconds_saved", "s saved by cache", "quantity", unknown=True, rank=4),
            Column("hours", "hours", "quantity", unknown=True, rank=1),
            Column("hours_of", "hours of", optional=True, rank=1),
        ),
        notes=_cost_notes,
        empty="No answer has been scored yet.",
        says=_any_of("seconds_per_answer", "tokens_per_correct", "hours"),
        page=15,
    ),
    "failures": ReportDefinition(
        "Failed samples",
        "benchmark, task, sample_id, iteration, model, backend, run_id",
        (*_TASK, Column("sample_id", "sample"), *_WHO, Column("error", "error")),
        empty="No sample failed.",
    ),
    "estimates": ReportDefinition(
        "Estimated and actual time of each session (ratio: actual seconds per estimated second)",
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
            Column("output_tokens", "answer tokens", "count", rank=5),
            Column("estimated_s", "estimated s", "quantity"),
            Column("wall_s", "took s", "quantity"),
            Column("ratio", "ratio", "quantity"),
            Column("estimate_basis", "estimate based on", rank=10),
        ),
        empty="This file has no sessions of lbx run. Imported runs have none.",
    ),
}
