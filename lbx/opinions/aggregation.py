"""Aggregation of judges' and people's opinions on a run's answers: win rates and mean ratings, with intervals.

Sums come from views (``judge_results``, ``rating_results``). This module adds intervals, clustered by the document of
the judged question, and writes rows of ``numbers`` for reports on the judged run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lbx.base.number import ALL, COMPLETENESS_COLUMNS, INTERVAL_COLUMNS, Number
from lbx.opinions.rating_rows import RatingItemRow, RatingRow, RatingSetRow, insert_ratings
from lbx.results import Store
from lbx.results.rows import interval_columns as columns_of
from lbx.statistics.estimates import Estimate, Stratum, encode_labels, interval

_FIRST = 1000
"""First position of opinions, after the benchmark's numbers."""
_VERSION = 1
_KEY = ("benchmark", "run_id", "against_run_id")
_OF_RUNS = "WHERE len($1::VARCHAR[]) = 0 OR list_contains($1::VARCHAR[], run_id)"


def read_judge_results(store: Store, run_ids: Collection[str] = ()) -> list[dict[str, Any]]:
    """Read the rows of ``judge_results`` of all judged runs or of some, with the columns of ``INTERVAL_COLUMNS``."""
    order = (
        "benchmark, run_id, against_run_id NULLS FIRST, judge_id, array_position(['all', 'llm', 'human'], questions), "
        "task NULLS FIRST"
    )
    return _with_intervals(store, f"judge_results {_OF_RUNS} ORDER BY {order}", "judged_rounds", "judge_id", run_ids)


def read_rating_results(store: Store, run_ids: Collection[str] = ()) -> list[dict[str, Any]]:
    """Read the rows of ``rating_results`` of all rated runs or of some, with the columns of ``INTERVAL_COLUMNS``."""
    order = "set_id, benchmark, task NULLS FIRST, score DESC NULLS LAST, run_id, against_run_id NULLS FIRST"
    return _with_intervals(store, f"rating_results {_OF_RUNS} ORDER BY {order}", "rated_answers", "set_id", run_ids)


def _with_intervals(
    store: Store, results: str, rows_view: str, id_column: str, run_ids: Collection[str]
) -> list[dict[str, Any]]:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    # In a fixed order: sums and drawn intervals must not depend on the order of rows in the file.
    for row in store.query(f"FROM {rows_view} {_OF_RUNS} ORDER BY ALL", [list(run_ids)]).dicts():
        of = (row[id_column], *(row[name] for name in _KEY))
        for questions in ("all", *(mark.lower() for mark in row.get("marks", ()))):
            for task in (None, row["task"]):
                groups.setdefault((*of, questions, task), []).append(row)
    rows = []
    for row in store.query(f"FROM {results}", [list(run_ids)]).dicts():
        of = (row[id_column], *(row[name] for name in _KEY))
        rows_of_task = groups.get((*of, row.get("questions", "all"), row["task"]), [])
        rows.append(row | opinion_interval_columns(estimate(rows_of_task, copies=row.get("questions") == "all")))
    return rows


def estimate(rows: Iterable[Mapping[str, Any]], *, copies: bool = False) -> Estimate:
    """Estimate the mean score of rows, by question and document, with ``copies`` weighted by the column ``copies``."""
    scored_rows = [row for row in rows if row["score"] is not None for _ in range(row["copies"] if copies else 1)]
    samples = encode_labels((row["benchmark"], row["task"], row["sample_id"]) for row in scored_rows)
    clusters = encode_labels(
        row["document_sha256"] or (row["benchmark"], row["task"], row["sample_id"]) for row in scored_rows
    )
    values = np.array([row["score"] for row in scored_rows], float)
    clustered = all(row["document_sha256"] for row in scored_rows)
    return Estimate((Stratum(1.0, samples, clusters, values),) if scored_rows else (), clustered)


def opinion_interval_columns(mean: Estimate) -> dict[str, Any]:
    """Compute the interval of an estimate as the columns of ``INTERVAL_COLUMNS``."""
    if not mean.strata:
        return dict.fromkeys(INTERVAL_COLUMNS) | {"method": "no number"}
    return columns_of(interval(mean), "document" if mean.clustered else "sample")


def aggregate_opinions(store: Store, run_ids: Collection[str]) -> None:
    """Aggregate the opinions on these runs, and on the compared runs, and replace the rows in ``numbers``."""
    ((somebody,),) = store.query("SELECT EXISTS (FROM judges) OR EXISTS (FROM rating_sets)").rows
    if not somebody:
        return
    run_ids = sorted(filter(None, {*run_ids, *_compared_with(store, run_ids)}))  # a file may have empty run names
    rows: dict[tuple[str, str], list[Number]] = {}
    for row in (
        (*_judge_numbers(read_judge_results(store, run_ids)), *_people_numbers(read_rating_results(store, run_ids)))
        if run_ids
        else ()
    ):
        of_run = rows.setdefault((row["run_id"], row["benchmark"]), [])
        of_run.append(_group(row, _FIRST + len(of_run)))
    stored_opinions = store.query(
        "SELECT DISTINCT run_id, benchmark FROM numbers WHERE kind = 'opinion' AND list_contains(?::VARCHAR[], run_id)",
        [list(run_ids)],
    )
    for run_id, benchmark in dict.fromkeys([*rows, *stored_opinions.rows]):
        store.write_opinions(run_id, benchmark, rows.get((run_id, benchmark), []))


