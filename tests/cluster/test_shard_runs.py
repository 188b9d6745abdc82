"""Shards without a cluster: run beside copies, killed and continued, merged, gaps by name."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.base.database import database_files
from lbx.cluster.folder import RunFolder, Submission
from lbx.results import Store
from lbx.running.forecast.shards import read_shards
from tests.cluster.same_rows import same_rows
from tests.command_line import Lbx, holding

Answers = Callable[[float], Path]


@pytest.fixture(scope="module")
def folder(lbx: Lbx, bundle: Path, answers: Answers, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run of two shards, planned; ``lbx submit kubernetes`` plans without a cluster."""
    made = RunFolder(tmp_path_factory.mktemp("run") / "whole")
    done = lbx.ok(
        "submit", "kubernetes", "--bundle", bundle, "--model", answers(0.0), "--tasks", "needle", "--limit", 4,
        "-o", made.root, "--shards", 2, "--image", "lbx:1", "--run-claim", "r", "--bundle-claim", "b",
    )  # fmt: skip
    assert "24 samples in 2 shards" in done.stderr
    assert made.submission() == Submission("kubernetes")
    return made


def test_shards_merge_to_what_one_run_is_and_gaps_are_named(
    lbx: Lbx, bundle: Path, answers: Answers, folder: RunFolder, tmp_path: Path
) -> None:
    what = ["run", "--bundle", bundle, "--model", answers(0.0), "--tasks", "needle", "--limit", 4, "--name", "whole"]
    shard = ["--shard-plan", folder.plan_file, "--scratch", tmp_path, "--no-plan"]
    assert lbx(*what, *shard, "--shard", 0, "-o", folder.shard(0)).returncode == 0
    half = lbx("merge", folder.root, "--json")
    assert half.returncode == 3, half.stderr
    told = json.loads(half.stdout)
    places = read_shards(folder.plan_file).shards[1].samples
    names = [f"{task}/{name}" for task, found in places.items() for name, _ in found.values()]
    assert told["gaps"] == [{"shard": 1, "run_id": "whole", "missing": names}]
    assert told["missing"] == len(names) == 12
    looked = lbx("status", folder.root, "--json")
    assert [(one["state"], one["answered"]) for one in json.loads(looked.stdout)] == [("done", 12), ("missing", 0)]

    assert lbx.process(*what, *shard, "--shard", 1, "-o", folder.shard(1)).returncode == 0
    refused = lbx("merge", folder.root)
    assert refused.returncode == 2 and "--update" in refused.stderr
    assert lbx("merge", folder.root, "--update").returncode == 0
    assert lbx(*what, "-o", tmp_path / "one.duckdb", "--no-plan").returncode == 0
    assert same_rows(folder.results, tmp_path / "one.duckdb")["generations"] == 24
    left = [path.name for path in tmp_path.iterdir()]
    assert sorted(left) == ["one.duckdb", "one.duckdb.log"], "scratch folders are tidied away"


def start(bundle: Path, model: Path, folder: RunFolder, target: Path, scratch: Path) -> subprocess.Popen[str]:
    command = [
        sys.executable, "-m", "lbx.cli", "run", "--bundle", bundle, "--model", model, "--tasks", "needle", "--limit", 4,
        "--name", "whole", "--shard-plan", folder.plan_file, "--shard", 0, "-o", target, "--scratch", scratch,
        "--no-plan",
    ]  # fmt: skip
    return subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_for(file: Path) -> None:
    end = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < end
        time.sleep(0.05)


