"""Merging results files: every row once, whatever the order; what differs is refused by its name."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from lbx.base.errors import StoreError
from lbx.base.number import Number
from lbx.base.records import Chunk
from lbx.results import SessionRow, Store
from lbx.results.file.caches import EmbeddedText, store_chunks, store_vectors
from lbx.results.file.sessions import store_sessions
from lbx.results.read.runs import metadata, set_metadata
from lbx.results.whole.merging import MergeState, merge_files
from tests.made_numbers import group_row, task_row
from tests.results.store_rows import RUN, generation, sample, score

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
TABLES = (
    "runs",
    "samples",
    "generations",
    "scores",
    "retrievals",
    "embeddings",
    "sessions",
    "numbers",
)


MADE: dict[tuple[object, ...], bytes] = {}


def shard(path: Path, ids: Sequence[str], run_id: str = "r1", began: datetime = START, status: str = "done") -> Path:
    """A file as ``lbx run`` leaves it, with rows in every table. Each is made once."""
    name = (*ids, run_id, began, status)
    if name not in MADE:
        MADE[name] = make_shard(path, ids, run_id, began, status).read_bytes()
    path.write_bytes(MADE[name])
    return path


def make_shard(path: Path, ids: Sequence[str], run_id: str, began: datetime, status: str) -> Path:
    run = dataclasses.replace(RUN, run_id=run_id)
    with Store(path) as store:
        store.begin_run(run)
        for one in ids:
            row = dataclasses.replace(generation(run_id, one), created_at=began, output_ids=[1, 2])
            store.write(samples=[sample(one)], generations=[row], scores=[score(run_id, one)])
            store_chunks(store, "bm25", [(sample(one).sample, [Chunk(0, 0, 1.5, "piece")])])
        store_vectors(store, [EmbeddedText("m", "0" * 64, b"1234")])
        store_sessions(store, [SessionRow(run_id, 1, 0, RUN.hardware, started_at=began, status=status)])
        store.write_results(
            [
                task_row(run_id, "needle", "single_en", "recall", len(ids), 0.3, official=33.0),
                task_row(
                    run_id,
                    "needle",
                    "single_en",
                    "recall",
                    len(ids),
                    0.3,
                    kind="length",
                    length_unit="words",
                    length_up_to=1024,
                ),
                group_row(run_id, "needle", "overall", "all", len(ids), 0.3, official=33.0),
                Number(run_id=run_id, benchmark="needle", kind="mean", metric_version=1, n=len(ids), score=0.3),
            ]
        )
        store.finish_run(run_id, status)
    return path


def row_key(sample_id: str) -> tuple[str, str, str, int]:
    return "needle", "single_en", sample_id, 0


def merge(target: Path, *sources: Path) -> MergeState:
    with Store(target, allowed_files=sources) as store:
        return merge_files(store, sources)


def contents(path: Path, *tables: str) -> dict[str, list[tuple[object, ...]]]:
    with Store(path, read_only=True) as store:
        return {name: list(store.query(f"SELECT * FROM {name} ORDER BY ALL").rows) for name in tables or TABLES}


def test_shards_are_one_run_in_whatever_order_they_come(tmp_path: Path) -> None:
    parts = [
        shard(tmp_path / "a.duckdb", ["s1", "s2"]),
        shard(tmp_path / "b.duckdb", ["s3"], began=START + timedelta(seconds=1)),
        shard(tmp_path / "c.duckdb", ["s4"], began=START + timedelta(seconds=2)),
    ]
    whole = shard(tmp_path / "whole.duckdb", ["s1", "s2", "s3", "s4"])
    keyed = ("samples", "scores", "retrievals", "embeddings")
    for number, order in enumerate((parts, parts[::-1])):
        target = tmp_path / f"merged{number}.duckdb"
        merging = merge(target, *order)
        assert contents(target, *keyed) == contents(whole, *keyed)
        assert merging.joined_runs == ["r1"]
        assert merging.rows["generations"] == 4
        found = contents(target)
        assert [(row[1], row[2]) for row in found["sessions"]] == [
            (n + 1, (START + timedelta(seconds=n)).replace(tzinfo=None)) for n in range(3)
        ]
        assert not found["numbers"], "numbers of a part are no numbers of the whole"


def test_a_run_of_one_file_comes_over_with_every_row(tmp_path: Path) -> None:
    one, other = shard(tmp_path / "a.duckdb", ["s1", "s2"]), shard(tmp_path / "b.duckdb", ["s1"], "r2")
    target = tmp_path / "merged.duckdb"
    merging = merge(target, one, other)
    first, second, found = contents(one), contents(other), contents(target)
    shared = ("samples", "retrievals", "embeddings")
    for table in TABLES:
        expected = first[table] if table in shared else sorted([*first[table], *second[table]], key=repr)
        assert sorted(found[table], key=repr) == sorted(expected, key=repr), table
    assert merging.runs == {"r1": [one], "r2": [other]}
    assert not merging.joined_runs


def test_what_is_said_of_a_run_in_any_file_is_kept(tmp_path: Path) -> None:
    one, other = shard(tmp_path / "a.duckdb", ["s1"]), shard(tmp_path / "b.duckdb", ["s2"])
    for path, said in ((one, {"PE": "no", "IDD": "no"}), (other, {"Params": "7B"})):
        with Store(path) as store:
            assert set_metadata(store, "r1", said) == said
    for number, sources in enumerate([(one, other), (other, one)]):
        target = tmp_path / f"{number}.duckdb"
        merge(target, *sources)
        with Store(target, read_only=True) as store:
            assert metadata(store, "r1") == {"PE": "no", "IDD": "no", "Params": "7B"}
            with pytest.raises(StoreError):
                set_metadata(store, "r1", {"PE": "yes"})


def test_merging_again_changes_nothing(tmp_path: Path) -> None:
    one, other = shard(tmp_path / "a.duckdb", ["s1"]), shard(tmp_path / "b.duckdb", ["s2"])
    merge(tmp_path / "once.duckdb", one, other)
    merge(tmp_path / "twice.duckdb", tmp_path / "once.duckdb", other)
    assert contents(tmp_path / "once.duckdb") == contents(tmp_path / "twice.duckdb")


def test_an_older_copy_of_a_file_adds_nothing(tmp_path: Path) -> None:
    path = shard(tmp_path / "a.duckdb", ["s1"], status="running")
    old = shutil.copy(path, tmp_path / "old.duckdb")
    with Store(path) as store:
        store.write(samples=[sample("s2")], generations=[generation("r1", "s2")], scores=[score("r1", "s2")])
        ended = START + timedelta(minutes=1)
        store_sessions(
            store, [SessionRow("r1", 1, 0, RUN.hardware, started_at=START, finished_at=ended, status="done")]
        )
        store.finish_run("r1", "done")
    merge(tmp_path / "merged.duckdb", old, path)
    found, expected = contents(tmp_path / "merged.duckdb"), contents(path)
    for table in ("samples", "generations", "scores", "sessions"):
        assert found[table] == expected[table]


def changed(path: Path, sql: str) -> Path:
    with duckdb.connect(str(path)) as connection:
        connection.execute(sql)
    return path


REFUSED = {
    "another seed": ("UPDATE runs SET settings = '{\"seed\": 1}'", r"'r1' .*b\.duckdb: seed is 0 and 1"),
    "another bundle": ("UPDATE runs SET bundle_digest = 'other'", "bundle_digest is 'digest' and 'other'"),
    "another model": ("UPDATE runs SET model = 'big'", "model is 'demo' and 'big'"),
    "another answer": (
        "UPDATE generations SET output = 'there', output_tokens = 3 WHERE sample_id = 's1'",
        "generations .*sample_id s1, iteration 0.* differ in output, output_tokens",
    ),
    "other tokens": ("UPDATE generations SET output_ids = [1, 3]", "sample_id s1, iteration 0.* differ in output_ids"),
    "another first answer": ('UPDATE generations SET steps = \'[{"output": "x"}]\'', "differ in steps"),
    "another score": ("UPDATE scores SET score = 0.5 WHERE sample_id = 's1'", "scores .*sample_id s1.* in score"),
    "another chunk": ("UPDATE retrievals SET text = 'x' WHERE sample_id = 's1'", "retrievals .*sample_id s1.* text"),
    "another document": (
        "UPDATE samples SET context_sha256 = 'x' WHERE sample_id = 's1'",
        "different revision of the data than the files before it. 1 sample differs: needle/single_en/s1 .document.",
    ),
}


def test_what_differs_is_refused_by_name(tmp_path: Path) -> None:
    one = shard(tmp_path / "a.duckdb", ["s1"])
    with Store(tmp_path / "merged.duckdb", allowed_files=[tmp_path / "a.duckdb", tmp_path / "b.duckdb"]) as store:
        for what, (sql, says) in REFUSED.items():
            other = changed(shard(tmp_path / "b.duckdb", ["s1", "s2"]), sql)
            with pytest.raises(StoreError, match=says):
                merge_files(store, [one, other])
            assert store.query("SELECT count(*) FROM generations").rows == [(1,)], f"{what}: a file half merged"
            for table in TABLES:
                store.query(f"DELETE FROM {table}")


def test_seconds_and_versions_may_differ_and_versions_are_told(tmp_path: Path) -> None:
    one, other = shard(tmp_path / "a.duckdb", ["s1"]), shard(tmp_path / "b.duckdb", ["s1"])
    changed(other, "UPDATE generations SET decode_s = 9, created_at = created_at + INTERVAL 1 HOUR")
    changed(other, "UPDATE runs SET backend_version = '2'")
    merging = merge(tmp_path / "merged.duckdb", one, other)
    assert merging.notes == [f"r1: backend_version is 1 in {one} and 2 in {other}."]


ANSWER = {"output": "here", "output_tokens": 2}
FIRST = {"output": "thought", "finish_reason": "stop"}


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_an_answer_stored_before_token_ids_is_that_answer(tmp_path: Path, order: str) -> None:
    newer = generation(**ANSWER, output_ids=[7, 8], steps=[FIRST | {"output_ids": [5, 6]}])
    for name, row in (("a", generation(**ANSWER, steps=[FIRST])), ("b", newer)):
        with Store(tmp_path / f"{name}.duckdb") as store:
            store.begin_run(RUN)
            store.write(samples=[sample()], generations=[row])
    target = tmp_path / "merged.duckdb"
    assert merge(target, *(tmp_path / f"{name}.duckdb" for name in order)).rows["generations"] == 1
    with Store(target, read_only=True) as store:
        assert store.query("SELECT output_ids, steps->'$[0].output_ids' FROM generations").rows == [([7, 8], "[5,6]")]


def test_a_row_that_knows_more_completes_one_that_knows_less(tmp_path: Path) -> None:
    for name, known in (("a", sample("s1")), ("b", sample("s1", context="", question="", references=()))):
        with Store(tmp_path / f"{name}.duckdb") as store:
            store.write(samples=[known])
    for order in ("ab", "ba"):
        merge(tmp_path / f"{order}.duckdb", *(tmp_path / f"{name}.duckdb" for name in order))
        assert contents(tmp_path / f"{order}.duckdb", "samples") == contents(tmp_path / "a.duckdb", "samples")


def test_a_killed_run_is_read_with_what_its_log_holds(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    with Store(path) as store:
        store.begin_run(RUN)
        store.write(samples=[sample()], generations=[generation()], scores=[score()])
        for name in ("a.duckdb", "a.duckdb.wal"):  # as a kill would leave them
            shutil.copy(tmp_path / name, tmp_path / f"killed{name[1:]}")
    assert merge(tmp_path / "merged.duckdb", tmp_path / "killed.duckdb").rows["generations"] == 1


def other_version(path: Path) -> None:
    changed(path, "UPDATE lbx_schema SET version = 0")


def test_an_older_lbx_left_null_where_nothing_was_extracted(tmp_path: Path) -> None:
    for name, extracted in (("a", ""), ("b", None)):
        with Store(tmp_path / f"{name}.duckdb") as store:
            store.begin_run(RUN)
            store.write(
                samples=[sample()],
                generations=[generation()],
                scores=[dataclasses.replace(score(), extracted=extracted)],
            )
    merge(tmp_path / "merged.duckdb", tmp_path / "a.duckdb", tmp_path / "b.duckdb")
    assert contents(tmp_path / "merged.duckdb", "scores") == contents(tmp_path / "a.duckdb", "scores")


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: path.unlink(), "does not exist"),
    "not DuckDB": (lambda path: path.write_bytes(b"x" * 9000), "not a results file"),
    "another version": (other_version, "another version of lbx"),
}


@pytest.mark.parametrize(("spoil", "says"), BAD.values(), ids=BAD)
def test_files_that_cannot_be_merged(tmp_path: Path, spoil: Callable[[Path], object], says: str) -> None:
    path = shard(tmp_path / "it's.duckdb", ["s1"])
    spoil(path)
    with pytest.raises(StoreError, match=says):
        merge(tmp_path / "merged.duckdb", path)
