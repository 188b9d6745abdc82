"""A tiny real model for the engine's tests, made once."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "backends"))  # tiny, pieces


@pytest.fixture(scope="session")
def tiny(once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """Folder of a tiny random Llama, in both formats: hf/ and tiny.gguf."""
    for name in ("torch", "transformers", "llama_cpp", "gguf"):
        pytest.importorskip(name, reason="needs lbx[hf,llama,dev]")
    from tiny import make_gguf, make_model

    def make(folder: Path) -> None:
        with contextlib.redirect_stderr(io.StringIO()):  # the progress bar of save_pretrained
            make_model(folder / "hf")
        make_gguf(folder / "hf", folder / "tiny.gguf")

    return once("tiny", make)
