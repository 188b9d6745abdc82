"""A small bundle of needles, a card without a url, and the command of a small server."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Lbx

SERVER = Path(__file__).with_name("small_server.py")

NEEDLE = """
lengths = [64]
depths = [0.0, 1.0]
samples_per_cell = 2
languages = ["en"]
"""

RECIPE = """
name = "small"

[[source]]
kind = "path"
path = "needle.toml"
to = "needle/needle.toml"
"""


@pytest.fixture(scope="session")
def lbx() -> Lbx:
    return Lbx()


@pytest.fixture(scope="session")
def bundle(lbx: Lbx, once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """12 samples of 3 tasks."""

    def make(folder: Path) -> None:
        (folder / "needle.toml").write_text(NEEDLE)
        (folder / "small.toml").write_text(RECIPE)
        lbx.unpacked(folder / "small.toml", folder)

    return once("serving", make) / "bundle"


@pytest.fixture
def card(tmp_path: Path) -> Path:
    path = tmp_path / "served.toml"
    path.write_text('backend = "endpoint"\n[options]\nconcurrency = 1\n')
    return path


def serve(*options: object, port: str = "{port}") -> str:
    """Command of the small server."""
    return shlex.join([sys.executable, str(SERVER), "--port", port, *map(str, options)])


def server_log(results: Path) -> str:
    return results.with_name(f"{results.name}.server.log").read_text()


def processes_of(results: Path) -> list[int]:
    """Running servers, their orphans and supervisors of a run, by the paths and process ids in its log."""
    orphans = re.findall(r"^orphan (\d+)", server_log(results), re.MULTILINE)
    log = f"{results}.server.log".encode()
    running = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            parent = int((folder / "stat").read_bytes().rpartition(b")")[2].split()[1])
            parents = Path(f"/proc/{parent}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if folder.name in orphans or log in words or log in parents:
            running.append(int(folder.name))
    return running


def sessions(lbx: Lbx, results: Path) -> list[dict[str, object]]:
    rows = lbx.rows(results, "SELECT status, answered, failed, hardware FROM sessions ORDER BY started_at")
    return [row | {"hardware": json.loads(row["hardware"])} for row in rows]
