"""What a results file must hold, kept beside it; and the same file made from scratch, whose numbers it must have."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lbx.benchmarks.registry import BENCHMARKS
from lbx.opinions import aggregation as opinions
from lbx.results import Store
from lbx.results.whole.run_changes import score_with
from tests.anyorder.killing import Answers

SCORES = ("scores", "numbers")
_OF_PEOPLE = ("rating_sets", "rating_items", "ratings")
SHOWN = ("task_scores", "group_scores", "leaderboard", "judge_results", "rating_results", "paper", "comparison")
_MADE_OF = {
    "runs": "run_id, benchmark_versions, task_samples, settings",
    "samples": "*",
    "rounds": "*",
    "generations": "run_id, benchmark, task, sample_id, iteration, output, error, finish_reason, original_tokens",
    "rating_sets": "* EXCLUDE created_at",
    "rating_items": "*",
    "ratings": "*",
}
"""{table: columns that numbers are made of}."""
_WANTED: dict[str, dict[str, list[dict[str, Any]]]] = {}
"""{what numbers are made of: these, made from scratch}: a file takes longer to make than to read."""
ANSWER = "run_id, benchmark, task, sample_id, iteration, output, error IS NOT NULL"
RATING = "set_id, item, rater, run_id, iteration, against_run_id, against_iteration, score, verdict, created_at"
Rating = tuple[Any, ...]


@dataclass
class Held:
    """A results file as it must be.

    Attributes:
        answers: every answer that was committed.
        kinds: {run: what makes it this run and no other}.
        ratings: every rating that was moved into it.
        journal: those that its journal has, said and not moved yet.
        dirty: runs of which a command was killed, until one that adds up their numbers ends.
        unsure: of answers that may be one or the other, both.
        pending: what a killed run has left on its scratch disk, beside this file.
    """

    answers: Answers = field(default_factory=dict)
    kinds: dict[str, Any] = field(default_factory=dict)
    ratings: set[Rating] = field(default_factory=set)
    journal: set[Rating] = field(default_factory=set)
    dirty: set[str] = field(default_factory=set)
    unsure: dict[Any, set[Any]] = field(default_factory=dict)
    pending: Answers | None = None


def rows_in(path: Path) -> tuple[Answers, set[Rating]]:
    """The answers and the ratings of a file, each there once."""
    with Store(path, read_only=True) as store:
        return _rows_of(store)


def _rows_of(store: Store) -> tuple[Answers, set[Rating]]:
    rows = store.query(f"SELECT {ANSWER} FROM generations").rows
    said = store.query(f"SELECT {RATING} FROM ratings").rows
    answers = {tuple(row[:5]): tuple(row[5:]) for row in rows}
    assert len(rows) == len(answers), "a row is doubled"
    assert len(said) == len({*said}), "a rating is doubled"
    return answers, {*said}


def check(path: Path, held: Held, empty: Path) -> None:
    """The file holds every committed row, each once and under its own run's name, and the numbers made of them."""
    with Store(path, read_only=True) as store:
        answers, ratings = _rows_of(store)
        assert answers == held.answers, _difference(held.answers, answers)
        assert ratings == held.ratings, (ratings - held.ratings, held.ratings - ratings)
        named = {run for (run,) in store.query("SELECT run_id FROM runs").rows}
        assert named >= {key[0] for key in answers}, "answers of no run"
        lost = store.query("SELECT * FROM generations ANTI JOIN samples USING (benchmark, task, sample_id)").rows
        assert not lost, "answers to no question"
        others = store.query("SELECT * FROM scores ANTI JOIN generations USING (run_id, benchmark, task, sample_id, "
                             "iteration)").rows  # fmt: skip
        assert not others, "scores of no answer"
        made_of = repr([sorted_rows(store, f"SELECT {columns} FROM {table}") for table, columns in _MADE_OF.items()])
        tables = {table: sorted_rows(store, f"FROM {table}") for table in SCORES}
    _check_numbers(path, held, empty, made_of, tables)


def _difference(expected: Answers, there: Answers) -> str:
    changed = {
        key: (expected[key], there[key]) for key in expected.keys() & there.keys() if expected[key] != there[key]
    }
    lost, more = expected.keys() - there.keys(), there.keys() - expected.keys()
    return f"lost: {sorted(lost)}; not asked for: {sorted(more)}; (wanted, there): {changed}"


def _check_numbers(path: Path, held: Held, empty: Path, made_of: str, tables: dict[str, list[dict[str, Any]]]) -> None:
    """Scores and numbers are those of a file that has the same answers and nothing else; where a command was killed,
    some may not be there yet.
    """
    made_of += str(BENCHMARKS["tales"].metric_version)
    if made_of not in _WANTED:
        _WANTED[made_of] = _from_scratch(path, empty)
    for table, rows in tables.items():
        wanted, there = (_todays(some, held.dirty, table) for some in (_WANTED[made_of][table], rows))
        assert there == wanted, f"{table}: {_apart(wanted, there)}"


def check_views(path: Path, empty: Path) -> None:
    """What reports show is that of a file made from scratch."""
    with _fresh(path, empty) as made, Store(path, read_only=True) as store:
        for view in SHOWN:
            wanted, there = (sorted_rows(one, f"FROM {view}") for one in (made, store))
            assert there == wanted, f"{view}: {_apart(wanted, there)}"


def _from_scratch(path: Path, empty: Path) -> dict[str, list[dict[str, Any]]]:
    with _fresh(path, empty) as made:
        return {table: sorted_rows(made, f"FROM {table}") for table in SCORES}


@contextlib.contextmanager
def _fresh(path: Path, empty: Path) -> Iterator[Store]:
    """A file with the same answers, opinions and nothing else, scored and added up."""
    fresh = path.with_name("fresh.duckdb")
    shutil.copyfile(empty, fresh)
    try:
        with Store(fresh, allowed_files=[path]) as made:
            _fill(made, path)
            score_with(made, None, run_ids=(), processes=1)
            opinions.aggregate_all_opinions(made)
            yield made
    finally:
        fresh.unlink()


def _fill(store: Store, source: Path) -> None:
    store.attach(source, "given")
    with store.transaction() as connection:
        for table in ("runs", "samples", "rounds", "generations", *_OF_PEOPLE):
            connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM given.{table}")
    store.query("DETACH given")


def sorted_rows(store: Store, query: str) -> list[dict[str, Any]]:
    return sorted(store.query(query).dicts(), key=repr)


def _todays(rows: list[dict[str, Any]], but: set[str], table: str) -> list[dict[str, Any]]:
    """Rows of today's metrics that say nothing of some runs; nor, where there are such, what judges and people say."""
    version = BENCHMARKS["tales"].metric_version
    return [
        row for row in rows
        if row["run_id"] not in but
        and (row["benchmark"] != "tales" or row["metric_version"] == version or _is_opinion(table, row))
        and not (but and _is_opinion(table, row))
    ]  # fmt: skip


def _is_opinion(table: str, row: dict[str, Any]) -> bool:
    return table == "numbers" and row["kind"] == "opinion"


def _apart(wanted: list[dict[str, Any]], there: list[dict[str, Any]]) -> str:
    lost, more = ([row for row in some if row not in others] for some, others in ((wanted, there), (there, wanted)))
    return f"wanted {lost[:3]}, there {more[:3]}"
