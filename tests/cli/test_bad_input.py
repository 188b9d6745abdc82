"""Bad input: one paragraph that says cause and fix, the right exit code, no traceback, nothing half-written."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import duckdb
import pytest
from command_line import Lbx, fails
from gguf_copy import gguf_copy

from lbx.store import Store

DEMO = Path(__file__).parents[2] / "models" / "demo" / "hf"


def test_unknown_task_names_the_nearest(lbx: Lbx, bundle: Path, answers: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.duckdb"
    for name, near in (("needle/singel_en", "needle/single_en"), ("nedle", "needle")):
        fails(lbx("run", "-b", bundle, "-m", answers, "-t", name, "-o", out), 2, name, near)
    fails(lbx("run", "-b", bundle, "-m", answers, "-t", "longbench/qasper", "-o", out), 2, "bundle/longbench.toml")


def test_wrong_bundle_folder(lbx: Lbx, answers: Path, tmp_path: Path) -> None:
    fails(lbx("tasks", "--bundle", tmp_path / "none"), 1, "no bundle folder", "lbx unpack")
    fails(lbx("tasks", "--bundle", tmp_path), 1, "not an unpacked bundle")


def test_missing_empty_and_damaged_archives(lbx: Lbx, archive: Path, tmp_path: Path) -> None:
    whole = archive.read_bytes()
    bad = tmp_path / "bad.tar"
    fails(lbx("verify", tmp_path / "none.tar"), 1, "none.tar")
    bad.write_bytes(b"")
    fails(lbx("unpack", bad, "--allow-unsigned", "--to", tmp_path / "out"), 1, "bad.tar")
    bad.write_bytes(whole[: len(whole) // 2])
    fails(lbx("unpack", bad, "--allow-unsigned", "--to", tmp_path / "out"), 1, "bad.tar")
    changed = bytearray(whole)
    changed[whole.index(b"samples_per_cell")] ^= 1
    bad.write_bytes(changed)
    fails(lbx("unpack", bad, "--allow-unsigned", "--to", tmp_path / "out"), 1, "needle.toml")
    assert [p.name for p in tmp_path.iterdir()] == ["bad.tar"], "nothing half-written"


def test_recipe_with_a_typo(lbx: Lbx, tmp_path: Path) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text('name = "r"\n[[source]]\nkind = "path"\npaht = "x"\nto = "y"\n')
    fails(lbx("bundle", recipe, "-o", tmp_path / "out"), 2, "paht", "path")
    recipe.write_text("name = \n")
    fails(lbx("bundle", recipe, "-o", tmp_path / "out"), 2, "r.toml")
    fails(lbx("bundle", tmp_path / "none.toml", "-o", tmp_path / "out"), 2, "none.toml")
    assert not list(tmp_path.glob("**/*.tar"))


def test_a_choice_that_is_none(lbx: Lbx) -> None:
    done = lbx("report", "r.duckdb", "--format", "foo")
    fails(done, 2, "'foo' is not one of 'table'")
    assert "Value error" not in done.stderr, "pydantic's words"


def test_no_model(lbx: Lbx, bundle: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.duckdb"
    fails(lbx("run", "-b", bundle, "-m", "nope.gguf", "-t", "needle", "-o", out), 2, "no file nope.gguf", "lbx models")
    assert not out.exists()


def test_a_gguf_that_is_none(lbx: Lbx, bundle: Path, tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    model, out = tmp_path / "model.gguf", tmp_path / "results.duckdb"
    model.write_bytes(b"not a model" * 100)
    fails(lbx("run", "-b", bundle, "-m", model, "-t", "needle", "-o", out), 1, "model.gguf", "GGUF")
    assert not out.exists()


def test_a_folder_without_tokenizer(lbx: Lbx, bundle: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    out, model = tmp_path / "results.duckdb", tmp_path / "model"
    shutil.copytree(DEMO, model, ignore=shutil.ignore_patterns("tokenizer*"))
    fails(lbx("run", "-b", bundle, "-m", model, "-t", "needle", "-o", out), 1, "tokenizer")
    assert not out.exists()


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_gguf_that_llama_cpp_does_not_know(
    lbx: Lbx, bundle: Path, demo_gguf: Path, tmp_path: Path, command: str
) -> None:
    model, out = gguf_copy(demo_gguf, tmp_path / "new.gguf", architecture="nosuch5"), tmp_path / "results.duckdb"
    asked = (command, "-b", bundle, "-m", model, "-t", "needle", "-o", out)
    fails(lbx(*asked), 1, "new.gguf", "does not know the architecture nosuch5")
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
    asked = (command, "-b", bundle, "-m", model, "-t", "needle", "-o", out)
    fails(lbx(*asked), 1, "The weights of large take", "with more memory")
    assert not out.exists()


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_folder_of_two_models(lbx: Lbx, bundle: Path, tmp_path: Path, command: str) -> None:
    pytest.importorskip("transformers")
    model, out = tmp_path / "model", tmp_path / "results.duckdb"
    shutil.copytree(DEMO, model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"hidden_size": 256}))
    asked = (command, "-b", bundle, "-m", model, "-t", "needle", "-o", out)
    fails(lbx(*asked), 1, "not those of the model in its config.json", "another shape")
    assert not out.exists()


def test_results_files_that_are_none(lbx: Lbx, bundle: Path, answers: Path, tmp_path: Path) -> None:
    run = ("run", "-b", bundle, "-m", answers, "-t", "needle", "-o")
    fails(lbx("report", tmp_path / "none.duckdb"), 1, "no results file")
    empty = tmp_path / "empty.duckdb"
    empty.touch()
    for command in ("score", "report", "rate", "show", "metadata"):
        fails(lbx(command, empty), 1, "is an empty file")
    assert empty.stat().st_size == 0
    cut = tmp_path / "cut.duckdb"
    Store(cut).close()
    os.truncate(cut, cut.stat().st_size // 2)
    for command in ("score", "report", "show", "metadata"):
        fails(lbx(command, cut), 1, "is cut off", "Copy it again")
    other = tmp_path / "other.duckdb"
    with duckdb.connect(str(other)) as connection:
        connection.execute("CREATE TABLE mine (x INTEGER)")
    fails(lbx(*run, other), 1, "not a results file of lbx")
    newer = tmp_path / "newer.duckdb"
    assert lbx(*run, newer, "--limit", 1).returncode == 0
    with duckdb.connect(str(newer)) as connection:
        connection.execute("INSERT INTO lbx_schema VALUES (99, NULL)")
    fails(lbx(*run, newer), 1, "another version of lbx")
    fails(lbx("report", newer), 1, "another version of lbx")
    fails(lbx(*run, tmp_path), 1, "is a folder")
    fails(lbx(*run, tmp_path / "no" / "r.duckdb"), 1, "does not exist")


def test_results_file_open_elsewhere(lbx: Lbx, bundle: Path, answers: Path, tmp_path: Path) -> None:
    path = tmp_path / "results.duckdb"
    with duckdb.connect(str(path)):
        fails(
            lbx.process("run", "-b", bundle, "-m", answers, "-t", "needle", "-o", path), 1, "in use by another process"
        )


def test_other_settings_under_a_runs_name(lbx: Lbx, bundle: Path, answers: Path, tmp_path: Path) -> None:
    path = tmp_path / "results.duckdb"
    run = ("run", "-b", bundle, "-m", answers, "-t", "needle/single_en", "-o", path, "--name", "mine")
    assert lbx(*run).returncode == 0
    fails(lbx(*run, "--seed", 3), 1, "seed was 0 and is now 3", "--name NAME")
    fails(lbx(*run, "--no-chat"), 1, "chat was True and is now False")


def test_wrong_words(lbx: Lbx, tmp_path: Path) -> None:
    fails(lbx("report", tmp_path / "x.duckdb", "leaderbord"), 2, "leaderbord", "leaderboard")
    fails(lbx("nothing"), 2, "nothing")
    fails(lbx("run"), 2, "--")
    fails(lbx("report", tmp_path / "x.duckdb", "--format", "html5"), 2, "html5")


def test_debug_shows_the_traceback(lbx: Lbx, tmp_path: Path) -> None:
    assert "Traceback" in lbx.process("report", tmp_path / "none.duckdb", "--debug").stderr
