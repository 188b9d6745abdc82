"""Memory required by a Hugging Face model, and memory available."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lbx.backends.memory import available_bytes
from lbx.base.errors import DoesNotFitError

_IRREGULAR_CACHE_SETTINGS = ("kv_lora_rank", "num_kv_shared_layers", "kv_shared_layer_ids")
"""Settings of models with a cache size per token that does not follow from heads and head size."""
_TRIM, _MMAP = -1, -3
"""glibc's numbers of two thresholds: free bytes kept at the heap's end, and bytes of a block allocated outside it."""
_LARGEST = 32 << 20
"""glibc raises the second to this by itself when blocks of that size are freed, and the first to twice this."""


def refuse_too_large(name: str, needed_bytes: float, free: int | None, memory_name: str, fix: str = "") -> None:
    """Raise DoesNotFitError before weights are loaded that cannot fit: Linux grants memory that it does not have.

    Args:
        needed_bytes: peak use of this memory while loading.
        free: bytes; None if unknown: then no model is refused.
        memory_name: name in the message, e.g. "RAM" or "cuda:0".
    """
    if free is not None and needed_bytes > free:
        raise DoesNotFitError(
            f"The weights of {name} take {needed_bytes / 2**30:.1f} GiB; {free / 2**30:.1f} GiB of "
            f"{memory_name} are free.",
            fix=fix or "Use a smaller dtype, a smaller model, or a machine with more memory.",
        )


@contextmanager
def release_at_once() -> Iterator[None]:
    """Return freed blocks to the system at once while weights are loaded.

    glibc would keep them in its heap: the sources of converted or merged weights, as much as the model again.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        yield
        return
    mallopt(_MMAP, 256 << 10)
    try:
        yield
    finally:
        mallopt(_MMAP, _LARGEST)
        mallopt(_TRIM, 2 * _LARGEST)


def free_bytes(torch: Any, device: Any) -> int | None:
    """Free bytes on the device; None if unknown."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return available_bytes()


def kv_bytes_per_token(config: Any, bytes_per_number: int) -> int | None:
    """Cache size of a token over all layers; None if some layers do not keep its keys and values.

    Layers with sliding attention keep them (see ``lbx.backends.hf.cells``).
    """
    from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

    text = config.get_text_config(decoder=True)
    if any(getattr(text, setting, None) for setting in _IRREGULAR_CACHE_SETTINGS):
        return None
    layers = DynamicCache(config=config).layers
    if not layers or any(type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers):
        return None
    mixed = getattr(text, "is_heterogeneous", False)  # heads of one size here and of another there
    numbers = [_numbers_per_token(text.per_layer_config[at] if mixed else text) for at in range(len(layers))]
    return None if None in numbers else sum(filter(None, numbers)) * bytes_per_number


def _numbers_per_token(layer: Any) -> int | None:
    """Key and value numbers per token in one layer; None if its configuration does not give them."""
    heads = getattr(layer, "num_attention_heads", None)
    hidden = getattr(layer, "hidden_size", None)
    size = getattr(layer, "head_dim", None) or (hidden // heads if isinstance(heads, int) and hidden else None)
    kv_heads = getattr(layer, "num_key_value_heads", None) or heads
    return 2 * kv_heads * size if isinstance(kv_heads, int) and isinstance(size, int) else None
