"""The results file: what goes in comes out, what would make it doubtful is refused."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbx.base.errors import StoreError
from lbx.base.records import SampleKey
from lbx.results import Store
from lbx.results.file import opening
from lbx.results.schema import SCHEMA_VERSION
from lbx.results.scoring.reading import add_missing_numbers, open_with_numbers
from lbx.results.whole.merging import merge_files
from tests.made_numbers import task_row
from tests.results.store_rows import RUN, fill, generation, sample, score


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.duckdb"


def test_rows_come_back_exactly(path: Path) -> None:
    fill(path, "r1")
    with Store(path, read_only=True) as store:
        assert store.query("SELECT score FROM scores").rows == [(1 / 3,)]
        assert store.query("SELECT output, truncated, error FROM generations").rows == [("here", True, None)]
        assert next(store.samples("r1", "needle", "single_en"))["references"] == '["here"]'
        assert store.query("SELECT count(*) FROM samples WHERE context_sha256 LIKE '%document%'").rows == [(0,)]


@pytest.fixture(scope="module")
def one_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store(tmp_path_factory.mktemp("any") / "results.duckdb") as store:
        store.begin_run(RUN)
        yield store


TEXTS = st.text() | st.text(st.characters(categories=["Cs"]) | st.sampled_from("a\0\U0001f600\ud83d\ude00"))
"""Lone surrogates, which are in no other text of hypothesis's, and pairs of them."""


@settings(max_examples=20)
@given(TEXTS)
def test_any_output_can_be_stored(one_file: Store, text: str) -> None:
    one_file.write(
        samples=[sample("x" + text, question=text)],
        generations=[generation(sample_id="x" + text, output=text)],
        scores=[dataclasses.replace(score(sample_id="x" + text), extracted=text)],
    )
    readable = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    found = one_file.query(
        "SELECT output, question, extracted FROM generations JOIN samples USING (benchmark, task, sample_id) "
        "JOIN scores USING (run_id, benchmark, task, sample_id) WHERE sample_id = ?",
        ["x" + readable],
    )
    assert found.rows == [(readable,) * 3]


def test_a_run_is_taken_up_where_it_stopped(path: Path) -> None:
    fill(path, "r1")
    with Store(path) as store:
        assert store.begin_run(RUN) == {SampleKey("needle", "single_en", "s1", 0)}


def test_other_settings_under_the_same_name_are_refused(path: Path) -> None:
    fill(path, "r1")
    with Store(path) as store:
        with pytest.raises(StoreError, match="seed was 0 and is now 1"):
            store.begin_run(dataclasses.replace(RUN, settings={"seed": 1}))
        with pytest.raises(StoreError, match="flavour was not set and is now 'sweet'"):
            store.begin_run(dataclasses.replace(RUN, settings={**RUN.settings, "flavour": "sweet"}))
        with pytest.raises(StoreError, match="bundle_digest was 'digest'"):
            store.begin_run(dataclasses.replace(RUN, bundle_digest="other"))


def test_another_revision_of_the_data_is_refused(path: Path) -> None:
    fill(path, "r1")
    with Store(path) as store:
        with pytest.raises(StoreError, match=r"1 sample differs: needle/single_en/s1 \(document\)"):
            store.write(samples=[sample(context="another document")], generations=[generation("r2")])
        assert store.query("SELECT count(*) FROM generations").rows == [(1,)], "the batch must be in it whole or not"


def test_failed_and_empty_answers_are_not_done_where_that_is_wanted(path: Path) -> None:
    """Empty is what ``str.strip`` leaves nothing of; what failed is another thing. All stays until asked again."""
    outputs = {"none": "", "blank": " \n\u3000\x85\x1c", "dot": ".", "broken": ""}
    with Store(path) as store:
        store.begin_run(RUN)
        for name, text in outputs.items():
            error = "no memory" if name == "broken" else None
            answer = dataclasses.replace(generation(sample_id=name, error=error), output=text)
            store.write(samples=[sample(name)], generations=[answer], scores=[] if error else [score(sample_id=name)])
        before = store.query("SELECT * FROM generations ORDER BY ALL").rows
        for failed, empty, done in (
            (False, False, {*outputs}),
            (True, False, {"none", "blank", "dot"}),
            (False, True, {"dot", "broken"}),
            (True, True, {"dot"}),
        ):
            keys = store.begin_run(RUN, failed=failed, empty=empty)
            assert keys == {SampleKey("needle", "single_en", name, 0) for name in done}
        assert store.query("SELECT * FROM generations ORDER BY ALL").rows == before


