"""A small hub, recipes for it, and bundles made of them."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hubserver import Faults, HubServer, serve
from sealed import make_key

from lbx.bundle import CreateResult, Retry, Trust, create

FAST = Retry(tries=3, delay_s=0.01, max_delay_s=0.02, connect_s=5, read_s=10)

DATASET = """
[[source]]
kind = "hub"
repo = "org/data"
type = "dataset"
files = ["*.jsonl"]
"""
MODEL = """
[[source]]
kind = "hub"
repo = "org/model"
type = "model"
"""


def write_hub(root: Path) -> Path:
    """org/data: two small files, a big one listed as LFS, a script; org/model: a model's usual files."""
    data, model = root / "datasets/org/data", root / "models/org/model"
    (data / "deep/er").mkdir(parents=True)
    model.mkdir(parents=True)
    (data / "a.jsonl").write_text('{"question": "why?"}\n')
    (data / "deep/er/长文本.jsonl").write_text('{"question": "为什么?"}\n', "utf-8")
    (data / "big.jsonl").write_bytes(random.Random(7).randbytes(3 << 20))
    (data / "empty.jsonl").write_bytes(b"")
    (data / "loader.py").write_text("print('run me')\n")
    (model / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (model / "tokenizer.json").write_text("{}")
    (model / "model.safetensors").write_bytes(random.Random(8).randbytes(2 << 20))
    return root


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def hub(tmp_path: Path, faults: Faults) -> Iterator[HubServer]:
    upstream = tmp_path / "upstream/owner/repo/abc"
    upstream.mkdir(parents=True)
    (upstream / "prompt.txt").write_text("Read this.")
    with serve(write_hub(tmp_path / "hub"), tmp_path / "upstream", faults) as server:
        yield server


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[..., Path]:
    """recipe("[[source]]...", name="demo") -> path of a recipe file."""

    def write(text: str, name: str = "demo") -> Path:
        path = tmp_path / f"{name}.toml"
        path.write_text(f'name = "{name}"\n{text}', "utf-8")
        return path

    return write


@pytest.fixture
def bundle(tmp_path: Path, hub: HubServer, recipe: Callable[..., Path]) -> Callable[..., CreateResult]:
    """bundle(text, out="out") -> the result of bundling one recipe from the small hub."""

    def make(text: str = DATASET, out: str = "out", **options: object) -> CreateResult:
        options = {"hub": hub.url, "mirror": hub.mirror, "retry": FAST, **options}
        return create([recipe(text)], tmp_path / out, **options)

    return make


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_key(tmp_path_factory.mktemp("key"))


@pytest.fixture(scope="module")
def trust(key: Path) -> Trust:
    return Trust.of(key.with_suffix(".pub"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """A zip of 20 KB that unpacks to 20 MB."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data/qasper.jsonl", bytes(20 << 20))
    return out.getvalue()
