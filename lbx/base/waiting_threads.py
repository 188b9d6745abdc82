"""Threads of OpenMP that wait for one another, and the CPU time that other processes use.

Between two operations of a model, each thread waits for the others. By default, libgomp's threads spin for milliseconds
before they sleep: if another process uses one of the CPUs, a run takes several times its CPU time, and the other
process waits as well.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from lbx.base.inputs import SMALL, read_input
from lbx.base.resources import bound_cpus

_SPIN_VARIABLE = "GOMP_SPINCOUNT"
_SPIN_COUNT = 1_000
"""Iterations of some nanoseconds: as long as most waits on idle CPUs (``just bench-neighbours``)."""

_LEAST_INTERVAL_S = 0.2  # /proc/stat counts in hundredths of a second
_LEAST_BUSY_CPUS = 0.25


def shorten_spins() -> None:
    """Let waiting threads sleep early, unless the user has set a policy; call it before libgomp is loaded."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault(_SPIN_VARIABLE, str(_SPIN_COUNT))


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """CPU seconds used so far on the CPUs of this process.

    Attributes:
        own_s: seconds of this process and its finished children.
        all_s: seconds of all processes and of the machine's hypervisor; None if unknown.
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
        """Average number of CPUs that other processes used between two measurements; None if unknown."""
        elapsed_s = later.clock_s - self.clock_s
        if self.all_s is None or later.all_s is None or elapsed_s < _LEAST_INTERVAL_S:
            return None
        others_s = later.all_s - self.all_s - (later.own_s - self.own_s)
        return max(0.0, others_s / elapsed_s)


def describe_neighbours(busy_cpus: float | None) -> str:
    """Describe other processes that slow computation down; "" if there are none, or if unknown."""
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
