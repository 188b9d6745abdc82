"""--context-window: the same run as with a card's window, on every command that loads a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import Lbx, fails

TASK = "needle/single_en"
WINDOW = 160
DEMO = Path(__file__).parents[2] / "models" / "demo" / "hf"


@pytest.fixture
def card(answers: Path, tmp_path: Path) -> Path:
    path = tmp_path / "oracle.toml"
    path.write_text(f'backend = "scripted"\n[weights]\npath = "{answers}"\n')
    return path


def run(lbx: Lbx, bundle: Path, model: Path, out: Path, *options: object) -> dict[str, Any]:
    done = lbx("run", "-b", bundle, "-m", model, "-t", TASK, "-n", 1, "-o", out, "--no-plan", "--json", *options)
    assert done.returncode in (0, 3), done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_a_window_makes_another_run(lbx: Lbx, bundle: Path, card: Path, tmp_path: Path) -> None:
    """Option and card are one definition: equal windows are one run, others are two, with labels that differ."""
    out = tmp_path / "results.duckdb"
    whole = run(lbx, bundle, card, out)
    cut = run(lbx, bundle, card, out, "--context-window", WINDOW)
    assert cut["run_id"] != whole["run_id"]
    card.write_text(f"context_window = {WINDOW}\n{card.read_text()}")
    again = run(lbx, bundle, card, out)
    assert (again["run_id"], again["answered"], again["done_before"]) == (cut["run_id"], 0, 1)
    assert run(lbx, bundle, card, out, "--context-window", 1_000_000)["run_id"] == whole["run_id"]
    rows = lbx.rows(out, "SELECT run_id, settings->>'context_window' AS size FROM runs ORDER BY length(size) DESC")
    assert rows == [{"run_id": whole["run_id"], "size": "1000000"}, {"run_id": cut["run_id"], "size": str(WINDOW)}]
    board = lbx("report", out, "leaderboard", "--format", "csv").stdout
    assert f"context_window {WINDOW}" in board and "context_window 1000000" in board
    fails(lbx("run", "-b", bundle, "-m", card, "-t", TASK, "-o", out, "--no-plan", "--name", cut["run_id"],
              "--context-window", 99), 1, "context_window was 160 and is now 99")  # fmt: skip


def test_the_spec_of_a_run_has_its_window(lbx: Lbx, bundle: Path, card: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.duckdb"
    first = run(lbx, bundle, card, out, "--context-window", WINDOW)
    done = lbx("run", "--spec", out, "-n", 2, "-o", out, "--no-plan", "--json")
    assert json.loads(done.stdout)["run_id"] == first["run_id"], done.stderr


def test_every_command_with_a_model(lbx: Lbx, bundle: Path, card: Path, tmp_path: Path) -> None:
    asked = ["-b", bundle, "-t", TASK, "--ids", "len0128-depth000-00"]
    small = ["--context-window", WINDOW]
    prompts = [lbx("prompts", "-m", card, *asked, *more).stdout for more in ([], small)]
    assert "cannot be sent" not in prompts[0] and "the context window is 160 tokens" in prompts[1]
    plans = [json.loads(lbx("plan", "-m", card, *asked, *more, "--json").stdout) for more in ([], small)]
    assert plans[1]["total"]["prompt_tokens"] < plans[0]["total"]["prompt_tokens"]
    spec = json.loads(lbx("submit", "slurm", "--dry-run", "-m", card, "--shards", 1, "-o", tmp_path / "shards",
                          *asked, *small, "--json").stdout)["spec"]  # fmt: skip
    assert spec["context_window"] == WINDOW
    shown = lbx("parity", card, card, *asked, *small)
    assert f"window {WINDOW})" in shown.stdout, shown.stderr


@pytest.mark.parametrize(
    ("window", "words"),
    [
        (0, "greater than or equal to 1"),
        (1 << 40, "--context-window must be at most 268,435,456, not 1,099,511,627,776."),
    ],
)
def test_impossible_windows(lbx: Lbx, bundle: Path, card: Path, tmp_path: Path, window: int, words: str) -> None:
    done = lbx("run", "-b", bundle, "-m", card, "-t", TASK, "-o", tmp_path / "r", "--context-window", window)
    fails(done, 2, words)


@pytest.mark.parametrize("kind", ["llamacpp", "hf"])
def test_a_window_above_the_models(
    kind: str, lbx: Lbx, bundle: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Refused in the words for a card; a card that allows more allows the option more."""
    weights = request.getfixturevalue("demo_gguf") if kind == "llamacpp" else DEMO
    out = tmp_path / "results.duckdb"
    asked = ["run", "-b", bundle, "-t", TASK, "-n", 1, "-o", out, "--no-plan", "--max-new-tokens", 2, "--json"]
    done = lbx(*asked, "-m", weights, "--context-window", 5000)
    fails(done, 1, "declare a context of 4096 tokens; a context window of 5000 exceeds it", "--context-window",
          "extend_context")  # fmt: skip
    stretched = tmp_path / "stretched.toml"
    stretched.write_text(f'backend = "{kind}"\n[weights]\npath = "{weights}"\n[options]\nextend_context = true\n')
    done = lbx(*asked, "-m", stretched, "--context-window", 4352)
    assert done.returncode in (0, 3), done.stderr
    assert lbx.rows(out, "SELECT settings->>'context_window' AS size FROM runs") == [{"size": "4352"}]