def test_what_was_made_of_an_answer_goes_with_it(path: Path) -> None:
    """Scores of all metrics and sums; the same answer, as of a file that is imported again, keeps them."""
    keys = [("changed", 0), ("changed", 1), ("same", 0)]
    old = [dataclasses.replace(generation(sample_id=name, output="is"), iteration=n) for name, n in keys]
    left = "SELECT sample_id, iteration, count(*) FROM scores GROUP BY ALL ORDER BY ALL"
    with Store(path) as store:
        store.begin_run(RUN)
        scores = [
            dataclasses.replace(score(sample_id=name), iteration=n, metric=metric)
            for name, n in keys for metric in ("recall", "length")
        ]  # fmt: skip
        store.write(samples=[sample(name) for name, _ in keys], generations=old, scores=scores)
        store.write_results([task_row("r1", "needle", "single_en", "recall", 3, 0.5, official=50.0)])
        store.write(generations=[dataclasses.replace(row, created_at=datetime.now(UTC)) for row in old])
        assert store.query(left).rows == [(*key, 2) for key in keys]
        new = dataclasses.replace(old[0], output="is another")
        store.write(generations=[new], scores=[score(sample_id="changed")])
        assert store.query(left).rows == [("changed", 0, 1), ("changed", 1, 2), ("same", 0, 2)]
        assert store.query("SELECT count(*) FROM task_results").rows == [(0,)]


def test_task_scores_show_the_official_number_until_new_scores_come(path: Path) -> None:
    fill(path, "r1")
    result = task_row("r1", "needle", "single_en", "recall", 1, 1 / 3, official=33.33)
    with Store(path) as store:
        add_missing_numbers(store)
        assert store.query("SELECT score, official FROM task_scores").rows == [(1 / 3, None)]
        store.write_results([result])
        assert store.query("SELECT score, official FROM task_scores").rows == [(1 / 3, 33.33)]
        store.write(samples=[sample("s2")], generations=[generation(sample_id="s2")], scores=[score(sample_id="s2")])
        assert store.query("FROM task_scores").rows == []
        add_missing_numbers(store)
        assert store.query("SELECT n, official FROM task_scores").rows == [(2, None)]


def test_a_score_of_another_metric_version_replaces_the_earlier_one(path: Path) -> None:
    fill(path, "r1")
    with Store(path) as store:
        store.write(scores=[score(value=1.0, version=2)])
        add_missing_numbers(store)
        assert store.query("SELECT n, score, metric_version FROM task_scores").rows == [(1, 1.0, 2)]
        assert store.query("SELECT count(*) FROM scores").rows == [(1,)]


def test_views(path: Path) -> None:
    fill(path, "r1", "r2")
    with open_with_numbers(path) as store:
        board = store.query("SELECT run_id, tasks, n, score, failed, truncated FROM leaderboard ORDER BY ALL").rows
        assert board == [("r1", 1, 1, 1 / 3, 0, 1), ("r2", 1, 1, 1 / 3, 0, 1)]
        assert store.query("SELECT DISTINCT length_up_to, n FROM length_curve ORDER BY ALL").rows == [(8, 1), (1024, 1)]
        assert store.query("SELECT run_a, run_b, n, same_outputs FROM comparison").rows == [("r1", "r2", 1, 1)]
        assert store.query("SELECT DISTINCT truncated, mean_tokens_cut FROM truncation").rows == [(1, 2.0)]


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        Store(tmp_path / "none.duckdb", read_only=True)
    with pytest.raises(StoreError, match="is a folder"):
        Store(tmp_path)
    with pytest.raises(StoreError, match="does not exist"):
        Store(tmp_path / "none" / "results.duckdb")


def test_a_file_that_is_no_database(path: Path) -> None:
    path.write_text("hello " * 1000)
    with pytest.raises(StoreError, match="not a results file"):
        Store(path)


def test_a_file_that_another_process_makes_just_then_is_opened_as_it_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import lbx.results.file.opening as under_test

    opened = under_test.open_database  # type: ignore[attr-defined]

    def later(*arguments: Any, **options: Any) -> duckdb.DuckDBPyConnection:
        monkeypatch.undo()
        fill(path, "r1")
        return opened(*arguments, **options)

    monkeypatch.setattr(under_test, "open_database", later)
    with Store(path) as store:
        assert store.query("SELECT run_id FROM runs").rows == [("r1",)]
        assert store.query("SELECT version FROM lbx_schema").rows == [(SCHEMA_VERSION,)]


def test_an_empty_file_is_taken_as_new(path: Path) -> None:
    path.touch()
    fill(path, "r1")


