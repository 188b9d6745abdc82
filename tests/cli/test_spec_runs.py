"""``lbx run --spec``: a run as a file, repeated from a results file, changed on the command line, one shard of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lbx import RunSpec
from lbx.results import Store
from tests.command_line import Lbx, fails


@pytest.fixture
def spec(bundle: Path, answers: Path, tmp_path: Path) -> Path:
    path = tmp_path / "run.json"
    RunSpec(bundle=bundle, model=answers, tasks="needle/single_en,needle/multikey_en", limit=3).write(path)
    return path


def asked(results: Path) -> list[tuple[str, str, str]]:
    with Store(results, read_only=True) as store:
        rows = store.query("SELECT run_id, task, sample_id FROM generations ORDER BY ALL").rows
    return [(str(run), str(task), str(sample)) for run, task, sample in rows]


def test_a_spec_makes_the_run_that_options_make(
    lbx: Lbx, spec: Path, bundle: Path, answers: Path, tmp_path: Path
) -> None:
    by_spec, by_options, again, changed = (tmp_path / f"{n}.duckdb" for n in range(4))
    lbx.ok("run", "--spec", spec, "-o", by_spec)
    tasks = ("-t", "needle/single_en", "-t", "needle/multikey_en")
    assert lbx("run", "-b", bundle, "-m", answers, *tasks, "-n", 3, "--no-plan", "-o", by_options).returncode == 0
    assert len(asked(by_spec)) == 6
    assert asked(by_spec) == asked(by_options)
    assert lbx("run", "--spec", by_options, "-o", again, "--no-plan").returncode == 0
    assert asked(again) == asked(by_options), "a results file says how its run was made"
    assert lbx("run", "--spec", by_spec, "-o", changed, "--limit", 1, "--seed", 7).returncode == 0
    assert len(asked(changed)) == 2
    assert asked(changed)[0][0] != asked(by_spec)[0][0], "another seed is another run"


def test_metadata_is_no_part_of_a_run(lbx: Lbx, spec: Path, tmp_path: Path) -> None:
    plain, said = tmp_path / "plain.duckdb", tmp_path / "said.duckdb"
    for out, told in ((plain, ()), (said, ("--metadata", "PE=no", "--metadata", "Params=7B"))):
        assert lbx("run", "--spec", spec, "-o", out, "--no-plan", *told).returncode == 0
    assert asked(said) == asked(plain)
    run = asked(said)[0][0]
    again = lbx("run", "--spec", said, "-o", said, "--no-plan", "--metadata", "Params=8B")
    assert "0 answered" in again.stdout, "the run was found, whatever is said of it"
    assert lbx("runs", "note", said, run, "--json").stdout == '{"PE": "no", "Params": "8B"}\n'
    assert lbx("runs", "note", plain, run, "--json").stdout == "{}\n"
    fails(lbx("run", "--spec", spec, "-o", plain, "--metadata", "PE"), 2, "--metadata must be KEY=VALUE, not 'PE'")


def test_plan_takes_a_spec_and_counts_what_run_asks(lbx: Lbx, spec: Path) -> None:
    done = lbx("plan", "--spec", spec, "--json", "--no-measure-speed")
    assert json.loads(done.stdout)["total"]["samples"] == 6


def test_a_shard_by_spec_alone(lbx: Lbx, spec: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    lbx.ok(
        "submit", "kubernetes", "--spec", spec, "--shards", 2, "-o", folder, "--characters",
        "--image", "i", "--run-claim", "r", "--bundle-claim", "b",
    )  # fmt: skip
    inside = RunSpec.read(folder / "run.json")
    assert (inside.bundle, inside.name, inside.limit) == ("/lbx/bundle", "folder", 3)
    bundle = RunSpec.read(spec).bundle
    found = []
    for shard in (0, 1):
        results = tmp_path / f"{shard}.duckdb"
        lbx.ok("run", "--spec", folder / "run.json", "--bundle", bundle, "--shard", shard, "-o", results)
        found += asked(results)
    assert len(found) == len(set(found)) == 6


def test_what_is_missing_or_wrong_is_said(lbx: Lbx, spec: Path, tmp_path: Path) -> None:
    out = ("-o", tmp_path / "r.duckdb")
    fails(lbx("run", "-m", "x", *out), 2, "Missing option --bundle / -b")
    fails(lbx("run", "--spec", tmp_path / "none.json", *out), 2, "cannot be read", "No such file")
    fails(lbx("run", "--spec", tmp_path, *out), 2, "cannot be read")
    spec.write_text('{"lbx_run": 1, "bundle": "b", "model": "m", "tasks": ["t"], "limit": "many"}')
    fails(lbx("run", "--spec", spec, *out), 2, "--limit must be a whole number, not 'many'")
    assert not (tmp_path / "r.duckdb").exists()


def test_a_file_of_several_runs_asks_which(lbx: Lbx, spec: Path, tmp_path: Path) -> None:
    results, out = tmp_path / "two.duckdb", ("-o", tmp_path / "r.duckdb", "--no-plan")
    for name, seed in (("a", 1), ("b", 2)):
        assert lbx("run", "--spec", spec, "--name", name, "--seed", seed, "-o", results, "--no-plan").returncode == 0
    fails(lbx("run", "--spec", spec, "--run", "a", *out), 2, "--run a requires a results file", "--name")
    fails(lbx("run", "--spec", results, *out), 2, "contains several runs", "--run: a, b")
    fails(lbx("run", "--spec", results, "--run", "c", *out), 2, "No run 'c'", "Available runs: a, b.")
    assert lbx("run", "--spec", results, "--run", "b", *out).returncode == 0
    assert {run for run, _, _ in asked(tmp_path / "r.duckdb")} == {"b"}
