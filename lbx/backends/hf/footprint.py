"""How much memory a Hugging Face model takes, and how much there is."""

from __future__ import annotations

from typing import Any

from lbx.backends.memory import available_bytes
from lbx.errors import DoesNotFitError

_MADE_ELSEWHERE = ("kv_lora_rank", "num_kv_shared_layers", "kv_shared_layer_ids")
"""Marks of caches whose size per token does not follow from heads and head size."""


def refuse_too_large(name: str, needed: float, free: int | None, place: str) -> None:
    """Raise DoesNotFitError before weights are loaded that cannot fit: Linux grants memory that it does not have.

    Args:
        needed: bytes of the weights as they are computed.
        free: bytes; None: unknown, and nothing is refused.
        place: of the memory, for the message: "RAM", "cuda:0".
    """
    if free is not None and needed > free:
        raise DoesNotFitError(
            f"The weights of {name} take {needed / 2**30:.1f} GiB; {free / 2**30:.1f} GiB of {place} are free.",
            fix="Use a smaller dtype, a smaller model, or a machine with more memory.",
        )


def free_bytes(torch: Any, device: Any) -> int | None:
    """What is free on the device; None: unknown."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return available_bytes()


def kv_bytes_per_token(config: Any, bytes_per_number: int) -> int | None:
    """What a token takes in the cache of all layers; None where they do not all keep keys and values of it.

    Those whose attention slides do, as ``lbx.backends.hf.cells`` has it.
    """
    from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

    text = config.get_text_config(decoder=True)
    if any(getattr(text, mark, None) for mark in _MADE_ELSEWHERE):
        return None
    layers = DynamicCache(config=config).layers
    if not layers or any(type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers):
        return None
    heads = getattr(text, "num_attention_heads", None)
    hidden = getattr(text, "hidden_size", None)
    size = getattr(text, "head_dim", None) or (hidden // heads if isinstance(heads, int) and hidden else None)
    kv_heads = getattr(text, "num_key_value_heads", None) or heads
    if not isinstance(kv_heads, int) or not isinstance(size, int):
        return None
    return 2 * len(layers) * kv_heads * size * bytes_per_number
