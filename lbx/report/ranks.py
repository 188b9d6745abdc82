"""Order of runs in every report: the rank on the leaderboard, of one benchmark or of the whole file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from lbx.benchmarks.base.benchmark import MEAN_OF_QUESTIONS, ScoringRules
from lbx.results import Store, Table
from lbx.results.scoring.score_columns import find_benchmark

_ALL_OF_IT = 0.99
_NO_BOUND = -0.5
"""Sort key of a score that could be any number with the missing answers."""
T = TypeVar("T")

# Answers counted in the score of a whole run, which may leave out some of the run's tasks.
_SCORES = """
    SELECT l.*, CASE WHEN t.is_known THEN coalesce(l.asked + t.unasked, t.scorable)::BIGINT END AS scorable_answers,
           t.least_part, t.answers_per_sample, t.done
    FROM leaderboard l JOIN (
        SELECT run_id, benchmark, list(task ORDER BY task) FILTER (times > 0) AS done,
               count(scorable_samples) = count(*) AS is_known,
               sum(iterations * greatest(scorable_samples - coalesce(asked, 0), 0)) AS unasked,
               sum(iterations * scorable_samples) AS scorable,
               min(coalesce(asked, 0) / scorable_samples) FILTER (scorable_samples > 0) AS least_part,
               sum(times) / sum(asked) AS answers_per_sample
        FROM coverage LEFT JOIN (
            SELECT run_id, benchmark, task, count(DISTINCT sample_id) AS asked, count(*) AS times
            FROM generations GROUP BY ALL
        ) USING (run_id, benchmark, task)
        GROUP BY ALL
    ) t USING (run_id, benchmark)
"""


# Without a row in benchmark_results, as in files of other programs, the view computes the mean of tasks.
_AVERAGED = """
    SELECT DISTINCT run_id, benchmark FROM group_scores SEMI JOIN benchmark_results USING (run_id, benchmark)
    WHERE "grouping" = 'overall'
"""


def read_ranked_scores(store: Store) -> Table:
    """Read the headline scores of all runs by benchmark, best first. ``score_of`` names the average."""
    store.materialise_views("coverage", "distinctions")

    def read_rows() -> Table:
        table = store.query(_SCORES)
        averaged = {*store.query(_AVERAGED).rows}
        rows = table.dicts()
        for row in rows:
            family = find_benchmark(row["benchmark"]) if (row["run_id"], row["benchmark"]) in averaged else None
            row["score_of"] = (
                None if row["score"] is None else (family.scoring if family else ScoringRules()).average_of
            )
        columns = [*table.columns, "score_of"]
        return Table(columns, [tuple(row[name] for name in columns) for row in sorted(rows, key=_sort_key)])

    return store.compute_once("ranked scores", read_rows)


def ranked_runs(store: Store) -> list[str]:
    """Order all runs with a score, best first: by the benchmark with the most runs, then by the next one."""
    rows = read_ranked_scores(store).dicts()
    counts = Counter(row["benchmark"] for row in rows)
    return list(dict.fromkeys(row["run_id"] for row in sorted(rows, key=lambda row: -counts[row["benchmark"]])))


def rank_key(store: Store) -> Callable[[str | None, str | None], tuple[float, float]]:
    """Make a function that returns the sort key of a run in rows of a benchmark, or of None for the whole file.

    Runs without a score in the benchmark follow in the order of the whole file, and runs without any score at the end.
    """
    of_benchmark, of_file = store.compute_once("ranks", lambda: _ranks(store))

    def key(run: str | None, benchmark: str | None) -> tuple[float, float]:
        return of_benchmark.get((run or "", benchmark or ""), math.inf), of_file.get(run or "", math.inf)

    return key


RANK_SQL = (
    "list_position(?::VARCHAR[], benchmark || '/' || run_id) NULLS LAST, list_position(?::VARCHAR[], run_id) NULLS LAST"
)
"""The order of ``rank_key`` in SQL, with two parameters (``rank_parameters``)."""


def rank_parameters(store: Store) -> tuple[list[str], list[str]]:
    """Benchmarks with runs ("benchmark/run") in the order of rank, and runs in the order of the whole file."""
    rows = read_ranked_scores(store).dicts()
    return [f"{row['benchmark']}/{row['run_id']}" for row in rows], ranked_runs(store)


def _ranks(store: Store) -> tuple[dict[tuple[str, str], float], dict[str, float]]:
    """Ranks of runs by (run, benchmark), and in the whole file."""
    rows = read_ranked_scores(store).dicts()
    of_benchmark = {(row["run_id"], row["benchmark"]): float(at) for at, row in enumerate(rows)}
    return of_benchmark, {run: float(at) for at, run in enumerate(ranked_runs(store))}


def in_rank_order(store: Store, table: Table, group_columns: Sequence[str]) -> Table:
    """Order the runs among the rows with equal values in ``group_columns``. The order of other rows stays."""
    columns = list(table.columns)
    run = columns.index("run_id")
    benchmark = columns.index("benchmark") if "benchmark" in columns else None
    kept = [columns.index(name) for name in group_columns]
    key, groups = rank_key(store), dict[tuple[Any, ...], int]()

    def sort_key(row: tuple[Any, ...]) -> tuple[int, tuple[float, float]]:
        group = groups.setdefault(tuple(row[at] for at in kept), len(groups))
        return group, key(row[run], None if benchmark is None else row[benchmark])

    return Table(table.columns, sorted(table.rows, key=sort_key))


def by_benchmark_and_rank(store: Store, values: Mapping[tuple[str, str], T]) -> dict[tuple[str, str], T]:
    """Order a mapping of (run, benchmark) by benchmark, and each benchmark's runs by rank."""
    key = rank_key(store)
    return dict(sorted(values.items(), key=lambda item: (item[0][1], key(*item[0]))))


