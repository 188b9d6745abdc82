"""Models whose cache cannot simply be cut back: they start cold each time, and answer as transformers does."""

from __future__ import annotations

import contextlib
import io
import shutil
from pathlib import Path

import pytest

from lbx.backends import load, resolve_model
from lbx.base.records import Request, SampleKey
from lbx.engine.batching import complete, complete_all

KINDS = {
    "sliding": ("MistralConfig", {"sliding_window": 96}),
    "longrope": (
        "Phi3Config",
        {
            "pad_token_id": 1,
            "original_max_position_embeddings": 256,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "short_factor": [1.0] * 8,
                "long_factor": [2.0] * 8,
                "original_max_position_embeddings": 256,
            },
        },
    ),
    "untied": ("Qwen2Config", {}),
}


@pytest.fixture(params=KINDS)
def kind(request, tiny_hf, tmp_path) -> tuple[str, Path]:
    """A folder of a tiny random model of that kind, with the tiny tokenizer."""
    import torch
    import transformers

    config_name, extra = KINDS[request.param]
    torch.manual_seed(5)
    config = getattr(transformers, config_name)(
        vocab_size=507,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        initializer_range=0.25,
        bos_token_id=0,
        eos_token_id=1,
        **extra,
    )
    with contextlib.redirect_stderr(io.StringIO()):
        transformers.AutoModelForCausalLM.from_config(config).float().save_pretrained(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny_hf / name, tmp_path)
    return request.param, tmp_path


def test_answers_are_those_of_transformers_cold_and_warm(kind):
    import torch

    _, folder = kind
    backend = load(resolve_model(str(folder)))
    generator = torch.Generator().manual_seed(1)
    ids = [0, *torch.randint(10, 500, (1199,), generator=generator).tolist()]
    with torch.inference_mode():
        out = backend._model.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, 1200, dtype=torch.long),
            max_new_tokens=12,
            do_sample=False,
            pad_token_id=1,
        )
    expected = backend.tokenizer.decode(out[0, 1200:].tolist())
    request = Request(SampleKey("a", "b", "c"), tuple(ids), 12)
    assert complete(backend, request).text == expected
    twice = dict(complete_all(backend, [request, request], batching=True))
    assert [twice[n].text for n in (0, 1)] == [expected] * 2
    assert twice[0].cached_tokens == 0
    assert twice[1].cached_tokens == 1199
    backend.close()
