"""llama.cpp's offloading of layers and cache to a GPU, on Mesa's llvmpipe: a Vulkan device that is a CPU.

Each command runs in a process of its own: llama.cpp's GPU code, once loaded, stays in a process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import Done, Lbx, fails

SCRIPT = Path(__file__).parents[2] / ".ci" / "vulkan-build.sh"
TASK = "needle/single_en"
CARDS = {
    "cpu": {"n_gpu_layers": 0},
    "full": {"n_gpu_layers": -1},
    "half": {"n_gpu_layers": 2},  # the output layer and one of three others
    "host": {"n_gpu_layers": -1, "offload_kqv": False},
}


@pytest.fixture(scope="session")
def gpu(once: Callable[[str, Callable[[Path], object]], Path]) -> dict[str, str]:
    """Environment of a process in which llama.cpp has a GPU."""
    pytest.importorskip("llama_cpp", reason="needs lbx[llama]")
    from lbx.backends.llama.library import find_libraries

    built = subprocess.run([SCRIPT, "--kept"], capture_output=True, text=True, check=False)
    if built.returncode:
        pytest.skip(built.stderr.strip())
    _, variants = find_libraries()

    def make(folder: Path) -> None:
        for library in (Path(built.stdout.strip()), *(variants or ())):
            (folder / library.name).symlink_to(library)

    folder = once("vulkan", make)
    return dict(os.environ) | {"LBX_GGML_BACKENDS": str(folder), "GGML_VK_VISIBLE_DEVICES": "0"}


@pytest.fixture(scope="module")
def card(demo_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """card("full", kv_cells=512) -> the card of the demo model with these options, in float32."""

    def write(name: str, **more: object) -> Path:
        options = {"cache_type_k": "f32", "cache_type_v": "f32", **CARDS[name], **more}
        lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in options.items())
        path = tmp_path_factory.mktemp(name) / "demo.toml"
        path.write_text(f'name = "demo"\nbackend = "llamacpp"\n[weights]\npath = "{demo_gguf}"\n[options]\n{lines}\n')
        return path

    return write


@pytest.fixture(scope="module")
def run(lbx: Lbx, bundle: Path, gpu: Mapping[str, str]) -> Callable[..., Done]:
    def call(model: Path, output: Path, *more: object, environment: Mapping[str, str] = gpu) -> Done:
        command = ("run", "-b", bundle, "-m", model, "-t", TASK, "-n", 3, "--max-new-tokens", 6, "--no-plan")
        return lbx.process(*command, "-o", output, *more, environment=environment)

    return call


@pytest.fixture(scope="module")
def results(
    run: Callable[..., Done],
    card: Callable[..., Path],
    gpu: Mapping[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A run of every card, named after it; that of the CPU on a machine without a GPU, with the default options."""
    path = tmp_path_factory.mktemp("runs") / "r.duckdb"
    for name in CARDS:
        model, environment = (card("full"), dict(os.environ)) if name == "cpu" else (card(name), gpu)
        done = run(model, path, "--name", name, environment=environment)
        assert done.returncode == 0, done.stderr
    return path


def test_answers_and_shared_prefixes_are_those_of_the_cpu(results: Path, lbx: Lbx) -> None:
    query = "SELECT run_id, sample_id, output, prompt_tokens, cached_tokens FROM generations ORDER BY sample_id"
    answers: dict[str, list[Any]] = {name: [] for name in CARDS}
    for row in lbx.rows(results, query):
        answers[row.pop("run_id")].append(row)
    assert len(answers["cpu"]) == 3
    assert any(row["cached_tokens"] for row in answers["cpu"])
    assert all(row["output"] for row in answers["cpu"])
    for name in CARDS:
        assert answers[name] == answers["cpu"], name


def test_layers_and_cache_on_the_gpu_are_another_run(results: Path, lbx: Lbx) -> None:
    rows = {row["run_id"]: row for row in lbx.rows(results, "SELECT run_id, settings, hardware FROM runs")}
    settings = {name: json.loads(row["settings"]) for name, row in rows.items()}
    hardware = {name: json.loads(row["hardware"]) for name, row in rows.items()}
    places = {name: (used["backend.n_gpu_layers"], used["backend.offload_kqv"]) for name, used in settings.items()}
    assert places == {"cpu": (0, False), "full": (4, True), "half": (2, True), "host": (4, False)}
    for name in ("full", "half", "host"):
        assert "llvmpipe" in hardware[name]["gpu"]
        assert hardware[name]["devices"] == ["Vulkan0"]
        assert settings[name]["backend.batch_invariant"] is False
    assert not {"gpu", "devices"} & hardware["cpu"].keys()


def test_a_run_goes_on_only_where_it_began(results: Path, run: Callable[..., Done], card: Callable[..., Path]) -> None:
    """A machine that has a GPU and does not use it goes on with a run of a machine without any."""
    continued = run(card("cpu"), results, "--name", "cpu")
    assert continued.returncode == 0, continued.stderr
    refused = run(card("full"), results, "--name", "cpu")
    fails(refused, 1, "has different settings: ", "backend.n_gpu_layers was 0 and is now 4", "backend.offload_kqv was")


def test_hours_are_of_the_gpu(results: Path, lbx: Lbx) -> None:
    rows = json.loads(lbx.ok("report", results, "cost", "--format", "json").stdout)
    units = {row["run_id"]: row["hours_of"] for row in rows if row["task"] is None}
    assert units == {"cpu": "core", "full": "GPU", "half": "GPU", "host": "GPU"}


