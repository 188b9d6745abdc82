"""An array on a real Slurm, its shards killed in three ways: what is merged equals one run, row by row.

Slurm and munge run in a folder of their own, as root; where they are not installed, this is skipped.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.results.file.snapshots import query_committed
from tests.cluster import real_slurm
from tests.cluster.real_slurm import PATIENCE_S, Slurm, runs_of_shard, until
from tests.cluster.same_rows import same_rows
from tests.command_line import Lbx

pytestmark = [pytest.mark.slurm, pytest.mark.skipif(bool(real_slurm.missing()), reason=real_slurm.missing())]
SHARDS = 4


def answers_in(path: Path) -> int:
    """How many answers the copy of a shard's file holds."""
    return len(query_committed(path, "FROM generations", [])) if path.exists() else 0


def test_an_array_with_killed_shards_equals_one_run(
    slurm: Slurm, lbx: Lbx, bundle: Path, answers: Callable[[float], Path], tmp_path: Path
) -> None:
    model, folder = answers(2.0), tmp_path / "a run"
    what = ["--bundle", bundle, "--model", model, "--tasks", "needle", "--name", "whole"]
    alone = subprocess.Popen(
        [sys.executable, "-m", "lbx.cli", "run", *map(str, what), "-o", tmp_path / "one.duckdb", "--workers", "4"],
        stderr=subprocess.DEVNULL,
    )
    scratch = tmp_path / "disk of the node"
    submitted = lbx.ok(
        "submit", "slurm", *what, "-o", folder, "--shards", SHARDS, "--cpus", 1,
        "--scratch", scratch, "--time", "10", "--json", environment=slurm.environment,
    )  # fmt: skip
    ids = json.loads(submitted.stdout)
    array = ids["array"]

    def told() -> str:
        outputs = [f"== {path.name}\n{path.read_text()}" for path in sorted((folder / "logs").glob("*.out"))]
        return "\n".join([*outputs, slurm("squeue"), slurm.logs()])

    def status() -> list[dict[str, object]]:
        looked = lbx.ok("status", folder, "--json", environment=slurm.environment)
        return json.loads(looked.stdout)

    ends = {
        1: lambda: os.kill(runs_of_shard(1, folder)[-1], signal.SIGKILL),  # as when memory runs out
        2: lambda: slurm("scancel", "--signal=USR1", "--batch", f"{array}_2"),  # as when the time limit is near
        3: lambda: slurm("scancel", "--signal=KILL", "--full", f"{array}_3"),  # as when the node dies
    }
    for number, end in ends.items():  # each in its middle
        until(lambda number=number: answers_in(folder / "shards" / f"000{number}.duckdb"), told)
        end()
    assert status()[0]["state"] in ("running", "done")
    until(lambda: slurm.state(f"{array}_3") not in ("RUNNING", "COMPLETING"), told)
    slurm("scontrol", "requeue", f"{array}_3")
    for number in (1, 2, 3):
        slurm.start_requeued(f"{array}_{number}")
    until(lambda: slurm.state(ids["merge"]) in ("COMPLETED", "FAILED"), told)
    assert slurm.state(ids["merge"]) == "COMPLETED", told()
    assert alone.wait(PATIENCE_S) == 0

    counts = same_rows(folder / "results.duckdb", tmp_path / "one.duckdb")
    assert counts["generations"] == counts["samples"] == 48
    assert [(one["state"], one["answered"], one["expected"]) for one in status()] == [("done", 12, 12)] * SHARDS
    sessions = lbx("sql", folder / "results.duckdb", "SELECT status, planned_samples FROM sessions", "--format", "json")
    planned = sorted(row["planned_samples"] for row in json.loads(sessions.stdout))
    assert len(planned) == SHARDS + 3, "each of three shards went on in a second session"
    assert planned[3:] == [12] * SHARDS and max(planned[:3]) < 12, "and asked only what was left"
    assert not list(scratch.glob("lbx-*/.*.partial-*")), told()


def test_a_cancelled_shard_is_not_requeued_and_its_samples_are_named(
    slurm: Slurm, lbx: Lbx, bundle: Path, answers: Callable[[float], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    what = ["--bundle", bundle, "--model", answers(30.0), "--tasks", "needle/single_en", "--limit", "2"]
    submitted = lbx.ok(
        "submit", "slurm", *what, "-o", folder, "--shards", 2, "--scratch", tmp_path, "--json",
        environment=slurm.environment,
    )  # fmt: skip
    ids = json.loads(submitted.stdout)

    def told() -> str:
        return slurm("squeue") + slurm.logs()

    until(lambda: all((folder / "shards" / f"000{n}.duckdb").exists() for n in (0, 1)), told)
    slurm("scancel", ids["array"])
    until(lambda: slurm.state(ids["merge"]) in ("COMPLETED", "FAILED"), told)
    said = (folder / "logs" / "merge.out").read_text()
    assert "Shard 0 of run lacks needle/single_en/" in said and "Shard 1 of run lacks" in said, said
    looked = lbx("status", folder, environment=slurm.environment)
    assert "2 failed; 0 of 2 answers" in looked.stdout, looked.stdout
