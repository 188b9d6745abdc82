"""The reports by name: which view of the results file, which columns, in which order, shown how."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from lbx.errors import UsageError
from lbx.report import notes
from lbx.report.board_shapes import BOARDS
from lbx.report.shapes import ALL, Column, Report, Wanted

if TYPE_CHECKING:  # the command line asks for the names, and is not to load DuckDB
    from pathlib import Path

    from lbx.store import Store, Table

_WHO = (Column("model", "model"), Column("backend", "backend", rank=9), Column("mode", "mode", optional=True, rank=3))
_TASK = (Column("benchmark", "benchmark"), Column("task", "task"))
_TWIN = Column("differs_in", "differs in", optional=True, rank=2)
_COVERAGE = Column("coverage", "samples", optional=True, rank=4)
"""Beside every score of a part of the samples: "3 of 269"."""

_MARKS = {
    "empty_prompts": "prompt empty",
    "failed": "failed",
    "doubled_bos": "doubled BOS",
    "reasoning_unclosed": "reasoning unclosed",
    "answers_cut": "answer at its limit",
    "stop_in_reasoning": "stop string in reasoning",
    "truncated": "prompt cut",
    "reference_cut": "reference cut away",
    "official_errors": "official script stops",
}
_MARK_TEXTS = ", ".join(
    f"CASE WHEN g.{column} > 0 THEN '{text} ' || printf('%.4g%%', 100 * g.{column} / g.n) END"
    for column, text in _MARKS.items()
)
_SCORES_WITH_MARKS = f"""
    SELECT t.*, CASE WHEN t.headline THEN
               nullif(concat_ws('; ', {_MARK_TEXTS}, CASE WHEN g.partial > 0 THEN 'partial: ' || g.lacks END), '')
           END AS marks
    FROM task_scores t LEFT JOIN guards g USING (run_id, benchmark, task)
