"""What attacks share: the command line as a process and in this one, and what a clean refusal looks like."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.command_line import Lbx

TESTS = Path(__file__).resolve().parents[1]
_OURS = ("PYTHONSAFEPATH", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "LBX_DEBUG")


@dataclass(frozen=True)
class Said:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def all(self) -> str:
        return self.out + self.err


def process(
    *command: object, cwd: Path | None = None, env: Mapping[str, str] | None = None, seconds: int = 120
) -> Said:
    """A program, run to its end, with the environment of a shell that has never heard of lbx."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if name not in _OURS} | dict(env or {}),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
        check=False,
    )
    return Said(done.returncode, done.stdout, done.stderr)


def lbx(*arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Said:
    """lbx as a process."""
    return process(sys.executable, "-P", "-m", "lbx.cli", *arguments, cwd=cwd, env=env)


def main(*arguments: object) -> Said:
    """The same command line in this process, whose environment, signals and network it leaves as they are."""
    done = Lbx()(*arguments)
    assert "Traceback" not in done.stderr
    return Said(done.returncode, done.stdout, done.stderr)


def refused(said: Said, *words: str) -> None:
    """It ended with an error of lbx's own, one that names what is wrong."""
    text = " ".join(said.err.split())
    assert said.code in (1, 2), said
    assert "error:" in text or "Error" in text, said
    assert "Traceback" not in text and "did not expect" not in text, said
    for word in words:
        assert word in text, (word, text)


def files(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
