"""Report definitions for judges and raters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbx.base.columns import Column
from lbx.base.units import format_count
from lbx.report.report_types import ReportDefinition

if TYPE_CHECKING:
    from lbx.results import Table


def judge_notes(table: Table) -> list[str]:
    rows = table.dicts()
    notes = list(dict.fromkeys(f"{row['label_judge']} is {row['fitness']}: {row['why']}." for row in rows))
    if any(row["same_family"] for row in rows):
        notes.append(
            "Same family: the judge has the judged model's architecture and tokenizer, and may prefer its own."
        )
    if any(row["many_errors"] for row in rows):
        notes.append(
            "Many errors: more than 5% of the rounds have no verdict; win rates and means leave these rounds out."
        )
    cut: dict[tuple[object, ...], int] = {}
    for row in rows:  # the first row of a judge and a run is the total; its tasks and marks follow
        key = tuple(row[name] for name in ("judge_id", "benchmark", "run_id", "against_run_id"))
        cut[key] = max(row["n_cut"], cut.get(key, 0))
    if total := sum(cut.values()):
        notes.append(
            f"{format_count(total, 'text reached its', 'texts reached their')} token limit before a verdict. "
            "Ask for the verdict only, or raise the limit: max_new_tokens in a rubric, or --max-new-tokens."
        )
    if any(row["win_rate_agreeing"] is not None for row in rows):
        notes.append("Both orders agreeing: a win counts only if both orders agree on it; everything else is a tie.")
    return notes


def _judge_bias_notes(table: Table) -> list[str]:
    return [
        "p tests for no preference: each question counts for the side that won more of its rounds (exact sign test). "
        "A judge that looks only at the answers is consistent and has the first win half of the time."
    ]


def _agreement_notes(table: Table) -> list[str]:
    rows = table.dicts()
    notes = ["Krippendorff's alpha is followed by its 95% interval over documents (jackknife), from six documents on."]
    if any(row["kind"] == "score" for row in rows):
        notes.append("For scores, kappa weights disagreements by squared distance, and alpha compares ranks.")
    if any(row["between"] == "judge and people" for row in rows):
        notes.append(
            "A judge's verdict on a question is a tie unless both orders agree; the raters' verdict is the majority's."
        )
    return notes


OPINIONS: dict[str, ReportDefinition] = {
    "judge_results": ReportDefinition(
        "Judge results (win rates and shares in percent; as officially, each round counts separately)",
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
            Column("win_rate_agreeing", "both orders agreeing", "percent", optional=True, rank=2, digits_of=""),
            Column("against_win_rate", "the other's", "percent", optional=True, rank=8, digits_of=""),
            Column("n_wins", "wins", "count", optional=True, rank=7),
            Column("n_draws", "ties", "count", optional=True, rank=7),
            Column("n_losses", "losses", "count", optional=True, rank=7),
            Column("n_errors", "no verdict", "count", rank=1),
            Column("n_ambiguous", "ambiguous", "count", rank=4),
            Column("caution", "caution", optional=True, rank=1),
        ),
        run_columns=("run_id", "judge_id"),
        notes=judge_notes,
        empty="No judge has judged any answers yet.",
        page=6,
    ),
    "judge_bias": ReportDefinition(
        "Judge bias: position and length (percent: same in both orders; won by the first, by the longer answer)",
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
            Column("first_p", "p of first", "p", rank=2),
            Column("longer_share", "longer wins", "percent", interval=True, of="longer_share_"),
            Column("longer_p", "p of longer", "p", rank=2),
        ),
        notes=_judge_bias_notes,
        empty="No judge has compared two answers yet.",
        page=7,
    ),
    "rating_results": ReportDefinition(
        "Rating results (means on the rating scale, as on the official page; win rates in percent)",
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
        empty="This file has no ratings. They are stored when the rating page is closed. After a killed session, store "
        "them with lbx rate RESULTS --collect.",
        page=8,
    ),
    "agreement": ReportDefinition(
        "Agreement between judges and raters (percent; coefficients: 1 is full agreement, 0 is chance)",
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
        notes=_agreement_notes,
        empty="No two judges or raters have judged the same answers yet.",
        page=9,
    ),
}
