"""Merging into a file that holds more than the files: nothing of it is lost, and the order of files plays no part."""

from __future__ import annotations

import dataclasses
import itertools
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbx.base.errors import StoreError
from lbx.opinions.aggregation import write_ratings
from lbx.opinions.rating_rows import RatingItemRow, RatingRow, RatingSetRow
from lbx.results import GenerationRow, SessionRow, Store
from lbx.results.file.sessions import store_sessions
from lbx.results.read.runs import metadata, set_metadata, set_metric_version
from lbx.results.whole.merging import merge_files
from tests.made_numbers import task_row
from tests.profiles import examples
from tests.results.store_rows import RUN, generation, sample, score

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
TABLES = (
    "runs", "samples", "generations", "scores", "sessions", "numbers", "rating_sets",
    "rating_items", "ratings",
)  # fmt: skip
NEW: list[bytes] = []
FAILED, EMPTY, TEXT = "failed", " \n", "here"


class Said(NamedTuple):
    """An answer in a file: what was said, when, and how whole its scores are."""

    sample_id: str
    text: str = TEXT
    minute: int = 0
    partial: bool = False
    version: int = 1


def answer(one: Said, run_id: str = "r1") -> GenerationRow:
    values = {"error": "gone", "error_type": "BackendError"} if one.text == FAILED else {"output": one.text}
    return dataclasses.replace(
        generation(run_id, one.sample_id, **values), created_at=START + timedelta(minutes=one.minute)
    )


def new(path: Path) -> Path:
    """An empty results file, which is made once."""
    if not NEW:
        Store(path).close()
        NEW.append(path.read_bytes())
    path.write_bytes(NEW[0])
    return path


def written(path: Path, answers: Sequence[Said], status: str = "done", number: int = 0) -> Path:
    """A part of the run r1, by its own machine."""
    with Store(new(path)) as store:
        store.begin_run(RUN)
        add(store, answers)
        began = START + timedelta(seconds=number)
        store_sessions(store, [SessionRow("r1", 1, 0, RUN.hardware, started_at=began, status=status)])
        store.finish_run("r1", status)
        store.query("UPDATE runs SET started_at = ?, finished_at = ?", [began, began + timedelta(hours=1)])
    return path


def add(store: Store, answers: Sequence[Said]) -> None:
    for one in answers:
        made = dataclasses.replace(score(sample_id=one.sample_id, version=one.version), partial="no model")
        whole = [dataclasses.replace(made, metric="summary", partial=None), dataclasses.replace(made, partial=None)]
        rows = [made] if one.partial else whole
        store.write(samples=[sample(one.sample_id)], generations=[answer(one)], scores=rows if one.text == TEXT else ())


def merged(target: Path, *sources: Path, held: Path | None = None) -> Path:
    with Store(new(target), allowed_files=[*sources, *([held] if held else [])]) as store:
        merge_files(store, sources, held)
    return target


def contents(path: Path) -> dict[str, list[tuple[object, ...]]]:
    with Store(path, read_only=True) as store:
        return {name: list(store.query(f"SELECT * FROM {name} ORDER BY ALL").rows) for name in TABLES}


def test_what_the_file_alone_holds_stays(tmp_path: Path) -> None:
    one = written(tmp_path / "a.duckdb", [Said("s1"), Said("s2", FAILED)])
    other = written(tmp_path / "b.duckdb", [Said("s3")], number=1)
    first = merged(tmp_path / "first.duckdb", one, other)
    with Store(first) as store:
        lived_with(store)
    with Store(one) as store:  # requeued: what failed is asked again, and more
        add(store, [Said("s2", minute=9), Said("s4", minute=9)])
    before, orders = contents(first), []
    for number, order in enumerate(((one, other), (other, one))):
        orders.append(contents(merged(tmp_path / f"{number}.duckdb", *order, held=first)))
    again = contents(merged(tmp_path / "again.duckdb", one, other, held=tmp_path / "0.duckdb"))
    assert orders[0] == orders[1] == again
    found = orders[0]
    for table in ("rating_sets", "rating_items", "ratings"):
        assert found[table] == before[table] != []
    for table in ("generations", "scores", "samples", "sessions", "numbers"):
        lost = set(map(repr, before[table])) - set(map(repr, found[table]))
        of_r1 = "('r1', 'needle'" if table == "numbers" else "'gone'"
        assert all("'gone'" in row or row.startswith(of_r1) for row in lost), (table, lost)
    with Store(tmp_path / "0.duckdb", read_only=True) as store:
        said = store.query("SELECT run_id, sample_id, output, error FROM generations ORDER BY ALL").rows
        assert said == [("other", "s1", "yes", None), *(("r1", f"s{n}", "here", None) for n in range(1, 5))]
        assert metadata(store, "r1") == {"PE": "no", "IDD": "yes"}
        assert store.query("SELECT run_id FROM task_results").rows == [("other",)], "r1 has more answers now"


def lived_with(store: Store) -> None:
    """What people do with a merged file."""
    store.begin_run(dataclasses.replace(RUN, run_id="other", settings={"imported": "x"}))
    store.write(generations=[generation("other", output="yes")], scores=[score("other")])
    store.finish_run("other", "done")
    store.write_results([
        task_row(run, "needle", "single_en", "recall", 1, 0.3) for run in ("r1", "other")
    ])  # fmt: skip
    set_metadata(store, "r1", {"PE": "no", "IDD": "yes"})
    write_ratings(
        store,
        [RatingSetRow("set", "score", "open", ["r1"], 1, 5, created_at=START)],
        [RatingItemRow("set", 0, "needle", "single_en", "s1", 0)],
        [RatingRow("set", 0, "Ann", "r1", score=4, created_at=START)],
    )


