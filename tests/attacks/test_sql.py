"""``lbx sql``: one query, which reads one file, in every format."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

from tests.attacks.attack_parts import refused
from tests.attacks.results_parts import changed, lbx, results_file, tree, view_for_table

FORMATS = ("table", "json", "csv", "parquet")
SECRET = "root-of-all-secrets"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a results file and a secret."""
    folder = tmp_path_factory.mktemp("sql")
    results_file(folder / "got.duckdb")
    (folder / "secret.txt").write_text(SECRET)
    duckdb.execute(f"COPY (SELECT '{SECRET}' AS secret) TO '{folder}/secret.parquet'")
    return folder


def asked(place: Path, sql: str, wanted: str, more: str = "") -> None:
    """Refused in one format, with nothing read and nothing changed."""
    before = tree(place)
    options = ("-o", place / "out.parquet") if wanted == "parquet" else ()
    said = lbx("sql", place / "got.duckdb", sql, "--format", wanted, *options)
    refused(said, more)
    assert SECRET not in said.all
    assert tree(place) == before


READS = {
    "a text": "SELECT * FROM read_text('{0}/secret.txt')",
    "a blob": "SELECT * FROM read_blob('{0}/secret.txt')",
    "a file by its name": "FROM '{0}/secret.parquet'",
    "a csv": "FROM read_csv('{0}/secret.txt')",
    "a folder": "FROM glob('{0}/*')",
    "a sniffed csv": "FROM sniff_csv('{0}/secret.txt')",
    "a parquet's description": "FROM parquet_metadata('{0}/secret.parquet')",
    "inside a query of a query": "FROM query('FROM read_text(''{0}/secret.txt'')')",
    "a variable of the program": "SELECT * FROM query_text",
}


@pytest.mark.parametrize("wanted", ("json", "parquet"))
def test_no_other_file_is_read(place: Path, wanted: str) -> None:
    for sql in READS.values():
        asked(place, sql.format(place), wanted)


WRITES = {
    "a copy": "COPY runs TO '{0}/out.csv'",
    "a copy over the file": "COPY runs TO '{0}/got.duckdb' (FORMAT csv, USE_TMP_FILE false)",
    "in a WITH": "WITH x AS (COPY runs TO '{0}/got.duckdb' (FORMAT csv, USE_TMP_FILE false)) FROM x",
    "in a WITH into the log": "WITH x AS (COPY runs TO '{0}/got.duckdb.wal' (FORMAT csv)) SELECT 1",
    "behind a wide space": "WITH x AS (\u3000COPY runs TO '{0}/got.duckdb.wal' (FORMAT csv)) SELECT 1",
    "behind a comment": "WITH x AS (/* */CoPy runs TO '{0}/got.duckdb.wal' (FORMAT csv)) SELECT 1",
    "beside a pivot": "WITH x AS (COPY runs TO '{0}/got.duckdb.wal' (FORMAT csv)) PIVOT runs ON status USING count(*)",
    "a copied pivot": "COPY (PIVOT runs ON status USING count(*)) TO '{0}/got.duckdb.wal'",
    "an explained one": "EXPLAIN ANALYZE COPY runs TO '{0}/got.duckdb.wal'",
    "a closed bracket": "SELECT 1) TO '{0}/evil.csv' (FORMAT csv) --",
    "an insert in a WITH": "WITH x AS (DELETE FROM runs RETURNING run_id) FROM x",
    "a delete": "DELETE FROM runs",
    "a table": "CREATE TABLE evil AS SELECT 1",
    "an export": "EXPORT DATABASE '{0}/all'",
    "a database": "ATTACH '{0}/evil.duckdb'",
    "an extension": "INSTALL httpfs",
    "a loaded one": "LOAD '{0}/secret.txt'",
    "a setting": "SET enable_external_access = true",
    "an unlocking": "SET lock_configuration = false",
    "a log": "CALL enable_logging(storage = 'file', storage_path = '{0}/log')",
    "a profile": "PRAGMA profiling_output = '{0}/profile'",
    "a secret": "CREATE PERSISTENT SECRET s (TYPE http)",
    "two": "SELECT 1; SELECT 2",
    "two, the first of which writes": "COPY runs TO '{0}/got.duckdb.wal'; SELECT 1",
    "none": "-- nothing",
}


def test_nothing_is_written(place: Path) -> None:
    for number, sql in enumerate(WRITES.values()):
        asked(place, sql.format(place), FORMATS[number % 4])
        if "COPY" in sql:
            asked(place, sql.format(place), FORMATS[(number + 2) % 4])


@pytest.mark.parametrize("wanted", FORMATS)
def test_two_statements_are_not_one_query(place: Path, wanted: str) -> None:
    for sql in ("SELECT 1; SELECT 2", "SELECT 1;\nSELECT 2;", "SELECT ';'; SELECT 2"):
        asked(place, sql, wanted, "Expected one query")
    assert lbx("sql", place / "got.duckdb", "SELECT ';' AS a; -- one").code == 0


