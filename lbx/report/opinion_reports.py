"""Reports on judges and raters: their definitions and tables.

The tables of ``judge_results``, ``judge_bias`` and ``rating_results`` are views of the same names, with intervals.

A judge's results include its reliability (``lbx.report.fitness``) and other reasons for caution.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lbx.base.columns import Column
from lbx.base.number_key import ALL, NumberKey
from lbx.base.units import format_count
from lbx.report.fitness import Fitness, fitness_of
from lbx.report.labels import labels
from lbx.report.report_types import ReportDefinition, ReportQuery
from lbx.scoring import opinions
from lbx.scoring.score_columns import INTERVAL_COLUMNS, as_table, runs_by_id
from lbx.statistics.differences import mcnemar
from lbx.store import Store, Table
from lbx.store.rows import BOUND_COLUMNS


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


JUDGE_TABLES = ("judge", "judge_rating")
"""Tables of papers with judges' results."""
_SHARES = {"consistency": "consistent", "first_share": "first_won", "longer_share": "longer_won"}


def results(store: Store, query: ReportQuery) -> Table:
    """The report ``judge_results``: rows over all tasks, then rows of each task.

    A mark has rows only if it does not cover all questions.
    """
    fitness_by_judge = fitness_of(store)
    every = [row for row in opinions.read_judge_results(store) if matches_query(row, query)]
    question_counts = {_row_key(row): row["n_questions"] for row in every if row["questions"] == "all"}
    rows = [row for row in every if row["questions"] == "all" or row["n_questions"] < question_counts[_row_key(row)]]
    rows = _of_several_tasks(rows, "judge_id", "benchmark", "run_id", "against_run_id", "questions")
    columns = [*_columns(store, "judge_results"), *INTERVAL_COLUMNS, *_ends("rating"), "fitness", "why", "caution"]
    return as_table(columns, [row | _on_scale(row, "rating") | _doubts(row, fitness_by_judge) for row in rows])


def bias(store: Store, query: ReportQuery) -> Table:
    """The report ``judge_bias``: each judge over all runs, then by run if it judged several."""
    pair_rounds = store.query("FROM judged_rounds WHERE kind = 'pair' ORDER BY ALL").dicts()
    rows = [row for row in store.query(
        "FROM judge_bias ORDER BY judge, judge_id, benchmark, run_id NULLS FIRST, against_run_id"
    ).dicts() if matches_query(row, query) or row["run_id"] is None]  # fmt: skip
    several = {(row["judge_id"], row["benchmark"]) for row in rows if row["run_id"] is not None}
    rows = [row for row in rows if (row["judge_id"], row["benchmark"]) in several]
    fitness_by_judge = fitness_of(store)
    bias_rows = []
    for row in rows:
        rounds = [
            judged_round
            for judged_round in pair_rounds
            if (judged_round["judge_id"], judged_round["benchmark"]) == (row["judge_id"], row["benchmark"])
            and (row["run_id"] is None or _opponents(judged_round) == _opponents(row))
        ]
        sure = {f"{share}_{end}": value for share in _SHARES for end, value in _share(rounds, share).items()}
        tests = {
            "first_p": _sign_test(row["first_questions"], row["second_questions"]),
            "longer_p": _sign_test(row["longer_questions"], row["shorter_questions"]),
        }
        bias_rows.append(row | sure | tests | {"fitness": fitness_by_judge[row["judge_id"]].verdict})
    shares = [end for share in _SHARES for end in _ends(share)]
    return as_table([*_columns(store, "judge_bias"), *shares, "first_p", "longer_p", "fitness"], bias_rows)


def ratings(store: Store, query: ReportQuery) -> Table:
    """The report ``rating_results``: over all tasks, then each task."""
    rows = [row for row in opinions.read_rating_results(store) if matches_query(row, query)]
    rows = _of_several_tasks(rows, "set_id", "benchmark", "run_id", "against_run_id")
    columns = [*_columns(store, "rating_results"), *INTERVAL_COLUMNS, *_ends("mean")]
    return as_table(columns, [row | _on_scale(row, "mean") for row in rows])


