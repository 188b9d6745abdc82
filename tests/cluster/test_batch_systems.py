"""Arrays under stand-ins for PBS and LSF, with lbx's own scripts: what is merged equals one run, row by row."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lbx.results.file.snapshots import query_committed
from tests.cluster.batch_system import PATIENCE_S, BatchSystem
from tests.cluster.real_slurm import runs_of_shard
from tests.cluster.same_rows import same_rows
from tests.command_line import Lbx

SHARDS = 3
KINDS = ("pbs", "lsf")
DELAY_S = 2.0
"""Time for each answer, so that a shard is still running when `lbx status` has ended on a busy machine."""


@pytest.fixture(params=KINDS)
def batch(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BatchSystem]:
    (tmp_path / "batch").mkdir()
    system = BatchSystem(tmp_path / "batch", request.param)
    yield system
    system.stop()


def status(lbx: Lbx, batch: BatchSystem, folder: Path) -> list[dict[str, object]]:
    told: list[dict[str, object]] = json.loads(lbx.ok("status", folder, "--json", environment=batch.environment).stdout)
    return told


def answers_in(shard: Path) -> int:
    """Number of answers in a shard's file and its log."""
    if not shard.exists():
        return 0
    ((count,),) = query_committed(shard, "SELECT count(*) FROM generations", [])
    return int(count)


def outputs(folder: Path) -> str:
    return "\n".join(f"== {path.name}\n{path.read_text()}" for path in sorted((folder / "logs").glob("*.out")))


WHAT = ["--tasks", "needle/single_en,needle/multikey_en", "--name", "whole"]


@pytest.fixture(scope="module")
def undivided(
    bundle: Path, answers: Callable[[float], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], Path]:
    """Results file of the same run without shards, computed while the arrays run."""
    file = tmp_path_factory.mktemp("undivided") / "one.duckdb"
    command = [
        sys.executable,
        "-m",
        "lbx.cli",
        "run",
        "--bundle",
        bundle,
        "--model",
        answers(DELAY_S),
        *WHAT,
        "-o",
        file,
    ]
    process = subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL)

    def wait() -> Path:
        assert process.wait(PATIENCE_S) == 0
        return file

    return wait


def test_an_array_with_lost_shards_equals_one_run(
    batch: BatchSystem,
    undivided: Callable[[], Path],
    lbx: Lbx,
    bundle: Path,
    answers: Callable[[float], Path],
    tmp_path: Path,
) -> None:
    folder = tmp_path / "a run, of 100%"
    done = lbx.ok(
        "submit", batch.kind, "--bundle", bundle, "--model", answers(DELAY_S), *WHAT, "-o", folder, "--shards", SHARDS,
        "--at-once", 2, "--cpus", 1, "--mem", "1G", "--queue", "short", "--time", "4:00",
        "--scratch", tmp_path / "disk", "--no-measure-speed", "--json", environment=batch.environment,
    )  # fmt: skip
    array, first = json.loads(done.stdout)["array"], 0 if batch.kind == "pbs" else 1

    def has_answers(shard: int) -> bool:
        return answers_in(folder / "shards" / f"000{shard}.duckdb") > 0

    def told() -> str:
        return outputs(folder)

    batch.until(lambda: has_answers(0), told)
    assert [one["state"] for one in status(lbx, batch, folder)][::2] == ["running", "waiting"], "two at once"
    if batch.kind == "pbs":
        os.kill(runs_of_shard(0, folder)[0], signal.SIGALRM)  # `timeout` sets this alarm to the time limit
    else:
        batch.signal(array, 1, signal.SIGUSR1)
    batch.until(lambda: has_answers(1), told)
    os.kill(runs_of_shard(1, folder)[-1], signal.SIGKILL)  # as when memory runs out
    batch.until(lambda: has_answers(2), told)
    batch.lose_node(array, 2 + first)
    batch.until(batch.is_over, told)

    codes = sorted(code for _, code in batch.codes)
    assert codes == ([0, 0, 0, 0, 0, 124, 137] if batch.kind == "pbs" else [0, 0, 0, 0, 75, 75]), told()
    for shard, code in ((0, 124 if batch.kind == "pbs" else 143), (1, 137)):
        assert f"shard {shard} ended with {code}; it is requeued" in told()
    assert [one["state"] for one in status(lbx, batch, folder)] == ["done"] * SHARDS
    assert same_rows(folder / "results.duckdb", undivided())["generations"] == 16


def test_a_cancelled_array_is_not_requeued_and_its_samples_are_named(
    batch: BatchSystem, lbx: Lbx, bundle: Path, answers: Callable[[float], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    what = ["--bundle", bundle, "--model", answers(0.7), "--tasks", "needle/single_en", "--shards", 1]
    done = lbx.ok(
        "submit", batch.kind, *what, "-o", folder, "--scratch", tmp_path, "--no-measure-speed",
        "--json", environment=batch.environment,
    )  # fmt: skip
    ids = json.loads(done.stdout)
    file = folder / "shards" / "0000.duckdb"
    batch.until(lambda: answers_in(file), lambda: outputs(folder))
    endings = [signal.SIGTERM] if batch.kind == "pbs" else [signal.SIGINT, signal.SIGTERM]
    batch.signal(ids["array"], 0 if batch.kind == "pbs" else 1, *endings)
    batch.until(batch.is_over, lambda: outputs(folder))
    assert [code for _, code in batch.codes] == [143, 3], outputs(folder)
    assert "Shard 0 of run lacks needle/single_en/" in outputs(folder) and "Traceback" not in outputs(folder)
    (looked,) = status(lbx, batch, folder)
    assert looked["state"] == "failed" and 0 < looked["answered"] < 8
    assert [path.name for path in tmp_path.glob("lbx-*")] == []


def test_a_scheduler_that_is_not_installed_or_refuses_is_named(
    lbx: Lbx, bundle: Path, answers: Callable[[float], Path], tmp_path: Path
) -> None:
    what = ["--bundle", bundle, "--model", answers(0.0), "-t", "needle/single_en", "-o", tmp_path / "run"]
    what += ["--shards", 2, "--characters", "--no-measure-speed"]
    for kind, program in (("pbs", "qsub"), ("lsf", "bsub")):
        tool = tmp_path / program
        for text, expected in (
            ("", f"{program} is not installed on this machine"),
            ("echo 'no such queue' >&2; exit 3", f"{program} failed: no such queue."),
            ("printf 'hello\\033[31m'", f"{program} printed 'hello\\x1b[31m' instead of a job id."),
        ):
            if text:
                tool.write_text(f"#!/bin/sh\n{text}\n")
                tool.chmod(0o755)
            done = lbx("submit", kind, *what, environment={"PATH": f"{tmp_path}:/usr/bin:/bin"})
            said = " ".join(done.stderr.split())
            assert done.returncode == 1 and expected in said and "Traceback" not in said, said
            assert not (tmp_path / "run" / "shards.json").exists(), "the same command can be repeated"