def test_a_file_that_lacks_nothing_keeps_its_numbers(tmp_path: Path) -> None:
    parts = [written(tmp_path / f"{n}.duckdb", [Said(f"s{n}")], number=n) for n in (1, 3)]
    first = merged(tmp_path / "first.duckdb", *parts)
    with Store(first) as store:
        lived_with(store)
    assert contents(merged(tmp_path / "second.duckdb", *parts, held=first)) == contents(first)


def test_parts_of_a_run_with_different_metric_versions_are_refused(tmp_path: Path) -> None:
    parts = [written(tmp_path / f"{n}.duckdb", [Said(f"s{n}")], number=n) for n in (1, 3)]
    with Store(parts[1]) as store:
        set_metric_version(store, "r1", "needle", 2)
    with pytest.raises(StoreError, match="metric version 2 of needle") as refused:
        merged(tmp_path / "all.duckdb", *parts)
    assert "lbx score" in refused.value.fix


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_an_answer_takes_the_place_of_none(tmp_path: Path, order: Sequence[int]) -> None:
    """Of failed and empty ones the newest counts; what belongs to the others goes."""
    said = [
        [Said("a", FAILED, 1), Said("b", FAILED, 1), Said("c", EMPTY, 1), Said("d", TEXT, 1)],
        [Said("a", EMPTY, 2), Said("b", TEXT, 2), Said("c", FAILED, 2), Said("d", FAILED, 2)],
        [Said("a", FAILED, 0), Said("b", EMPTY, 3), Said("c", TEXT, 0), Said("d", TEXT, 3)],
    ]
    parts = [written(tmp_path / f"{n}.duckdb", said[n], number=n) for n in range(3)]
    target = merged(tmp_path / "all.duckdb", *(parts[n] for n in order))
    with Store(target, read_only=True) as store:
        rows = store.query("SELECT sample_id, output, error, minute(created_at) FROM generations ORDER BY ALL").rows
        assert rows == [("a", EMPTY, None, 2), ("b", TEXT, None, 2), ("c", TEXT, None, 0), ("d", TEXT, None, 3)]
        scored = store.query("SELECT DISTINCT sample_id FROM scores ORDER BY ALL").rows
        assert scored == [("b",), ("c",), ("d",)]


STATES = st.sampled_from([
    None, (FAILED, False), (EMPTY, False), (TEXT, False), (TEXT, True)
])  # fmt: skip


@settings(max_examples=examples(80) // 6, deadline=None)
@given(st.lists(st.lists(STATES, min_size=3, max_size=3), min_size=3, max_size=3), st.data())
def test_any_order_of_merges_gives_the_same_file(
    states: list[list[tuple[str, bool] | None]], data: st.DataObject
) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder)
        parts = []
        for number, row in enumerate(states):
            answers = [Said(f"s{n}", one[0], 10 * n + number, one[1]) for n, one in enumerate(row) if one]
            parts.append(written(root / f"{number}.duckdb", answers, ("done", "failed", "interrupted")[number], number))
        at_once = merged(root / "once.duckdb", *parts)
        one, other, last = data.draw(st.permutations(parts))
        stepwise = merged(root / "two.duckdb", last, held=merged(root / "one.duckdb", other, one))
        repeated = merged(root / "three.duckdb", one, last, held=stepwise)
        tables = [table for table in TABLES if table != "runs"]
        for path in (stepwise, repeated):
            found, expected = contents(path), contents(at_once)
            assert {name: found[name] for name in tables} == {name: expected[name] for name in tables}


def test_two_different_answers_are_refused_and_the_file_is_named(tmp_path: Path) -> None:
    one = written(tmp_path / "a.duckdb", [Said("s1")])
    held = written(tmp_path / "held.duckdb", [Said("s1", "there", 5)])
    with (
        Store(tmp_path / "new.duckdb", allowed_files=[one, held]) as store,
        pytest.raises(
            StoreError, match=r"held\.duckdb .* sample_id s1, .* differ in output.* No file was changed"
        ) as caught,
    ):
        merge_files(store, [one], held)
    assert "-o FILE" in str(caught.value)


def test_how_a_run_ended_is_known_to_who_has_all_its_answers(tmp_path: Path) -> None:
    half = written(tmp_path / "half.duckdb", [Said("s1")], "interrupted")
    rest = written(tmp_path / "rest.duckdb", [Said("s2")], number=1)
    done = written(tmp_path / "done.duckdb", [Said("s1"), Said("s2")])
    more = shutil.copy(half, tmp_path / "more.duckdb")
    with Store(more) as store:
        add(store, [Said("s3")])
        store.finish_run("r1", "done")
    for sources, held, status in (
        ([half], rest, "interrupted"),
        ([more, rest], half, "done"),  # requeued after a first merge
        ([half], done, "done"),  # continued in the merged file
        ([half], shutil.copy(half, tmp_path / "same.duckdb"), "interrupted"),
    ):
        target = merged(tmp_path / "new.duckdb", *sources, held=held)
        with Store(target) as store:
            assert store.query("SELECT status FROM runs").rows == [(status,)]
        target.unlink()
