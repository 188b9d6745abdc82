"""``lbx parity`` and ``lbx run --verify-batching`` as processes, on the demo's model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Lbx, fails


@pytest.fixture(scope="module")
def demo(demo_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A card of the demo's model on llama.cpp."""
    path = tmp_path_factory.mktemp("demo") / "demo.toml"
    path.write_text(f'name = "demo"\nbackend = "llamacpp"\n[weights]\npath = "{demo_gguf}"\n')
    return path


def test_a_model_is_like_itself(lbx: Lbx, demo: Path, bundle: Path) -> None:
    parity = ("parity", demo, demo, "-b", bundle, "-t", "needle/single_en", "-n", 2)
    done = lbx(*parity, "--fail-above", 0)
    assert done.returncode == 0, done.stderr
    assert "The same within 0." in done.stderr
    for heading in ("same ids", "KL, mean", "answered by both", "recall"):
        assert heading in done.stdout
    told = json.loads(lbx(*parity, "--json", "--positions", 2).stdout)
    assert (told["same_vocabulary"], told["all"]["prompts"], told["all"]["same_outputs"]) == (True, 2, 2)
    assert told["tasks"][0]["difference"] == 0
    assert told["prompts"][0]["logits"]["positions"] <= 3
    assert told["first"]["settings"] == told["second"]["settings"]


def test_the_card_ends_answers(lbx: Lbx, demo: Path, demo_gguf: Path, bundle: Path) -> None:
    def outputs(card: Path) -> list[str]:
        told = json.loads(lbx("parity", card, demo, "-b", bundle, "-t", "needle/single_en", "-n", 2, "--json").stdout)
        return [prompt["outputs"][0] for prompt in told["prompts"]]

    whole = outputs(demo)
    stop = whole[0][len(whole[0]) // 2 :]
    stopped = demo.with_name("stopped.toml")
    stopped.write_text(f'name = "demo"\nbackend = "llamacpp"\nstop = ["{stop}"]\n[weights]\npath = "{demo_gguf}"\n')
    assert stop and outputs(stopped)[0] == whole[0].removesuffix(stop) != whole[0]


def test_what_is_not_the_same_fails_where_that_is_asked(lbx: Lbx, demo: Path, bundle: Path, answers: Path) -> None:
    other = demo.with_name("answers.toml")
    other.write_text(f'name = "oracle"\nbackend = "scripted"\n[weights]\npath = "{answers}"\n')
    parity = ("parity", other, demo, "-b", bundle, "-t", "needle/single_en", "-n", 1)
    done = lbx(*parity)
    assert done.returncode == 0, done.stderr
    assert "the backend scripted of oracle shows none" in " ".join(done.stderr.split())
    fails(lbx(*parity, "--fail-above", 1), 1, "Not the same within 1: 1 of 1 prompts have not the same token ids")


def test_what_parity_refuses(lbx: Lbx, demo: Path, bundle: Path) -> None:
    fails(lbx("parity", demo, demo, "-b", bundle), 2, "--bundle and --tasks go together")
    fails(lbx("parity", demo, "none.gguf"), 2, "none.gguf")
    fails(lbx("parity", demo, demo, "-b", bundle, "-t", "needle/none"), 2, 'There is no task "needle/none"')


def test_a_run_verifies_its_batching(lbx: Lbx, demo: Path, bundle: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.duckdb"
    run = ("run", "-b", bundle, "-m", demo, "-t", "needle/single_en", "-o", out, "--run", "r")
    done = lbx(*run, "--verify-batching", 3)
    assert done.returncode == 0, done.stderr
    assert "r: 3 answers asked again alone: all the same" in done.stderr
    told = json.loads(lbx(*run, "--verify-batching", 5, "--json").stdout)  # all is answered already
    assert (told["found"], told["answered"], told["verification"]["checked"]) == (8, 0, 5)
    (row,) = json.loads(lbx("report", out, "verification", "--format", "json").stdout)
    assert (row["checked"], row["flips"], row["flip_rate"]) == (5, 0, 0)


def test_what_was_not_batched_is_not_verified(
    lbx: Lbx, demo: Path, bundle: Path, answers: Path, tmp_path: Path
) -> None:
    run = ("run", "-b", bundle, "-t", "needle/single_en", "-o", tmp_path / "r.duckdb", "--verify-batching", 3)
    fails(lbx(*run, "-m", demo, "--no-batching"), 2, "--no-batching exclude each other")
    fails(lbx(*run, "-m", answers, "--backend", "scripted"), 2, "does not apply to the backend scripted")