def count(lbx: Lbx, file: Path) -> int:
    counted = lbx("sql", file, "SELECT count(*) AS n FROM generations", "--format", "json")
    return int(json.loads(counted.stdout)[0]["n"])


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143)])
def test_however_a_run_ends_its_file_is_copied_whole(
    lbx: Lbx, bundle: Path, answers: Answers, folder: RunFolder, tmp_path: Path, sent: int, code: int
) -> None:
    target = tmp_path / "shared" / "0000.duckdb"
    scratch = tmp_path / "disk"
    for place in (target.parent, scratch):
        place.mkdir()
    process = start(bundle, answers(1.0), folder, target, scratch)
    wait_for(target)  # a first copy, made while the run goes on
    again = ("run", "--bundle", bundle, "--model", answers(1.0), "--tasks", "needle", "-o", target)
    second = lbx(*again, "--scratch", scratch)
    assert second.returncode == 1 and "is in use by" in second.stderr, second.stderr
    assert process.poll() is None
    while count(lbx, target) == 0:
        assert process.poll() is None
    process.send_signal(sent)
    said = process.communicate()[1]
    assert process.returncode == code, said
    assert "Traceback" not in said
    assert sorted(path.name for path in target.parent.iterdir() if path.suffix == ".duckdb") == ["0000.duckdb"]
    assert count(lbx, target) > 0, "what was answered is saved first"
    assert bool(list(scratch.iterdir())) is (sent == signal.SIGKILL)
    shard = ("--limit", 4, "--name", "whole", "--shard-plan", folder.plan_file, "--shard", 0, "--no-plan", "--json")
    whole = lbx.ok(*again, *shard, "--scratch", scratch)
    assert ("this run continues it" in " ".join(whole.stderr.split())) is (sent == signal.SIGKILL)
    told = json.loads(whole.stdout)
    assert told["answered"] + told["done_before"] == count(lbx, target) == 12 and told["done_before"] > 0
    assert not list(scratch.iterdir())


def test_a_shard_of_another_run_is_refused(
    lbx: Lbx, bundle: Path, answers: Answers, folder: RunFolder, tmp_path: Path
) -> None:
    what = ["run", "--bundle", bundle, "--model", answers(0.0), "-o", tmp_path / "x.duckdb"]
    for more, says in (
        (["--tasks", "needle/single_en", "--shard-plan", folder.plan_file, "--shard", 0], "other tasks"),
        (["--tasks", "needle", "--shard-plan", folder.plan_file, "--shard", 2], "has 2 shards, numbered from 0"),
        (["--tasks", "needle", "--shard", 1], "Pass --shard-plan and --shard together"),
    ):
        done = lbx(*what, *more)
        assert done.returncode == 2 and says in " ".join(done.stderr.split()), done.stderr
    assert not list(tmp_path.iterdir())


def test_a_shard_that_was_killed_is_counted_with_its_log(
    lbx: Lbx, bundle: Path, answers: Answers, folder: RunFolder, tmp_path: Path
) -> None:
    """Run by hand without a scratch folder, as on one machine."""
    what = ["run", "--bundle", bundle, "--model", answers(0.0), "--tasks", "needle", "--limit", 4, "--name", "whole"]
    target = tmp_path / "0.duckdb"
    assert lbx(*what, "--shard-plan", folder.plan_file, "--shard", 0, "-o", target, "--no-plan").returncode == 0
    with Store(target) as store:
        store.query("DELETE FROM generations WHERE sample_id = (SELECT min(sample_id) FROM generations)")
        kept = {path: path.read_bytes() for path in database_files(target)}
    assert len(kept) == 2
    other = RunFolder(tmp_path / "other")
    other.create()
    other.plan_file.write_bytes(folder.plan_file.read_bytes())
    for path, content in kept.items():
        (other.shards / path.name.replace("0.duckdb", "0000.duckdb")).write_bytes(content)
    told = json.loads(lbx("status", other.root, "--json").stdout)
    assert [(one["state"], one["answered"] < 12) for one in told] == [("begun", True), ("missing", True)]


def test_a_shard_that_writes_its_file_in_place_is_counted(
    lbx: Lbx, bundle: Path, answers: Answers, folder: RunFolder
) -> None:
    what = ["run", "--bundle", bundle, "--model", answers(0.0), "--tasks", "needle", "--limit", 4, "--name", "whole"]
    shard = ["--shard-plan", folder.plan_file, "--shard", 0, "--no-plan", "-o", folder.shard(0)]
    assert lbx(*what, *shard).returncode == 0
    with holding(folder.shard(0)):
        looked, *_ = json.loads(lbx.process("status", folder.root, "--json").stdout)
    assert (looked["state"], looked["answered"]) == ("done", 12)
    assert [path.name for path in folder.shards.iterdir() if "partial" in path.name] == []
