"""From what the user typed to files."""

from __future__ import annotations

from pathlib import Path

import pytest

from lbx.backends import load, resolve_model, weights_path
from lbx.backends.cards import ModelCard, Weights
from lbx.backends.hf.options import HfOptions
from lbx.backends.llama.options import LlamaOptions
from lbx.base.bundle_folder import BUNDLE_JSON, FILES, HUB, TAG_MANIFEST, Bundle
from lbx.base.errors import BackendError, UsageError


@pytest.fixture
def bundle(tmp_path) -> Bundle:
    root = tmp_path / "bundle"
    for name, text in {TAG_MANIFEST: "", BUNDLE_JSON: "{}", f"{HUB}/models--org--m/refs/main": "c0ffee"}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Bundle(root)


def put(path: Path, data: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def card(backend: str = "llamacpp", **weights) -> ModelCard:
    options = LlamaOptions() if backend == "llamacpp" else HfOptions()
    return ModelCard(name="m", backend=backend, weights=Weights(**weights), options=options)


def test_a_card_by_path_and_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = put(tmp_path / "models/mine.toml", b'backend = "scripted"\n[weights]\npath = "a.jsonl"\n')
    put(tmp_path / "mine/notes.txt")  # a folder of the same name is not what is meant
    by_name = resolve_model("mine")
    assert by_name.name == "mine"
    assert resolve_model(str(path)).weights.path == path.parent / "a.jsonl"
    assert by_name.weights.path == Path("models/a.jsonl")
    with pytest.raises(UsageError, match=r"Model mini not found.*Did you mean mine") as raised:
        resolve_model("mini")
    assert f"{tmp_path / 'models/mini.toml'} does not exist" in str(raised.value), "where lbx looked"


def test_weights_named_directly(tmp_path):
    assert resolve_model(str(put(tmp_path / "a.gguf"))).backend == "llamacpp"
    assert resolve_model(str(put(tmp_path / "a.gguf"))).name == "a"
    assert resolve_model(str(put(tmp_path / "t.jsonl"))).backend == "scripted"
    folder = put(tmp_path / "Model-8B/config.json").parent
    assert (resolve_model(str(folder)).backend, resolve_model(str(folder)).name) == ("hf", "Model-8B")
    ggufs = put(tmp_path / "quants/a.gguf").parent
    assert resolve_model(str(ggufs)).backend == "llamacpp"


def test_a_wrong_path_names_its_neighbours(tmp_path):
    put(tmp_path / "llama.gguf")
    with pytest.raises(UsageError, match=r"Did you mean \S+/llama\.gguf"):
        resolve_model(str(tmp_path / "lama.gguf"))
    with pytest.raises(UsageError, match="not a model that lbx can run"):
        resolve_model(str(put(tmp_path / "weights.bin")))
    with pytest.raises(UsageError, match="neither config"):
        resolve_model(str(put(tmp_path / "empty/notes.txt").parent))


def test_the_backend_must_agree(tmp_path):
    path = str(put(tmp_path / "a.gguf"))
    assert resolve_model(path, backend="llamacpp").backend == "llamacpp"
    with pytest.raises(UsageError, match="runs with the backend llamacpp, not hf"):
        resolve_model(path, backend="hf")
    with pytest.raises(UsageError, match="Did you mean llamacpp"):
        resolve_model(path, backend="lamacpp")


def test_a_repository_in_the_bundle(bundle):
    folder = put(bundle.root / HUB / "models--org--m/snapshots/c0ffee/config.json").parent
    found = resolve_model("org/m", bundle=bundle)
    assert (found.backend, found.name) == ("hf", "org/m")
    assert weights_path(found, bundle) == folder
    with pytest.raises(
        UsageError, match="The file org/n does not exist, and the bundle has no repository with this name"
    ):
        resolve_model("org/n", bundle=bundle)


def test_a_place_in_the_bundle(bundle):
    path = put(bundle.root / FILES / "models/demo.gguf")
    assert weights_path(card(bundle="models/demo.gguf"), bundle) == path
    with pytest.raises(BackendError, match="does not contain models/other"):
        weights_path(card(bundle="models/other.gguf"), bundle)
    with pytest.raises(BackendError, match="does not contain org/x at v2"):
        weights_path(card(repo="org/x", revision="v2"), bundle)
    with pytest.raises(UsageError, match="--bundle"):
        weights_path(card(bundle="models/demo.gguf"), None)


def test_one_gguf_of_several(bundle):
    folder = bundle.root / HUB / "models--org--m/snapshots/c0ffee"
    four = put(folder / "m-Q4_K_M.gguf")
    put(folder / "m-Q8_0.gguf")
    split = [put(folder / f"big/m-F16-0000{n}-of-00002.gguf") for n in (1, 2)]
    assert weights_path(card(repo="org/m", file="*Q4*.gguf"), bundle) == four
    assert weights_path(card(repo="org/m", file="big/*.gguf"), bundle) == split[0]
    with pytest.raises(BackendError, match=r"there are 2.*m-Q4_K_M\.gguf, m-Q8_0\.gguf"):
        weights_path(card(repo="org/m", file="m-*.gguf"), bundle)
    with pytest.raises(BackendError, match=r"'\*Q5\*' .*there are 0.*Q8_0"):
        weights_path(card(repo="org/m", file="*Q5*"), bundle)
    split[1].unlink()
    with pytest.raises(BackendError, match="part of the model is missing"):
        load(card(repo="org/m", file="big/*.gguf"), bundle=bundle)


def test_missing_weights_name_their_neighbours(tmp_path):
    put(tmp_path / "model-q4.gguf")
    with pytest.raises(BackendError, match=r"Did you mean model-q4\.gguf"):
        weights_path(card(path=tmp_path / "model-q8.gguf"), None)
    for number in range(18):
        put(tmp_path / f"card-{number}.toml")
    with pytest.raises(BackendError) as refused:
        weights_path(card(path=tmp_path / "nothere.gguf"), None)
    assert refused.value.fix == "Correct path under [weights] in the card. Did you mean model-q4.gguf?"
