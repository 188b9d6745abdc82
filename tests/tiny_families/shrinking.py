"""A tiny configuration of any kind that transformers knows, made from the kind's own default."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

VOCABULARY = 544
WINDOW = 32
"""Of sliding and chunked attention, and the length that rope scaling starts from; prompts are several times as long."""

COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "initializer_range": 0.2,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
    "tie_word_embeddings": False,  # a tied model of random numbers says the last token again and again
}
"""Of every kind that has such a field, by this name or by another that it maps this one to."""

_SMALL: dict[str, Any] = {
    # attention, whole, latent and indexed
    "head_dim": 16,
    "global_head_dim": 16,
    "sliding_window": WINDOW,
    "attention_chunk_size": WINDOW,
    "kv_lora_rank": 32,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "rotary_dim": 8,
    "v_head_dim": 16,
    "index_topk": 16,
    "index_head_dim": 16,
    "index_n_heads": 16,  # with few, ties decide: see the last of known.NOTES
    # experts
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "top_k_experts"), 2),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "expert_ffn_hidden_size"), 32),
    "zero_expert_num": 2,
    **dict.fromkeys(("n_shared_experts", "moe_num_shared_experts", "first_k_dense_replace", "topk_group"), 1),
    "shared_intermediate_size": 48,
    "n_group": 2,
    # recurrent layers
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_state": 16,
    "mamba_n_groups": 1,
    "mamba_expand": 2,
    "mamba_chunk_size": 16,
    "state_size": 16,
    # other names of what is in COMMON
    **dict.fromkeys(("d_model", "n_embd", "dim"), 64),
    **dict.fromkeys(("n_layers", "num_layers", "n_layer", "decoder_layers"), 2),
    **dict.fromkeys(("n_heads", "num_heads", "n_head", "decoder_attention_heads"), 4),
    **dict.fromkeys(("ffn_dim", "ffn_hidden_size", "decoder_ffn_dim"), 96),
    **dict.fromkeys(("max_seq_len", "n_positions"), 1024),
    # tables of their own, and of bytes
    "vocab_size_per_layer_input": VOCABULARY,
    "hidden_size_per_layer_input": 16,
    "encoder_hash_byte_group_vocab": 64,
    # eyes
    "depth": 1,
    "base_channels": 32,
    "projector_hidden_size": 64,
    "moe_hidden_size": 64,
    "out_hidden_size": 64,
    "image_size": 28,
    "patch_size": 14,
    "encoder_layers": 1,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 48,
}
"""Of a kind whose default has such a field, and not as None or zero, which would switch something on."""

_EYES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_heads": 2,
    "embed_dim": 32,
}
_TEXTS = ("text_config", "decoder", "thinker_config")


def tiny(model_type: str, options: Mapping[str, Any]) -> Any:
    """A small configuration.

    Args:
        options: what its text's table holds beside or instead of what every kind gets; ``vision_config.depth`` is an
            option of another table, ``.boi_token_id`` one beside all tables.
    """
    from transformers import CONFIG_MAPPING

    kind = CONFIG_MAPPING[model_type]
    default = kind()
    values = _values(default, seeing=False)
    text = next((name for name in _TEXTS if isinstance(values.get(name), dict)), "")
    for name, value in options.items():
        *path, last = name.split(".") if "." in name else [text, name]
        table = values
        for part in filter(None, path):
            table = table.setdefault(part, {})
        table[last] = value
    return kind(**values)


def _values(default: Any, *, seeing: bool) -> dict[str, Any]:
    """What makes this configuration small, its tables and theirs with it."""
    kind = type(default)
    fields = {one.name: one.default for one in dataclasses.fields(kind)}
    values = {name: value for name, value in _SMALL.items() if fields.get(name)}
    for name, value in (COMMON | (_EYES if seeing else {})).items():
        if (own := kind.attribute_map.get(name, name)) in fields:
            values[own] = value
    values |= _by_layer(default, fields)
    if values.get("kv_lora_rank") and "num_key_value_heads" in values:  # every head has keys of its own
        values["num_key_value_heads"] = values["num_attention_heads"]
    for name in kind.sub_configs:
        table = getattr(default, name, None)
        if dataclasses.is_dataclass(table):
            values[name] = {**_values(table, seeing=name not in _TEXTS), "model_type": table.model_type}
    return values


def _by_layer(default: Any, fields: Iterable[str]) -> dict[str, Any]:
    """A layer of each sort that the default has, two at least, for the lists that name each layer's."""
    layers = default.attribute_map.get("num_hidden_layers", "num_hidden_layers")
    count = vars(default).get(layers)
    lists = {name: value for name in fields if isinstance(value := vars(default).get(name), list)}
    sorts = {
        name: list(dict.fromkeys(value))
        for name, value in lists.items()
        if value and len(value) == count and all(isinstance(one, str) for one in value)
    }
    if not sorts:
        return {}
    most = max(2, *(len(kinds) for kinds in sorts.values()))
    return {layers: most} | {name: [*kinds, *[kinds[-1]] * (most - len(kinds))] for name, kinds in sorts.items()}
