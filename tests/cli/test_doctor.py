"""lbx doctor as people and health checks call it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llama_cpp")


def doctor(*arguments: str, prefix: tuple[str, ...] = (), **environment: str) -> subprocess.CompletedProcess[str]:
    command = [*prefix, sys.executable, "-c", "from lbx.cli.main import main; main()", "doctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)


def facts(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert "Traceback" not in done.stderr, done.stderr
    loaded: dict[str, Any] = json.loads(done.stdout)
    return loaded


def test_facts_are_numbers_that_a_script_can_use() -> None:
    done = doctor("--json")
    assert done.returncode == 0, done.stderr
    said = facts(done)
    assert "up to half a minute" in done.stderr
    assert said["libraries"]["duckdb"]
    memory = said["memory"]
    assert 0 < memory["available_bytes"] <= memory["total_bytes"]
    assert 1 <= said["cpu"]["usable"] <= said["cpu"]["cores"] == len(os.sched_getaffinity(0))
    assert said["writable"]["temporary files"]["writable"] is True
    assert said["llamacpp"]["usable"] is True
    assert said["llamacpp"]["cpu_variant"]
    assert any(device.startswith("CPU") for device in said["llamacpp"]["devices"])
    assert not [problem for problem in said["problems"] if problem["fatal"]]


def test_what_is_asked_for_and_missing_fails_with_a_cause_and_a_fix() -> None:
    done = doctor("--json", "--need", "gpu")
    said = facts(done)
    has_gpu = bool(said["hf"].get("gpus") or [d for d in said["llamacpp"]["devices"] if not d.startswith("CPU")])
    assert done.returncode == (0 if has_gpu else 1)
    assert has_gpu or [problem["cause"] for problem in said["problems"] if problem["fatal"]] == ["No GPU can be used."]
    assert doctor("--need", "telephone").returncode == 2


def test_a_limit_on_cpus_is_announced() -> None:
    if len(os.sched_getaffinity(0)) == 1:
        pytest.skip("needs two CPUs")
    said = facts(doctor("--json", SLURM_CPUS_PER_TASK="1"))
    assert said["cpu"]["usable"] == 1
    (cause,) = [problem["cause"] for problem in said["problems"] if "visible CPUs" in problem["cause"]]
    assert f"1 of the {said['cpu']['cores']} visible CPUs" in cause and "SLURM_CPUS_PER_TASK is 1." in cause


def test_offline_is_told_from_the_interfaces() -> None:
    if not shutil.which("unshare") or subprocess.run(["unshare", "-n", "true"], check=False).returncode:
        pytest.skip("needs the right to make a network namespace")
    done = doctor("--json", "--need", "offline", prefix=("unshare", "-n"))
    assert done.returncode == 0, done.stdout
    assert facts(done)["network"]["interfaces"] == []


def test_nowhere_to_write_temporary_files_fails() -> None:
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("needs root, to make the places read-only in a mount namespace")
    # What is left of Python's candidates is the working folder: it becomes read-only, too.
    read_only = 'mount --bind / / && mount -o remount,bind,ro / && cd / && exec "$@"'
    jail = ("unshare", "-m", "sh", "-c", read_only, "jail")
    done = doctor("--json", prefix=jail, TMPDIR=str(Path("/nowhere")))
    if not done.stdout:
        pytest.skip(f"needs the right to mount: {done.stderr}")
    said = facts(done)
    if said["writable"]["temporary files"]["writable"]:
        pytest.skip("/tmp is a file system of its own here")
    assert done.returncode == 1
    assert "Temporary files cannot be written to any folder." in [problem["cause"] for problem in said["problems"]]


def test_a_truncated_attention_kernel_is_named(tmp_path: Path) -> None:
    """A process that maps such a file is killed by SIGBUS."""
    kernels = pytest.importorskip("lbx.backends.hf.kernel", reason="needs lbx[hf]")
    if not kernels.find_kernel():
        pytest.skip("The kernel was not compiled: install a C++ compiler, and lbx again (just setup).")
    shutil.copytree(Path(kernels.__file__).parents[3], tmp_path / "lbx", ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "lbx" / "backends" / "hf" / "kernel" / kernels.kernel_file(kernels.kernel_name()).name
    os.truncate(file, 8192)
    done = doctor("--json", PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, (done.returncode, done.stderr)
    said = facts(done)
    assert said["hf"]["attention_kernel"] != kernels.kernel_name()
    assert file.name in said["hf"]["unused_kernels"]
    (problem,) = [problem for problem in said["problems"] if file.name in problem["cause"]]
    assert "Install lbx again" in problem["fix"] and not problem["fatal"]
