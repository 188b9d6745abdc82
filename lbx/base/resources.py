"""CPUs, memory and GPUs available to this process, by affinity, control groups, job scheduler and ``ulimit -d``.

Containers, Kubernetes and Slurm set limits by control groups. Both versions are read, for the process's group and all
its ancestors, since each of their limits applies. See the kernel's Documentation/admin-guide/cgroup-v2.rst and
cgroup-v1/memory.rst.

Threads of OpenMP wait for one another, next to other processes that use CPU time: between two operations of a model,
each thread waits for the others. By default, libgomp's threads spin for milliseconds before they sleep: if another
process uses one of the CPUs, a run takes several times its CPU time, and the other process waits as well.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import resource
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lbx.base.inputs import SMALL, read_input

_GPU = re.compile(r"[0-9]+|(GPU|MIG)-\S+")
_UNLIMITED = 1 << 60  # version 1 writes "none" as a number near 2**63


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """Memory limit and usage of a control group in bytes, without the reclaimable page cache."""

    limit: int
    used: int

    @property
    def free(self) -> int:
        return max(0, self.limit - self.used)


def memory_limit(system: Path = Path("/")) -> MemoryLimit | None:
    """Tightest memory limit of the control groups, by free memory, or None if no group sets a limit.

    Args:
        system: parent folder of proc and sys, for tests.
    """
    limits = [_memory_v2(group) for group in _group_folders(system, "")]
    limits += [_memory_v1(group) for group in _group_folders(system, "memory")]
    return min((limit for limit in limits if limit), key=lambda limit: limit.free, default=None)


@cache
def cpu_quota(system: Path = Path("/")) -> float | None:
    """Smallest quota of CPU time of the control groups, in CPUs, e.g. 1.5, or None if no group sets a quota."""
    quotas = [_parse_quota(_read_words(group / "cpu.max")) for group in _group_folders(system, "")]
    for group in _group_folders(system, "cpu"):
        quotas.append(_parse_quota(_read_words(group / "cpu.cfs_quota_us") + _read_words(group / "cpu.cfs_period_us")))
    return min((quota for quota in quotas if quota), default=None)


def _memory_v2(group: Path) -> MemoryLimit | None:
    limit = _read_number(group / "memory.max")
    if limit is None:
        return None
    return MemoryLimit(limit, _used_bytes(group, "memory.current", "inactive_file"))


def _memory_v1(group: Path) -> MemoryLimit | None:
    limit = _read_number(group / "memory.limit_in_bytes")
    if limit is None or limit >= _UNLIMITED:
        return None
    return MemoryLimit(limit, _used_bytes(group, "memory.usage_in_bytes", "total_inactive_file"))


def _used_bytes(group: Path, usage: str, cache_key: str) -> int:
    lines = (line.split() for line in _read_text(group / "memory.stat").splitlines())
    idle = next((int(line[1]) for line in lines if len(line) == 2 and line[0] == cache_key), 0)
    return max(0, (_read_number(group / usage) or 0) - idle)


def _parse_quota(words: list[str]) -> float | None:
    """Parse "150000 100000", CPU time and period in microseconds, into CPUs. "max" and -1 mean no quota."""
    if len(words) != 2 or not all(word.isdecimal() and int(word) for word in words):
        return None
    return int(words[0]) / int(words[1])


def _group_folders(system: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control group and of the group's ancestors, in the hierarchy of a controller.

    Version 2 has a single hierarchy, for controller "". A container may see only a subtree, mounted as the root.
    """
    group_path = _own_group(system, controller)
    mount = _mount(system, controller)
    if group_path is None or mount is None:
        return
    root, mount_point = mount
    inside = (
        group_path.removeprefix(root) if group_path == root or group_path.startswith(root.rstrip("/") + "/") else ""
    )
    parts = [part for part in inside.split("/") if part not in ("", "..")]
    folder = system / mount_point.lstrip("/")
    for length in range(len(parts), -1, -1):
        yield folder.joinpath(*parts[:length])


def _own_group(system: Path, controller: str) -> str | None:
    for line in _read_text(system / "proc/self/cgroup").splitlines():  # "4:memory:/path"; version 2 is "0::/path"
        parts = line.split(":", 2)
        if len(parts) == 3 and controller in parts[1].split(","):
            return parts[2]
    return None


def _mount(system: Path, controller: str) -> tuple[str, str] | None:
    """Return the mounted subtree of a control group hierarchy, and the mount point."""
    kind = "cgroup" if controller else "cgroup2"
    for line in _read_text(system / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        mount, source = before.split(), after.split()
        if len(mount) < 5 or len(source) < 3 or source[0] != kind:
            continue
        if not controller or controller in source[2].split(","):
            return mount[3], mount[4]
    return None


def _read_number(path: Path) -> int | None:
    text = _read_text(path).strip()
    return int(text) if text.isdecimal() else None


def _read_words(path: Path) -> list[str]:
    return _read_text(path).split()


def _read_text(path: Path) -> str:
    try:
        return read_input(path, SMALL).decode("utf-8", "replace")
    except OSError:
        return ""


CPU_COUNT = "LBX_CPU_COUNT"
"""Environment variable with the number of CPUs of a worker process."""


def bound_cpus() -> list[int]:
    """Numbers of the CPUs that this process may run on, or of all CPUs on systems without affinities."""
    return sorted(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1))