def test_logits_are_those_of_the_cpu(gpu: Mapping[str, str], card: Callable[..., Path], bundle: Path, lbx: Lbx) -> None:
    """llvmpipe multiplies in 16 bits, so the logits' largest difference is 0.01; their range is 30."""
    models = (card("cpu"), card("full"))
    prompts = ("-b", bundle, "-t", TASK, "-n", 1, "--positions", 2, "--max-new-tokens", 2)
    done = lbx.process("parity", *models, *prompts, "--fail-above", 0.05, environment=gpu)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "100.00" in done.stdout, "of the top tokens are the same"


ENGINE = """
import sys
import numpy as np
from lbx.backends import load, resolve_model
from lbx.engine.model import SequenceExtension

memories = [load(resolve_model(path)).sequences() for path in sys.argv[1:]]
prefix, ends = [*range(10, 80)], [[90], [91, 92, 93], [94] * 10, []]

def draw(memory):
    memory.extend([SequenceExtension(0, prefix, False)])
    memory.fork(0, 60, [1, 2])
    yield memory.used_cells
    yield memory.extend([SequenceExtension(i, end, True) for i, end in enumerate(ends) if end])
    memory.drop(1)
    memory.fork(2, 65, [1, 3])
    yield memory.used_cells
    yield memory.extend([SequenceExtension(i, [95 + i], True) for i in range(4)])

for cpu, *others in zip(*map(draw, memories), strict=True):
    for other in others:
        if isinstance(cpu, int):
            assert other == cpu, (other, cpu)
        else:
            assert max(np.abs(ours - theirs).max() for ours, theirs in zip(other, cpu, strict=True)) < 0.05
"""


def test_forks_and_batches_are_those_of_the_cpu(gpu: Mapping[str, str], card: Callable[..., Path]) -> None:
    options = {"max_sequences": 4, "kv_cells": 4096, "batch_invariant": False}
    models = [card(name, **options) for name in CARDS]
    done = subprocess.run([sys.executable, "-c", ENGINE, *models], env=gpu, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


EMBEDDING = """
import sys
import numpy as np
from lbx.backends import load_embedder, resolve_embedder

cpu, full = (load_embedder(resolve_embedder(path)).embed(["ships and docks", "a"]) for path in sys.argv[1:])
assert np.einsum("td,td->t", cpu, full).min() > 0.9999 * np.einsum("td,td->t", cpu, cpu).min()
assert not np.array_equal(cpu, full), "another device computed"
"""


def test_vectors_are_those_of_the_cpu(gpu: Mapping[str, str], demo_gguf: Path, tmp_path: Path) -> None:
    models = []
    for layers in (0, -1):
        models.append(tmp_path / f"{layers}.toml")
        models[-1].write_text(
            f'backend = "llamacpp_embedding"\n[weights]\npath = "{demo_gguf}"\n'
            f'[options]\npooling = "last"\nn_gpu_layers = {layers}\n'
        )
    command = [sys.executable, "-c", EMBEDDING, *models]
    done = subprocess.run(command, env=gpu, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_cache_that_the_gpu_cannot_hold(
    run: Callable[..., Done], card: Callable[..., Path], gpu: Mapping[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "r.duckdb"
    fails(
        run(card("full", kv_cells=10**9), path),
        1,
        "The KV cache of demo for 1000000000 tokens takes 2861.0 GiB",
        "GiB of GPU memory are available. Lower kv_cells in the model card:",
        "Or set offload_kqv = false: the cache is then in RAM.",
    )
    small = gpu | {"GGML_VK_FORCE_MAX_BUFFER_SIZE": "1000000", "GGML_VK_FORCE_MAX_ALLOCATION_SIZE": "1000000"}
    fails(
        run(card("full"), path, environment=small),
        1,
        "cannot create a context of 4096 tokens for demo: ",
        "failed to allocate Vulkan0 buffer",
        "Lower context_window (or kv_cells)",
    )
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("name", "words"), [("full", "free GPU memory "), ("host", "free RAM and GPU memory unknown: may or may not fit")]
)
def test_a_plan_shows_the_memory_that_the_model_needs(
    name: str, words: str, lbx: Lbx, gpu: Mapping[str, str], card: Callable[..., Path], bundle: Path
) -> None:
    done = lbx.process(
        "plan", "-b", bundle, "-m", card(name), "-t", TASK, "-n", 1, "--no-measure-speed", environment=gpu
    )
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("Memory:"))
    assert words in line
    assert "unknown" not in words or not line.endswith(": fits")
    assert name != "full" or line.endswith(": fits"), line


def test_doctor_names_the_gpu(lbx: Lbx, gpu: Mapping[str, str]) -> None:
    done = lbx.process("doctor", "--json", "--need", "gpu", environment=gpu)
    assert done.returncode == 0, done.stderr
    assert any(device.startswith("Vulkan0: llvmpipe") for device in json.loads(done.stdout)["llamacpp"]["devices"])
    unseen = {name: value for name, value in gpu.items() if name != "GGML_VK_VISIBLE_DEVICES"}
    without = lbx.process("doctor", "--json", "--need", "gpu", environment=unseen)
    assert without.returncode == 1
    assert "No GPU can be used." in without.stdout
