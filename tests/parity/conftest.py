"""A tiny real model, and what the engine's tests are made of."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny random Llama, in both formats: hf/ and tiny.gguf."""
    for name in ("torch", "transformers", "llama_cpp", "gguf"):
        pytest.importorskip(name, reason="needs lbx[hf,llama,dev]")
    from tests.backends.tiny import make_gguf, make_model

    folder = tmp_path_factory.mktemp("tiny")
    with contextlib.redirect_stderr(io.StringIO()):  # the progress bar of save_pretrained
        make_model(folder / "hf")
    make_gguf(folder / "hf", folder / "tiny.gguf")
    return folder