_CPU_VARIABLES = ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", "NCPUS", "LSB_DJOB_NUMPROC", CPU_COUNT)
"""Environment variables with the number of CPUs of a job, set by Slurm, PBS (``NCPUS``), LSF and lbx."""


def cpu_limits() -> Mapping[str, float]:
    """Return {cause: number of CPUs} of every CPU limit on this process. A quota may be fractional."""
    limits: dict[str, float] = {"affinity": len(bound_cpus())}
    if quota := cpu_quota():
        limits["CPU quota of its control group"] = quota
    for name in _CPU_VARIABLES:
        text = os.environ.get(name, "")
        if text.isascii() and text.isdecimal() and int(text[:9]):
            limits[name] = int(text[:9])
    return limits


def usable_cpu_count() -> int:
    """Number of CPUs to compute on: the smallest limit, rounded up."""
    return math.ceil(min(cpu_limits().values()))


def describe_cpu_limit() -> str:
    """Sentence on the limit that leaves visible CPUs unused, or "" without such a limit."""
    limits = cpu_limits()
    cause, usable, visible = min(limits, key=lambda name: limits[name]), usable_cpu_count(), len(bound_cpus())
    if usable >= visible:
        return ""
    return f"Computation uses {usable} of the {visible} visible CPUs: {cause} is {limits[cause]:g}."


def visible_gpus(variable: str) -> list[str] | None:
    """Return the GPUs that an environment variable such as CUDA_VISIBLE_DEVICES lists, or None if it is not set.

    As in CUDA and ROCm, an invalid entry such as -1 ends the list, and a repeated one makes it empty.
    """
    text = os.environ.get(variable)
    if text is None:
        return None
    gpus = [*itertools.takewhile(_GPU.fullmatch, map(str.strip, text.split(",")))]
    return gpus if len({*gpus}) == len(gpus) else []


@contextmanager
def limit_data(more_bytes: int) -> Iterator[None]:
    """Limit this process's further memory allocation to ``more_bytes`` within a block, unless a lower limit applies."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([_data_bytes() + more_bytes, *limits]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def free_data_bytes() -> int | None:
    """Bytes of memory that this process may still allocate under ``ulimit -d``, or None without a limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return None if soft == resource.RLIM_INFINITY else max(0, soft - _data_bytes())


def _data_bytes() -> int:
    """Bytes of private, writable memory of this process, which RLIMIT_DATA limits."""
    try:
        lines = read_input(Path("/proc/self/status"), SMALL).splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(b"VmData:")), 0)


def available_memory() -> int | None:
    """Bytes of memory that are free in the system and in the control groups, or None if unknown."""
    amounts = []
    try:
        lines = read_input(Path("/proc/meminfo"), SMALL).decode("ascii").splitlines()
        amounts += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    except OSError:
        pass
    limit = memory_limit()
    amounts += [limit.free] if limit else []
    return min(amounts, default=None)


_SPIN_VARIABLE = "GOMP_SPINCOUNT"
_SPIN_COUNT = 1_000
"""Iterations of some nanoseconds: as long as most waits on idle CPUs (``just bench-neighbours``)."""

_LEAST_INTERVAL_S = 0.2  # /proc/stat counts in hundredths of a second
_LEAST_BUSY_CPUS = 0.25


def shorten_spins() -> None:
    """Let OpenMP's waiting threads sleep early, unless the user has set a policy. Call before libgomp is loaded."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault(_SPIN_VARIABLE, str(_SPIN_COUNT))


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Measurement of the CPU seconds used so far on the CPUs of this process.

    Attributes:
        own_s: seconds of this process and its finished children.
        all_s: seconds of all processes and of the machine's hypervisor, or None if unknown.
        clock_s: time of measurement.
    """

    own_s: float
    all_s: float | None
    clock_s: float

    @classmethod
    def measure(cls, system: Path = Path("/")) -> CpuTimes:
        """Read the clocks. ``system`` is the parent folder of proc, for tests."""
        return cls(sum(os.times()[:4]), _busy_seconds(system / "proc/stat"), time.monotonic())

    def busy_cpus(self, later: CpuTimes) -> float | None:
        """Average number of CPUs that other processes used between two measurements, or None if unknown."""
        elapsed_s = later.clock_s - self.clock_s
        if self.all_s is None or later.all_s is None or elapsed_s < _LEAST_INTERVAL_S:
            return None
        others_s = later.all_s - self.all_s - (later.own_s - self.own_s)
        return max(0.0, others_s / elapsed_s)


def describe_neighbours(busy_cpus: float | None) -> str:
    """Sentence on other processes that slow computation down, or "" if there are none, or if unknown."""
    if busy_cpus is None or busy_cpus < _LEAST_BUSY_CPUS:
        return ""
    return f"Other processes use {busy_cpus:.1f} of {len(bound_cpus())} CPUs, so computation takes longer."


def _busy_seconds(stat: Path) -> float | None:
    names = {f"cpu{number}" for number in bound_cpus()}
    try:
        lines = [line.split() for line in read_input(stat, SMALL).decode("ascii").splitlines()]
        # user, nice, system, idle, iowait, irq, softirq, steal
        ticks = [[int(word) for word in line[1:9]] for line in lines if line and line[0] in names]
    except (OSError, ValueError):
        return None
    busy = sum(sum(row) - sum(row[3:5]) for row in ticks)
    return busy / os.sysconf("SC_CLK_TCK") if ticks else None
