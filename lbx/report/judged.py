"""The reports ``judge_results``, ``judge_bias``, ``rating_results``: views of the same names, with intervals.

A judge's results include its reliability (``lbx.report.fitness``) and other reasons for caution.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lbx.base.number_key import ALL, NumberKey
from lbx.report.fitness import Fitness, fitness_of
from lbx.report.labels import labels
from lbx.report.shapes import ReportQuery
from lbx.scoring import opinions
from lbx.scoring.scored import SURE, as_table, named
from lbx.statistics.differences import mcnemar
from lbx.store import Store, Table
from lbx.store.rows import ENDS

Row = dict[str, Any]

JUDGE_TABLES = ("judge", "judge_rating")
"""Tables of papers with judges' results."""
_SHARES = {"consistency": "consistent", "first_share": "first_won", "longer_share": "longer_won"}
"""Shares in the report, and their columns in ``judged_rounds``."""


def results(store: Store, query: ReportQuery) -> Table:
    """The report ``judge_results``: over all tasks, then each task.

    A mark has rows only if it does not cover all questions.
    """
    believed = fitness_of(store)
    every = [row for row in opinions.judged(store) if concerns(row, query)]
    whole = {_numbered(row): row["n_questions"] for row in every if row["questions"] == "all"}
    rows = [row for row in every if row["questions"] == "all" or row["n_questions"] < whole[_numbered(row)]]
    rows = _of_several_tasks(rows, "judge_id", "benchmark", "run_id", "against_run_id", "questions")
    columns = [*_columns(store, "judge_results"), *SURE, *_ends("rating"), "fitness", "why", "caution"]
    return as_table(columns, [row | _on_scale(row, "rating") | _doubts(row, believed) for row in rows])


def bias(store: Store, query: ReportQuery) -> Table:
    """The report ``judge_bias``: each judge over all runs, then by run if it judged several."""
    held = store.query("FROM judged_rounds WHERE kind = 'pair' ORDER BY ALL").dicts()
    rows = [row for row in store.query(
        "FROM judge_bias ORDER BY judge, judge_id, benchmark, run_id NULLS FIRST, against_run_id"
    ).dicts() if concerns(row, query) or row["run_id"] is None]  # fmt: skip
    several = {(row["judge_id"], row["benchmark"]) for row in rows if row["run_id"] is not None}
    rows = [row for row in rows if (row["judge_id"], row["benchmark"]) in several]
    believed = fitness_of(store)
    made = []
    for row in rows:
        rounds = [
            one
            for one in held
            if (one["judge_id"], one["benchmark"]) == (row["judge_id"], row["benchmark"])
            and (row["run_id"] is None or _opponents(one) == _opponents(row))
        ]
        sure = {f"{share}_{end}": value for share in _SHARES for end, value in _share(rounds, share).items()}
        tests = {
            "first_p": _sign_test(row["first_questions"], row["second_questions"]),
            "longer_p": _sign_test(row["longer_questions"], row["shorter_questions"]),
        }
        made.append(row | sure | tests | {"fitness": believed[row["judge_id"]].verdict})
    shares = [end for share in _SHARES for end in _ends(share)]
    return as_table([*_columns(store, "judge_bias"), *shares, "first_p", "longer_p", "fitness"], made)


def ratings(store: Store, query: ReportQuery) -> Table:
    """The report ``rating_results``: over all tasks, then each task."""
    rows = [row for row in opinions.rated(store) if concerns(row, query)]
    rows = _of_several_tasks(rows, "set_id", "benchmark", "run_id", "against_run_id")
    columns = [*_columns(store, "rating_results"), *SURE, *_ends("mean")]
    return as_table(columns, [row | _on_scale(row, "mean") for row in rows])


def _ends(name: str) -> list[str]:
    return [f"{name}_{end}" for end in ENDS]


def _of_several_tasks(rows: Sequence[Row], *names: str) -> list[Row]:
    """Drop rows of single tasks if there is only one task."""
    tasks: dict[tuple[Any, ...], set[str | None]] = {}
    for row in rows:
        tasks.setdefault(tuple(row[name] for name in names), set()).add(row["task"])
    return [row for row in rows if row["task"] is None or len(tasks[tuple(row[name] for name in names)]) > 2]


def _columns(store: Store, view: str) -> Sequence[str]:
    return store.query(f"FROM {view} LIMIT 0").columns


def concerns(row: Mapping[str, Any], query: ReportQuery) -> bool:
    """Whether a row belongs to the runs or judges named by ``--run``."""
    return not query.runs or bool({row["run_id"], row.get("judge_id")} & set(query.runs))


def _numbered(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("judge_id", "benchmark", "run_id", "against_run_id", "task"))


def _on_scale(row: Row, name: str) -> Row:
    """Interval of a mean rating in the unit of its scale."""
    if None in (row[name], row["score"], row["scale_low"], row["scale_high"]):
        return {}
    width = row["scale_high"] - row["scale_low"]
    ends = {end: None if row[end] is None else row[name] + width * (row[end] - row["score"]) for end in ("low", "high")}
    return {f"{name}_{end}": ends.get(end, row.get(end)) for end in ENDS}


def _opponents(row: Mapping[str, Any]) -> tuple[Any, Any]:
    return row["run_id"], row["against_run_id"]


def _sign_test(wins: int, losses: int) -> float | None:
    """Exact p value of a split of questions at least this uneven; None without questions."""
    return mcnemar(wins, losses) if wins + losses else None


def _share(rounds: Iterable[Mapping[str, Any]], share: str) -> Row:
    """Interval of the share of rounds, or of questions, with a property."""
    column = _SHARES[share]
    known = [
        {**one, "score": float(one[column])}
        for one in rounds
        if one[column] is not None and (column != "consistent" or one["counts_question"])
    ]
    estimate = opinions.sureness(opinions.estimate(known))
    return {end: estimate[end] for end in ENDS}


def _doubts(row: Row, believed: Mapping[str, Fitness]) -> Row:
    """Fitness of the judge and other reasons for caution."""
    fitness = believed[row["judge_id"]]
    doubts = [text for name, text in (("same_family", "same family"), ("many_errors", "many errors")) if row[name]]
    return {"fitness": fitness.verdict, "why": fitness.why, "caution": ", ".join(doubts) or None}


def doubted(store: Store, paper: Table) -> Table:
    """Add judges' labels and verdicts ("unfit: ...") to the report ``paper``; NULL in other rows."""
    believed = fitness_of(store)
    shown = labels(named(store).values()) if believed else {}
    rows = paper.dicts()
    for row in rows:
        row["fitness"] = None
        key: NumberKey = row["key"]
        known = key.judge in believed and (not key.against or key.against in shown)
        if row["table"] in JUDGE_TABLES and known:
            questions = "" if key.questions == ALL else f", {key.questions} questions"
            row["column"] = " vs ".join(shown[run] for run in (key.judge, key.against) if run) + questions
            row["fitness"] = f"{shown[key.judge]} is {believed[key.judge]}"
    return Table([*paper.columns, "fitness"], [tuple(row.values()) for row in rows])
