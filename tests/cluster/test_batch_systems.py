"""Arrays under stand-ins for PBS and LSF, with lbx's own scripts: what is merged equals one run, row by row."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from batch_system import BatchSystem
from command_line import Lbx
from real_slurm import runs_of_shard
from same_rows import same_rows
from test_slurm import answers_in

SHARDS = 3
KINDS = ("pbs", "lsf")


@pytest.fixture(params=KINDS)
def batch(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BatchSystem]:
    (tmp_path / "batch").mkdir()
    system = BatchSystem(tmp_path / "batch", request.param)
    yield system
    system.stop()


def status(lbx: Lbx, batch: BatchSystem, folder: Path) -> list[dict[str, object]]:
    told: list[dict[str, object]] = json.loads(lbx.ok("status", folder, "--json", environment=batch.environment).stdout)
    return told


def outputs(folder: Path) -> str:
    return "\n".join(f"== {path.name}\n{path.read_text()}" for path in sorted((folder / "logs").glob("*.out")))


def test_an_array_with_lost_shards_equals_one_run(
    batch: BatchSystem, lbx: Lbx, bundle: Path, answers: Callable[[float], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "a run, of 100%"
    what = ["--bundle", bundle, "--model", answers(0.7), "--tasks", "needle/single_en,needle/multikey_en"]
    what += ["--name", "whole"]
    done = lbx.ok(
        "submit", batch.kind, *what, "-o", folder, "--shards", SHARDS, "--at-once", 2, "--cpus", 1, "--mem", "1G",
        "--queue", "short", "--copy-every", 0.02, "--scratch", tmp_path / "disk", "--time", "4:00", "--json",
        environment=batch.environment,
    )  # fmt: skip
    ids = json.loads(done.stdout)
    array, first = ids["array"], 0 if batch.kind == "pbs" else 1

    def has_answers(shard: int) -> bool:
        return answers_in(folder / "shards" / f"000{shard}.duckdb", tmp_path) > 0

    def told() -> str:
        return outputs(folder)

    batch.until(lambda: has_answers(0), told)
    assert [one["state"] for one in status(lbx, batch, folder)][::2] == ["running", "waiting"]
    if batch.kind == "pbs":
        os.kill(runs_of_shard(0, folder)[0], signal.SIGALRM)  # `timeout` sets this alarm to the time limit
    else:
        batch.signal(array, 1, signal.SIGUSR1)
    batch.until(lambda: has_answers(1), told)
    os.kill(runs_of_shard(1, folder)[-1], signal.SIGKILL)  # as when memory runs out
    batch.until(lambda: has_answers(2), told)
    batch.lose_node(array, 2 + first)
    batch.until(batch.is_over, told)

    codes = [code for _, code in batch.codes]
    assert sorted(codes) == ([0, 0, 0, 0, 0, 124, 137] if batch.kind == "pbs" else [0, 0, 0, 0, 75, 75]), told()
    for shard, code in ((0, 124 if batch.kind == "pbs" else 143), (1, 137)):
        assert f"shard {shard} ended with {code}; it is requeued" in told()
    assert [one["state"] for one in status(lbx, batch, folder)] == ["done"] * SHARDS
    lbx.ok("run", *what, "-o", tmp_path / "one.duckdb", "--workers", 4, "--no-plan")
    assert same_rows(folder / "results.duckdb", tmp_path / "one.duckdb")["generations"] == 16
    assert not list((tmp_path / "disk").iterdir()), told()


def test_a_cancelled_array_is_not_requeued_and_its_samples_are_named(
    batch: BatchSystem, lbx: Lbx, bundle: Path, answers: Callable[[float], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    what = ["--bundle", bundle, "--model", answers(0.7), "--tasks", "needle/single_en", "--shards", 1]
    done = lbx.ok(
        "submit", batch.kind, *what, "-o", folder, "--scratch", tmp_path, "--copy-every", 0.02, "--json",
        environment=batch.environment,
    )  # fmt: skip
    ids = json.loads(done.stdout)
    file = folder / "shards" / "0000.duckdb"
    batch.until(lambda: answers_in(file, tmp_path), lambda: outputs(folder))
    endings = [signal.SIGTERM] if batch.kind == "pbs" else [signal.SIGINT, signal.SIGTERM]
    batch.signal(ids["array"], 0 if batch.kind == "pbs" else 1, *endings)
    batch.until(batch.is_over, lambda: outputs(folder))
    assert [code for _, code in batch.codes] == [143, 3], outputs(folder)
    assert "Shard 0 of run lacks needle/single_en/" in outputs(folder) and "Traceback" not in outputs(folder)
    (looked,) = status(lbx, batch, folder)
    assert looked["state"] == "failed" and 0 < looked["answered"] < 8
    assert [path.name for path in tmp_path.glob("lbx-*")] == []
