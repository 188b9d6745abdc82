"""``lbx runs``: the runs of a results file are listed, renamed, removed and described."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import duckdb
import pytest

from lbx.opinions.aggregation import write_ratings
from lbx.opinions.rating_rows import RatingRow
from lbx.opinions.rating_sets import Item, RatingAnswer, RatingSet
from lbx.results import Store
from tests.command_line import Lbx, fails
from tests.made_depth import add_depth, depth_pair
from tests.small_disks import small_disk
from tests.web.browsed_file import browsed_file


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Runs "one" and "two", their judge "umpire", and people's ratings of both."""
    return browsed_file(tmp_path / "r.duckdb")


def test_runs_are_listed_with_what_they_hold(lbx: Lbx, results: Path) -> None:
    for words in (("runs", results), ("runs", "list", results)):
        shown = lbx.ok(*words).stdout
        rows = [" ".join(line.split()[:4]) for line in shown.splitlines()]
        assert {"one model done 12", "two model done 12", "umpire judge done 1"} <= {*rows}
        assert f"3 runs in {results} (" in shown
    listed = json.loads(lbx.ok("runs", results, "--json").stdout)
    assert json.loads(lbx.ok("runs", "--json", results).stdout) == listed
    assert listed["file_bytes"] == results.stat().st_size
    one, two, umpire = listed["runs"]
    assert (one["run_id"], one["answers"], one["failures"], one["state"], one["kind"]) == (
        "one",
        12,
        1,
        "done",
        "model",
    )
    assert 1_000_000 < one["size_bytes"] < 1_100_000  # a million letters of reasoning
    assert umpire["kind"] == "judge" and one["started_at"] < two["started_at"] and one["facts"] == {}


