"""Ratings that somebody planted, in a results file or a journal: what is said next is saved, or nobody is told so."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.base.errors import StoreError
from lbx.opinions.journal import Journal, collect_ratings, journal_of, parse_line, parse_record
from lbx.opinions.rating_session import Opinion
from lbx.results import Store
from tests.attacks.attack_parts import refused
from tests.attacks.results_parts import changed, lbx
from tests.opinions.rated_file import answers_file, book_of, rate_all


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Answers that ann has rated 4, collected."""
    made = answers_file(tmp_path / "r.duckdb")
    rate_all(made, "ann", 4)
    collect_ratings(made)
    return made


def scores(path: Path) -> set[float]:
    """What counts of ann: 2 on a scale from 1 to 5 is 0.25."""
    with Store(path, read_only=True) as store:
        return {score for (score,) in store.query("SELECT score FROM rated_answers").rows}


def rate_again(path: Path, value: int) -> None:
    """Every answer that ann is shown, one at a time, as the page does it; then into the file."""
    with Journal(journal_of(path)) as journal:
        book = book_of(path, journal)
        for item in book.queue("ann"):
            for place in range(len(book.values("ann", item))):
                assert book.save("ann", item, [Opinion(place, value)])
        item = book.queue("ann")[0]
        assert book.save("ann", item, [Opinion(0, 1)])
        assert book.undo("ann") is not None


@pytest.mark.parametrize("revision", [2**31 - 1, 2**31 - 2])
def test_the_last_revision_there_is_ends_nothing(path: Path, revision: int) -> None:
    changed(path, f"UPDATE ratings SET revision = {revision}")
    rate_again(path, 2)
    assert lbx("rate", path, "--collect").code == 0
    assert scores(path) == {0.25}


FAR = ("9999-12-31 23:59:59.999999", "infinity", "-infinity", "20000-01-01", "0044-03-15 (BC)", "2099-12-31 23:59")


@pytest.mark.parametrize("time", FAR)
def test_a_date_that_nothing_can_follow_is_seen_before_anybody_rates(path: Path, time: str) -> None:
    changed(path, f"UPDATE ratings SET created_at = '{time}' WHERE item = 3")
    with Journal(journal_of(path)) as journal, pytest.raises(StoreError):
        book_of(path, journal)
    assert not journal_of(path).exists()


def test_the_latest_date_that_is_taken_ends_nothing(path: Path) -> None:
    changed(path, "UPDATE ratings SET created_at = '2099-12-30 23:59:59.999999'")
    rate_again(path, 2)
    collect_ratings(path)
    assert scores(path) == {0.25}


@pytest.mark.parametrize("time", ["9999-12-31", "infinity", "1066-10-14"])
def test_merging_takes_no_such_date(path: Path, tmp_path: Path, time: str) -> None:
    changed(path, f"UPDATE ratings SET created_at = '{time}'")
    refused(lbx("merge", path, "-o", tmp_path / "merged.duckdb"), "'ann'", "which is impossible")
    assert not (tmp_path / "merged.duckdb").exists()


@pytest.fixture
def lines(path: Path, tmp_path: Path) -> list[dict[str, Any]]:
    """A journal's lines: the set, and what bob has said."""
    other = answers_file(tmp_path / "bob.duckdb")
    rate_all(other, "bob", 3)
    return [json.loads(line) for line in journal_of(other).read_text().splitlines()]


PLANTED: dict[str, Any] = {
    "year 1 with an offset": {"created_at": "0001-01-01T00:00:00+14:00"},
    "year 9999 with an offset": {"created_at": "9999-12-31T23:59:59-14:00"},
    "year 9999": {"created_at": "9999-12-31T23:59:59"},
    "a score of 4,000 digits": {"score": int("9" * 4000)},
    "seconds of 4,000 digits": {"seconds": int("9" * 4000)},
    "a score beyond the scale": {"score": 10**6},
    "another revision": {"revision": 2**31},
    "a number for a row": {"source_row": 5},
}


