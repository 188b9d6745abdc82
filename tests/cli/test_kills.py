"""Kills: of the process that does all, of the one that writes, of those that hold the model.

At chance moments here; before, in and after every commit in tests/attacks/test_commits.py.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.kill_parts import RESULTS, ROWS, UNHURRIED_S, children, gone, rows, slow, start, wait_for_samples
from tests.command_line import Lbx
from tests.profiles import kills

NEEDLE = """
lengths = [64]
depths = [0.0, 0.5, 1.0]
samples_per_cell = 14
languages = ["en", "zh"]
"""
RECIPE = """
name = "many"

[[source]]
kind = "path"
path = "needle"
to = "needle"
"""
SAMPLES = 252
DELAY_S = 0.005


@pytest.fixture(scope="module")
def many(lbx: Lbx, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unpacked bundle of SAMPLES samples: a run commits several times."""
    folder = tmp_path_factory.mktemp("many")
    (folder / "needle").mkdir()
    (folder / "needle" / "needle.toml").write_text(NEEDLE)
    (folder / "many.toml").write_text(RECIPE)
    return lbx.unpacked(folder / "many.toml", folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "one.jsonl").write_text(json.dumps({"key": "*", "text": "seven"}))
    return slow(folder / "one.jsonl", folder, DELAY_S)


