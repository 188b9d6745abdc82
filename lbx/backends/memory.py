"""Memory available to this process: free memory of the system, within the limits of its control groups."""

from __future__ import annotations

from pathlib import Path

from lbx.base.inputs import SMALL, read_input
from lbx.base.resources import memory_limit


def available_bytes() -> int | None:
    """Bytes that the system has free and the control groups allow; None if unknown."""
    amounts = []
    try:
        lines = read_input(Path("/proc/meminfo"), SMALL).decode("ascii").splitlines()
        amounts += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    except OSError:
        pass
    limit = memory_limit()
    amounts += [limit.free] if limit else []
    return min(amounts, default=None)
