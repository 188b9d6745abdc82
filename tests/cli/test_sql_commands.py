"""``lbx sql``: answers in every format, however many rows; several files."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

from lbx.base.records import Sample
from lbx.results import GenerationRow, RunRow, SampleRow, ScoreRow, Store
from tests.command_line import Lbx

MANY = "SELECT range AS n FROM range(1001)"


def results_file(path: Path, run: str) -> Path:
    sample = Sample("longbench", "qasper", "0000", "document", "Where?", ("here",), "en", 5)
    with Store(path) as store:
        store.begin_run(RunRow(run, "m", "llamacpp", "1", {}, "", {}, {}, "0"))
        store.write(
            samples=[SampleRow(sample, 0)],
            generations=[GenerationRow(run, *sample.key, output="here")],
            scores=[ScoreRow(run, *sample.key, "f1", 1, 0.5, None, True)],
        )
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return results_file(tmp_path / "results.duckdb", "r1")


def test_a_long_table_says_what_it_leaves_out(lbx: Lbx, file: Path, tmp_path: Path) -> None:
    done = lbx("sql", file, MANY)
    assert "999" in done.stdout.split() and "1000" not in done.stdout.split()
    assert "These are the first 1,000 of 1,001 rows" in done.stderr and "--format csv" in done.stderr
    assert lbx("sql", file, "FROM range(1000)").stderr == ""
    assert "1,000 of 1,001" in lbx("sql", file, f"{MANY}; -- all", "-o", tmp_path / "out.txt").stderr
    assert (tmp_path / "out.txt").read_text().split()[-1] == "999"


@pytest.mark.parametrize("wanted", ("json", "csv"))
def test_all_rows_are_there_elsewhere(lbx: Lbx, file: Path, tmp_path: Path, wanted: str) -> None:
    done = lbx("sql", file, MANY, "--format", wanted)
    read = {"json": json.loads, "csv": lambda text: list(csv.DictReader(io.StringIO(text)))}[wanted]
    assert [int(row["n"]) for row in read(done.stdout)] == list(range(1001))
    assert lbx("sql", file, MANY, "--format", wanted, "-o", tmp_path / "out").returncode == 0
    assert (tmp_path / "out").read_text() == done.stdout


def test_two_columns_of_one_name_are_both_there(lbx: Lbx, file: Path) -> None:
    assert lbx.rows(file, "SELECT 1 AS a, 2 AS a") == [{"a": 1, "a_1": 2}]


@pytest.mark.parametrize("wanted", ("table", "json", "csv", "parquet"))
def test_a_query_that_fails_late_leaves_what_was_there(lbx: Lbx, file: Path, tmp_path: Path, wanted: str) -> None:
    out = tmp_path / "out"
    out.write_text("before")
    late = "SELECT CASE WHEN range = 99_999 THEN error('too late') ELSE range END FROM range(100_000)"
    if wanted == "table":
        late = f"SELECT max(a) FROM ({late}) t(a)"
    done = lbx("sql", file, late, "--format", wanted, "-o", out)
    assert done.returncode == 1 and "too late" in done.stderr
    assert out.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "results.duckdb"]


@pytest.mark.parametrize("wanted", ("table", "json", "csv", "parquet"))
def test_several_files_are_asked_in_every_format(lbx: Lbx, file: Path, tmp_path: Path, wanted: str) -> None:
    other, out = results_file(tmp_path / "other.duckdb", "r2"), tmp_path / "out"
    joined = "SELECT a.run_id || b.run_id AS both FROM task_scores a, o.task_scores b"
    lbx.ok("sql", file, joined, "--attach", f"o={other}", "--format", wanted, "-o", out)
    if wanted == "parquet":
        assert duckdb.read_parquet(str(out)).fetchall() == [("r1r2",)]
    else:
        assert "r1r2" in out.read_text()


def test_what_is_wrong_with_a_second_file_is_said(lbx: Lbx, file: Path, tmp_path: Path) -> None:
    for attached, code, said in (
        ("other", 2, "--attach must be NAME=FILE"),
        (f"results={file}", 2, "taken"),
        (f"again={file}", 2, "already open"),
        (f"o={tmp_path / 'none.duckdb'}", 1, "none.duckdb does not exist"),
        (f"o={tmp_path}", 1, "is a folder"),
    ):
        done = lbx("sql", file, "FROM runs", "--attach", attached)
        assert done.returncode == code
        assert said in " ".join(done.stderr.split())


def test_whoever_reads_the_first_rows_has_them_at_once(file: Path) -> None:
    """Two billion rows would take an hour."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "lbx.cli", "sql", file, "FROM range(2_000_000_000)", "-f", "csv"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(3)] == ["range\n", "0\n", "1\n"]
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr is not None and process.stderr.read() == ""
    process.stderr.close()


def test_ctrl_c_ends_rows_on_their_way_and_leaves_nothing(file: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "lbx.cli", "sql", file, "FROM range(2_000_000_000)", "-f", "csv", "-o", "out.csv"],
        stderr=subprocess.PIPE, text=True, cwd=tmp_path,
    )  # fmt: skip
    while process.poll() is None and not any(part.stat().st_size for part in tmp_path.glob(".out.csv.partial-*/*")):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err and "did not expect" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["results.duckdb"]
