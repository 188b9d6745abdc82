"""The journal: what was shown as saved is there, whatever happened, and once."""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.base.errors import StoreError, UsageError
from lbx.benchmarks.registry import BENCHMARKS
from lbx.opinions.aggregation import write_ratings
from lbx.opinions.journal import Journal, collect_ratings, journal_of, read_journal
from lbx.opinions.rating_rows import RatingRow
from lbx.opinions.rating_session import Opinion, RatingSession
from lbx.opinions.rating_sets import PAIR, RatingSet
from lbx.results import GenerationRow, Store
from lbx.results.scoring.aggregation import aggregate_scores
from tests.command_line import Lbx
from tests.opinions.rated_file import answers_file, rate_all, session_of, set_of

HERE = Path(__file__).parent


def table(path: Path, columns: str = "*", where: str = "true") -> list[tuple[object, ...]]:
    with Store(path, read_only=True) as store:
        return list(store.query(f"SELECT {columns} FROM ratings WHERE {where} ORDER BY ALL").rows)


def last(path: Path) -> dict[tuple[object, ...], object]:
    """{(item, rater, run): the score that counts}"""
    rows = table(path, "item, rater, run_id, revision, score")
    return {row[:3]: row[4] for row in rows}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return answers_file(tmp_path / "r.duckdb")


def test_what_is_said_is_in_the_tables(path: Path) -> None:
    rate_all(path, "ann", 4)
    assert table(path) == []
    assert collect_ratings(path).ratings == 18, "nine questions, two answers"
    assert not journal_of(path).exists()
    assert set(last(path).values()) == {4.0}
    assert len(last(path)) == 18
    with Store(path, read_only=True) as store:
        (row,) = store.query("SELECT * FROM rating_sets").dicts()
        items = store.query("SELECT * FROM rating_items ORDER BY item").dicts()
    assert (row["kind"], row["scale_low"], row["scale_high"]) == ("score", 1.0, 5.0)
    assert json.loads(row["runs"]) == ["alpha", "beta"]
    assert len(items) == 9
    assert json.loads(items[0]["meta"])["answers"][0]["run_id"] == "alpha"
    assert collect_ratings(path).ratings == 0, "there is nothing left to move"


def test_what_is_said_is_added_up(path: Path, tmp_path: Path) -> None:
    other = answers_file(tmp_path / "other.duckdb")
    rate_all(path, "ann", 4)
    rate_all(other, "bob", 2)
    for file in (path, other):
        collect_ratings(file)
    assert Lbx()("merge", path, other, "-o", tmp_path / "m.duckdb").returncode in (0, 3)
    name = set_of(path).set_id
    for file, mean in ((path, 4.0), (other, 2.0), (tmp_path / "m.duckdb", 3.0)):
        with Store(file, read_only=True) as store:
            said = store.query(
                "SELECT run_id, name, metric, official FROM group_results WHERE \"grouping\" = 'people' ORDER BY ALL"
            ).rows
        assert said == [(run, name, "rating", mean) for run in ("alpha", "beta")]


def people(path: Path) -> list[tuple[object, ...]]:
    with Store(path, read_only=True) as store:
        return store.query(
            "SELECT run_id, metric, n, official FROM group_results WHERE \"grouping\" = 'people' ORDER BY ALL"
        ).rows


def test_ratings_of_an_answer_that_has_changed_are_kept_and_count_no_more(path: Path) -> None:
    rate_all(path, "ann", 4)
    collect_ratings(path)
    with Store(path) as store:
        store.write(generations=[GenerationRow("beta", "leval", "narrative_qa", "q000", 0, "quite another")])
        aggregate_scores(store, "beta", BENCHMARKS["leval"])
    assert people(path) == [("alpha", "rating", 9, 4.0), ("beta", "rating", 8, 4.0)]
    assert len(last(path)) == 18


def test_a_pair_counts_no_more_where_either_answer_has_changed(path: Path) -> None:
    with session_of(path, kind=PAIR) as book:
        for item in book.queue("ann"):
            book.save("ann", item, [Opinion(0, "tie")])
    collect_ratings(path)
    assert [row[2] for row in people(path)] == [8, 8]
    for run, name in (("beta", "q000"), ("alpha", "q001")):
        with Store(path) as store:
            store.write(generations=[GenerationRow(run, "leval", "narrative_qa", name, 0, "quite another")])
            aggregate_scores(store, run, BENCHMARKS["leval"])
    assert [row[2] for row in people(path)] == [6, 6]


def test_equal_answers_are_rated_for_all(path: Path) -> None:
    with session_of(path) as book:
        (item,) = (one for one in book.set.items if one.sample_id == "q003")
        book.save("ann", item, [Opinion(0, 2)])
    collect_ratings(path)
    assert table(path, "run_id, score, shown_at") == [("alpha", 2.0, 0), ("beta", 2.0, 0)]


