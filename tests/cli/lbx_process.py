"""The command line as a process, and what a clean failure of it looks like."""

from __future__ import annotations

import subprocess
import sys

Process = subprocess.CompletedProcess[str]


class Lbx:
    """lbx("report", path) -> the finished process, its output as text."""

    def __call__(self, *args: object) -> Process:
        command = [sys.executable, "-m", "lbx.cli", *map(str, args)]
        return subprocess.run(command, capture_output=True, text=True, check=False)


def fails(done: Process, code: int, *words: str) -> None:
    """The process ended with this code, said these words, and showed no traceback."""
    said = " ".join(done.stderr.split())
    assert done.returncode == code, said
    assert "Traceback" not in said
    for word in words:
        assert word in said, said
