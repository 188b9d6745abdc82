"""Output that cannot be written: lost text never stops a command, and never changes its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.kill_parts import UNHURRIED_S, rows, slow, start, wait_for_samples

LBX = (sys.executable, "-P", "-m", "lbx.cli")


@pytest.fixture
def closed() -> Iterator[int]:
    """A pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


@pytest.fixture
def full() -> Iterator[int]:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    yield descriptor
    os.close(descriptor)


def run_lbx(*arguments: object, stdout: int, stderr: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LBX, *map(str, arguments)], stdout=stdout, stderr=stderr, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize("lost", ["closed", "full"])
@pytest.mark.parametrize("workers", [(), ("--workers", "1")])
def test_a_run_goes_on_without_standard_error(
    bundle: Path, answers: Path, tmp_path: Path, lost: str, workers: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "r.duckdb"
    run = ("run", "-b", bundle, "-m", answers, "-t", "needle/single_en", "-o", path, *workers)
    done = run_lbx(*run, stdout=subprocess.PIPE, stderr=request.getfixturevalue(lost))
    assert done.returncode == 0
    assert "0 failed; results in" in done.stdout
    assert rows(path, "SELECT status FROM runs") == [("done",)]


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_failed_samples_decide_the_exit_code_although_nobody_reads(
    bundle: Path, tmp_path: Path, more: tuple[str, ...], closed: int
) -> None:
    model, path = tmp_path / "fails.jsonl", tmp_path / "r.duckdb"
    model.write_text('{"*": {"error": "the card caught fire"}}')
    run = ("run", "-b", bundle, "-m", model, "-t", "needle/single_en", "-n", 2, "-o", path, *more)
    assert run_lbx(*run, stdout=closed, stderr=closed).returncode == 3
    assert rows(path, "SELECT status FROM runs") == [("done",)]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_decides_the_exit_code_although_tee_has_ended(
    bundle: Path, answers: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """Ctrl-C in `lbx run ... 2>&1 | tee log` ends tee first."""
    path = tmp_path / "r.duckdb"
    process = start(bundle, slow(answers, tmp_path, UNHURRIED_S), path)
    wait_for_samples(process)
    assert process.stdout and process.stderr
    process.stdout.close()
    process.stderr.close()
    process.send_signal(number)
    assert process.wait(60) == code
    assert rows(path, "SELECT status FROM runs") == [("interrupted",)]


@pytest.mark.parametrize("words", [("--version",), ("--help",), ("run", "--help"), ("tasks",), ("tasks", "--json")])
def test_a_reader_that_has_ended_is_no_failure(words: tuple[str, ...], closed: int) -> None:
    done = run_lbx(*words, stdout=closed, stderr=subprocess.PIPE)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr and "error:" not in done.stderr


@pytest.mark.parametrize("words", [("--version",), ("tasks",), ("tasks", "--json")])
def test_an_answer_on_a_full_disk_is_an_error(words: tuple[str, ...], full: int) -> None:
    done = run_lbx(*words, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr == "error: The disk is full. Make room, then repeat the same command to continue.\n"


@pytest.mark.parametrize("words", [("report", "none.duckdb"), ("nothing",)])
def test_an_error_that_cannot_be_printed_keeps_its_exit_code(words: tuple[str, ...], full: int, tmp_path: Path) -> None:
    spoken = run_lbx(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert spoken.returncode and "error:" in spoken.stderr
    assert run_lbx(*words, stdout=subprocess.PIPE, stderr=full).returncode == spoken.returncode
