"""Wall and CPU seconds of the phases between the start of a command and the first prefill, for ``--debug``.

The measured code names the phases. CPU seconds are those of all threads of this process and of its finished child
processes; worker processes are not included.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from lbx.base.processes import process_start_time

_OTHER = "other"


class PhaseTimes:
    """Wall and CPU seconds by phase. The time of an inner phase does not count for the outer phase."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._seconds: dict[str, tuple[float, float]] = {}
        self._open: list[str] = []
        self._charged_until: tuple[float, float] | None = None

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Add the seconds of the block to a phase."""
        self._charge()
        self._seconds.setdefault(name, (0.0, 0.0))
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            if self._open:  # not after ``take_table``
                self._open.pop()

    def count_since_process_start(self, name: str) -> None:
        """Add the seconds since the start of this process to a phase: the interpreter, and modules already imported."""
        began = process_start_time(os.getpid())
        age_s = (datetime.now(UTC) - began).total_seconds() if began else 0.0
        self._clear()
        self._seconds[name] = age_s, _cpu_s()
        self._charge()

    def take_table(self) -> list[str]:
        """Return the lines of a table of the phases so far, in the order of their beginnings, and reset the counts."""
        self._charge()
        rows = [*self._seconds.items()]
        rows.sort(key=lambda row: row[0] == _OTHER)
        total = tuple(sum(column) for column in zip(*(seconds for _, seconds in rows), strict=True))
        self._clear()
        title = "Start of the run"
        width = max(len(title), *(len(name) for name, _ in rows))
        lines = [f"{name:{width}} {wall:8.2f} {cpu:8.2f}" for name, (wall, cpu) in [*rows, ("total", total)]]
        return [f"{title:{width}} {'wall s':>8} {'CPU s':>8}", *lines]

    def _charge(self) -> None:
        """Add the time since the last call to the innermost open phase."""
        now = time.perf_counter(), _cpu_s()
        if self._charged_until is not None:
            name = self._open[-1] if self._open else _OTHER
            wall, cpu = self._seconds.get(name, (0.0, 0.0))
            self._seconds[name] = wall + now[0] - self._charged_until[0], cpu + now[1] - self._charged_until[1]
        self._charged_until = now


def _cpu_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


phases = PhaseTimes()
"""Phases of this process."""
