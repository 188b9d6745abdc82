"""Tiny random models of every family, each a folder as a hub has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.tiny_families.configs import Family
from tests.tiny_families.shrinking import VOCABULARY, tiny

_SEED = 11
_NOISE = 0.05


def make(family: Family, folder: Path, tokenizer: Any) -> Path:
    """Write config.json, weights in float32 and the tokenizer.

    What a new model has as plain ones or zeros (norms, biases, sinks) is moved a little, so that leaving it out shows.

    Raises:
        Exception: transformers does not know the family, or cannot make it so small; the message is its own.
    """
    import torch

    torch.manual_seed(_SEED)
    model = new_model(family)
    with torch.no_grad():
        for name, numbers in [*model.named_parameters(), *model.named_buffers()]:
            if numbers.ndim == 1 and numbers.is_floating_point() and "inv_freq" not in name:
                numbers.add_(torch.randn_like(numbers), alpha=_NOISE)
    model.save_pretrained(folder)
    if family.model_type.startswith("gemma"):  # the converter cuts the embedding to the vocabulary of the tokenizer
        tokenizer.add_tokens([f"<extra_{n}>" for n in range(VOCABULARY - len(tokenizer))])
    tokenizer.save_pretrained(folder)
    if family.hub:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | family.hub, indent=2), "utf-8")
    return folder


def new_model(family: Family) -> Any:
    """Random, of the class that checkpoints of this kind are saved from: with eyes where it has them."""
    import torch
    import transformers

    config = tiny(family.model_type, family.options)
    sees = type(config) in transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
    kind = transformers.AutoModelForImageTextToText if sees else transformers.AutoModelForCausalLM
    return kind.from_config(config, dtype=torch.float32)