def test_a_change_of_mind_and_undo_are_revisions(path: Path) -> None:
    with session_of(path) as book:
        item = book.queue("ann")[0]
        assert book.save("ann", item, [Opinion(0, 2, "so so")])
        assert book.save("ann", item, [Opinion(0, 5)])
        assert not book.save("ann", item, [Opinion(0, 5)]), "nothing new is no revision"
        assert book.values("ann", item) == [5.0, None]
        assert book.undo("ann") == (item, 0)
        assert book.values("ann", item) == [2.0, None]
        assert book.latest("ann", item)[0].comment == "so so"  # type: ignore[union-attr]
        book.undo("ann")
        assert book.values("ann", item) == [None, None]
        assert book.undo("ann") is None
    collect_ratings(path)
    assert table(path, "revision, score, comment") == [
        (0, 2.0, "so so"), (1, 5.0, "so so"), (2, 2.0, "so so"), (3, None, None),
    ]  # fmt: skip


def test_a_pair_is_from_the_first_runs_side(path: Path) -> None:
    with session_of(path, kind=PAIR) as book:
        for item, letter in zip(book.queue("ann"), ("a", "b") * 4, strict=False):
            book.save("ann", item, [Opinion(0, letter)])
            shown = book.set.answer_groups(item, "ann")["ab".index(letter)][0]
            row = book.latest("ann", item)[0]
            assert row is not None
            assert row.verdict == ("answer" if shown.run_id == row.run_id else "against")
            assert (row.run_id, row.against_run_id) == ("alpha", "beta")
            assert book.set.answer_groups(item, "ann")[row.shown_at or 0][0].run_id == "alpha"
        for value in ("tie", "both_bad"):
            book.save("ann", book.queue("ann")[0], [Opinion(0, value)])
            assert book.values("ann", book.queue("ann")[0]) == [value]


@pytest.mark.parametrize("value", [0, 6, 3.5, "3", "a", True.__class__])
def test_a_scale_is_kept(path: Path, value: object) -> None:
    with session_of(path) as book:
        with pytest.raises(UsageError, match="whole number from 1 to 5"):
            book.save("ann", book.queue("ann")[0], [Opinion(0, value)])  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="does not exist"):
            book.save("ann", book.queue("ann")[0], [Opinion(2, 3)])
        with pytest.raises(UsageError, match="not assigned to you"):
            book.item("ann", 99)
    assert not journal_of(path).exists(), "nothing was rated"


def test_a_torn_line_is_set_aside_at_every_byte(path: Path, tmp_path: Path) -> None:
    rate_all(path, "ann", 4)
    held = journal_of(path).read_bytes()
    whole = held.rstrip(b"\n").rpartition(b"\n")[0] + b"\n"
    for cut in range(len(whole) + 1, len(held), 7):
        torn = tmp_path / f"{cut}.jsonl"
        torn.write_bytes(held[:cut])
        with Journal(torn) as journal:
            assert journal.torn is not None
            assert journal.torn.read_bytes() == held[len(whole) : cut] + b"\n"
            assert len(journal.records) == whole.count(b"\n")
            journal.append({"ratings": []})
        assert torn.read_bytes() == whole + b'{"ratings":[]}\n'
    journal_of(path).write_bytes(held[:-5])
    found = collect_ratings(path)
    assert (found.ratings, found.torn is not None) == (17, True)


def test_a_damaged_line_is_named(path: Path) -> None:
    rate_all(path, "ann", 4)
    lines = journal_of(path).read_bytes().splitlines(keepends=True)
    for damage in (b"{}\n", b"[]\n", b"\xff\n", b"\n"):
        journal_of(path).write_bytes(b"".join([*lines[:3], damage, *lines[3:]]))
        with pytest.raises(StoreError, match=r"Line 4 of .*r\.duckdb\.ratings\.jsonl"):
            collect_ratings(path)
    journal_of(path).write_bytes(b"".join(lines[1:]))
    with pytest.raises(StoreError, match="first lines are missing"):
        collect_ratings(path)
    assert journal_of(path).exists()


