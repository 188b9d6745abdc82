"""The CPUs that this process may use: the one definition for threads, worker processes and scoring processes."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

from lbx.base.cgroups import cpu_quota

CPU_COUNT = "LBX_CPU_COUNT"
"""Environment variable by which a worker process learns its share of the CPUs."""


def bound_cpus() -> list[int]:
    """Numbers of the CPUs that this process may run on; all of them where the system has no affinities."""
    return sorted(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1))


def cpu_limits() -> Mapping[str, float]:
    """{cause: CPUs} of every limit on this process. A quota may be fractional."""
    limits: dict[str, float] = {"affinity": len(bound_cpus())}
    if quota := cpu_quota():
        limits["CPU quota of its control group"] = quota
    for name in ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", CPU_COUNT):
        text = os.environ.get(name, "")
        if text.isascii() and text.isdecimal() and int(text[:9]):
            limits[name] = int(text[:9])
    return limits


def usable_cpu_count() -> int:
    """Number of CPUs to compute on: the smallest limit, rounded up."""
    return math.ceil(min(cpu_limits().values()))
