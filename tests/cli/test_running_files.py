"""A results file is looked at while a run writes it: what is committed, as of when, and how far the run is."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import lbx as api
from lbx.base.processes import PIPE, start_python
from lbx.results import Store
from tests.cli.kill_parts import start
from tests.command_line import Done, Lbx, fails, holding
from tests.judge_parts import RATING

SAMPLES = 48
RUNNING = re.compile(rf"running, \d+ of {SAMPLES}\b")
PATIENCE_S = 120.0
DELAY_S = 60.0


@contextmanager
def going_on(bundle: Path, model: Path, out: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """A run that has committed an answer, and is killed when nobody looks any more."""
    process = start(bundle, model, out, more)
    try:
        end = time.monotonic() + PATIENCE_S
        while not committed(out):
            assert process.poll() is None and time.monotonic() < end, process.communicate()
            time.sleep(0.1)
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def committed(path: Path) -> int:
    """Answers in the file, as a reader sees them."""
    try:
        with api.open_results(path) as results:
            ((count,),) = results.sql("SELECT count(*) FROM generations").fetchall()
            return int(count)
    except api.LbxError:
        return 0  # it has just been made


@pytest.fixture
def model(answers: Path, tmp_path: Path) -> Path:
    """Answers English at once, and thinks about Chinese for longer than anybody looks."""
    lines = [json.loads(line) for line in answers.read_text().splitlines()]
    path = tmp_path / "slow.jsonl"
    path.write_text("\n".join(json.dumps(line | {"delay_s": DELAY_S * ("_zh/" in line["key"])}) for line in lines))
    return path


def test_every_reader_reads_beside_the_writer(lbx: Lbx, bundle: Path, model: Path, tmp_path: Path) -> None:
    path, other = tmp_path / "results.duckdb", tmp_path / "other.duckdb"
    with going_on(bundle, model, path) as process:
        asked = lbx(
            "sql",
            path,
            "SELECT min(task || '/' || sample_id) AS id, count(*) AS n FROM generations",
            "--format",
            "json",
        )
        (row,) = json.loads(asked.stdout)
        screen = lbx("report", path)
        view = lbx("report", path, "task_scores", "--run", "slow", "--format", "markdown")
        page = lbx("report", path, "--format", "html")
        listed, shown = lbx("show", path), lbx("show", path, f"needle/{row['id']}")
        Store(other).close()
        beside = lbx("sql", other, "SELECT count(*) AS n FROM live.generations", "--attach", f"live={path}")
        checked = lbx("check", path, "--at-least", "needle=1", "--json")
        table = tmp_path / "runs.parquet"
        exported = lbx("sql", path, "FROM runs", "--format", "parquet", "-o", table)
        with api.open_results(path) as results:
            running, as_of = results.running, results.as_of
        assert process.poll() is None, "all of it while the run goes on"
    for done in (asked, screen, view, page, listed, shown, beside, exported):
        assert done.returncode == 0, done.stderr
        assert f"results.duckdb is being written (PID {process.pid})" in done.stderr, done.stderr
        assert re.search(r"committed before \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", done.stderr)
    (condition,) = json.loads(checked.stdout)["conditions"]
    assert condition["reason"].startswith("the run is running with ")
    assert condition["reason"].endswith("; wait for its end")
    assert row["n"] >= 1 and as_of is not None
    for text in (screen.stdout, view.stdout, page.stdout, listed.stdout, shown.stdout, *running.values()):
        assert RUNNING.search(text), text[:2000]
    titles = [line for line in view.stdout.splitlines() if line.startswith("#")]
    assert titles and all(RUNNING.search(title) for title in titles), titles


def test_a_run_that_is_killed_says_no_longer_that_it_goes_on(
    lbx: Lbx, bundle: Path, model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "results.duckdb"
    with going_on(bundle, model, path):
        pass
    done = lbx("report", path)
    assert done.returncode == 0 and "running," not in done.stdout and "is being written" not in done.stderr
    with holding(path):  # which writes, but is no run
        done = lbx("report", path)
        assert "is being written" in done.stderr and "running," not in done.stdout, "the session of a killed run"


def test_the_copy_of_a_killed_reader_is_removed_by_the_next_run(
    lbx: Lbx, bundle: Path, answers: Path, tmp_path: Path
) -> None:
    path = tmp_path / "results.duckdb"
    with Store(path):
        script = f"import lbx; results = lbx.open_results({str(path)!r}); print(1, flush=True); input()"
        reader = start_python(script, stdin=PIPE, stdout=PIPE)
        assert reader.stdout and reader.stdout.readline()
        (left,) = tmp_path.glob(".results.duckdb.partial-*")
        reader.kill()
        reader.communicate()
    assert (left / path.name).is_file()
    done = lbx("run", "-b", bundle, "-m", answers, "-t", "needle/single_en", "-o", path)
    assert done.returncode == 0 and f"Removed leftover files of killed processes: {left}" in done.stderr, done.stderr
    assert not left.exists()


def test_a_judge_reads_what_is_committed_and_goes_on_with_the_rest(
    lbx: Lbx, bundle: Path, answers: Path, model: Path, tmp_path: Path
) -> None:
    path, opinions, verdicts = tmp_path / "results.duckdb", tmp_path / "opinions.duckdb", tmp_path / "rater.jsonl"
    rubric = tmp_path / "stars.toml"
    rubric.write_text(RATING)
    verdicts.write_text('{"*": "[[4]]"}')
    judge = ["judge", path, "--bundle", bundle, "--judge", verdicts, "--run", "slow", "--rubric", rubric, "--no-plan"]
    judged = "SELECT count(*) AS n FROM judgements WHERE rating = 4"

    def count() -> int:
        (row,) = lbx.rows(opinions, judged)
        return int(row["n"])

    with going_on(bundle, model, path) as process:
        fails(lbx(*judge), 1, "is in use", f"--no-plan -o {tmp_path / 'results-2.duckdb'}")
        done = lbx.ok(*judge, "-o", opinions)
        assert f"results.duckdb is being written (PID {process.pid})" in done.stderr
        assert process.poll() is None
    with Store(path) as store:
        ((answered,),) = store.query("SELECT count(*) FROM generations").rows
        first = count()
        assert 0 < first <= answered < SAMPLES
    assert lbx(*judge, "-o", opinions).returncode == 0
    assert count() == answered


def test_the_second_writer_gets_a_file_of_its_own_that_merges(
    lbx: Lbx,
    bundle: Path,
    answers: Path,
    model: Path,
    tmp_path: Path,
) -> None:
    path = tmp_path / "results.duckdb"
    run = ("run", "-b", bundle, "-m", answers, "-t", "needle/single_en", "-o", path, "--name", "second", "--no-plan")
    with going_on(bundle, model, path, "--name", "slow") as process:
        refused = lbx.process(*run)
        told = " ".join(refused.stderr.split())
        assert refused.returncode == 1 and f"{path} is in use by " in told
        assert f"PID {process.pid} on {socket.gethostname()} since 20" in told
        assert f"lbx run -b {bundle}" in told and "it when both have ended: lbx merge" in told
        program, *words = command_in(refused)
        own = tmp_path / "results-2.duckdb"
        assert program == "lbx" and words[-5:] == ["-o", str(own), "--name", "second", "--no-plan"]
        assert lbx.process(*words).returncode == 0
        fails(lbx("merge", own, "-o", path, "--update"), 1, f"PID {process.pid}")
        for change in (
            ("rename", path, "slow", "x"),
            ("remove", path, "slow"),
            ("remove", path, "--vacuum"),
            ("note", path, "slow", "a=b"),
        ):
            fails(lbx("runs", *change), 1, f"PID {process.pid} on", "Wait for it to end")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    merge = told.partition("when both have ended: ")[2].partition(" try:")[0]
    assert lbx.process(*shlex.split(merge)[1:]).returncode == 0
    runs = {row["run_id"]: row["answers"] for row in json.loads(lbx.ok("runs", path, "--json").stdout)["runs"]}
    assert runs["slow"] >= 1 and runs["second"] == 8


def command_in(done: Done) -> list[str]:
    """The command that an error offers, as a shell reads it."""
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("  try: ")]
    return shlex.split(line.removeprefix("  try: "))