def test_someone_elses_database(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE mine (x INTEGER)")
    for read_only in (True, False):
        with pytest.raises(StoreError, match="not a results file of lbx"):
            Store(path, read_only=read_only)


def test_a_file_of_another_version(path: Path) -> None:
    fill(path, "r1")
    with duckdb.connect(str(path)) as connection:
        connection.execute("INSERT INTO lbx_schema VALUES (?, NULL)", [SCHEMA_VERSION + 1])
    with pytest.raises(StoreError, match="another version of lbx"):
        Store(path)


def _held(path: Path, *, read_only: bool = False) -> subprocess.Popen[bytes]:
    """A process that has the file open until it is told a line."""
    opened = f"c = duckdb.connect({str(path)!r}, read_only={read_only})"
    holder = subprocess.Popen(
        [sys.executable, "-c", f"import duckdb; {opened}; print(1, flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout
    holder.stdout.readline()
    return holder


def test_a_file_that_is_open_elsewhere(path: Path) -> None:
    fill(path, "r1")
    holder = _held(path)
    try:
        with pytest.raises(StoreError, match=rf"in use by .* \(PID {holder.pid} on "):
            Store(path, read_only=True)
    finally:
        holder.communicate(b"\n")


def test_who_writes_waits_for_who_reads(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path, "r1")
    holder = _held(path, read_only=True)
    monkeypatch.setattr(opening, "_PATIENCE_S", 600.0)
    # The file is free again once the writer has found it taken.
    monkeypatch.setattr(opening.time, "sleep", lambda _: holder.communicate(b"\n") if holder.poll() is None else None)  # type: ignore[attr-defined]
    with Store(path) as store:
        assert store.query("SELECT run_id FROM runs").rows == [("r1",)]
    assert holder.returncode == 0


def test_a_log_without_its_file_is_not_thrown_away(tmp_path: Path) -> None:
    """Its rows are committed; DuckDB would make a new file and delete it."""
    path, log = tmp_path / "r.duckdb", tmp_path / "r.duckdb.wal"
    with Store(path) as store:
        store.begin_run(RUN)
        kept = path.read_bytes(), log.read_bytes()
    path.unlink()
    for empty in (False, True):
        log.write_bytes(kept[1])
        if empty:
            path.touch()
        with pytest.raises(StoreError, match=r"r\.duckdb\.wal contains answers of .*, which is missing"):
            Store(path)
        assert log.read_bytes() == kept[1]
        path.unlink(missing_ok=True)
    path.write_bytes(kept[0])
    with Store(path) as store:
        assert store.query("SELECT run_id FROM runs").rows == [("r1",)]


def test_a_log_of_another_file_is_told(tmp_path: Path) -> None:
    path, log = tmp_path / "r.duckdb", tmp_path / "r.duckdb.wal"
    with Store(path) as store:
        store.begin_run(RUN)
        kept = log.read_bytes()
    log.write_bytes(kept)
    for only_read in (True, False):
        with pytest.raises(StoreError, match=r"r\.duckdb\.wal is not the log of r\.duckdb") as caught:
            Store(path, read_only=only_read)
        assert "Move the log away" in str(caught.value)


def test_a_file_of_a_few_answers_is_small(path: Path) -> None:
    with Store(path) as store:
        store.begin_run(RUN)
        names = [f"s{number}" for number in range(6)]
        store.write(
            samples=[sample(name) for name in names],
            generations=[generation(sample_id=name) for name in names],
            scores=[score(sample_id=name) for name in names],
        )
        store.finish_run("r1", "done")
    assert path.stat().st_size < 1_500_000


def test_a_file_of_larger_blocks_is_read_written_and_merged(path: Path, tmp_path: Path) -> None:
    """As an lbx of before made them."""
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{path}' AS old (BLOCK_SIZE 262144)")
    small, other = tmp_path / "small.duckdb", tmp_path / "other.duckdb"
    for place, run in ((path, "r1"), (small, "r2"), (other, "r3")):
        fill(place, run)
    for target, source in ((path, small), (other, path)):
        with Store(target, allowed_files=[source]) as store:
            merge_files(store, [source])
    for one, size, runs in ((path, 262_144, "r1 r2"), (other, 65_536, "r1 r2 r3")):
        with Store(one, read_only=True) as store:
            assert " ".join(run for (run,) in store.query("SELECT run_id FROM scores ORDER BY ALL").rows) == runs
            sizes = "SELECT block_size FROM pragma_database_size() WHERE database_name = 'results'"
            assert store.query(sizes).rows == [(size,)]


@pytest.mark.parametrize("read_only", [False, True])
def test_a_signal_while_a_file_is_opened_leaves_it_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    path = tmp_path / "r.duckdb"
    Store(path).close()
    with monkeypatch.context() as patch:
        patch.setattr("lbx.results.file.store.prepare", lambda *_, **__: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt) as caught:  # its traceback keeps the unfinished object alive
            Store(path, read_only=read_only)
    Store(path).close()
    assert caught.value is not None
