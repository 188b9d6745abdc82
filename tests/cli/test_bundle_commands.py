"""``lbx bundle`` as a person uses it: what it says before it fetches, what it hands over, and what goes back."""

from __future__ import annotations

import json
from pathlib import Path

from lbx_process import Lbx, fails

RECIPE = """
name = "mine"

[[source]]
kind = "path"
path = "a.txt"
to = "a.txt"
licence = "CC0-1.0"
"""
WANTED = """
name = "more"

[[source]]
kind = "hub"
repo = "org/data"
type = "dataset"
"""


def write(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("ours")
    (tmp_path / "mine.toml").write_text(RECIPE)
    return tmp_path / "mine.toml"


def test_a_dry_run_lists_licences_and_writes_nothing(lbx: Lbx, tmp_path: Path) -> None:
    recipe = write(tmp_path)
    done = lbx("bundle", recipe, "-o", tmp_path / "out", "--dry-run")
    assert done.returncode == 0, done.stderr
    head, row, total = done.stdout.splitlines()
    assert head.split() == ["source", "revision", "licence", "gated", "files", "bytes", "held"]
    assert row.split() == ["a.txt", "CC0-1.0", "no", "1", "4"]
    assert total.startswith("mine: 1 files, 4 bytes; 0 to be fetched")
    told = json.loads(lbx("bundle", recipe, "-o", tmp_path / "out", "--dry-run", "--json").stdout)
    assert told["lines"][0]["licence"] == "CC0-1.0"
    assert not list((tmp_path / "out").iterdir())


def test_the_list_stands_before_the_work_and_the_answer_alone_on_standard_output(lbx: Lbx, tmp_path: Path) -> None:
    done = lbx("bundle", write(tmp_path), "-o", tmp_path / "out", "--volume-size", "64Ki", "--json")
    assert json.loads(done.stdout)["volumes"] == [str(tmp_path / "out/mine.tar")]
    assert "CC0-1.0" in done.stderr
    fails(lbx("bundle", write(tmp_path), "--volume-size", "1"), 2, "--volume-size 1 is out of range")
    fails(lbx("bundle", write(tmp_path), "--sign", tmp_path / "none"), 2, "There is no key", "ssh-keygen -t ed25519")


def test_a_request_is_made_without_a_network(lbx: Lbx, tmp_path: Path) -> None:
    assert lbx("bundle", write(tmp_path), "-o", tmp_path).returncode == 0
    assert lbx("unpack", tmp_path / "mine.tar", "--allow-unsigned", "--to", tmp_path / "held").returncode == 0
    (tmp_path / "more.toml").write_text(WANTED)
    ask = ["bundle", tmp_path / "more.toml", tmp_path / "mine.toml", "--have", tmp_path / "held"]
    done = lbx(*ask, "--request", tmp_path / "wanted.json", "--json")
    assert done.returncode == 0, done.stderr
    assert [line["state"] for line in json.loads(done.stdout)["asked"]] == ["missing", "held"]
    fails(lbx(*ask, "--request", tmp_path / "wanted.json", "--hub", "http://127.0.0.1:9"), 2, "--hub does not go with")
    fails(lbx(*ask), 2, "--have goes with --request", "--base")
    # Outside, nothing of the machine that answers can be asked for, and a hub that is not there is named.
    fails(lbx("bundle", tmp_path / "wanted.json", "--base", tmp_path / "held"), 2, "says what is held already")


def test_a_run_says_which_unsafe_files_its_bundle_holds(lbx: Lbx, bundle: Path, answers: Path, tmp_path: Path) -> None:
    results = tmp_path / "results.duckdb"
    done = lbx("run", "-b", bundle, "-m", answers, "-t", "needle/single_en", "--limit", 1, "-o", results)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(lbx("sql", results, "SELECT settings FROM runs", "--format", "json").stdout)
    settings = row["settings"] if isinstance(row["settings"], dict) else json.loads(row["settings"])
    assert settings["bundle.allowed"] == ["data/files/needle/notes.py"]
