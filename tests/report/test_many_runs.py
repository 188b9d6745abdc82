"""Many runs: places are the same as where every pair is tested, and the summary proposes reports that are made."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lbx.report.rows import leaderboard
from lbx.results import Store
from tests.command_line import Lbx
from tests.report.made_runs import add_run, trec


def made_rows(count: int) -> list[dict[str, Any]]:
    random = np.random.default_rng(7)
    rows: list[dict[str, Any]] = []
    for number, score in enumerate(random.choice([0.0, 0.2, 0.21, 0.25, 0.6, 1.0], count).tolist()):
        se = float(random.choice([0.0, 0.004, 0.02]))
        rows.append(
            {"score": score, "se": se, "low": max(score - 3 * se, 0), "high": min(score + 3 * se, 1),
             "df": float(random.choice([3, 40, 1e6])), "method": "logit" if number % 3 == 0 else "t", "asked": 100,
             "answered": 100, "failed_as_0": score, "failed_as_1": score,
             "score_of": "mean of tasks", "least_part": None}
        )  # fmt: skip
    return rows


@pytest.mark.parametrize("count", [2, 3, 10, 60, 150])
def test_places_are_those_of_all_pairs(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    rows = made_rows(count)
    found = leaderboard.rank_ranges(rows)
    monkeypatch.setattr(leaderboard, "_may_differ", lambda rows: np.ones((len(rows), len(rows)), bool))
    assert found == leaderboard.rank_ranges(rows)
    assert len(set(found)) > 3 or count < 10


@pytest.mark.parametrize("runs", [2, 19])
def test_the_summary_proposes_a_comparison_that_is_made(tmp_path: Path, runs: int) -> None:
    out = tmp_path / "r.duckdb"
    with Store(out) as store:
        for run in range(runs):
            add_run(store, f"run {run}", trec(run, 20), model=f"model {run}")
    said = " ".join(Lbx()("report", out).stdout.split())
    command = shlex.split(said.partition("Side by side: ")[2].partition(" A page: ")[0])
    assert command[:2] == ["lbx", "report"] and ("--baseline" in command) == (runs > 6)
    done = Lbx()(*command[1:])
    assert done.returncode == 0, done.stderr
    assert "model" in done.stdout


def test_the_summary_proposes_no_comparison_of_runs_that_were_asked_otherwise(tmp_path: Path) -> None:
    out = tmp_path / "r.duckdb"
    with Store(out) as store:
        add_run(store, "plain", trec(5, 20))
        add_run(store, "thinks", trec(9, 20), settings={"thinking": True})
    assert "Side by side" not in Lbx()("report", out).stdout
    assert Lbx()("report", out, "comparison").returncode == 2
