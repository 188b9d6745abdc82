"""Equal answers are shown and rated once: agreement counts the rating once."""

from __future__ import annotations

from pathlib import Path

from lbx.benchmarks.judge import Round
from lbx.opinions.journal import collect_ratings
from lbx.report.reports import read_report
from lbx.results import Store
from tests.judged_rounds import SCALE, Said, add_judge
from tests.opinions.rated_file import answers_file, rate_all

RUNS_OF_THREE = ("alpha", "beta", "gamma")


def test_a_rating_for_all_equal_answers_counts_once(tmp_path: Path) -> None:
    """Of ten questions two runs answer one alike; a failed answer leaves nine that both have."""
    path = answers_file(tmp_path / "r.duckdb", RUNS_OF_THREE)
    for rater, value in (("ann", 4), ("bob", 2)):
        rate_all(path, rater, value)
    collect_ratings(path)
    with Store(path) as store:
        ratings = store.query("SELECT rater, count(*), count(DISTINCT item) FROM ratings GROUP BY ALL ORDER BY ALL")
        assert ratings.rows == [("ann", 27, 9), ("bob", 27, 9)]
        found = {row["first"]: row for row in read_report(store, "agreement").dicts()}
    assert found["ann"]["n"] == 8 * 3 + 1
    assert next(row["n"] for name, row in found.items() if name.startswith("all 2 raters")) == 8 * 3 + 1


def test_a_judge_counts_once_where_people_rated_equal_answers_together(tmp_path: Path) -> None:
    path = answers_file(tmp_path / "r.duckdb", RUNS_OF_THREE)
    rate_all(path, "ann", 4)
    collect_ratings(path)
    with Store(path) as store:
        rounds = [
            Said(Round("leval", "narrative_qa", f"q{n:03d}", "", (), run, "the same" if n == 3 else f"{run} says {n}"),
                 "[[4]]")
            for n in range(10) for run in RUNS_OF_THREE if n != 4
        ]  # fmt: skip
        add_judge(store, "j", rounds, rubric=SCALE)
        (row,) = [row for row in read_report(store, "agreement").dicts() if row["between"] == "judge and people"]
    assert row["n"] == 8 * 3 + 1
