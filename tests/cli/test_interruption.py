"""Kill a run at any time and the same command ends with the table of an undisturbed one."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.kill_parts import RESULTS, ROWS, UNHURRIED_S, rows, slow, start, wait_for_samples
from tests.command_line import Lbx


@pytest.fixture(scope="module")
def model(answers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return slow(answers, tmp_path_factory.mktemp("slow"))


@pytest.fixture(scope="module")
def undisturbed(lbx: Lbx, bundle: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "results.duckdb"
    assert lbx("run", "-b", bundle, "-m", model, "-t", "needle", "-o", path).returncode == 0
    return path


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_stopped_run_continues(
    lbx: Lbx, bundle: Path, model: Path, undisturbed: Path, tmp_path: Path, kill: signal.Signals
) -> None:
    path = tmp_path / "results.duckdb"
    chance = random.Random(kill)
    for _ in range(3):
        process = start(bundle, model, path)
        wait_for_samples(process)
        time.sleep(chance.uniform(0, 0.6))
        process.send_signal(kill)
        _, said = process.communicate()
        # 0 where it came too late, -kill where Python was shutting down already.
        expected = {signal.SIGTERM: 143, signal.SIGINT: 130}.get(kill, -kill)
        assert process.returncode in (expected, -kill, 0), said
    assert lbx("run", "-b", bundle, "-m", model, "-t", "needle", "-o", path).returncode == 0
    assert rows(path, ROWS) == rows(undisturbed, ROWS)
    assert rows(path, RESULTS) == rows(undisturbed, RESULTS)
    assert rows(path, "SELECT status FROM runs") == [("done",)]


def test_an_interrupted_run_says_so_and_keeps_what_it_has(bundle: Path, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "results.duckdb"
    process = start(bundle, slow(model, tmp_path, UNHURRIED_S), path)
    wait_for_samples(process)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert "Run the same command again to continue" in " ".join(said.split())
    assert "Traceback" not in said
    assert rows(path, "SELECT status FROM runs") == [("interrupted",)]
    answered = rows(path, "SELECT count(*) FROM generations")[0][0]
    assert rows(path, "SELECT count(*) FROM scores WHERE headline")[0][0] == answered


def test_a_full_disk_stops_the_run_cleanly(
    lbx: Lbx, bundle: Path, model: Path, undisturbed: Path, tmp_path: Path
) -> None:
    """A file size limit stands for the full disk: the same refusal from the operating system, without root."""
    path = tmp_path / "results.duckdb"
    assert lbx("run", "-b", bundle, "-m", model, "-t", "needle", "-o", path, "--limit", 1).returncode == 0
    limit = 8192  # bytes: the write-ahead log reaches it after a few commits
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}));"
        "from lbx.cli.main import main; main()"
    )
    command = ["run", "-b", bundle, "-m", model, "-t", "needle", "-o", path]
    done = subprocess.run([sys.executable, "-c", code, *map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "could not be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert lbx(*command).returncode == 0
    assert rows(path, ROWS) == rows(undisturbed, ROWS)


def test_a_signal_that_arrives_again_does_not_interrupt_saving() -> None:
    """PBS and LSF signal all processes of a job, and the job's script passes the signal on."""
    program = """
import os, signal
from lbx.cli.error_conversion import stoppable
with stoppable(loads_model=False):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        print("saved")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "saved\n" and "Terminated. Unfinished" in done.stderr, done.stderr


@pytest.mark.parametrize(("number", "code", "word"), [("SIGINT", 130, "Interrupted"), ("SIGTERM", 143, "Terminated")])
def test_a_signal_during_a_query_ends_the_command_like_any_other(number: str, code: int, word: str) -> None:
    """DuckDB turns a signal during a query into a RuntimeError without a cause."""
    script = f"""
import os, signal, threading, duckdb
from lbx.base.errors import InterruptedByUserError
from lbx.cli.error_conversion import stoppable
threading.Timer(0.5, os.kill, (os.getpid(), signal.{number})).start()
try:
    with stoppable(loads_model=False):
        query = "SELECT sum(range) FROM range(2_000_000_000_000)"
        duckdb.connect(config={{"threads": 1}}).execute(query)  # with more threads, DuckDB waits for the others
except InterruptedByUserError as error:
    print(error.exit_code, error)
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.stdout.split()[:2], done.stderr) == ([str(code), f"{word}."], "")