"""  # noqa: S608 (our own names)

REPORTS: dict[str, Report] = {
    "leaderboard": Report(
        "Leaderboard (mean of the tasks' headline scores, percent)",
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
            Column("failed", "failed", "count", rank=1),
            Column("truncated", "truncated", "count", missing="unknown", rank=7),
            Column("status", "run", rank=5),
        ),
        notes=notes.leaderboard,
        empty="No run has answered anything yet.",
        made_by="leaderboard",
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
        empty="No benchmark has been added up yet: this happens when a run ends.",
    ),
    "guards": Report(
        "What may have spoilt scores (percent of the answers of which it is known)",
        "",
        (
            *_TASK,
            *_WHO,
            Column("n", "asked", "count"),
            *(
                Column(f"{mark}_rate", heading, "percent", interval=True, of=f"{mark}_", missing="unknown", rank=rank)
                for mark, heading, rank in (
                    ("failed", "failed", 0),
                    ("truncated", "prompts cut", 0),
                    ("reference_cut", "reference cut away", 2),
                    ("answers_cut", "answers at their limit", 2),
                    ("reasoning_unclosed", "reasoning never closed", 3),
                    ("empty_prompts", "empty prompts", 4),
                    ("partial", "partial", 5),
                    ("official_errors", "official script stops", 6),
                    ("doubled_bos", "doubled BOS", 8),
                    ("stop_in_reasoning", "stop string in reasoning", 9),
                )
            ),
            Column("tokens_cut", "tokens cut", "count", missing="unknown", rank=7),
        ),
        notes=notes.guards,
        empty="No run has answered anything yet.",
        made_by="guards",
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
            Column("truncated", "prompts cut", "count", missing="unknown"),
            Column("share", "share %", "percent", missing="unknown"),
            Column("mean_tokens_cut", "tokens cut, mean", "count", missing="unknown", rank=4),
            Column("longest_prompt", "longest prompt", "count", missing="unknown", rank=3),
            Column("answers_cut", "answers at their limit", "count", missing="unknown", rank=2),
        ),
        empty="No run has answered anything yet.",
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
            Column("clusters", "documents", "count", rank=5),
            Column("score", "score", "percent", interval=True),
            Column("p", "p", "p", optional=True),
        ),
        notes=notes.truncation_effect,
        empty="No answer has been scored yet.",
        made_by="truncation_effect",
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
            Column("effective", "effective", "count", missing="none"),
            Column("kept_to", "surely kept to", "count", missing="none"),
            Column("lost_from", "surely lost from", "count", missing="not seen"),
        ),
        pivot=("length_up_to", Column("score", "score", "percent", interval=True)),
        notes=notes.effective_context,
        empty="No answer whose length is known has been scored yet.",
        made_by="effective_context",
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
        made_by="needles",
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
            Column("seconds_per_answer", "s an answer", "quantity", missing="unknown"),
            Column("unbeaten", "unbeaten", "flag", missing="", optional=True),
            Column(
                "seconds_per_correct",
                "s a correct one",
                "quantity",
                interval=True,
                of="seconds_per_correct_",
                missing="unknown",
            ),
            Column(
                "tokens_per_correct",
                "tokens a correct one",
                "quantity",
                interval=True,
                of="tokens_per_correct_",
                missing="unknown",
                rank=1,
            ),
            Column("prefill_tokens_s", "prefill tokens/s", "quantity", missing="unknown", rank=2),
            Column("decode_tokens_s", "decode tokens/s", "quantity", missing="unknown", rank=2),
            Column("cached_share", "prompt never computed %", "percent", missing="unknown", rank=3),
            Column("seconds_saved", "s so saved", "quantity", missing="unknown", rank=4),
            Column("hours", "hours", "quantity", missing="unknown", rank=1),
            Column("hours_of", "of", optional=True, rank=1),
        ),
        notes=notes.cost,
        empty="No answer has been scored yet.",
        made_by="cost",
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
            Column("estimated_s", "estimated s", "number"),
            Column("wall_s", "took s", "number"),
            Column("ratio", "ratio", "number"),
            Column("estimate_basis", "estimate based on", rank=10),
        ),
        rows="SELECT * REPLACE (round(estimated_s, 1) AS estimated_s, round(wall_s, 1) AS wall_s, "
        "round(ratio, 2) AS ratio) FROM estimates",
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
            Column("n", "samples", "count"),
            Column("clusters", "documents", "count", rank=7),
            _COVERAGE,
            Column("score_a", "first", "percent"),
            Column("score_b", "second", "percent"),
            Column("difference", "points", "points", interval=True),
            Column("p_holm", "p", "p", rank=3),
            Column("wins", "wins", "count", rank=5),
            Column("ties", "ties", "count", rank=6),
            Column("losses", "losses", "count", rank=5),
            Column("same_outputs", "same outputs", "count", rank=4),
            Column("detectable", "detectable", "percent", rank=2),
            Column("verdict", "verdict"),
        ),
        notes=notes.comparison,
        empty="No two runs have answers to the same samples.",
        made_by="comparing",
    ),
    "changes": Report(
        "The answers behind a comparison, largest difference first",
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
        empty="No answer scores differently.",
        made_by="changes",
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
        made_by="reference",
        empty="No figures are published of these benchmarks.",
    ),
    "expected": Report(
        "Runs held against published figures (agrees: within the run's own 95% interval, give or take half a digit)",
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
        made_by="expecting",
        empty="Nothing is expected: name a published model by --expect.",
    ),
    "verification": Report(
        "Answers decoded together, asked again one by one",
        "benchmark, task, model, backend, run_id",
        (
            *_TASK,
            *_WHO,
            Column("checked", "asked again", "count"),
            Column("flips", "differ", "count"),
            Column("flip_rate", "differ %", "percent"),
            Column("median_first_difference", "first differing token, median", "count", rank=5),
            Column("median_gap", "logit gap, median", "number", rank=4),
            Column("max_gap", "logit gap, largest", "number"),
        ),
        empty="No answer was asked again: --verify-batching N does that.",
    ),
    "judge_results": Report(
        "What judges say (win rates and shares in percent; each round counts for itself, officially)",
        "",
        (
            Column("judge_id", "judge"),
            Column("fitness", "judge is"),
            Column("benchmark", "benchmark", rank=6),
            Column("run_id", "run"),
            Column("against_run_id", "against", optional=True),
            Column("questions", "questions", rank=5),
            Column("task", "task", missing="all"),
            Column("n_rounds", "rounds", "count", rank=3),
            Column("win_rate", "win rate", "percent", interval=True, optional=True),
            Column("rating", "rating", "number", interval=True, of="rating_", optional=True),
            Column("win_rate_agreeing", "both orders agreeing", "percent", optional=True, rank=2),
            Column("against_win_rate", "the other's", "percent", optional=True, rank=8),
            Column("n_wins", "wins", "count", optional=True, rank=7),
            Column("n_draws", "ties", "count", optional=True, rank=7),
            Column("n_losses", "losses", "count", optional=True, rank=7),
            Column("n_errors", "no verdict", "count", rank=1),
            Column("n_ambiguous", "ambiguous", "count", rank=4),
            Column("caution", "caution", optional=True, rank=1),
        ),
        run_columns=("run_id", "judge_id"),
        notes=notes.judge_results,
        empty="No judge has said anything yet.",
        made_by="judged.results",
    ),
    "judge_bias": Report(
        "What decides beside the answers (percent: same in both orders; won by the first, by the longer answer)",
        "",
        (
            Column("judge_id", "judge"),
            Column("fitness", "judge is", rank=1),
            Column("benchmark", "benchmark", rank=5),
            Column("run_id", "run", missing="all"),
            Column("against_run_id", "against", missing="all", rank=3),
            Column("n_questions", "questions", "count", rank=6),
            Column("consistency", "consistent", "percent", interval=True, of="consistency_"),
            Column("only_first", "first in both", "count", rank=4),
            Column("only_second", "second in both", "count", rank=4),
            Column("first_share", "first wins", "percent", interval=True, of="first_share_"),
            Column("first_p", "p", "p", rank=2),
            Column("longer_share", "longer wins", "percent", interval=True, of="longer_share_"),
            Column("longer_p", "p", "p", rank=2),
        ),
        notes=notes.judge_bias,
        empty="No judge has compared two answers yet.",
        made_by="judged.bias",
    ),
    "rating_results": Report(
        "What people say (means on the scale, as the official page prints them; win rates in percent)",
        "",
        (
            Column("set_id", "set"),
            Column("benchmark", "benchmark", rank=5),
            Column("task", "task", missing="all"),
            Column("run_id", "run"),
            Column("against_run_id", "against", optional=True),
            Column("n_items", "questions", "count", rank=4),
            Column("n_ratings", "ratings", "count", rank=1),
            Column("n_raters", "raters", "count", rank=2),
            Column("mean", "mean", "number", interval=True, of="mean_", optional=True),
            Column("win_rate", "win rate", "percent", interval=True, optional=True),
            Column("n_wins", "wins", "count", optional=True, rank=3),
            Column("n_draws", "ties", "count", optional=True, rank=3),
            Column("n_losses", "losses", "count", optional=True, rank=3),
        ),
        empty="Nobody has rated anything yet.",
        made_by="judged.ratings",
    ),
    "agreement": Report(
        "Who agrees with whom (agreement in percent; 1: always, 0: as by chance)",
        "",
        (
            Column("between", "between"),
            Column("first", "first"),
            Column("second", "second", missing=""),
            Column("benchmark", "benchmark", rank=5),
            Column("task", "task", missing="all", rank=4),
            Column("n", "on", "count"),
            Column("percent", "agree %", "percent"),
            Column("kappa", "kappa", "coefficient", rank=1),
            Column("alpha", "alpha", "coefficient", interval=True, of="alpha_"),
            Column("tau", "tau of runs", "coefficient", missing="", rank=2),
            Column("runs", "runs", "count", missing="", rank=3),
        ),
        notes=notes.agreement,
        empty="No two judges or raters have spoken of the same answers yet.",
        made_by="agreement",
    ),
    **BOARDS,
}

BOARD = "board"
"""Every report of that name's family: the boards of the benchmarks that a file has."""


