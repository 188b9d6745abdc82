"""Two sets of rotary factors (longrope) on llama.cpp, which chooses by the size of the cache."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lbx.backends import load, resolve_model
from lbx.backends.llama.options import LlamaOptions
from lbx.base.errors import BackendError
from lbx.base.records import Request, SampleKey
from lbx.engine.batching import DecodeBatch, complete
from lbx.running.parity import forced_logits
from tests.gguf_copy import gguf_copy

pytest.importorskip("llama_cpp", reason="needs lbx[llama]")

SHORT = 512


@pytest.fixture(scope="module")
def longrope(demo_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    keys = {"llama.rope.scaling.type": "longrope", "llama.rope.scaling.original_context_length": SHORT}
    tensors = {
        f"rope_factors_{length}.weight": np.full(16, factor, np.float32)
        for length, factor in (("short", 1.0), ("long", 2.0))
    }
    return gguf_copy(demo_gguf, tmp_path_factory.mktemp("longrope") / "m.gguf", added=keys, tensors=tensors)


def loaded(path: Path, window: int, **options: Any) -> Any:
    card = resolve_model(str(path))
    return load(dataclasses.replace(card, context_window=window, options=LlamaOptions(**options)))


def last_logits(path: Path, window: int, prompt: Sequence[int]) -> Any:
    backend = loaded(path, window)
    (logits,) = forced_logits(backend, prompt, ())
    backend.close()
    return logits


def test_the_window_of_the_card_chooses_the_factors(longrope: Path, demo_gguf: Path) -> None:
    draw = random.Random(3)
    prompt = [draw.randrange(10, 300) for _ in range(200)]
    plain = last_logits(demo_gguf, SHORT, prompt)
    short, long = (last_logits(longrope, window, prompt) for window in (SHORT, SHORT + 1))
    assert np.abs(short - plain).max() < 1e-4 * np.ptp(plain), "the short factors are ones"
    assert np.abs(long - plain).max() > 0.01 * np.ptp(plain)


@pytest.mark.parametrize("window", [SHORT, SHORT + 1, 1024])
def test_a_question_has_the_same_answer_alone_and_among_others(longrope: Path, window: int) -> None:
    backend, draw = loaded(longrope, window, max_sequences=8, batch_invariant=True), random.Random(4)
    document = [draw.randrange(10, 300) for _ in range(400)]
    prompts = [(*document[: 80 * n], *(draw.randrange(10, 300) for _ in range(9))) for n in range(1, 6)]
    requests = [Request(SampleKey("a", "b", str(n)), prompt, 12) for n, prompt in enumerate(prompts)]
    alone = [complete(backend, request).output_ids for request in requests]
    batch = DecodeBatch(backend.sequences(), requests, backend.tokenizer, backend.eos_ids)
    assert {n: answer.output_ids for n, answer in batch.run()} == dict(enumerate(alone))
    announced = [note for note in backend.info.notes if "two sets of rotary factors" in note]
    assert bool(announced) == (window > SHORT)
    backend.close()


def test_a_cache_that_would_change_the_factors_is_refused(longrope: Path) -> None:
    with pytest.raises(BackendError, match=f"in a cache of more than {SHORT} tokens; kv_cells = {SHORT + 1}"):
        loaded(longrope, SHORT, kv_cells=SHORT + 1)
