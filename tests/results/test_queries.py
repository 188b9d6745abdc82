"""Queries of people's own: one, that reads, whose rows come as they are taken; several files, each checked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from lbx.base.database import sql_literal
from lbx.base.errors import StoreError, UsageError
from lbx.results import Store
from lbx.results.read.queries import (
    attach_files,
    count_rows,
    export_parquet,
    open_query,
    parse_attachments,
    single_query,
)
from lbx.results.scoring.reading import add_missing_numbers, open_with_numbers
from lbx.results.views import VIEWS
from tests.results.store_rows import fill


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.duckdb"


def all_of(store: Store, sql: str) -> list[tuple[Any, ...]]:
    with open_query(store, sql) as answer:
        return list(answer.rows)


def hidden(sql: str) -> list[str]:
    """Queries that have another one run."""
    with duckdb.connect() as connection:
        ((told,),) = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()
    run = f"FROM json_execute_serialized_sql({sql_literal(told)})"
    upper = f'SELECT (SELECT max(1) FROM system.main."JSON_execute_serialized_SQL"({sql_literal(told)}))'
    outer = f"SELECT * FROM query('FROM json_execute_' || {sql_literal(run.partition('json_execute_')[2])})"
    return [run, upper, outer, f"PIVOT ({outer}) ON ALL COLUMNS", f"PIVOT ({run}) ON x", f"WITH a AS ({run}) FROM a"]


def test_one_query_that_reads_is_answered(path: Path, tmp_path: Path) -> None:
    fill(path, "r1")
    with Store(path, read_only=True) as store:
        for sql in (
            "DELETE FROM runs",
            "SELECT 1; SELECT 2",
            f"WITH x AS (COPY runs TO '{path}') SELECT 1",
            *hidden(f"WITH x AS (COPY (SELECT 1) TO '{path}.wal') SELECT 1"),
            f"COPY runs TO '{tmp_path}/x.csv'",
            f"ATTACH '{tmp_path}/y.duckdb'",
            "SET enable_external_access = true",
            "SELEC 1",
        ):
            for ask in (all_of, count_rows, lambda store, sql: export_parquet(store, sql, tmp_path / "out.parquet")):
                with pytest.raises(StoreError):
                    ask(store, sql)
        assert all_of(store, "PIVOT runs ON status USING count(*) GROUP BY run_id")
        assert store.query("SELECT count(*) FROM runs").rows == [(1,)]
    assert [p.name for p in tmp_path.iterdir()] == ["results.duckdb"]


@pytest.mark.parametrize(
    ("sql", "bare"),
    [
        ("SELECT ';' AS a; -- one; two", "SELECT ';' AS a"),
        ("SELECT 'é;ü', $$;$$ ; ; ", "SELECT 'é;ü', $$;$$ "),
        ("PIVOT runs ON status USING count(*); -- x", "PIVOT runs ON status USING count(*)"),
        ("FROM runs -- all", "FROM runs -- all"),
    ],
)
def test_what_stands_behind_a_query_ends_it(path: Path, tmp_path: Path, sql: str, bare: str) -> None:
    fill(path, "r1")
    out = tmp_path / "out.parquet"
    with Store(path, read_only=True, allowed_files=[out]) as store:
        assert single_query(store.connection, sql) == bare
        rows = all_of(store, sql)
        assert count_rows(store, sql) == export_parquet(store, sql, out) == len(rows)
        assert duckdb.read_parquet(str(out)).fetchall() == rows or "runs" in sql


def test_rows_come_as_they_are_taken(path: Path) -> None:
    fill(path, "r1")
    with Store(path, read_only=True) as store:
        with open_query(store, "SELECT range AS n, repeat('x', 1000) FROM range(1_000_000_000)") as answer:
            assert [next(answer.rows)[0] for _ in range(1_000)] == list(range(1_000))
        assert all_of(store, "SELECT 1") == [(1,)], "the rest of it is forgotten"
        failing = "SELECT CASE WHEN range > 99_999 THEN error('too late') ELSE range END FROM range(200_000)"
        with open_query(store, failing) as answer, pytest.raises(StoreError, match="too late"):
            list(answer.rows)


def test_columns_of_one_name_are_told_apart(path: Path) -> None:
    fill(path, "r1")
    with Store(path, read_only=True) as store, open_query(store, "SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS a") as answer:
        assert answer.columns == ["a", "a_2", "a_1", "a_3"]


def test_parquet_holds_the_query_or_nothing(path: Path, tmp_path: Path) -> None:
    fill(path, "r1")
    out, bad = tmp_path / "out.parquet", tmp_path / "bad.parquet"
    with Store(path, read_only=True, allowed_files=[out, bad]) as store:
        assert export_parquet(store, "SELECT run_id FROM runs; ", out) == 1
        assert duckdb.sql(f"SELECT * FROM '{out}'").fetchall() == [("r1",)]
        with pytest.raises(StoreError, match="read-only"):
            export_parquet(store, "DELETE FROM runs", bad)
        with pytest.raises(StoreError, match="failed"):
            export_parquet(store, "SELECT nothing FROM runs", bad)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.parquet", "results.duckdb"]


def test_files_are_attached_by_name(path: Path) -> None:
    other, third = path.with_name("o'ther.duckdb"), path.with_name("third.duckdb")
    fill(path, "r1")
    fill(other, "r1", "r2")
    fill(third, "r3")
    files = parse_attachments([f"other={other}", f"Third_1={third}"], path)
    with open_with_numbers(path, allowed_files=list(files.values())) as store:
        attach_files(store, files, open_with_numbers)
        joined = "SELECT a.run_id FROM task_scores a JOIN other.task_scores b USING (run_id, benchmark, task)"
        assert all_of(store, joined) == [("r1",)]
        assert all_of(store, "SELECT run_id FROM third_1.leaderboard") == [("r3",)]
        assert all_of(store, "SELECT run_id FROM runs") == [("r1",)]
        for name in VIEWS:
            all_of(store, f"FROM other.{name}")
        for sql in ("DELETE FROM other.runs", "CREATE TABLE other.x AS SELECT 1", "DELETE FROM other_file.main.runs"):
            with pytest.raises(StoreError, match="read-only"):
                all_of(store, sql)


@pytest.mark.parametrize("ended", [(), ("r1",), ("r2",), ("r1", "r2")], ids=str)
def test_views_of_an_attached_file_are_its_own(path: Path, ended: Sequence[str]) -> None:
    """Whichever has numbers that were made in memory: temporary names of the one hid the other's."""
    other = path.with_name("other.duckdb")
    for file, run in ((path, "r1"), (other, "r2")):
        fill(file, run)
        if run in ended:
            with Store(file) as store:
                add_missing_numbers(store)
    with open_with_numbers(other) as alone:
        wanted = {name: all_of(alone, f"SELECT COLUMNS(*)::VARCHAR FROM {name} ORDER BY ALL") for name in VIEWS}
    assert wanted["task_scores"] and wanted["coverage"]
    with open_with_numbers(path, allowed_files=[other]) as store:
        mine = all_of(store, "FROM task_scores")
        attach_files(store, {"o": other}, open_with_numbers)
        assert mine and all_of(store, "FROM task_scores") == mine
        for name, rows in wanted.items():
            assert all_of(store, f"SELECT COLUMNS(*)::VARCHAR FROM o.{name} ORDER BY ALL") == rows