def write_ratings(
    store: Store,
    sets: Sequence[RatingSetRow],
    items: Sequence[RatingItemRow],
    ratings: Sequence[RatingRow],
    *,
    replace: bool = False,
) -> int:
    """Commit new ratings, and aggregate the opinions on the rated runs again. Returns the number of new ratings.

    Args:
        replace: whether to replace rows of the same key and revision, rather than add ratings as new revisions.

    Raises:
        StoreError: the disk is full, or the file cannot be written. The file then contains none of the ratings.
    """
    new = insert_ratings(store, sets, items, ratings, replace=replace)
    aggregate_opinions(store, {row.run_id for row in ratings})
    return new


def _compared_with(store: Store, run_ids: Collection[str]) -> list[str]:
    rows = store.query(
        "SELECT run_id FROM judgements WHERE list_contains($1::VARCHAR[], against_run_id) UNION "
        "SELECT run_id FROM ratings WHERE list_contains($1::VARCHAR[], against_run_id) UNION "
        "SELECT against_run_id FROM ratings WHERE list_contains($1::VARCHAR[], run_id)",
        [list(run_ids)],
    )
    return [run for (run,) in rows.rows if run]


def aggregate_judge_opinions(store: Store, judge_id: str) -> None:
    """Aggregate the opinions on all runs that a judge has judged."""
    aggregate_opinions(store, [run for (run,) in store.query(
        "SELECT DISTINCT run_id FROM judgements WHERE judge_id = ? ORDER BY ALL", [judge_id]
    ).rows])  # fmt: skip


def aggregate_all_opinions(store: Store) -> None:
    """Aggregate the opinions on all runs."""
    aggregate_opinions(store, [run for (run,) in store.query(
        "SELECT run_id FROM judgements UNION SELECT run_id FROM rated_answers UNION "
        "SELECT run_id FROM numbers WHERE kind = 'opinion' ORDER BY ALL"
    ).rows])  # fmt: skip


def _judge_numbers(rows: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    """Yield each judge's number over all questions, and a number for each mark that only some questions bear."""
    for row in rows:
        if row["task"] is not None or row["score"] is None:
            continue
        name = " vs ".join(filter(None, (row["judge_id"], row["against_run_id"])))
        counted = row["n_rounds"] - row["n_errors"]
        bounds = [(row["score"] * counted + end * row["n_errors"]) / row["n_rounds"] for end in (0, 1)]
        open_ = {"answered": counted, "asked": row["n_rounds"], "failed_as_0": bounds[0], "failed_as_1": bounds[1]}
        number = row | open_ | {"grouping": "judge", "name": name, "n": counted, "partial": row["many_errors"]}
        if row["questions"] == "all":
            total = row["n_questions"]
            yield number
        elif row["n_questions"] < total:
            yield number | {"name": f"{name}, {row['questions']} questions"}


def _people_numbers(rows: Sequence[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    against: dict[tuple[str, str], set[str | None]] = {}
    for row in rows:
        against.setdefault((row["set_id"], row["run_id"]), set()).add(row["against_run_id"])
    for row in rows:
        if row["task"] is None and row["score"] is not None:
            several = len(against[row["set_id"], row["run_id"]]) > 1
            name = f"{row['set_id']} vs {row['against_run_id']}" if several else row["set_id"]
            mean = {"rating": row["mean"], "grouping": "people", "name": name, "n": row["n_ratings"], "partial": False}
            yield row | mean


def _group(row: dict[str, Any], position: int) -> Number:
    pair, ends = row["kind"] == "pair", (row["scale_low"], row["scale_high"])
    unit = 100.0 if pair else None if None in ends else ends[1] - ends[0]
    values: dict[str, Any] = {name: row.get(name) for name in (*INTERVAL_COLUMNS, *COMPLETENESS_COLUMNS)}
    return Number(
        run_id=row["run_id"],
        benchmark=row["benchmark"],
        kind="opinion",
        grouping=row["grouping"],
        name=row["name"],
        metric="win_rate" if pair else "rating",
        judge=row["judge_id"] if row["grouping"] == "judge" else row["set_id"],
        against=row["against_run_id"] or "",
        questions=row.get("questions", ALL),
        metric_version=_VERSION,
        n=row["n"],
        score=row["score"],
        official=100 * row["win_rate"] if pair else row["rating"],
        unit=unit,
        partial=row["partial"],
        position=position,
        **values,
    )