@pytest.fixture(scope="module")
def undisturbed(lbx: Lbx, many: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "results.duckdb"
    assert lbx("run", "-b", many, "-m", model, "-t", "needle", "-o", path).returncode == 0
    assert rows(path, "SELECT count(*) FROM generations") == [(SAMPLES,)]
    return path


def assert_same(path: Path, undisturbed: Path) -> None:
    assert rows(path, ROWS) == rows(undisturbed, ROWS)
    assert rows(path, RESULTS) == rows(undisturbed, RESULTS)
    assert rows(path, "SELECT status FROM runs") == [("done",)]


@pytest.mark.parametrize(("workers", "times"), [((), 16), (("--workers", "2"), 8)], ids=["alone", "writer"])
def test_a_killed_run_continues(
    lbx: Lbx, many: Path, model: Path, undisturbed: Path, tmp_path: Path, workers: Sequence[str], times: int
) -> None:
    """SIGKILL, at any time from its first line on; no process of it is left."""
    path = tmp_path / "results.duckdb"
    chance = random.Random(times)
    for _ in range(kills(times)):
        process = start(many, model, path, workers)
        wait_for_samples(process)
        time.sleep(chance.uniform(0, 1.3))
        holding = children(process.pid)
        process.kill()
        process.communicate()
        assert gone(holding)
    assert lbx("run", "-b", many, "-m", model, "-t", "needle", "-o", path, *workers).returncode == 0
    assert_same(path, undisturbed)


def test_a_killed_worker_costs_no_answer(many: Path, model: Path, undisturbed: Path, tmp_path: Path) -> None:
    """The run that it belongs to ends as if nothing had been. (More die in tests/running/test_crew.py.)"""
    path = tmp_path / "results.duckdb"
    process = start(many, model, path, ["--workers", "2", "--no-plan"])
    wait_for_samples(process)
    while len(holding := children(process.pid)) < 2:
        time.sleep(0.01)
    os.kill(holding[0], signal.SIGKILL)
    _, said = process.communicate()
    assert process.returncode == 0, said
    assert "Worker 1 was killed (SIGKILL)" in " ".join(said.split())
    assert_same(path, undisturbed)


def test_a_prompt_that_kills_its_worker_is_a_failed_sample(lbx: Lbx, many: Path, tmp_path: Path) -> None:
    deadly = names(lbx, many, tmp_path)[100]
    table = [{"key": "*", "text": "seven"}, {"key": deadly, "dies": True}]
    model = tmp_path / "deadly.jsonl"
    model.write_text("\n".join(map(json.dumps, table)))
    path = tmp_path / "results.duckdb"
    done = lbx("run", "-b", many, "-m", model, "-t", "needle", "-o", path, "--workers", "2")
    assert done.returncode == 3, done.stderr
    assert rows(path, "SELECT count(*) FROM generations WHERE error IS NULL") == [(SAMPLES - 1,)]
    ((failed, error),) = rows(
        path, "SELECT concat_ws('/', benchmark, task, sample_id), error FROM generations WHERE error IS NOT NULL"
    )
    assert failed == deadly
    assert "SIGKILL" in str(error)
    assert "--retry-failed" in str(error)


def names(lbx: Lbx, many: Path, folder: Path) -> list[object]:
    """All samples' names."""
    model = folder / "any.jsonl"
    model.write_text(json.dumps({"*": "seven"}))
    assert lbx("run", "-b", many, "-m", model, "-t", "needle", "-o", folder / "any.duckdb").returncode == 0
    query = "SELECT concat_ws('/', benchmark, task, sample_id) FROM samples ORDER BY task, position"
    return [row[0] for row in rows(folder / "any.duckdb", query)]


def test_workers_that_always_die_stop_the_run(lbx: Lbx, many: Path, tmp_path: Path) -> None:
    model = tmp_path / "deadly.jsonl"
    model.write_text(json.dumps({"key": "*", "dies": True}))
    path = tmp_path / "results.duckdb"
    done = lbx("run", "-b", many, "-m", model, "-t", "needle", "-o", path, "--workers", "1")
    assert done.returncode == 1
    assert "keep dying" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert rows(path, "SELECT status FROM runs") == [("failed",)]
    assert int(str(rows(path, "SELECT count(*) FROM generations")[0][0])) < 4


def test_a_model_that_does_not_load_is_told_once(lbx: Lbx, many: Path, tmp_path: Path) -> None:
    model = tmp_path / "broken.jsonl"
    model.write_text("not json")
    done = lbx("run", "-b", many, "-m", model, "-t", "needle", "-o", tmp_path / "r.duckdb", "--workers", "2")
    assert done.returncode == 2
    assert done.stderr.count("not valid JSON") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("how", ["terminal", "scheduler"])
def test_signals_that_reach_every_process(many: Path, model: Path, undisturbed: Path, tmp_path: Path, how: str) -> None:
    """Ctrl-C in a terminal, and SIGTERM as a cluster sends it: the workers leave it to the writer."""
    path = tmp_path / "results.duckdb"
    process = start(many, slow(model, tmp_path, UNHURRIED_S), path, ["--workers", "2"])
    wait_for_samples(process)
    time.sleep(0.4)
    holding = children(process.pid)
    assert len(holding) == 2
    if how == "terminal":
        os.killpg(process.pid, signal.SIGINT)
    else:
        for one in (*holding, process.pid):
            os.kill(one, signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode == (130 if how == "terminal" else 143), said
    assert "Run the same command again to continue" in " ".join(said.split())
    assert "Traceback" not in said
    assert gone(holding)
    assert rows(path, "SELECT status FROM runs") == [("interrupted",)]


def test_both_kinds_are_two_runs(lbx: Lbx, many: Path, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "results.duckdb"
    command = ["run", "-b", many, "-m", model, "-t", "needle", "-o", path, "--limit", 3, "--both-kinds", "--json"]
    done = lbx.ok(*command)
    told = json.loads(done.stdout)
    each = told[0]["answered"]
    assert each > 0
    assert [one["answered"] for one in told] == [each, each]
    assert rows(path, "SELECT count(DISTINCT run_id), count(*) FROM generations") == [(2, 2 * each)]
    assert [one["done_before"] for one in json.loads(lbx(*command).stdout)] == [each, each]


FULL = "could not be written"
OF_TWO_FILES = "keep both files together"


def on_a_small_disk(disk: Path, size: str, script: str) -> subprocess.CompletedProcess[str]:
    """A script's end, with a file system of this size in a mount namespace of its own."""
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare (util-linux)")
    disk.mkdir()
    script = f"mount -t tmpfs -o size={size} none {disk} || exit 77\n{script}"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, check=False)
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip("this system lets nobody but root mount a file system")
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize(
    ("size", "more", "said"),
    [
        ("320k", "", FULL),
        ("600k", "", OF_TWO_FILES),
        ("600k", "--workers 1", OF_TWO_FILES),
        ("1200k", "", OF_TWO_FILES),
    ],
)
def test_a_really_full_disk(
    lbx: Lbx, many: Path, model: Path, undisturbed: Path, tmp_path: Path, size: str, more: str, said: str
) -> None:
    """No room for an answer, or only for DuckDB's log of them: both end with 1, and nothing that was committed is lost.

    With more room the same command goes on, and what it leaves is one file.
    """
    disk = tmp_path / "disk"
    run = f"{sys.executable} -m lbx.cli run -b {many} -m {model} -t needle -o {disk}/results.duckdb {more}"
    script = f"""
        {run}; echo first $?
        cp {disk}/results.duckdb* {tmp_path}
        mount -o remount,size=64m {disk}
        {run}; echo second $?
        cp {disk}/results.duckdb {tmp_path}/whole.duckdb
    """
    done = on_a_small_disk(disk, size, script)
    assert "first 1" in done.stdout, done.stderr
    assert said in " ".join(done.stderr.split())
    ((committed,),) = rows(tmp_path / "results.duckdb", "SELECT count(*) FROM generations")
    assert (committed == SAMPLES) == (said == OF_TWO_FILES)
    assert "second 0" in done.stdout, done.stderr
    assert f"{SAMPLES - int(str(committed))} answered, 0 failed, {committed} already done" in done.stdout
    assert_same(tmp_path / "whole.duckdb", undisturbed)


def test_a_merge_on_a_full_disk_leaves_no_half_file(undisturbed: Path, tmp_path: Path) -> None:
    """There is room for DuckDB's log, and none for the file."""
    disk = tmp_path / "disk"
    merge = f"{sys.executable} -m lbx.cli merge {undisturbed} -o {disk}/all.duckdb"
    script = f"""
        {merge}; echo first $?
        ls -A {disk}; echo listed
        mount -o remount,size=64m {disk}
        {merge}; echo second $?
        cp {disk}/all.duckdb {tmp_path}/all.duckdb
    """
    done = on_a_small_disk(disk, "1m", script)
    assert "first 1\nlisted" in done.stdout, done.stdout + done.stderr
    assert "second 0" in done.stdout, done.stderr
    assert_same(tmp_path / "all.duckdb", undisturbed)
