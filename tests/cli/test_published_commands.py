"""`lbx report` and published figures: without a results file, and with one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import Lbx


@pytest.mark.parametrize("command", [("reference", "--published", "Human"), ("--published", "Human")])
def test_published_figures_need_no_results_file(lbx: Lbx, command: tuple[str, ...]) -> None:
    done = lbx.ok("report", *command, "--format", "json")
    rows = {row["line"]: row for row in json.loads(done.stdout)}
    assert rows["overall: accuracy"]["figure"] == 53.7
    assert all(row["model"] == "Human" and row["source"] and row["doubt"] is None for row in rows.values())


def test_a_table_of_ones_own_needs_none_either(lbx: Lbx, tmp_path: Path) -> None:
    table = tmp_path / "published.csv"
    table.write_text("benchmark,model,overall,easy,hard,short,medium,long\nlongbench_v2,M,9,80,70,80,75,70\n", "utf-8")
    done = lbx.ok("report", "--reference", table, "--format", "markdown")
    assert "overall 9 is outside the range of its parts, 70 to 80" in done.stdout


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ((), "results file"),
        (("leaderboard",), "The report leaderboard needs a results file"),
        (("paper", "--published", "GPT"), "The report paper needs a results file"),
        (("reference", "--published", "nobody"), "No published model of any benchmark matches 'nobody'"),
        (("--expect", "GPT-4"), "No results file given"),
        (("r.duckdb", "paper", "--expect", "GPT-4"), "Only the report expected takes --expect"),
        (("r.duckdb", "expected"), "The report expected needs --expect MODEL"),
    ],
)
def test_everything_else_says_that_it_needs_one(lbx: Lbx, tmp_path: Path, command: tuple[str, ...], words: str) -> None:
    done = lbx("report", *command, cwd=tmp_path)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
