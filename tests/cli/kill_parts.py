"""What the kill tests share: a run in a process of its own, and the tables it must end with."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import duckdb

ROWS = """
    SELECT g.task, g.sample_id, g.iteration, g.output, g.finish_reason, g.prompt_tokens, g.prompt_sha256,
           s.metric, s.score
    FROM generations g LEFT JOIN scores s USING (run_id, benchmark, task, sample_id, iteration) ORDER BY ALL
"""
RESULTS = "SELECT task, metric, n, score, official FROM task_results ORDER BY ALL"


UNHURRIED_S = 0.2
"""An answer's delay with which a run is still under way when a busy machine comes round to the signal."""


def slow(answers: Path, folder: Path, delay_s: float = 0.02) -> Path:
    """The same answers, each after a delay, so that there is a middle to kill in."""
    lines = [json.loads(line) | {"delay_s": delay_s} for line in answers.read_text().splitlines()]
    path = folder / "slow.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def start(bundle: Path, model: Path, out: Path, more: Sequence[str] = ()) -> subprocess.Popen[str]:
    """``lbx run``, in a process group of its own."""
    command = [sys.executable, "-m", "lbx.cli", "run", "-b", bundle, "-m", model, "-t", "needle", "-o", out, *more]
    return subprocess.Popen(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for_samples(process: subprocess.Popen[str]) -> None:
    """Until the run says how many samples it has, after which they begin."""
    assert process.stderr
    for line in process.stderr:
        if "samples of" in line:
            return
    raise AssertionError("it ended before")


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with duckdb.connect(str(path), read_only=True) as connection:
        return connection.execute(query).fetchall()


def children(process_id: int) -> list[int]:
    """Ids of a process's workers; what renders its templates, or explains its death, is none."""
    try:
        started = Path(f"/proc/{process_id}/task/{process_id}/children").read_text().split()
        return [int(one) for one in started if b"lbx.running.workers" in Path(f"/proc/{one}/cmdline").read_bytes()]
    except OSError:
        return []


def gone(process_ids: Sequence[int], patience_s: float = 20.0) -> bool:
    """Whether these processes end, one that only waits to be reaped counted as ended."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        if not any(_alive(one) for one in process_ids):
            return True
        time.sleep(0.05)
    return False


def _alive(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
