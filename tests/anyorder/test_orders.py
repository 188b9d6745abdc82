"""Orders of commands that were wrong once, each as short as it can be; and one in which every command comes."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from lbx.results import Store
from tests.anyorder.held_files import EMPTY, FAILS
from tests.anyorder.journey import Journey
from tests.anyorder.ledger import rows_in
from tests.command_line import fails

LAST_COMMIT = 17
"""The moment of a run of the tales at which all its answers are committed, and no number is made of them."""


def test_every_command(journey: Journey) -> None:
    journey.run("a", limit=2)
    journey.run("a", weights=1, iterations=2, mood=FAILS)
    journey.run("a", weights=1, iterations=2, retry=("failed",), scratch=True)
    journey.run("a", weights=1, name="mine")
    journey.run("a", weights=0, name="mine")  # which is refused
    journey.judge("a", weights=0, run=0, against=1)
    journey.run("a", scratch=True)
    journey.judge("a", weights=0, run=0, against=1)
    journey.judge("a", weights=1, run=1, against=0, scratch=True)
    journey.rate("a", 2)
    journey.rate("a", 3, collect=False)
    journey.collect("a")
    journey.carry("a", "b", run=0)
    journey.carry("a", "b", run=0)
    journey.merge(("a", "b"), "c")
    journey.merge(("a", "b"), "c", force=True)
    journey.deal(weights=0, tasks="tales,leval")
    journey.shard(0)
    journey.gather()
    journey.shard(1, scratch=True)
    journey.gather(force=True)
    journey.score("c")
    journey.look_at_reports()


def test_a_renamed_run_has_the_new_name_everywhere(journey: Journey) -> None:
    """No value of the file has the old name, and a judge asks nothing twice."""
    journey.run("a", tasks="tales,leval")
    journey.run("a", tasks="tales,leval", weights=1)
    journey.judge("a", weights=0, run=0, against=1)
    journey.judge("a", weights=1, run=1, against=0)
    journey.rate("a", 2)
    journey.rate("a", 3, collect=False)
    journey.rename("a", 0, "refused")
    journey.collect("a")
    journey.merge(("a",), "c")
    mine, theirs = journey.runs("a")
    new_names = {}
    for name in (mine, theirs, *journey.runs("a", judges=True)):
        assert places_of(name, journey.path("a"))
        new_names[name] = f"new-{len(new_names)}"
        there = [*journey.runs("a"), *journey.runs("a", judges=True)]
        journey.rename("a", there.index(name), new_names[name])
        assert not places_of(name, journey.path("a"))
    before = journey.held["a"].answers
    assert journey.runs("a") == [new_names[mine], new_names[theirs]]
    for judge in journey.runs("a", judges=True):
        _, weights = journey.held["a"].kinds[judge]
        journey.judge("a", weights=weights, run=weights, against=weights, name=judge)
    assert journey.held["a"].answers == before
    journey.merge(("a",), "c", force=True)
    journey.note("a", 0, 3)
    journey.look_at_reports()


@pytest.mark.parametrize("without_texts", [False, True])
def test_an_extract_that_is_killed_at_any_moment_is_whole_or_absent(journey: Journey, without_texts: bool) -> None:
    journey.run("a", mood=FAILS)
    journey.run("a", weights=1)
    journey.judge("a", weights=0, run=0, against=1)
    journey.rate("a", 2)
    for kill in range(4):
        journey.extract("a", without_texts=without_texts, kill=kill)


def test_no_command_adds_to_a_file_without_texts(journey: Journey) -> None:
    journey.run("a")
    journey.run("a", weights=1)
    first, second = journey.runs("a")
    extract, model, bundle = journey.folder / "x.duckdb", journey.folder / "m.jsonl", journey.world.bundle
    journey.lbx.ok("runs", "extract", journey.path("a"), "--without-texts", "-o", extract)
    before = rows_in(extract)
    asked = ("run", "-m", model, "--tasks", "tales", "-o", extract)
    judged = ("judge", extract, "--judge", model, "--run", first, "--against", second, "--rubric", journey.world.rubric)
    for command in (asked, judged):
        fails(journey.lbx(*command, "-b", bundle, "--no-plan"), 1, "removed all texts from x.duckdb")
    assert rows_in(extract) == before


def places_of(text: str, path: Path) -> set[tuple[str, str]]:
    """Every (table, column) of a results file that has a value with this text."""
    with Store(path, read_only=True) as store:
        tables = [name for (name,) in store.query("SELECT table_name FROM duckdb_tables()").rows]
        rows = {table: store.query(f"FROM {table}").dicts() for table in tables}
    return {
        (table, name) for table in tables for row in rows[table] for name, value in row.items() if text in str(value)
    }


def test_a_removed_run_takes_with_it_all_that_is_about_it(journey: Journey) -> None:
    journey.run("a", tasks="tales,leval")
    journey.run("a", tasks="tales", weights=1)
    journey.judge("a", weights=0, run=0, against=1)
    journey.judge("a", weights=1, run=1, against=0)
    journey.rate("a", 2)
    journey.run("a", limit=1, name="third")
    both = journey.runs("a")[:2]
    journey.remove("a", 0, with_dependents=False)
    assert {*both} <= {*journey.runs("a")}
    journey.remove("a", 0)
    assert not places_of(both[0], journey.path("a")) and journey.runs("a") == [both[1], "third"]
    journey.run("a", tasks="tales,leval")
    journey.judge("a", weights=0, run=0, against=0)
    journey.merge(("a",), "c")
    journey.remove("a", journey.runs("a").index("third"), vacuum=True)
    journey.merge(("a",), "c", force=True)
    journey.look_at_reports()


def test_a_removal_killed_at_each_moment_leaves_the_old_rows_or_the_new_ones(journey: Journey) -> None:
    journey.run("a", limit=1)
    journey.run("a", limit=1, weights=1)
    journey.judge("a", weights=0, run=0, against=1)
    journey.rate("a", 2)
    names = {*journey.held["a"].kinds}
    kills = 0
    while journey.held["a"].kinds.keys() == names:
        kills += 1
        journey.remove("a", 0, vacuum=True, kill=kills)
    assert kills > 3
    kills = itertools.count(1)
    while journey.vacuum("a", kill=next(kills)):
        pass
    assert next(kills) > 4
    journey.look_at_reports()


def test_a_killed_run_that_goes_on_with_other_tasks_has_all_its_numbers(journey: Journey) -> None:
    """Killed between its last answer and its numbers; no command asks these tasks again."""
    journey.run("a", kill=LAST_COMMIT)
    assert journey.held["a"].dirty and len(journey.held["a"].answers) == 7
    journey.run("a", tasks="leval")


def test_weights_that_differ_in_the_middle_alone(journey: Journey) -> None:
    journey.run("a", limit=1)
    journey.run("a", limit=1, weights=1)
    journey.run("a", limit=1, name="mine")
    journey.run("a", limit=1, name="mine", weights=1)


def test_a_killed_run_goes_on_with_scratch(journey: Journey) -> None:
    """Its answers are in DuckDB's log beside the file."""
    journey.run("a", kill=LAST_COMMIT)
    assert journey.path("a").with_name("a.duckdb.wal").exists()
    journey.run("a", scratch=True)