RATED = {"set_id": "s", "item": 0, "rater": "ann", "run_id": "r", "iteration": 0, "against_run_id": "",
         "against_iteration": 0, "revision": 0, "score": 3.0, "created_at": "2026-01-01T00:00:00"}  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        '{"set":[1],"items":[]}', '{"set":null}', '{"set":{"set_id":["a"]},"items":[]}', '{"ratings":5}',
        '{"ratings":[5]}', '{"ratings":' + "[" * 100_000, '{"ratings":' + "9" * 5000 + "}",
        *(
            json.dumps({"ratings": [{**RATED, **wrong}]})
            for wrong in (
                {"item": "x"}, {"item": 10**30}, {"rater": ["a"]}, {"rater": None}, {"revision": -1},
                {"score": "abc"}, {"score": float("nan")}, {"score": float("inf")}, {"verdict": "zzz"},
                {"created_at": 5}, {"shown_at": 1e30}, {"seconds": "x"}, {"set_id": ["s"]},
            )
        ),
    ],
)  # fmt: skip
def test_what_no_lbx_wrote_is_named_wherever_it_is_read(path: Path, tmp_path: Path, line: str) -> None:
    journal_of(path).write_text(f"{line}\n")
    with pytest.raises(StoreError, match=r"Line 1 of .* was not written by lbx"):
        Journal(journal_of(path))
    with pytest.raises(StoreError, match=r"Line 1 of .* was not written by lbx"):
        read_journal(journal_of(path))


def test_a_journal_and_its_torn_piece_lead_nowhere_else(path: Path, tmp_path: Path) -> None:
    victim, journal = tmp_path / "victim", journal_of(path)
    journal.symlink_to(victim)
    with pytest.raises(StoreError, match="cannot be written"):
        Journal(journal)
    journal.unlink()
    os.mkfifo(journal)
    with pytest.raises(StoreError, match="not a file"):
        Journal(journal)
    journal.unlink()
    journal.write_text('{"ratings": [')
    journal.with_suffix(".torn").symlink_to(victim)
    with pytest.raises(StoreError, match="cannot be moved to"):
        Journal(journal)
    assert not victim.exists() and journal.read_text() == '{"ratings": ['


def test_one_process_writes(path: Path) -> None:
    with Journal(journal_of(path)):
        with pytest.raises(StoreError, match="Another `lbx rate`"):
            Journal(journal_of(path))
        with pytest.raises(StoreError, match="Another `lbx rate`"):
            collect_ratings(path)
    Journal(journal_of(path)).__exit__(None, None, None)


def test_a_full_disk_saves_nothing_of_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with session_of(path) as book:
        item = book.queue("ann")[0]
        before, written = journal_of(path).read_bytes(), []

        def full(file: int, line: bytes) -> int:
            if written:
                raise OSError(28, "No space left on device")
            written.append(os.writev(file, [line[:10]]))
            return 10

        with monkeypatch.context() as patched:
            patched.setattr(os, "write", full)
            with pytest.raises(StoreError, match="No space left"):
                book.save("ann", item, [Opinion(0, 1)])
        assert journal_of(path).read_bytes() == before
        assert book.values("ann", item) == [None, None]
        assert book.save("ann", item, [Opinion(0, 1)])


def test_a_killed_collect_doubles_nothing(path: Path) -> None:
    """Killed after the rows were committed, before the journal went."""
    rate_all(path, "ann", 4)
    held = journal_of(path).read_bytes()
    collect_ratings(path)
    rows = table(path)
    journal_of(path).write_bytes(held)
    assert collect_ratings(path).ratings == 0
    assert table(path) == rows


def test_a_continued_set_knows_what_was_said(path: Path) -> None:
    rate_all(path, "ann", 4)
    collect_ratings(path)
    with session_of(path) as book:
        assert book.progress("ann").done == 9
        book.save("ann", book.queue("ann")[0], [Opinion(0, 1)])
    with session_of(path) as book:
        assert book.values("ann", book.queue("ann")[0])[0] == 1.0
        assert book.undo("ann") is not None
        assert book.values("ann", book.queue("ann")[0])[0] == 4.0
    collect_ratings(path)
    assert max(row[0] for row in table(path, "revision")) == 2


def test_two_machines_become_one(path: Path, tmp_path: Path) -> None:
    other = answers_file(tmp_path / "other.duckdb")
    rate_all(path, "ann", 4)
    rate_all(other, "bob", 2)
    rate_all(other, "ann", 3)  # ann on both: what was said later counts
    assert collect_ratings(path, [journal_of(other)]).ratings == 54
    assert journal_of(other).exists()
    assert {key[1]: score for key, score in last(path).items()} == {"ann": 3.0, "bob": 2.0}
    assert {row[0] for row in table(path, "revision", "rater = 'ann'")} == {0, 1}
    assert collect_ratings(path, [journal_of(other)]).ratings == 0
    assert len(read_journal(journal_of(other))) == 35, "the set, and a line each time"