def _sort_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["benchmark"], -sort_score(row), row["model"], row["backend"], row["run_id"]


def sort_score(row: Mapping[str, Any]) -> float:
    """Sort key of a run: the score, or the lower bound of the score if too many answers are missing.

    It is negative without a score, and if the missing answers leave no bound.
    """
    if row["score"] is None or math.isnan(row["score"]):
        return -1.0
    return score_bounds(row, _total(row))[0] if _least_weight(row, _total(row)) else _NO_BOUND


def _total(row: Mapping[str, Any]) -> int:
    """Number of answers that a complete run contains."""
    return max(row["asked"] or 0, row["scorable_answers"] or 0)


def answered_part(row: Mapping[str, Any]) -> str:
    """Describe the answers of a run that lacks some and is ranked lower, "312 of 503 answers", or return ""."""
    answered, total = row["answered"] or 0, _total(row)
    return f"{answered:,} of {total:,} answers" if sort_score(row) != row["score"] and answered < total else ""


def score_bounds(row: Mapping[str, Any], n_answers: float) -> tuple[float, float]:
    """Bounds of a run's score over ``n_answers`` answers, if missing answers were all wrong or all right.

    Both equal the score if at least 99% of the answers exist.
    """
    weight, has_most = _least_weight(row, n_answers), (row["answered"] or 0) >= _ALL_OF_IT * n_answers
    if None in (row["failed_as_0"], row["failed_as_1"]) or (has_most and weight):
        return float(row["score"]), float(row["score"])
    return row["failed_as_0"] * weight, 1 - (1 - row["failed_as_1"]) * weight


def _least_weight(row: Mapping[str, Any], n_answers: float) -> float:
    """Least weight of the asked answers in the average over all answers.

    A task may count for any share of an average of tasks, so the task with the fewest answers decides.
    """
    asked = (row["asked"] or n_answers) / n_answers if n_answers else 1.0
    is_by_task = row["score_of"] != MEAN_OF_QUESTIONS and row["least_part"] is not None
    return min(asked, row["least_part"]) if is_by_task else asked


def select_runs(table: Table, runs: Collection[str]) -> list[dict[str, Any]]:
    """Rows of the given runs, or of all runs for ()."""
    return [row for row in table.dicts() if not runs or row["run_id"] in runs]