def test_a_run_with_a_part_of_its_answers_is_listed_with_their_number(lbx: Lbx, results: Path) -> None:
    """A run that ended by --limit, or that failed to ask some, is "done" with 12 of 40."""
    with duckdb.connect(str(results)) as connection:
        tasks = connection.execute(
            "SELECT DISTINCT benchmark || '/' || task FROM generations WHERE run_id = 'one'"
        ).fetchall()
        counts = json.dumps({task: 40 // len(tasks) for (task,) in tasks})
        connection.execute("UPDATE runs SET task_samples = ? WHERE run_id = 'one'", [counts])
    assert "one model done 12 of 40 " in " ".join(lbx.ok("runs", results).stdout.split())


def test_a_word_that_is_no_subcommand_is_a_file(lbx: Lbx, results: Path) -> None:
    fails(lbx("runs", "nix"), 1, "The results file nix does not exist")
    fails(lbx("runs", "lits", results), 2, "No such command 'lits'. Did you mean 'list'?")
    results.rename(results.with_name("lits"))
    assert "3 runs" in lbx.ok("runs", "lits", cwd=results.parent).stdout
    assert lbx("runs").stderr + lbx("runs").stdout and lbx("runs").returncode == 2


def test_a_run_is_removed_with_what_depends_on_it_or_not_at_all(lbx: Lbx, results: Path) -> None:
    before = results.read_bytes()
    told = ("1 judgement by umpire", "1 rating in the set pairs", "2 ratings in the set scores", "--with-dependents")
    fails(lbx("runs", "remove", results, "one"), 2, "cannot be removed alone", *told)
    fails(lbx("runs", "remove", results, "one", "none"), 2, "No run 'none'")
    with Store(results) as store:
        add_depth(store, depth_pair())
    pair = depth_pair().pair_id
    fails(lbx("runs", "remove", results, pair, "one"), 2, f"remove {results} {pair} one --with-dependents")
    assert lbx.rows(results, "SELECT count(*) AS n FROM depth_pairs") == [{"n": 1}]
    fails(lbx("runs", "remove", results), 2, "No run to remove")
    assert lbx.rows(results, "SELECT count(*) AS n FROM generations") == [{"n": 25}]
    done = lbx.ok("runs", "remove", results, "one", "--with-dependents", "--json")
    removal = json.loads(done.stdout)
    assert removal["runs"] == ["one", "umpire"] and removal["judges"] == ["umpire"]
    assert removal["dependents"]["ratings"] == {"pairs": 1, "scores": 2} and removal["vacuum"] is None
    assert [row["run_id"] for row in json.loads(lbx.ok("runs", results, "--json").stdout)["runs"]] == ["two"]
    for table in ("rating_sets", "rating_items", "ratings"):
        assert not lbx.rows(results, f"FROM {table}")
    assert len(lbx.rows(results, "FROM samples")) == 12, "run two answered them, too"
    assert len(before) <= results.stat().st_size, "DuckDB keeps the blocks"


def test_a_run_goes_with_its_judge(lbx: Lbx, results: Path) -> None:
    """What is removed itself does not depend on the removed."""
    lbx.ok("runs", "remove", results, "umpire")
    assert not lbx.rows(results, "FROM numbers WHERE judge = 'umpire'")
    assert len(lbx.rows(results, "FROM ratings")) == 3


def test_a_file_without_a_removed_run_is_smaller_after_a_rewrite(lbx: Lbx, results: Path) -> None:
    with duckdb.connect(str(results)) as connection:
        connection.execute("CREATE TABLE mine AS SELECT 7 AS n; CREATE VIEW mine_too AS FROM mine")
    results.chmod(0o640)
    shown = lbx.ok("runs", "remove", results, "one", "--with-dependents").stderr
    assert "stay in free blocks" in shown and f"lbx runs remove {results} --vacuum" in " ".join(shown.split())
    size = results.stat().st_size
    rows = {table: lbx.rows(results, f"FROM {table} ORDER BY ALL") for table in ("generations", "scores", "samples")}
    lbx.ok("runs", "remove", results, "--vacuum")
    assert results.stat().st_size < size
    assert results.stat().st_mode & 0o777 == 0o640 and [*results.parent.iterdir()] == [results]
    assert rows == {table: lbx.rows(results, f"FROM {table} ORDER BY ALL") for table in rows}
    with duckdb.connect(str(results)) as connection:
        assert connection.execute("FROM mine_too").fetchall() == [(7,)]
        keys = connection.execute("SELECT count(*) FROM duckdb_constraints() WHERE constraint_type = 'PRIMARY KEY'")
        assert keys.fetchall() == [(14,)]


def test_ratings_in_a_journal_keep_a_run(lbx: Lbx, results: Path) -> None:
    journal = results.with_name(f"{results.name}.ratings.jsonl")
    journal.write_text("")
    for words in (("rename", results, "one", "other"), ("remove", results, "two", "--with-dependents")):
        fails(lbx("runs", *words), 1, "ratings that are not in the file yet", f"lbx rate {results} --collect")


@pytest.mark.parametrize("name", ["two", "", " ", "published-x"])
def test_a_name_that_a_run_cannot_get(lbx: Lbx, results: Path, name: str) -> None:
    fails(lbx("runs", "rename", results, "one", name), 2)
    assert [row["run_id"] for row in lbx.rows(results, "FROM runs ORDER BY run_id")] == ["one", "two", "umpire"]


def test_another_database_stays_as_it_is(lbx: Lbx, tmp_path: Path) -> None:
    other = tmp_path / "other.duckdb"
    duckdb.connect(str(other)).close()
    before = other.read_bytes()
    for words in (
        ("rename", other, "a", "b"),
        ("remove", other, "a"),
        ("remove", other, "--vacuum"),
        ("note", other, "a", "k=v"),
    ):
        assert lbx("runs", *words).returncode == 1, words
    assert other.read_bytes() == before


def test_a_name_that_opinions_mention_is_not_given_again(lbx: Lbx, results: Path) -> None:
    with duckdb.connect(str(results)) as connection:
        connection.execute("UPDATE ratings SET against_run_id = 'gone' WHERE against_run_id = 'two'")
    fails(lbx("runs", "rename", results, "one", "gone"), 2, "opinions on it: 1 rating in the set pairs")


def test_two_sets_that_become_equal_stay_two(lbx: Lbx, results: Path) -> None:
    with Store(results) as store:
        for low in ("one", "two"):
            texts = [RatingAnswer(run, 0, "text") for run in ("one", "two") if run in (low, "two")]
            item = Item(0, "longbench", "qasper", "s1", "What?", (), "", tuple(texts))
            rating_set = RatingSet("score", "all", tuple(text.run_id for text in texts), (item,))
            row, items = rating_set.rows()
            write_ratings(store, [row], items, [RatingRow(row.set_id, 0, "ann", "two", score=3.0)])
            last = row.set_id
    lbx.ok("runs", "remove", results, "one", "--with-dependents")
    assert {row["set_id"] for row in lbx.rows(results, "FROM rating_sets")} == {last, f"{last}-2"}
    assert len(lbx.rows(results, "FROM ratings WHERE rater = 'ann'")) == 2


def test_only_numbers_that_depend_on_a_run_are_counted(lbx: Lbx, results: Path) -> None:
    with duckdb.connect(str(results)) as connection:
        connection.execute("DELETE FROM numbers WHERE run_id <> 'umpire'")
        connection.execute("DELETE FROM ratings; DELETE FROM rating_items; DELETE FROM rating_sets")
    fails(
        lbx("runs", "remove", results, "one"), 2, "cannot be removed alone: 1 judgement by umpire depend on it. --with"
    )


def test_a_rewrite_compares_the_sizes_that_people_see(lbx: Lbx, results: Path) -> None:
    lbx.ok("runs", "remove", results, "--vacuum")
    before = results.stat().st_size
    sizes = json.loads(lbx.ok("runs", "remove", results, "--vacuum", "--json").stdout)["vacuum"]
    assert sizes == {"bytes_before": before, "bytes_after": results.stat().st_size}


def test_a_removed_run_is_named_if_the_file_cannot_be_rewritten(lbx: Lbx, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 8 << 20) as disk:
        results = browsed_file(disk / "r.duckdb")
        room = shutil.disk_usage(disk).free
        (disk / "full").write_bytes(bytes(room - 2_000_000))
        done = lbx("runs", "remove", results, "umpire", "--vacuum")
        fails(done, 1, "could not be rewritten", f"lbx runs remove {results} --vacuum")
        assert "Removed umpire" in done.stdout
        done = lbx("runs", "remove", results, "two", "--with-dependents", "--vacuum", "--json")
        fails(done, 1, "could not be rewritten")
        removal = json.loads(done.stdout)
        assert removal["runs"] == ["two"] and removal["vacuum"] is None
        assert [row["run_id"] for row in lbx.rows(results, "FROM runs")] == ["one"]


def test_a_note_that_is_no_fact_gets_an_example_that_works(lbx: Lbx, results: Path) -> None:
    fails(lbx("runs", "note", results, "one", "x"), 2, "A fact must be KEY=VALUE, not 'x'. For example: PE=no.")
