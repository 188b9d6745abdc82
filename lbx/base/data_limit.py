"""The limit on this process's own memory, which the kernel keeps (``ulimit -d``): allocations beyond it fail."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lbx.base.inputs import SMALL, read_input


@contextmanager
def limited_data(more_bytes: int) -> Iterator[None]:
    """Let this process take so much memory more, for a block, unless a lower limit holds already."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    known = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([_data_bytes() + more_bytes, *known]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def data_left_bytes() -> int | None:
    """Memory that this process may still take; None without a limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return None if soft == resource.RLIM_INFINITY else max(0, soft - _data_bytes())


def _data_bytes() -> int:
    """What counts towards the limit: memory that is private and writable."""
    try:
        lines = read_input(Path("/proc/self/status"), SMALL).splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(b"VmData:")), 0)