def named(view: str) -> list[str]:
    """The reports that go by a name. Raises UsageError: there is none."""
    if view == BOARD:
        return list(BOARDS)
    if view not in REPORTS:
        raise UsageError(f"There is no report {view!r}.", fix=f"There are: {', '.join(REPORTS)}.")
    return [view]


def summary() -> str:
    """The names of all reports, boards together."""
    return ", ".join([*(name for name in REPORTS if name not in BOARDS), f"{BOARD} (or one table of it)"])


def read(store: Store | None, name: str, wanted: Wanted = ALL) -> Table:
    """One report's rows; ``reference`` can do without a store.

    Raises:
        UsageError: there is no such run, or something else that is asked for.
    """
    from lbx.report import judged, reference
    from lbx.report.cells import without_intervals
    from lbx.report.papers import completed
    from lbx.store.runs import check_runs

    report = REPORTS[name]
    if store is None:
        return reference.table(None, wanted)
    check_runs(store, wanted.runs)
    if report.made_by:
        module, _, function = report.made_by.partition(".")
        table: Table = getattr(import_module(f"lbx.report.{module}"), function or "table")(store, wanted)
    else:
        table = _asked(store, name, wanted.runs)
    if name == "paper":
        if wanted.published:
            table = reference.beside(table, reference.published_beside(store, wanted))
        table = judged.doubted(store, completed(table))
    return without_intervals(table) if wanted.alone else table


def _asked(store: Store, name: str, runs: Sequence[str]) -> Table:
    return store.query(*_query(name, runs))


def _query(name: str, runs: Sequence[str]) -> tuple[str, list[object]]:
    report = REPORTS[name]
    where = ""
    if runs:
        marks = ", ".join("?" for _ in runs)
        where = " WHERE " + " AND ".join(f"{column} IN ({marks})" for column in report.run_columns)
    rows = report.rows or f"SELECT * FROM {name}"  # noqa: S608 (our own names)
    return f"{rows}{where} ORDER BY {report.order}", [*runs] * len(report.run_columns)


def write_parquet(store: Store, name: str, wanted: Wanted, path: Path) -> int:
    """One report's rows in a parquet file, in the types of the view. Returns their number. Raises as ``read`` does."""
    from lbx.report.cells import INTERVAL_COLUMNS
    from lbx.store.queries import export_report, export_rows
    from lbx.store.runs import check_runs

    if REPORTS[name].made_by or name == "paper":
        return export_rows(store, read(store, name, wanted), path)
    check_runs(store, wanted.runs)
    return export_report(store, *_query(name, wanted.runs), path, INTERVAL_COLUMNS if wanted.alone else ())
