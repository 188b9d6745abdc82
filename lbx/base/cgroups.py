"""Memory and CPU limits that control groups set for this process: containers, Kubernetes and Slurm use them.

Both versions of control groups are read, at the process's own group and at each group above it, since every limit on
the way binds. Described in the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lbx.base.inputs import SMALL, read_input

_UNLIMITED = 1 << 60  # version 1 writes "none" as a number near 2**63


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """A group's limit, and what its processes have taken without the page cache that the kernel gives back; bytes."""

    limit: int
    used: int

    @property
    def free(self) -> int:
        return max(0, self.limit - self.used)


def memory_limit(system: Path = Path("/")) -> MemoryLimit | None:
    """The limit that leaves the least memory free; None if no group has a limit.

    Args:
        system: the folder that holds proc and sys, for tests.
    """
    limits = [_memory_v2(group) for group in _groups(system, "")]
    limits += [_memory_v1(group) for group in _groups(system, "memory")]
    return min((limit for limit in limits if limit), key=lambda limit: limit.free, default=None)


@cache
def cpu_quota(system: Path = Path("/")) -> float | None:
    """CPUs' worth of time that the groups grant, e.g. 1.5; None if no group has a quota."""
    quotas = [_quota(_words(group / "cpu.max")) for group in _groups(system, "")]
    for group in _groups(system, "cpu"):
        quotas.append(_quota(_words(group / "cpu.cfs_quota_us") + _words(group / "cpu.cfs_period_us")))
    return min((quota for quota in quotas if quota), default=None)


def _memory_v2(group: Path) -> MemoryLimit | None:
    limit = _number(group / "memory.max")
    if limit is None:
        return None
    return MemoryLimit(limit, _taken(group, "memory.current", "inactive_file"))


def _memory_v1(group: Path) -> MemoryLimit | None:
    limit = _number(group / "memory.limit_in_bytes")
    if limit is None or limit >= _UNLIMITED:
        return None
    return MemoryLimit(limit, _taken(group, "memory.usage_in_bytes", "total_inactive_file"))


def _taken(group: Path, usage: str, cached: str) -> int:
    lines = (line.split() for line in _text(group / "memory.stat").splitlines())
    idle = next((int(line[1]) for line in lines if len(line) == 2 and line[0] == cached), 0)
    return max(0, (_number(group / usage) or 0) - idle)


def _quota(words: list[str]) -> float | None:
    """CPUs of "150000 100000": microseconds of time in each period of as many; "max" and -1 mean no quota."""
    if len(words) != 2 or not all(word.isdecimal() and int(word) for word in words):
        return None
    return int(words[0]) / int(words[1])


def _groups(system: Path, controller: str) -> Iterator[Path]:
    """Folders of this process's group in a hierarchy and of those above it; "" is version 2's only one.

    A container may see no more than a part of the hierarchy, mounted as if it were all of it.
    """
    own = _own_group(system, controller)
    mount = _mount(system, controller)
    if own is None or mount is None:
        return
    root, place = mount
    inside = own.removeprefix(root) if own == root or own.startswith(root.rstrip("/") + "/") else ""
    parts = [part for part in inside.split("/") if part not in ("", "..")]
    folder = system / place.lstrip("/")
    for length in range(len(parts), -1, -1):
        yield folder.joinpath(*parts[:length])


def _own_group(system: Path, controller: str) -> str | None:
    for line in _text(system / "proc/self/cgroup").splitlines():  # "4:memory:/path"; version 2 is "0::/path"
        parts = line.split(":", 2)
        if len(parts) == 3 and controller in parts[1].split(","):
            return parts[2]
    return None


def _mount(system: Path, controller: str) -> tuple[str, str] | None:
    """Which part of the hierarchy is mounted, and where."""
    kind = "cgroup" if controller else "cgroup2"
    for line in _text(system / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        mount, source = before.split(), after.split()
        if len(mount) < 5 or len(source) < 3 or source[0] != kind:
            continue
        if not controller or controller in source[2].split(","):
            return mount[3], mount[4]
    return None


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _words(path: Path) -> list[str]:
    return _text(path).split()


def _text(path: Path) -> str:
    try:
        return read_input(path, SMALL).decode("utf-8", "replace")
    except OSError:
        return ""
