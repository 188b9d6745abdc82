"""More shards than nodes on a real Slurm of three nodes, one of which is lost: the scheduler hands out what is left."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.results.file.snapshots import query_committed
from tests.cluster import real_slurm
from tests.cluster.real_slurm import Slurm, until
from tests.cluster.same_rows import same_rows
from tests.command_line import Lbx

pytestmark = [pytest.mark.slurm, pytest.mark.skipif(bool(real_slurm.missing()), reason=real_slurm.missing())]
NODES = 3


@pytest.mark.parametrize("slurm", [NODES], indirect=True)
def test_shards_of_a_lost_node_continue_on_the_others(
    slurm: Slurm, lbx: Lbx, bundle: Path, answers: Callable[[float], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    what = ["--bundle", bundle, "--tasks", "needle", "--name", "whole", "--model", answers(1.0)]
    alone = subprocess.Popen(
        [sys.executable, "-m", "lbx.cli", "run", *map(str, what), "-o", tmp_path / "one.duckdb", "--workers", "4"],
        stderr=subprocess.DEVNULL,
    )
    submitted = lbx.ok(
        "submit", "slurm", *what, "-o", folder, "--at-once", NODES, "--cpus", real_slurm.CORES, "--time", "10",
        "--scratch", tmp_path / "disk", "--no-measure-speed", "--json", environment=slurm.environment,
    )  # fmt: skip
    assert "12 shards: 4 for each of the 3 that run at once" in submitted.stderr
    ids = json.loads(submitted.stdout)

    def outputs() -> str:
        texts = [f"== {path.name}\n{path.read_text()}" for path in sorted((folder / "logs").glob("*.out"))]
        return "\n".join([*texts, slurm("squeue"), slurm.logs()])

    def has_answer() -> bool:
        shards = slurm("squeue", "--noheader", "--nodelist=n1", "--format=%K").split()
        files = [folder / "shards" / f"{int(shard):04d}.duckdb" for shard in shards if shard.isdigit()]
        return any(query_committed(file, "FROM generations", []) for file in files if file.exists())

    until(has_answer, outputs)
    (shard,) = slurm("squeue", "--noheader", "--nodelist=n1", "--format=%K").split()
    slurm("scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=lost")
    slurm.start_requeued(f"{ids['array']}_{shard}")
    until(lambda: slurm.state(ids["merge"]) in ("COMPLETED", "FAILED"), outputs)
    assert slurm.state(ids["merge"]) == "COMPLETED", outputs()

    hosts = {word for word in slurm("scontrol", "show", "job").split() if word.startswith("BatchHost=")}
    assert {"BatchHost=n0", "BatchHost=n2"} <= hosts
    counts = lbx.rows(folder / "results.duckdb", "SELECT count(*) AS n, sum(planned_samples) AS planned FROM sessions")
    assert counts[0]["n"] == 13 and counts[0]["planned"] - 48 < 4, "the lost shard's answers were kept"
    assert alone.wait(real_slurm.PATIENCE_S) == 0
    assert same_rows(folder / "results.duckdb", tmp_path / "one.duckdb")["generations"] == 48
