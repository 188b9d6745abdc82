"""Control groups' limits as both versions write them, and one that the kernel really sets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lbx.backends.memory import MemoryLimit, cpu_limit, memory_limit

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
    assert cpu_limit(tmp_path) is None


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
    assert cpu_limit(root) == 1.5


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
    assert cpu_limit(root) == 0.5


def test_a_limit_that_the_kernel_sets_is_found() -> None:
    parent = next((p for p in map(Path, ("/sys/fs/cgroup/memory", "/sys/fs/cgroup")) if p.is_dir()), None)
    if parent is None or not os.access(parent, os.W_OK) or os.geteuid() != 0:
        pytest.skip("needs root and a writable control group hierarchy")
    group = parent / f"lbx-test-{os.getpid()}"
    name = "memory.limit_in_bytes" if (parent / "memory.limit_in_bytes").exists() else "memory.max"
    try:
        group.mkdir()
        (group / name).write_text(str(1 << 30))
        code = (
            "import os, sys; from pathlib import Path; Path(sys.argv[1], 'cgroup.procs').write_text(str(os.getpid()));"
            "from lbx.backends.memory import memory_limit; print(memory_limit().limit)"
        )
        done = subprocess.run([sys.executable, "-c", code, group], capture_output=True, text=True, check=False)
    except OSError as exc:
        pytest.skip(f"control groups cannot be made here: {exc}")
    finally:
        if group.is_dir():
            group.rmdir()
    assert int(done.stdout) == 1 << 30, done.stderr