def test_results_files_are_merged(path: Path, tmp_path: Path) -> None:
    other = answers_file(tmp_path / "other.duckdb")
    rate_all(path, "ann", 4)
    rate_all(other, "ann", 3)
    rate_all(other, "bob", 2)
    early = Lbx()("merge", path, other, "-o", tmp_path / "early.duckdb")
    assert early.stderr.count("has ratings that are not in the results file") == 2
    for file in (path, other):
        collect_ratings(file)
    merged, again = tmp_path / "m.duckdb", tmp_path / "n.duckdb"
    done = Lbx()("merge", path, other, "-o", merged)
    assert done.returncode in (0, 3), done.stderr
    assert len(table(merged)) == 54
    assert {key[1]: score for key, score in last(merged).items()} == {"ann": 3.0, "bob": 2.0}
    assert people(merged) == [("alpha", "rating", 18, 2.5), ("beta", "rating", 18, 2.5)]
    done = Lbx()("merge", merged, path, other, "-o", again)
    assert done.returncode in (0, 3), done.stderr
    assert table(again) == table(merged)
    with Store(other) as store, store.transaction() as connection:
        connection.execute("UPDATE rating_sets SET seed = 7")
    done = Lbx()("merge", path, other, "-o", tmp_path / "o.duckdb")
    assert done.returncode == 1
    assert "different sets of ratings" in done.stderr


def test_what_two_files_imported_is_one(path: Path, tmp_path: Path) -> None:
    """A line of an official file, read at two times."""
    other = answers_file(tmp_path / "other.duckdb")
    chosen, items = set_of(path).rows()
    for file in (path, other):
        with Store(file) as store:
            row = RatingRow(chosen.set_id, 0, "Cy", "alpha", score=3.0, source_row="3")
            write_ratings(store, sets=[chosen], items=items, ratings=[row])
    done = Lbx()("merge", path, other, "-o", tmp_path / "m.duckdb")
    assert done.returncode in (0, 3), done.stderr
    assert table(tmp_path / "m.duckdb", "rater, revision, score, source_row") == [("Cy", 0, 3.0, "3")]


WRITER = """
import sys
from pathlib import Path
from rated_file import book_of
from lbx.opinions.rating_session import Opinion
from lbx.opinions.journal import Journal, journal_of
path = Path(sys.argv[1])
with Journal(journal_of(path)) as journal:
    book = book_of(path, journal)
    n = 0
    print("ready", flush=True)
    while True:
        item = book.queue("ann")[n % 9]
        book.save("ann", item, [Opinion(0, n % 5 + 1, f"said {n} " + "w" * (n % 3000))])
        print(item.number, book.latest("ann", item)[0].revision, n, flush=True)
        n += 1
"""


@pytest.mark.parametrize("seed", range(2))
def test_killed_while_writing_nothing_saved_is_lost_or_doubled(path: Path, seed: int) -> None:
    saved: dict[tuple[int, int], int] = {}
    for round_ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, path],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(HERE)},
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        first = process.stdout.readline()  # on a busy machine it may take long
        time.sleep(random.Random(10 * seed + round_).uniform(0.01, 0.3))
        process.send_signal(signal.SIGKILL)
        for line in [first, *process.stdout]:
            if line.endswith("\n"):  # the kill may have cut the last one
                item, revision, n = map(int, line.split())
                saved[item, revision] = n
        process.wait()
        process.stdout.close()
    collect_ratings(path)
    rows = table(path, "item, revision, comment, run_id")
    held = {(row[0], row[1]): int(str(row[2]).split()[1]) for row in rows if not (row[0] == 3 and row[3] == "beta")}
    assert saved
    assert saved.items() <= held.items()
    assert len(held) <= len(saved) + 2, "at most what was on its way at each kill"


@functools.cache
def a_set() -> RatingSet:
    with tempfile.TemporaryDirectory() as folder:
        return set_of(answers_file(Path(folder) / "r.duckdb"))


STEPS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 1), st.integers(0, 7)), max_size=25)


@given(steps=STEPS)
def test_any_sequence_survives_being_read_again(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, int]]
) -> None:
    """Ratings, undos and restarts in any order: the file says what was on the screen."""
    folder = tmp_path_factory.mktemp("steps")
    chosen = a_set()
    journal_file = folder / "j.jsonl"
    journal = Journal(journal_file)
    book = RatingSession(chosen, ["ann"], journal)
    for number, place, what in steps:
        item = chosen.items[number]
        if what == 0:
            book.undo("ann")
        elif what == 6:
            shown = [book.values("ann", one) for one in chosen.items]
            journal.__exit__(None, None, None)
            journal = Journal(journal_file)
            book = RatingSession(chosen, ["ann"], journal)
            assert [book.values("ann", one) for one in chosen.items] == shown
        else:
            value = None if what == 7 else what
            book.save("ann", item, [Opinion(min(place, len(book.values("ann", item)) - 1), value)])
    revisions = [row for record in journal.records for row in record.get("ratings", ())]
    keys = [(row["item"], row["run_id"], row["revision"]) for row in revisions]
    assert len(keys) == len({*keys})
    journal.__exit__(None, None, None)
