"""How much memory a KV cache takes, and how much there is.

llama.cpp allocates the whole cache at once, and Linux grants memory that it does not have: without this check a
context window that is too large ends with the process killed, and no word why.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lbx.backends.cgroups import memory_limit
from lbx.backends.llama.tokenizer import metadata
from lbx.backends.options import LlamaOptions
from lbx.base.inputs import SMALL, read_input

# Bytes of 32 numbers in each cache type; the quantised ones hold scales beside them.
_BLOCK_BYTES = {"f32": 128, "f16": 64, "bf16": 64, "q8_0": 34, "q5_1": 24, "q5_0": 22, "q4_1": 20, "q4_0": 18}

_UNLIKE = ("kv_lora_rank", "shared_kv_layers")
"""Marks of caches that do not hold keys and values of every head in every layer."""


_FULL_LAYER_EVERY = {"gemma3": 6, "gemma3n": 5, "plamo3": 8} | dict.fromkeys(
    ("afmoe", "cohere2", "cohere2moe", "exaone4", "exaone-moe", "llama4", "mellum", "olmo2"), 4
)
"""Which layer keeps everything where attention slides in the others, from llama.cpp's source; each second at most."""


def kv_cache_bytes(llama_cpp: Any, model: Any, options: LlamaOptions, cells: int, sliding_cells: int = 0) -> int:
    """Size of a KV cache of so many tokens; 0 where that is not known.

    It is not of recurrent and hybrid models, of compressed or shared caches, and where layers differ in their heads.

    Args:
        sliding_cells: tokens that layers keep whose attention slides; 0: as many.
    """
    if llama_cpp.llama_model_is_recurrent(model) or llama_cpp.llama_model_is_hybrid(model):
        return 0
    architecture = metadata(llama_cpp, model, "general.architecture")
    if any(metadata(llama_cpp, model, f"{architecture}.attention.{mark}") for mark in _UNLIKE):
        return 0
    heads, queries = llama_cpp.llama_model_n_head_kv(model), llama_cpp.llama_model_n_head(model)
    # llama.cpp keeps no lists among the metadata: what is missing there and is no default was one.
    if heads != queries and metadata(llama_cpp, model, f"{architecture}.attention.head_count_kv") is None:
        return 0
    per_head = llama_cpp.llama_model_n_embd(model) // max(1, queries)
    numbers = {
        part: int(metadata(llama_cpp, model, f"{architecture}.attention.{part}_length") or per_head) * heads
        for part in ("key", "value")
    }
    blocks = numbers["key"] * _BLOCK_BYTES[options.cache_type_k] + numbers["value"] * _BLOCK_BYTES[options.cache_type_v]
    layers = llama_cpp.llama_model_n_layer(model)
    full = layers // _FULL_LAYER_EVERY.get(architecture or "", 2) if llama_cpp.llama_model_n_swa(model) else layers
    return int((full * cells + (layers - full) * (sliding_cells or cells)) * blocks // 32)


def available_bytes() -> int | None:
    """Memory that this process may take: what the system has free, and its control groups leave; None: unknown."""
    found = []
    try:
        lines = read_input(Path("/proc/meminfo"), SMALL).decode("ascii").splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    except OSError:
        pass
    limit = memory_limit()
    found += [limit.free] if limit else []
    return min(found, default=None)
