"""The command of a small server, its log, its processes, and the sessions of a served run."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

from tests.command_line import Lbx

SERVER = Path(__file__).with_name("small_server.py")


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
            state, parent = (folder / "stat").read_bytes().rpartition(b")")[2].split()[:2]
            parents = Path(f"/proc/{int(parent)}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if state == b"Z":  # it has ended
            continue
        if folder.name in orphans or log in words or log in parents:
            running.append(int(folder.name))
    return running


def sessions(lbx: Lbx, results: Path) -> list[dict[str, object]]:
    rows = lbx.rows(results, "SELECT status, answered, failed, hardware FROM sessions ORDER BY started_at")
    return [row | {"hardware": json.loads(row["hardware"])} for row in rows]
