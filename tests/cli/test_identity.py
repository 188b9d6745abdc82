"""Identity of runs: the same weights and GPU layers."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from lbx.backends import weights as fingerprints
from lbx.results import Store
from tests.command_line import Done, Lbx, fails

DEMO = Path(__file__).parents[2] / "models" / "demo" / "hf"
TASK = "needle/single_en"


def tuned(path: Path, to: Path) -> Path:
    """The same model with other numbers in its middle: a fine-tune of the same name and size."""
    data = bytearray(path.read_bytes())
    at = len(data) // 2
    data[at : at + 4096] = bytes(byte ^ 1 for byte in data[at : at + 4096])  # the lowest bits of its numbers
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_bytes(data)
    return to


@pytest.fixture(scope="module")
def demo_hf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's folder in float32."""
    pytest.importorskip("torch", reason="needs lbx[hf]")
    numpy = pytest.importorskip("safetensors.numpy", reason="needs lbx[hf]")
    folder = Path(shutil.copytree(DEMO, tmp_path_factory.mktemp("demo") / "hf"))
    weights = numpy.load_file(folder / "model.safetensors")
    numpy.save_file({name: w.astype("float32") for name, w in weights.items()}, folder / "model.safetensors")
    assert (folder / "model.safetensors").stat().st_size > 2 << 20
    return folder


@pytest.fixture(scope="module")
def two_models(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, Path]]:
    """{backend: a model and its fine-tune}."""
    folder = tmp_path_factory.mktemp("tuned")
    gguf, hf = request.getfixturevalue("demo_gguf"), request.getfixturevalue("demo_hf")
    shutil.copytree(hf, folder / "hf")
    tuned(hf / "model.safetensors", folder / "hf/model.safetensors")
    return {"llamacpp": (gguf, tuned(gguf, folder / gguf.name)), "hf": (hf, folder / "hf")}


@pytest.fixture
def ask(lbx: Lbx, bundle: Path, tmp_path: Path) -> Any:
    """ask(model, "-n", 1) -> the command's end; the results file is ``ask.file``."""

    def call(model: Path, *more: object, output: Path | None = None) -> Done:
        return lbx("run", "-b", bundle, "-m", model, "-t", TASK, "--no-plan", "-o", output or call.file, *more)  # type: ignore[attr-defined]

    call.file = tmp_path / "r.duckdb"  # type: ignore[attr-defined]
    return call


def runs(file: Path) -> dict[str, int]:
    """{run: its answers}."""
    with Store(file, read_only=True) as store:
        found = store.query(
            "SELECT run_id, count(*) FROM runs JOIN generations USING (run_id) GROUP BY ALL ORDER BY ALL"
        )
        return dict(found.rows)


def row_of(file: Path, run: str) -> dict[str, Any]:
    with Store(file, read_only=True) as store:
        (row,) = store.query("SELECT * FROM runs WHERE run_id = ?", [run]).dicts()
    return {**row, **{name: json.loads(row[name]) for name in ("settings", "hardware")}}


@pytest.mark.parametrize("backend", ["llamacpp", "hf"])
def test_two_models_of_one_name_and_size_are_two_runs(
    backend: str, two_models: dict[str, tuple[Path, Path]], ask: Any
) -> None:
    """Tried with a real GGUF, 4 kB of it changed: one run of two models."""
    model, other = two_models[backend]
    for path, left in ((model, {1}), (other, {1}), (model, {1, 2})):
        assert ask(path, "-n", max(left)).returncode == 0
    found = runs(ask.file)
    assert sorted(found.values()) == [1, 2]
    assert {row_of(ask.file, run)["model"] for run in found} == {model.stem if model.is_file() else model.name}
    named = ask(model, "-n", 1, "--name", "mine")
    assert named.returncode == 0
    fails(ask(other, "-n", 2, "--name", "mine"), 1, "has different settings: backend.weights was")


def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if llama.cpp had been built for a GPU: what it computes with stays a CPU."""
    from lbx.backends.llama.library import load_llama_cpp

    monkeypatch.setattr(load_llama_cpp(), "llama_supports_gpu_offload", lambda: True)


def test_answers_of_a_cpu_and_of_a_gpu_are_two_runs(demo_gguf: Path, ask: Any, tmp_path: Path) -> None:
    """And as many layers as there are, however the card says it, are one."""

    def card(name: str, **options: object) -> Path:
        path = tmp_path / name / "demo.toml"
        path.parent.mkdir(exist_ok=True)
        lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in options.items())
        path.write_text(f'backend = "llamacpp"\n[weights]\npath = "{demo_gguf}"\n[options]\n{lines}\n')
        return path

    plain, none, many = card("plain"), card("none", n_gpu_layers=0), card("many", n_gpu_layers=99)
    some, apart = card("some", n_gpu_layers=1), card("apart", offload_kqv=False)
    for model in (plain, none, many, some, apart):  # nothing of it happens without a GPU
        assert ask(model, "-n", 1).returncode == 0
    assert list(runs(ask.file).values()) == [1]
    with pytest.MonkeyPatch.context() as patch:
        on_gpu(patch)
        assert ask(none, "-n", 2).returncode == 0  # there is one, and it computes nothing
        assert list(runs(ask.file).values()) == [2]
        for model, count in ((plain, 2), (many, 2), (some, 3), (apart, 4)):
            assert ask(model, "-n", 1).returncode == 0
            assert len(runs(ask.file)) == count, model
    assert ask(plain, "-n", 3).returncode == 0
    assert sorted(runs(ask.file).values()) == [1, 1, 1, 3]
    layers = {row_of(ask.file, run)["settings"]["backend.n_gpu_layers"] for run in runs(ask.file)}
    assert len(layers) == 3 and {0, 1} < layers, layers


def test_all_of_the_weights_where_it_is_asked_for(
    demo_gguf: Path, ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte between two pieces is seen by --hash-weights alone; a run goes on with it and without it."""
    monkeypatch.setattr(fingerprints, "WHOLE", 0)
    monkeypatch.setattr(fingerprints, "_PIECES", 1)
    copies = [tmp_path / name / "demo.gguf" for name in ("a", "b")]
    for copy in copies:
        copy.parent.mkdir()
        shutil.copy(demo_gguf, copy)
    first, other = copies
    pieces = fingerprints.fingerprint(first)
    for at in range(first.stat().st_size // 2, first.stat().st_size):
        with other.open("r+b") as file:
            byte = os.pread(file.fileno(), 1, at)
            os.pwrite(file.fileno(), bytes([byte[0] ^ 1]), at)
        if fingerprints.fingerprint(other) == pieces:
            break
        shutil.copy(first, other)
    for model, more, expected in (
        (first, (), [1]),
        (first, ("--hash-weights",), [2]),  # begun without
        (first, (), [3]),  # and without again
        (other, ("--hash-weights",), [1, 3]),
        (other, ("--hash-weights",), [2, 3]),
        (first, ("--hash-weights",), [2, 4]),
    ):
        done = ask(model, "-n", max(expected) if model == first else min(expected), *more)
        assert done.returncode == 0, done.stderr
        assert sorted(runs(ask.file).values()) == expected
        assert ("every byte" in done.stderr) == bool(more)
    assert ask(first, "-n", 1, "--name", "mine", "--hash-weights").returncode == 0
    fails(ask(other, "-n", 2, "--name", "mine", "--hash-weights"), 1, "backend.weights_whole was")
