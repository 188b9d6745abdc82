"""Threads that wait for one another sleep early, and a run names what else uses its CPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lbx.base.resources import CpuTimes, describe_neighbours

DEMO = Path(__file__).resolve().parents[2] / "models" / "demo"
LOAD = {
    "llamacpp": "from lbx.backends.llama.library import load_llama_cpp; load_llama_cpp()",
    "hf": "from lbx.backends import load, resolve_model; load(resolve_model(sys.argv[1]))",
}


def effective_variables(backend: str, **variables: str) -> str:
    """libgomp's own list of its variables, printed when it is loaded; torch's wheel has a copy of its own."""
    environment = {name: text for name, text in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"import sys; {LOAD[backend]}", str(DEMO / "hf")],
        env=environment | {"OMP_DISPLAY_ENV": "verbose", **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr


@pytest.mark.parametrize("backend", LOAD)
def test_threads_sleep_early_unless_the_user_decides(backend: str) -> None:
    assert "GOMP_SPINCOUNT = '1000'" in effective_variables(backend)
    assert "GOMP_SPINCOUNT = '7'" in effective_variables(backend, GOMP_SPINCOUNT="7")
    active = effective_variables(backend, OMP_WAIT_POLICY="ACTIVE")
    assert "OMP_WAIT_POLICY = 'ACTIVE'" in active and "GOMP_SPINCOUNT = '1000'" not in active


def test_cpu_times_of_other_processes(tmp_path: Path) -> None:
    stat = tmp_path / "proc" / "stat"
    stat.parent.mkdir()
    cpus = sorted(os.sched_getaffinity(0))
    foreign = f"cpu{cpus[-1] + 1} 999999 0 0 0 0 0 0 0 0 0"
    lines = [f"cpu{cpu} 1000 100 100 5000 50 0 0 10 0 0" for cpu in cpus]
    stat.write_text("\n".join(["cpu 1 1 1 1", *lines, foreign]) + "\n")
    first = CpuTimes.measure(tmp_path)
    assert first.all_s == len(cpus) * 1210 / os.sysconf("SC_CLK_TCK")
    later = CpuTimes(first.own_s + 3.0, first.all_s + 11.0, first.clock_s + 10.0)
    assert first.busy_cpus(later) == pytest.approx(0.8)
    assert first.busy_cpus(CpuTimes(first.own_s, first.all_s, first.clock_s + 0.01)) is None, "too short to measure"
    assert describe_neighbours(0.8) == f"Other processes use 0.8 of {len(cpus)} CPUs, so computation takes longer."
    assert describe_neighbours(0.1) == describe_neighbours(None) == ""


@pytest.mark.parametrize("content", [None, b"", b"cpu0 x y\n", b"\xff\xfe"])
def test_unknown_cpu_times(tmp_path: Path, content: bytes | None) -> None:
    (tmp_path / "proc").mkdir()
    if content is not None:
        (tmp_path / "proc" / "stat").write_bytes(content)
    assert CpuTimes.measure(tmp_path).all_s is None


def test_a_run_names_processes_that_use_its_cpus(tmp_path: Path) -> None:
    script = """
import logging, sys, types
from lbx.base.resources import CpuTimes
from lbx.running.execution import _log_cpu_limits
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
now = CpuTimes.measure()
_log_cpu_limits(types.SimpleNamespace(server=None), CpuTimes(now.own_s, now.all_s - 1000.0, now.clock_s - 10.0))
"""
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    assert "Other processes use " in done.stdout and "computation takes longer" in done.stdout