def _ends(name: str) -> list[str]:
    return [f"{name}_{end}" for end in BOUND_COLUMNS]


def _of_several_tasks(rows: Sequence[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    """Drop rows of single tasks if there is only one task."""
    tasks: dict[tuple[Any, ...], set[str | None]] = {}
    for row in rows:
        tasks.setdefault(tuple(row[name] for name in names), set()).add(row["task"])
    return [row for row in rows if row["task"] is None or len(tasks[tuple(row[name] for name in names)]) > 2]


def _columns(store: Store, view: str) -> Sequence[str]:
    return store.query(f"FROM {view} LIMIT 0").columns


def matches_query(row: Mapping[str, Any], query: ReportQuery) -> bool:
    """Whether a row belongs to the runs or judges named by ``--run``."""
    return not query.runs or bool({row["run_id"], row.get("judge_id")} & set(query.runs))


def _row_key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("judge_id", "benchmark", "run_id", "against_run_id", "task"))


def _on_scale(row: dict[str, Any], name: str) -> dict[str, Any]:
    """Interval of a mean rating in the unit of its scale."""
    if None in (row[name], row["score"], row["scale_low"], row["scale_high"]):
        return {}
    width = row["scale_high"] - row["scale_low"]
    ends = {end: None if row[end] is None else row[name] + width * (row[end] - row["score"]) for end in ("low", "high")}
    return {f"{name}_{end}": ends.get(end, row.get(end)) for end in BOUND_COLUMNS}


def _opponents(row: Mapping[str, Any]) -> tuple[Any, Any]:
    return row["run_id"], row["against_run_id"]


def _sign_test(wins: int, losses: int) -> float | None:
    """Exact p value of a split of questions at least this uneven; None without questions."""
    return mcnemar(wins, losses) if wins + losses else None


def _share(rounds: Iterable[Mapping[str, Any]], share: str) -> dict[str, Any]:
    """Confidence interval of a share: of rounds, or of questions, that have the property ``share``."""
    column = _SHARES[share]
    known_rounds = [
        {**judged_round, "score": float(judged_round[column])}
        for judged_round in rounds
        if judged_round[column] is not None and (column != "consistent" or judged_round["counts_question"])
    ]
    estimate = opinions.opinion_interval_columns(opinions.estimate(known_rounds))
    return {end: estimate[end] for end in BOUND_COLUMNS}


def _doubts(row: dict[str, Any], fitness_by_judge: Mapping[str, Fitness]) -> dict[str, Any]:
    """Fitness of the judge and other reasons for caution."""
    fitness = fitness_by_judge[row["judge_id"]]
    doubts = [text for name, text in (("same_family", "same family"), ("many_errors", "many errors")) if row[name]]
    return {"fitness": fitness.verdict, "why": fitness.why, "caution": ", ".join(doubts) or None}


def with_judge_warnings(store: Store, paper: Table) -> Table:
    """Add judges' labels and fitness ("unfit: ...") to the report ``paper``; NULL in rows without a judge."""
    fitness_by_judge = fitness_of(store)
    label_of = labels(runs_by_id(store).values()) if fitness_by_judge else {}
    rows = paper.dicts()
    for row in rows:
        row["fitness"] = None
        key: NumberKey = row["key"]
        has_labels = key.judge in fitness_by_judge and (not key.against or key.against in label_of)
        if row["table"] in JUDGE_TABLES and has_labels:
            questions = "" if key.questions == ALL else f", {key.questions} questions"
            row["column"] = " vs ".join(label_of[run] for run in (key.judge, key.against) if run) + questions
            row["fitness"] = f"{label_of[key.judge]} is {fitness_by_judge[key.judge]}"
    return Table([*paper.columns, "fitness"], [tuple(row.values()) for row in rows])
