"""Building of the reports ``judge_results``, ``judge_bias`` and ``rating_results``: rows of views, with intervals.

Results of a judge include the judge's fitness (``lbx.opinions.fitness``) and other reasons for caution.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lbx.base.number import ALL, NumberKey
from lbx.opinions import aggregation as opinions
from lbx.opinions.fitness import Fitness, fitness_of
from lbx.report.format.labels import labels
from lbx.report.query import ReportQuery
from lbx.results import Store, Table
from lbx.results.rows import BOUND_COLUMNS
from lbx.results.scoring.score_columns import INTERVAL_COLUMNS, as_table, runs_by_id
from lbx.statistics.differences import mcnemar

JUDGE_TABLES = ("judge", "judge_rating")
"""Tables of papers with judges' results."""
_SHARES = {"consistency": "consistent", "first_share": "first_won", "longer_share": "longer_won"}


def build_judge_results(store: Store, query: ReportQuery) -> Table:
    """Build the report ``judge_results``: rows over all tasks, then rows of each task.

    A mark is listed only if it does not cover all questions.
    """
    fitness_by_judge = fitness_of(store)
    every = [row for row in opinions.read_judge_results(store) if matches_query(row, query)]
    question_counts = {_row_key(row): row["n_questions"] for row in every if row["questions"] == "all"}
    rows = [row for row in every if row["questions"] == "all" or row["n_questions"] < question_counts[_row_key(row)]]
    rows = _of_several_tasks(rows, "judge_id", "benchmark", "run_id", "against_run_id", "questions")
    columns = [*_columns(store, "judge_results"), *INTERVAL_COLUMNS, *_ends("rating"), "fitness", "why", "caution"]
    return as_table(columns, [row | _on_scale(row, "rating") | _doubts(row, fitness_by_judge) for row in rows])


def build_judge_bias(store: Store, query: ReportQuery) -> Table:
    """Build the report ``judge_bias``: for each judge of a selected run, a row over all runs, then one for each run."""
    pair_rounds = store.query("FROM judged_rounds WHERE kind = 'pair' ORDER BY ALL").dicts()
    rows = [row for row in store.query(
        "FROM judge_bias ORDER BY judge, judge_id, benchmark, run_id NULLS FIRST, against_run_id"
    ).dicts() if matches_query(row, query) or row["run_id"] is None]  # fmt: skip
    judges = {(row["judge_id"], row["benchmark"]) for row in rows if row["run_id"] is not None}
    rows = [row for row in rows if (row["judge_id"], row["benchmark"]) in judges]
    fitness_by_judge = fitness_of(store)
    bias_rows = []
    for row in rows:
        rounds = [
            judged_round
            for judged_round in pair_rounds
            if (judged_round["judge_id"], judged_round["benchmark"]) == (row["judge_id"], row["benchmark"])
            and (row["run_id"] is None or _opponents(judged_round) == _opponents(row))
        ]
        interval_values = {f"{share}_{end}": value for share in _SHARES for end, value in _share(rounds, share).items()}
        tests = {
            "first_p": _sign_test(row["first_questions"], row["second_questions"]),
            "longer_p": _sign_test(row["longer_questions"], row["shorter_questions"]),
        }
        bias_rows.append(row | interval_values | tests | {"fitness": fitness_by_judge[row["judge_id"]].verdict})
    shares = [end for share in _SHARES for end in _ends(share)]
    return as_table([*_columns(store, "judge_bias"), *shares, "first_p", "longer_p", "fitness"], bias_rows)


def build_rating_results(store: Store, query: ReportQuery) -> Table:
    """Build the report ``rating_results``: rows over all tasks, then rows of each task."""
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
    """Convert the interval of a mean rating to the rating scale."""
    if None in (row[name], row["score"], row["scale_low"], row["scale_high"]):
        return {}
    width = row["scale_high"] - row["scale_low"]
    ends = {end: None if row[end] is None else row[name] + width * (row[end] - row["score"]) for end in ("low", "high")}
    return {f"{name}_{end}": ends.get(end, row.get(end)) for end in BOUND_COLUMNS}


def _opponents(row: Mapping[str, Any]) -> tuple[Any, Any]:
    return row["run_id"], row["against_run_id"]


def _sign_test(wins: int, losses: int) -> float | None:
    """Compute the exact p value of a split of questions at least this uneven, or None without questions."""
    return mcnemar(wins, losses) if wins + losses else None


def _share(rounds: Iterable[Mapping[str, Any]], share: str) -> dict[str, Any]:
    """Compute the confidence interval of the share of rounds, or of questions, with the property ``share``."""
    column = _SHARES[share]
    known_rounds = [
        {**judged_round, "score": float(judged_round[column])}
        for judged_round in rounds
        if judged_round[column] is not None and (column != "consistent" or judged_round["counts_question"])
    ]
    estimate = opinions.opinion_interval_columns(opinions.estimate(known_rounds))
    return {end: estimate[end] for end in BOUND_COLUMNS}


def _doubts(row: dict[str, Any], fitness_by_judge: Mapping[str, Fitness]) -> dict[str, Any]:
    """Describe the fitness of a row's judge, and other reasons for caution."""
    fitness = fitness_by_judge[row["judge_id"]]
    doubts = [text for name, text in (("same_family", "same family"), ("many_errors", "many errors")) if row[name]]
    return {"fitness": fitness.verdict, "why": fitness.why, "caution": ", ".join(doubts) or None}


def with_judge_warnings(store: Store, paper: Table) -> Table:
    """Add judges' labels and fitness ("unfit: ...") to the report ``paper``, with None in rows without a judge."""
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
