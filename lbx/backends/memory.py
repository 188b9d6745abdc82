"""Memory that this process may take: what the system has free, within the limits of its control groups."""

from __future__ import annotations

from pathlib import Path

from lbx.base.inputs import SMALL, read_input
from lbx.base.resources import memory_limit


def available_bytes() -> int | None:
    """Memory that this process may take: what the system has free, and its control groups leave; None: unknown."""
    amounts = []
    try:
        lines = read_input(Path("/proc/meminfo"), SMALL).decode("ascii").splitlines()
        amounts += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    except OSError:
        pass
    limit = memory_limit()
    amounts += [limit.free] if limit else []
    return min(amounts, default=None)
