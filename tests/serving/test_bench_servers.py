"""No server outlives the benchmark that started it, however the benchmark ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.contest import REPOSITORY

PATIENCE_S = 60.0
_SLEEP = "import time; time.sleep(3600)"
_SERVER = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {_SLEEP!r}, sys.argv[1]], start_new_session=True)
time.sleep(3600)
"""
_JOB = "Job([[1]], 1, 64, {'hf': sys.argv[1] + '/weights'}, {}, usable_cores(1))"
_BENCHMARKS = {
    "contender": f"""
import sys
from pathlib import Path
from bench.contest import Job, run_contender, usable_cores
run_contender("vllm", {_JOB}, Path(sys.argv[1]))
""",
    "profile": f"""
import sys
from bench.contest import Job, usable_cores
from bench.vllm_server import VllmServer
VllmServer({_JOB})
""",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The benchmarks next to a vLLM that is never ready, and has a child in a session of its own."""
    shutil.copytree(REPOSITORY / "bench", tmp_path / "bench")
    (tmp_path / "server.py").write_text(_SERVER)
    python = tmp_path / ".venv-servers" / "vllm" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{tmp_path}/server.py" "{tmp_path}/running"\n')
    python.chmod(0o755)
    return tmp_path


def servers(tree: Path) -> list[int]:
    """Processes of the server."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(tree / "running") in words:
            found.append(int(folder.name))
    return found


def wait_until(is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("benchmark", _BENCHMARKS)
def test_a_stopped_benchmark_ends_its_server(tree: Path, benchmark: str, number: int) -> None:
    command = [sys.executable, "-c", _BENCHMARKS[benchmark], str(tree)]
    environment = os.environ | {"PYTHONPATH": str(tree)}
    process = subprocess.Popen(command, cwd=tree, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_until(lambda: len(servers(tree)) == 2)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as Ctrl-C does
        else:
            process.send_signal(number)
        process.wait(PATIENCE_S)
        wait_until(lambda: not servers(tree))
    finally:
        process.kill()
        process.wait()
        for server in servers(tree):
            os.kill(server, signal.SIGKILL)