def test_a_file_that_holds_more_is_merged_into_again(journey: Journey) -> None:
    journey.run("a", limit=1)
    journey.run("b", weights=1, limit=1)
    journey.merge(("a", "b"), "c")
    journey.judge("c", weights=0, run=0, against=1)
    journey.rate("c", 4)
    journey.carry("c", "c2", run=0)
    journey.merge(("c2",), "c", force=True)
    journey.merge(("a", "b"), "c", force=True)
    assert len(journey.held["c"].kinds) == 4 and journey.held["c"].ratings


def test_a_newer_metric_in_the_middle(journey: Journey) -> None:
    journey.run("a", limit=1)
    journey.run("b", limit=2)
    journey.upgrade()
    journey.run("a")
    journey.merge(("a", "b"), "c")
    journey.score("c")


def test_another_answer_has_none_of_what_was_made_of_the_one_before(journey: Journey) -> None:
    journey.run("a", mood=EMPTY)
    journey.run("a", weights=1)
    journey.judge("a", weights=0, run=0, against=1)
    journey.rate("a", 3)
    journey.run("a", tasks="tales/facts", retry=("empty",))
    journey.judge("a", weights=0, run=0, against=1)
    journey.rate("a", 4)


def test_a_part_that_is_carried_elsewhere_stays_a_part(journey: Journey) -> None:
    journey.run("a", limit=2)
    journey.carry("a", "b", run=0)


def test_a_merge_killed_at_each_moment_leaves_the_old_file_or_the_new_one(journey: Journey) -> None:
    journey.run("a", limit=1)
    journey.merge(("a",), "c")
    journey.run("a")
    new = journey.held["a"].answers
    kills = 0
    while journey.held["c"].answers != new:
        kills += 1
        journey.merge(("a",), "c", force=True, kill=kills)
    assert kills > 5
    journey.merge(("a",), "c", force=True)
