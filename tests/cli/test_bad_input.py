"""Bad input: one paragraph that says cause and fix, the right exit code, no traceback, nothing half-written."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from lbx.results import Store
from tests.command_line import Lbx, fails

DEMO = Path(__file__).parents[2] / "models" / "demo" / "hf"


def test_unknown_task_names_the_nearest(lbx: Lbx, bundle: Path, answers: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.duckdb"
    for name, near in (("needle/singel_en", "needle/single_en"), ("nedle", "needle")):
        fails(lbx("run", "-b", bundle, "-m", answers, "-t", name, "-o", out), 2, name, near)
    fails(lbx("run", "-b", bundle, "-m", answers, "-t", "longbench/qasper", "-o", out), 2, "bundle/longbench.toml")


def test_recipe_with_a_typo(lbx: Lbx, tmp_path: Path) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text('name = "r"\n[[source]]\nkind = "path"\npaht = "x"\nto = "y"\n')
    fails(lbx("bundle", recipe, "-o", tmp_path / "out"), 2, "paht", "path")
    recipe.write_text("name = \n")
    fails(lbx("bundle", recipe, "-o", tmp_path / "out"), 2, "r.toml")
    fails(lbx("bundle", tmp_path / "none.toml", "-o", tmp_path / "out"), 2, "none.toml")
    assert not list(tmp_path.glob("**/*.tar"))


def test_a_forgotten_first_argument(lbx: Lbx) -> None:
    """The given one is taken for it, so that the last one is missed."""
    fails(lbx("export", "r.duckdb"), 2, "Missing argument 'RESULTS'. The order is: lbx export FORMAT RESULTS.")
    assert "order" not in lbx("check").stderr


def test_a_choice_that_is_none(lbx: Lbx) -> None:
    done = lbx("report", "r.duckdb", "--format", "foo")
    fails(done, 2, "'foo' is not one of 'table'")
    assert "Value error" not in done.stderr, "pydantic's words"


def test_no_model(lbx: Lbx, bundle: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.duckdb"
    fails(
        lbx("run", "-b", bundle, "-m", "nope.gguf", "-t", "needle", "-o", out),
        2,
        "The file nope.gguf does not exist",
        "lbx models",
    )
    assert not out.exists()


def test_a_gguf_that_is_none(lbx: Lbx, bundle: Path, tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    model, out = tmp_path / "model.gguf", tmp_path / "results.duckdb"
    model.write_bytes(b"not a model" * 100)
    fails(lbx("run", "-b", bundle, "-m", model, "-t", "needle", "-o", out), 1, "model.gguf", "GGUF")
    assert not out.exists()


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize("kind", ["gguf", "folder"])
def test_a_model_larger_than_memory(lbx: Lbx, bundle: Path, tmp_path: Path, kind: str, command: str) -> None:
    pytest.importorskip("llama_cpp" if kind == "gguf" else "transformers")
    model, out = tmp_path / ("large.gguf" if kind == "gguf" else "large"), tmp_path / "results.duckdb"
    if kind == "folder":
        shutil.copytree(DEMO, model)
        header = json.dumps({"x": {"dtype": "F32", "shape": [1 << 39, 4], "data_offsets": [0, 1 << 43]}}).encode()
        with (model / "model.safetensors").open("wb") as file:  # what lies beside it is no part of the model
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(8 + len(header) + (1 << 43))
    else:
        with model.open("wb") as file:
            file.write(b"GGUF")
            file.truncate(1 << 43)
    asked = (command, "-b", bundle, "-m", model, "-t", "needle", "--history" if command == "plan" else "-o", out)
    fails(lbx(*asked), 1, "The weights of large take", "with more memory")
    assert not out.exists()


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_folder_of_two_models(lbx: Lbx, bundle: Path, tmp_path: Path, command: str) -> None:
    pytest.importorskip("transformers")
    model, out = tmp_path / "model", tmp_path / "results.duckdb"
    shutil.copytree(DEMO, model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"hidden_size": 256}))
    asked = (command, "-b", bundle, "-m", model, "-t", "needle", "--history" if command == "plan" else "-o", out)
    fails(lbx(*asked), 1, "do not match the model in its config.json", "another shape")
    assert not out.exists()


def test_results_files_that_are_none(lbx: Lbx, tmp_path: Path) -> None:
    fails(lbx("report", tmp_path / "none.duckdb"), 1, "does not exist")
    empty = tmp_path / "empty.duckdb"
    empty.touch()
    for command in ("score", "report", "rate", "show", "runs"):
        fails(lbx(command, empty), 1, "is an empty file")
    assert empty.stat().st_size == 0
    cut = tmp_path / "cut.duckdb"
    Store(cut).close()
    os.truncate(cut, cut.stat().st_size // 2)
    for command in ("score", "report", "show", "runs"):
        fails(lbx(command, cut), 1, "is truncated", "Copy the complete file again")


def test_other_settings_under_a_runs_name(lbx: Lbx, bundle: Path, answers: Path, tmp_path: Path) -> None:
    path = tmp_path / "results.duckdb"
    run = ("run", "-b", bundle, "-m", answers, "-t", "needle/single_en", "-o", path, "--name", "mine")
    assert lbx(*run).returncode == 0
    fails(lbx(*run, "--seed", 3), 1, "seed was 0 and is now 3", "--name NAME")
    fails(lbx(*run, "--no-chat"), 1, "chat was True and is now False")


def test_debug_shows_the_traceback(lbx: Lbx, tmp_path: Path) -> None:
    assert "Traceback" in lbx.process("report", tmp_path / "none.duckdb", "--debug").stderr
