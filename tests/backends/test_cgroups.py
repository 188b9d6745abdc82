"""Control groups' limits as both versions write them, and one that the kernel really sets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lbx.backends.options import MOST_THREADS, thread_count
from lbx.base import resources
from lbx.base.resources import MemoryLimit, cpu_quota, memory_limit, usable_cpu_count

V2 = "30 23 0:26 {root} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MEMORY = "33 31 0:30 {root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
V1_CPU = "34 31 0:31 {root} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"


def system(folder: Path, cgroup: str, mountinfo: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": cgroup, "proc/self/mountinfo": mountinfo, **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_nothing_to_read_is_no_limit(tmp_path: Path) -> None:
    assert memory_limit(tmp_path) is None
    assert cpu_quota(tmp_path) is None


def test_version_2_counts_the_groups_above_and_leaves_the_page_cache_out(tmp_path: Path) -> None:
    job = "sys/fs/cgroup/slurm/job_7"
    files = {
        f"{job}/step_0/memory.max": "max\n",
        f"{job}/memory.max": "8000\n",
        f"{job}/memory.current": "5000\n",
        f"{job}/memory.stat": "anon 1000\ninactive_file 3000\nactive_file 1000\n",
        "sys/fs/cgroup/slurm/memory.max": "9000\n",
        "sys/fs/cgroup/slurm/memory.current": "100\n",
        f"{job}/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/slurm/cpu.max": "max 100000\n",
    }
    root = system(tmp_path, "0::/slurm/job_7/step_0\n", V2.format(root="/"), files)
    assert memory_limit(root) == MemoryLimit(8000, 2000)
    assert memory_limit(root).free == 6000  # type: ignore[union-attr]
    assert cpu_quota(root) == 1.5


def test_a_container_sees_its_part_as_the_whole(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/memory.max": "4096\n", "sys/fs/cgroup/memory.current": "5000\n"}
    named = system(tmp_path / "namespace", "0::/\n", V2.format(root="/"), files)
    assert memory_limit(named) == MemoryLimit(4096, 5000)
    assert memory_limit(named).free == 0  # type: ignore[union-attr]
    bound = system(tmp_path / "bound", "0::/docker/abc\n", V2.format(root="/docker/abc"), files)
    assert memory_limit(bound) == MemoryLimit(4096, 5000)


def test_version_1(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "7000\n",
        "sys/fs/cgroup/memory/a/memory.usage_in_bytes": "3000\n",
        "sys/fs/cgroup/memory/a/memory.stat": "cache 900\ntotal_inactive_file 500\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "50000\n",
        "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    }
    mounts = V1_CPU.format(root="/") + V1_MEMORY.format(root="/")
    root = system(tmp_path, "9:memory:/a\n2:cpu,cpuacct:/a\n0::/\n", mounts, files)
    assert memory_limit(root) == MemoryLimit(7000, 2500)
    assert cpu_quota(root) == 0.5


@pytest.mark.parametrize(
    ("cgroup", "mount", "place", "quota"),
    [
        ("0::/pod/box\n", V2, "sys/fs/cgroup", "{name}/cpu.max={} 100000"),
        ("2:cpu,cpuacct:/pod/box\n0::/\n", V1_CPU, "sys/fs/cgroup/cpu,cpuacct", "{name}/cpu.cfs_quota_us={}"),
    ],
    ids=["version 2", "version 1"],
)
def test_the_smallest_quota_of_nested_groups_counts(
    tmp_path: Path, cgroup: str, mount: str, place: str, quota: str
) -> None:
    for number, (outer, inner, expected) in enumerate([(400_000, 800_000, 4.0), (800_000, 250_000, 2.5)]):
        files = {}
        for group, value in (("pod", outer), ("pod/box", inner)):
            name, _, text = quota.format(value, name=group).partition("=")
            files |= {f"{place}/{name}": text, f"{place}/{group}/cpu.cfs_period_us": "100000"}
        assert cpu_quota(system(tmp_path / str(number), cgroup, mount.format(root="/"), files)) == expected


def test_usable_cpus_are_the_smallest_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(1000)))
    for name in ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", "NCPUS", "LSB_DJOB_NUMPROC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(resources, "cpu_quota", lambda: None)
    assert usable_cpu_count() == 1000 and thread_count(0) == MOST_THREADS
    monkeypatch.setattr(resources, "cpu_quota", lambda: 6.5)
    assert usable_cpu_count() == 7
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "6")
    assert usable_cpu_count() == 6
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "3")
    assert usable_cpu_count() == thread_count(0) == 3
    for odd in ("", "0", "-1", "3(x2)", "²"):
        monkeypatch.setenv("SLURM_CPUS_PER_TASK", odd)
        assert usable_cpu_count() == 6, odd
    for name in ("NCPUS", "LSB_DJOB_NUMPROC"):
        monkeypatch.setenv(name, "2")
        assert usable_cpu_count() == 2
        monkeypatch.delenv(name)
    assert thread_count(12) == 12


@pytest.mark.parametrize(
    ("controller", "files", "code"),
    [
        (
            "memory",
            {"memory.limit_in_bytes": f"{1 << 30}", "memory.max": f"{1 << 30}"},
            "from lbx.base.resources import memory_limit; print(memory_limit().limit == 1 << 30)",
        ),
        (
            "cpu",
            {"cpu.cfs_quota_us": "50000", "cpu.max": "50000 100000"},
            "from lbx.base.resources import cpu_limits, usable_cpu_count;"
            "print(cpu_limits()['CPU quota of its control group'] == 0.5 and usable_cpu_count() == 1)",
        ),
    ],
)
def test_a_limit_that_the_kernel_sets_is_found(controller: str, files: dict[str, str], code: str) -> None:
    """In a group inside another one, which has the limit."""
    parent = next((p for p in (Path("/sys/fs/cgroup", controller), Path("/sys/fs/cgroup")) if p.is_dir()), None)
    if parent is None or not os.access(parent, os.W_OK) or os.geteuid() != 0:
        pytest.skip("needs root and a writable control group hierarchy")
    outer = parent / f"lbx-test-{os.getpid()}"
    inner = outer / "inner"
    try:
        inner.mkdir(parents=True)
        limits = {outer / name: text for name, text in files.items() if (outer / name).exists()}
        if not limits:
            pytest.skip(f"the controller {controller} is not delegated here")
        for path, text in limits.items():
            path.write_text(text)
        join = "import os, sys; open(sys.argv[1] + '/cgroup.procs', 'w').write(str(os.getpid()));"
        done = subprocess.run([sys.executable, "-c", join + code, inner], capture_output=True, text=True, check=False)
    except OSError as exc:
        pytest.skip(f"control groups cannot be made here: {exc}")
    finally:
        for group in (inner, outer):
            if group.is_dir():
                group.rmdir()
    assert done.stdout == "True\n", done.stderr
