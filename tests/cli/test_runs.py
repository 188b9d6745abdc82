"""``lbx runs``: the runs of a results file are listed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from command_line import Lbx, fails

sys.path.insert(0, str(Path(__file__).parents[1] / "web"))

from browsed_file import browsed_file


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Runs "one" and "two", their judge "umpire", and people's ratings of both."""
    return browsed_file(tmp_path / "r.duckdb")


def test_runs_are_listed_with_what_they_hold(lbx: Lbx, results: Path) -> None:
    for words in (("runs", results), ("runs", "list", results)):
        shown = lbx.ok(*words).stdout
        rows = [" ".join(line.split()[:5]) for line in shown.splitlines()]
        assert {"one model done 12 1", "two model done 12 1", "umpire judge done 1 416"} <= {*rows}
        assert f"3 runs in {results} (" in shown
    listed = json.loads(lbx.ok("runs", results, "--json").stdout)
    assert json.loads(lbx.ok("runs", "--json", results).stdout) == listed
    assert listed["file_bytes"] == results.stat().st_size
    one, two, umpire = listed["runs"]
    assert (one["run_id"], one["answers"], one["failures"], one["state"], one["kind"]) == (
        "one",
        12,
        1,
        "done",
        "model",
    )
    assert 1_000_000 < one["size_bytes"] < 1_100_000  # a million letters of reasoning
    assert umpire["kind"] == "judge" and one["started_at"] < two["started_at"] and one["facts"] == {}


def test_a_word_that_is_no_subcommand_is_a_file(lbx: Lbx, results: Path) -> None:
    fails(lbx("runs", "nix"), 1, "The results file nix does not exist")
    fails(lbx("runs", "lits", results), 2, "No such command 'lits'. Did you mean 'list'?")
    results.rename(results.with_name("lits"))
    assert "3 runs" in lbx.ok("runs", "lits", cwd=results.parent).stdout
    assert lbx("runs").stderr + lbx("runs").stdout and lbx("runs").returncode == 2
