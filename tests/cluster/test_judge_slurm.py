"""A judge as an array on a real Slurm, one of its shards killed: what is merged equals one judge, row by row."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from lbx.results import Store
from tests.cluster import real_slurm
from tests.cluster.real_slurm import Slurm
from tests.command_line import Lbx
from tests.judge_parts import ROWS, make_home, table

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.long("waits for requeued jobs; tests/cluster/test_slurm.py kills shards of a run on the same Slurm"),
    pytest.mark.skipif(bool(real_slurm.missing()), reason=real_slurm.missing()),
]


def judgements(path: Path) -> list[tuple[object, ...]]:
    with Store(path, read_only=True) as store:
        return store.query(ROWS).rows


def test_a_judge_in_shards_equals_one_judge(slurm: Slurm, lbx: Lbx, tmp_path: Path) -> None:
    home = make_home(lbx, tmp_path)
    results, folder, spec = home / "runs.duckdb", tmp_path / "jury", tmp_path / "judge.json"
    model = table(tmp_path, "slow", [{"key": "*", "text": "[[B]]", "delay_s": 0.4}])
    what = ["--bundle", home / "b", "--judge", model, "--questions", "both", "--name", "jury"]
    what += ["--run", "x", "--run", "y", "--against", "turbo-16k-0613"]
    assert lbx("judge", results, *what, "--save-spec", spec).returncode == 0
    submitted = lbx.ok(
        "submit", "slurm", "--spec", spec, "-o", folder, "--shards", 2, "--cpus", 1,
        "--no-measure-speed", "--scratch", tmp_path / "disk", "--time", "10", "--json", environment=slurm.environment,
    )  # fmt: skip
    ids = json.loads(submitted.stdout)

    def told() -> str:
        outputs = [f"== {path.name}\n{path.read_text()}" for path in sorted((folder / "logs").glob("*.out"))]
        return "\n".join([*outputs, slurm("squeue"), slurm.logs()])

    real_slurm.until(lambda: (folder / "shards" / "0001.duckdb").exists() and real_slurm.runs_of_shard(1, folder), told)
    os.kill(real_slurm.runs_of_shard(1, folder)[-1], signal.SIGKILL)
    slurm.start_requeued(f"{ids['array']}_1")
    real_slurm.until(lambda: slurm.state(ids["merge"]) in ("COMPLETED", "FAILED"), told)
    assert slurm.state(ids["merge"]) == "COMPLETED", told()
    merged = tmp_path / "all.duckdb"
    lbx.ok("merge", results, folder / "results.duckdb", "-o", merged)
    assert lbx("judge", results, *what, "--no-plan").returncode == 0
    assert judgements(merged) == judgements(results)
    assert len(judgements(merged)) == 56
