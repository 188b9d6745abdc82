"""Two backends with the same tiny model, loaded once."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny_hf(once) -> Path:
    """Folder of a tiny random Llama: config, safetensors, tokenizer."""
    pytest.importorskip("torch", reason="needs lbx[hf]")
    pytest.importorskip("transformers", reason="needs lbx[hf]")
    from tests.backends.tiny import make_model

    with contextlib.redirect_stderr(io.StringIO()):  # the progress bar of save_pretrained
        return once("tiny-hf", lambda folder: make_model(folder / "hf")) / "hf"


@pytest.fixture(scope="session")
def tiny_gguf(once, tiny_hf) -> Path:
    """The same model as a GGUF file."""
    pytest.importorskip("llama_cpp", reason="needs lbx[llama]")
    pytest.importorskip("gguf", reason="needs lbx[dev]")
    from tests.backends.tiny import make_gguf

    return once("tiny-gguf", lambda folder: make_gguf(tiny_hf, folder / "tiny.gguf")) / "tiny.gguf"


def _loaded(path: Path):
    from lbx.backends import load, resolve_model

    card = resolve_model(str(path))
    return load(dataclasses.replace(card, options=dataclasses.replace(card.options, prefill_chunk=512)))  # type: ignore[call-arg]


@pytest.fixture(scope="session")
def hf(tiny_hf):
    backend = _loaded(tiny_hf)
    yield backend
    backend.close()


@pytest.fixture(scope="session")
def llama(tiny_gguf):
    backend = _loaded(tiny_gguf)
    yield backend
    backend.close()


@pytest.fixture(params=["hf", "llama"])
def backend(request):
    """Each of the two in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def sliding_gguf(once, tiny_gguf) -> Path:
    """A model of llama.cpp with layers whose attention slides over 16 tokens."""
    from tests.backends.llama_kinds import write_kind

    def make(folder: Path) -> Path:
        return write_kind("gemma3", tiny_gguf, folder / "gemma3.gguf", attention__sliding_window=16)

    return once("sliding-gguf", make) / "gemma3.gguf"