@pytest.mark.parametrize("what", PLANTED)
def test_a_journal_s_lines_are_taken_at_nobody_s_word(
    path: Path, lines: list[dict[str, Any]], tmp_path: Path, what: str
) -> None:
    lines[-1]["ratings"][-1] |= PLANTED[what]
    journal = tmp_path / "stranger.jsonl"
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = path.read_bytes()
    refused(lbx("rate", path, "--collect", "--journal", journal))
    assert path.read_bytes() == before


ODD_SETS: dict[str, Any] = {
    "runs": 5, "seed": 2**70, "scale_high": 1e308, "kind": "other", "created_at": "0001-01-01T00:00:00+14:00",
    "raters_per_item": "x", "question_source": None,
}  # fmt: skip


@pytest.mark.parametrize("column", ODD_SETS)
def test_a_journal_s_set_is_looked_at_too(path: Path, lines: list[dict[str, Any]], tmp_path: Path, column: str) -> None:
    lines[0]["set"][column] = ODD_SETS[column]
    journal = tmp_path / "stranger.jsonl"
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    refused(lbx("rate", path, "--collect", "--journal", journal), "Line 1")


def test_whom_a_journal_speaks_for_is_said(path: Path, tmp_path: Path) -> None:
    """Nothing in a journal shows who wrote it: whoever takes it in is told its raters."""
    other = answers_file(tmp_path / "other.duckdb")
    rate_all(other, "ann", 1)
    said = lbx("rate", path, "--collect", "--journal", journal_of(other))
    assert said.code == 0
    assert "contains ratings of ann (17); lbx cannot verify who wrote them" in " ".join(said.err.split())


NUMBERS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(2**70), 2**70), st.just(int("9" * 4000)), st.floats(),
    st.text(max_size=5), st.lists(st.integers(), max_size=2),
)  # fmt: skip
TIMES = st.one_of(
    NUMBERS,
    st.builds(
        lambda time, hours: f"{time.isoformat()}{hours:+03d}:00", st.datetimes(), st.integers(-23, 23)
    ),
    st.datetimes(datetime(1970, 1, 2), datetime(2099, 12, 30)).map(datetime.isoformat),
)  # fmt: skip
ROW = {
    "set_id": "s", "item": 0, "rater": "ann", "run_id": "alpha", "iteration": 0, "against_run_id": "",
    "against_iteration": 0, "revision": 0, "score": 4.0, "verdict": None, "shown_at": 0, "comment": None,
    "seconds": 1.5, "source_row": None, "created_at": "2026-01-01T00:00:00",
}  # fmt: skip


@given(st.dictionaries(st.sampled_from([*ROW, "another"]), st.one_of(NUMBERS, TIMES), max_size=4), TIMES)
def test_any_rating_is_none_or_one_that_others_can_follow(values: dict[str, Any], time: object) -> None:
    record = {"ratings": [{**ROW, "created_at": time, **values}]}
    try:
        text = json.dumps(record)
    except ValueError:
        return
    held = parse_record(text.encode())
    if held is None:
        with pytest.raises(ValueError):
            parse_line(record)
        return
    (row,) = parse_line(held).ratings
    assert row.created_at.tzinfo is UTC
    assert row.created_at + timedelta(microseconds=1) > row.created_at
    assert parse_line(json.loads(json.dumps({"ratings": [row.values()]}))).ratings == [row]


@given(
    st.recursive(NUMBERS, lambda inner: st.dictionaries(st.sampled_from(["set", "items", "ratings", "set_id"]), inner))
)
def test_any_json_is_a_line_or_none(value: object) -> None:
    try:
        text = json.dumps(value)
    except ValueError:
        return
    assert parse_record(text.encode()) is None or isinstance(value, dict)


def test_what_would_not_be_read_again_is_not_said_to_be_saved(path: Path) -> None:
    with Journal(journal_of(path)) as journal:
        before = journal_of(path).read_bytes()
        with pytest.raises(StoreError, match="It was not saved"):
            journal.append({"ratings": [{**ROW, "created_at": "9999-12-31T23:59:59"}]})
        assert journal_of(path).read_bytes() == before