def test_what_reads_is_answered(place: Path) -> None:
    before = tree(place)
    for sql in (
        "FROM runs",
        "WITH x AS (SELECT run_id FROM runs) SELECT * FROM x -- copy",
        "PIVOT generations ON task USING count(*)",
        "DESCRIBE runs",
        "SUMMARIZE scores",
        "SHOW TABLES",
        "SELECT 'COPY' AS copied",
        "SELECT * FROM leaderboard UNION ALL SELECT * FROM leaderboard;",
    ):
        said = lbx("sql", place / "got.duckdb", sql)
        assert said.code == 0, said.err
    assert tree(place) == before


HOSTILE = {
    "a view in a table's place": lambda path, secret: view_for_table(path, "runs", f"FROM read_text('{secret}')"),
    "a macro": lambda path, secret: changed(
        path, f"CREATE MACRO avg(x) AS (SELECT content FROM read_text('{secret}'))"
    ),
    "a table macro": lambda path, secret: changed(path, f"CREATE MACRO m() AS TABLE FROM read_text('{secret}')"),
    "a schema": lambda path, _: changed(path, "CREATE SCHEMA evil"),
    "no tables": lambda path, _: changed(path, *(f"DROP TABLE {name}" for name in ("runs", "lbx_schema"))),
    "text": lambda path, secret: path.write_text(secret.read_text() * 9),
    "another database": lambda path, _: path.write_bytes(b"SQLite format 3\0" + bytes(4096)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_do_not_get_in_beside_a_good_one(place: Path, tmp_path: Path, name: str) -> None:
    bad = results_file(tmp_path / "bad.duckdb", run="bad")
    HOSTILE[name](bad, place / "secret.txt")
    before, beside = tree(place), tree(tmp_path)
    for wanted in ("json", "parquet"):
        options = ("-o", tmp_path / "out.parquet") if wanted == "parquet" else ()
        attached = ("--attach", f"other={bad}", "--format", wanted, *options)
        said = lbx("sql", place / "got.duckdb", "SELECT * FROM other.runs", *attached)
        refused(said, str(bad))
        assert SECRET not in said.all
    assert (tree(place), tree(tmp_path)) == (before, beside)


@pytest.mark.parametrize("wanted", ("csv", "parquet"))
def test_attached_files_open_no_others(place: Path, tmp_path: Path, wanted: str) -> None:
    other = changed(
        results_file(tmp_path / "other.duckdb", run="other"),
        f"CREATE OR REPLACE VIEW leaderboard AS SELECT content AS run_id FROM read_text('{place}/secret.txt')",
        f"CREATE VIEW mine AS SELECT content AS run_id FROM read_text('{place}/secret.txt')",
    )
    out = ("-o", tmp_path / "out.parquet") if wanted == "parquet" else ()
    attached = ("--attach", f"other={other}", "--format", wanted, *out)
    before, beside = tree(place), tree(tmp_path)
    for sql in (
        "FROM other.mine",
        "FROM other_file.main.mine",
        "FROM other_file.main.leaderboard",
        READS["a text"].format(place),
        "DELETE FROM other.runs",
        "DELETE FROM other_file.main.runs",
        "WITH x AS (DELETE FROM other_file.main.runs RETURNING run_id) FROM x",
        f"COPY runs TO '{other}' (FORMAT csv, USE_TMP_FILE false)",
        f"WITH x AS (COPY runs TO '{other}.wal' (FORMAT csv, USE_TMP_FILE false)) FROM x",
        "DETACH other_file",
    ):
        said = lbx("sql", place / "got.duckdb", sql, *attached)
        refused(said)
        assert SECRET not in said.all
    assert (tree(place), tree(tmp_path)) == (before, beside)
    said = lbx("sql", place / "got.duckdb", "SELECT run_id FROM other.leaderboard", *attached)
    assert said.code == 0 and SECRET not in said.all


def test_parquet_is_whole_and_the_only_file(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "it's.parquet"
    kept = tmp_path / "kept"
    kept.write_text("kept")
    out.symlink_to(kept)
    assert lbx("sql", place / "got.duckdb", "SELECT model FROM runs", "--format", "parquet", "-o", out).code == 2
    out.unlink()
    assert lbx("sql", place / "got.duckdb", "SELECT model FROM runs", "--format", "parquet", "-o", out).code == 0
    assert duckdb.read_parquet(str(out)).fetchall() == [("model",)]
    assert kept.read_text() == "kept"
    assert sorted(tree(tmp_path)) == [out.name, "kept"]


def test_a_query_without_end_ends_with_ctrl_c(place: Path) -> None:
    endless = "SELECT max(hash(a.range + b.range)) FROM range(10000000000) a, range(1000000) b"
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "lbx.cli", "sql", place / "got.duckdb", endless],
        stderr=subprocess.PIPE, text=True,    )  # fmt: skip
    held = Path(f"/proc/{process.pid}/fd")
    while process.poll() is None and not any(one.resolve().name == "got.duckdb" for one in held.iterdir()):
        time.sleep(0.05)
    try:
        for _ in range(60):  # whoever waits presses it again
            time.sleep(1)
            if process.poll() is not None:
                break
            process.send_signal(signal.SIGINT)
        assert process.poll() is not None, "it cannot be interrupted"
    finally:
        process.kill()
        _, err = process.communicate()
    assert process.returncode in (130, -signal.SIGINT), err
    assert "did not expect" not in err
