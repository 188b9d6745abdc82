"""No server outlives its run, however the run ends, and the next run asks only what is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lbx.backends.serving import process
from lbx.base.errors import StoreError
from lbx.results import Store
from tests.command_line import Lbx
from tests.serving.served_parts import processes_of, serve, server_log, sessions

PATIENCE_S = 60.0


def until(what: Callable[[], object], results: Path) -> None:
    end = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < end, server_log(results)
        time.sleep(0.1)


@contextlib.contextmanager
def running(bundle: Path, card: Path, results: Path, command: str) -> Iterator[subprocess.Popen[bytes]]:
    """`lbx run --serve` in a process of its own."""
    words = ["run", "--bundle", bundle, "--model", card, "--tasks", "needle", "--serve", command, "-o", results]
    lbx = Path(sys.executable).with_name("lbx")
    with subprocess.Popen(list(map(str, (lbx, *words))), stderr=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def answers_in(results: Path) -> int:
    with contextlib.suppress(StoreError):  # still empty
        if results.exists():
            with Store(results, allow_writer=True) as store:
                return int(store.query("SELECT count(*) FROM generations").rows[0][0])
    return 0


def log_contains(results: Path, text: str) -> bool:
    path = results.with_name(f"{results.name}.server.log")
    return path.exists() and text in path.read_text()


def test_a_killed_run_leaves_no_server_and_the_next_one_takes_up(
    lbx: Lbx, bundle: Path, card: Path, tmp_path: Path
) -> None:
    results = tmp_path / "r.duckdb"
    command = serve("--orphan", "--delay", 0.35)
    with running(bundle, card, results, command):
        until(lambda: answers_in(results), results)
        assert len(processes_of(results)) >= 3, "supervisor, server and orphan"
    until(lambda: not processes_of(results), results)
    before = answers_in(results)
    words = ["run", "--bundle", bundle, "--model", card, "--tasks", "needle", "--serve", command, "-o", results]
    done = lbx.ok(*words)
    assert f"{12 - before} answered, 0 failed, {before} already done" in done.stdout
    assert [row["status"] for row in sessions(lbx, results)] == ["killed", "done"]


@pytest.mark.parametrize(
    ("number", "code", "phase"), [(signal.SIGINT, 130, "waiting"), (signal.SIGTERM, 143, "asking")]
)
def test_an_interrupted_run_stops_its_server(
    bundle: Path, card: Path, tmp_path: Path, number: int, code: int, phase: str
) -> None:
    results = tmp_path / "r.duckdb"
    options = ["--ready-after", 60] if phase == "waiting" else ["--delay", 0.35]
    with running(bundle, card, results, serve("--orphan", *options)) as run:
        until(lambda: log_contains(results, "orphan") if phase == "waiting" else answers_in(results), results)
        run.send_signal(number)
        assert run.wait(PATIENCE_S) == code
    assert not processes_of(results)


def test_a_killed_supervisor_takes_the_server_along_and_the_run_goes_on(
    lbx: Lbx, bundle: Path, card: Path, tmp_path: Path
) -> None:
    results = tmp_path / "r.duckdb"
    with running(bundle, card, results, serve("--delay", 0.35)) as run:
        until(lambda: answers_in(results), results)
        (supervisor,) = (
            process for process in processes_of(results) if b"lbx.backends.serving.supervisor" in command_of(process)
        )
        os.kill(supervisor, signal.SIGKILL)
        assert run.wait(PATIENCE_S) == 0
    assert answers_in(results) == 12
    assert not processes_of(results)
    assert "server_restarts" in sessions(lbx, results)[0]["hardware"]  # type: ignore[operator]


@pytest.mark.parametrize("times", ["once", "always"])
def test_a_server_that_stops_its_supervisor_does_not_outlive_the_run(
    lbx: Lbx, bundle: Path, card: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: str
) -> None:
    monkeypatch.setattr(process, "_STOP_S", 2.0)
    results = tmp_path / "r.duckdb"
    command = serve("--orphan", "--stubborn", "--stop-supervisor", times)
    words = ["run", "--bundle", bundle, "--model", card, "--tasks", "needle", "--serve", command, "-o", results]
    done = lbx.ok(*words)
    assert "12 answered, 0 failed" in done.stdout
    assert "did not end" not in done.stderr
    assert "orphan" in server_log(results)
    assert not processes_of(results)


def test_a_server_that_stops_its_supervisor_does_not_outlive_a_killed_run(
    bundle: Path, card: Path, tmp_path: Path
) -> None:
    results = tmp_path / "r.duckdb"
    with running(bundle, card, results, serve("--orphan", "--stop-supervisor", "once", "--delay", 0.35)):
        until(lambda: answers_in(results), results)
        states = {Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[0] for one in processes_of(results)}
        assert "T" in states, "the supervisor is stopped"
    until(lambda: not processes_of(results), results)


def test_a_process_with_the_number_of_an_ended_supervisor_is_not_killed(tmp_path: Path) -> None:
    counter = Path("/proc/sys/kernel/ns_last_pid")
    if not os.access(counter, os.W_OK):
        pytest.skip("needs the right to choose a process number")
    supervisor = subprocess.Popen(["true"], start_new_session=True)
    assert process._wait(supervisor, PATIENCE_S) == 0
    other = None
    for _ in range(100):
        counter.write_text(str(supervisor.pid - 1))
        other = subprocess.Popen(["sleep", "60"], start_new_session=True)
        if other.pid == supervisor.pid:
            break
        other.kill()
        other.wait()
    assert other is not None
    try:
        if other.pid != supervisor.pid:
            pytest.skip("the number was not given again")
        assert process._wait(supervisor, PATIENCE_S) == 0
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.5)
    finally:
        other.kill()
        other.wait()


def command_of(process: int) -> bytes:
    return Path(f"/proc/{process}/cmdline").read_bytes()