def test_an_attached_files_own_views_are_not_asked(path: Path) -> None:
    other = path.with_name("other.duckdb")
    fill(path, "r1")
    fill(other, "r2")
    with duckdb.connect(str(other)) as connection:
        connection.execute("CREATE OR REPLACE VIEW leaderboard AS SELECT 'a lie' AS run_id")
    with Store(path, read_only=True, allowed_files=[other]) as store:
        attach_files(store, {"other": other})
        assert all_of(store, "SELECT run_id FROM other.leaderboard") == [("r2",)]


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["other"], "NAME=FILE"),
        (["=b.duckdb"], "NAME=FILE"),
        (["a-b=b.duckdb"], "NAME=FILE"),
        (['a"; --=b.duckdb'], "NAME=FILE"),
        (["Results=b.duckdb"], "taken"),
        (["temp=b.duckdb"], "taken"),
        (["b=b.duckdb", "B=c.duckdb"], "taken"),
        (["b=b.duckdb", "c=./b.duckdb"], "already open"),
        (["b=a.duckdb"], "already open"),
    ],
)
def test_names_that_would_mean_something_else_are_refused(texts: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_attachments(texts, Path("a.duckdb"))


def test_another_version_of_the_tables_is_said(path: Path) -> None:
    fill(path, "r1")
    other = path.with_name("other.duckdb")
    fill(other, "r2")
    with duckdb.connect(str(other)) as connection:
        connection.execute("UPDATE lbx_schema SET version = 3")
    with (
        Store(path, read_only=True, allowed_files=[other]) as store,
        pytest.raises(StoreError, match="another version"),
    ):
        attach_files(store, {"other": other})


_READ_ALL = """
import sys
from pathlib import Path
from lbx.results import Store
from lbx.results.read.queries import export_parquet, open_query
path, out = Path(sys.argv[1]), Path(sys.argv[2])
sql = "SELECT run_id, repeat(md5(range::VARCHAR), 150) AS text FROM generations, range(100_000)"
with Store(path, read_only=True, allowed_files=[out], threads=1) as store:
    with open_query(store, sql) as answer:
        rows = sum(1 for _ in answer.rows)
    written = export_parquet(store, sql, out)
(peak,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print("read:", rows, written, int(peak) // 1024)
"""


def test_memory_does_not_grow_with_the_answer(path: Path, tmp_path: Path) -> None:
    fill(path, "r1")
    said = subprocess.run(
        [sys.executable, "-c", _READ_ALL, path, tmp_path / "out.parquet"], capture_output=True, text=True, check=True
    )
    rows, written, megabytes = map(int, said.stdout.rpartition("read:")[2].split())
    assert rows == written == 100_000
    assert megabytes < 300, "of 480 MB of texts"
