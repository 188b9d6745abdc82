"""Every text decoder that transformers knows, each as the configuration of a tiny model.

Windows, chunks and what rope scaling takes for the trained length are shorter than the prompts, so that they matter;
experts are few, but more than are chosen. What a family does not name is made small by ``shrinking``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tests.tiny_families.excluded import EXCLUDED
from tests.tiny_families.shrinking import WINDOW


@dataclass(frozen=True)
class Family:
    """A kind of model.

    Attributes:
        model_type: by transformers' name.
        options: of its configuration, instead of what ``shrinking.tiny`` makes of the kind's default.
        hub: what config.json of such models has on the hub, and transformers no longer writes; the converter reads it.
    """

    model_type: str
    options: dict[str, Any] = field(default_factory=dict)
    hub: dict[str, Any] = field(default_factory=dict)


def _rope(kind: str, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **more}}


def _kinds(*kinds: str) -> dict[str, Any]:
    return {"num_hidden_layers": len(kinds), "layer_types": list(kinds)}


FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"
_ONE_GROUP = {"n_group": 1, "topk_group": 1}
_DENSE_FIRST = {"mlp_layer_types": ["dense", "sparse"]}
_LONG_FACTORS = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8, "original_max_position_embeddings": WINDOW}
_TIED = {"tie_word_embeddings": True}  # as the converter takes for granted
_GEMMA = {"query_pre_attn_scalar": 16} | _TIED
_GEMMA3 = _GEMMA | _kinds(*[SLIDING] * 5, FULL)  # llama.cpp takes this order for granted, as others below
_GEMMA3N = (
    _GEMMA
    | _kinds(SLIDING, FULL, SLIDING, FULL)
    | {
        "intermediate_size": [96] * 4,
        "num_kv_shared_layers": 2,
        "laurel_rank": 64,
        "hidden_size_per_layer_input": 256,  # llama.cpp knows no other
        "activation_sparsity_pattern": [0.5, 0.0, 0.0, 0.0],
    }
)
_GEMMA4 = _TIED | _kinds(SLIDING, FULL, SLIDING, FULL) | {"num_kv_shared_layers": 2}
_MROPE = {
    "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1],
}  # fmt: skip
_QWEN35 = _kinds(*[LINEAR] * 3, FULL) | {"rope_parameters": _MROPE}
_YARN_MISTRAL = _rope(
    "yarn",
    factor=4.0,
    original_max_position_embeddings=WINDOW,
    llama_4_scaling_beta=0.1,
    mscale=1.0,
    mscale_all_dim=1.0,
)
_SIGMOID = {"scoring_func": "sigmoid"}

_NAMED: dict[str, Family] = {
    "llama": Family("llama"),
    "llama3 rope": Family(
        "llama",
        _rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=WINDOW),
    ),
    "linear rope": Family("llama", _rope("linear", factor=4.0)),
    "yarn": Family("qwen2", _rope("yarn", factor=4.0, original_max_position_embeddings=WINDOW)),
    "dynamic rope": Family("llama", _rope("dynamic", factor=4.0) | {"max_position_embeddings": 64}),
    "longrope": Family("phi3", {"original_max_position_embeddings": WINDOW} | _rope("longrope", **_LONG_FACTORS)),
    "llama, longrope": Family("llama", _rope("longrope", **_LONG_FACTORS)),
    "phimoe, longrope": Family("phimoe", {"original_max_position_embeddings": WINDOW} | _rope(
        "longrope", **_LONG_FACTORS, short_mscale=1.1, long_mscale=1.3)),
    "qwen2": Family("qwen2"),
    "qwen2_moe": Family("qwen2_moe"),
    "qwen3": Family("qwen3"),
    "qwen3_moe": Family("qwen3_moe", {"norm_topk_prob": True}),
    "qwen3_next": Family("qwen3_next", _kinds(*[LINEAR] * 3, FULL)),
    "qwen3_5": Family("qwen3_5_text", _QWEN35),
    "qwen3_5, with eyes": Family("qwen3_5", _QWEN35),
    "qwen3_5_moe": Family("qwen3_5_moe_text", _QWEN35),
    "mistral": Family("mistral", {"sliding_window": None}),
    "mistral, window": Family("mistral"),
    "mistral3, with eyes": Family("mistral3", {"sliding_window": None}),
    "ministral3": Family("ministral3", _YARN_MISTRAL),
    "mistral4": Family("mistral4", _YARN_MISTRAL),
    "mixtral": Family("mixtral"),
    "gemma2": Family("gemma2", _GEMMA | _kinds(SLIDING, FULL)),
    "gemma3": Family("gemma3_text", _GEMMA3),
    "gemma3, with eyes": Family("gemma3", _GEMMA3 | {".mm_tokens_per_image": 4, ".image_token_index": 5}),
    "gemma3n": Family("gemma3n_text", _GEMMA3N),
    "gemma4": Family("gemma4_text", _GEMMA4),
    "gpt_oss": Family("gpt_oss", _kinds(SLIDING, FULL) | {
        "intermediate_size": 64,
        **_rope("yarn", factor=8.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                original_max_position_embeddings=WINDOW),
    }),
    "phi3": Family("phi3"),
    "phimoe": Family("phimoe"),
    "glm4": Family("glm4"),
    "glm4_moe": Family("glm4_moe", {"use_qk_norm": True, "num_mtp_layers": 0}),
    "glm4_moe_lite": Family("glm4_moe_lite", _ONE_GROUP, hub=_SIGMOID),
    "glm_moe_dsa": Family("glm_moe_dsa", hub=_SIGMOID),
    "deepseek_v2": Family("deepseek_v2", _ONE_GROUP | {"num_experts_per_tok": 2}, hub={"scoring_func": "softmax"}),
    "deepseek_v3": Family("deepseek_v3", {"num_mtp_layers": 0} | _rope(
        "yarn", factor=4.0, mscale=1.0, mscale_all_dim=1.0, original_max_position_embeddings=WINDOW), hub=_SIGMOID),
    "deepseek_v32": Family("deepseek_v32", hub=_SIGMOID),
    "olmo2": Family("olmo2"),
    "olmo3": Family("olmo3", _kinds(SLIDING, FULL)),
    "olmoe": Family("olmoe", {"num_key_value_heads": 4}),
    "cohere": Family("cohere", _TIED),
    "cohere2": Family("cohere2", _TIED | _kinds(*[SLIDING] * 3, FULL), hub={"rotary_pct": 1.0}),
    "granite": Family("granite", {
        "embedding_multiplier": 2.0, "attention_multiplier": 0.2, "residual_multiplier": 0.5,
    }),
    "granitemoehybrid": Family("granitemoehybrid", _kinds("mamba", "attention") | {"position_embedding_type": "nope"},
                               hub={"layer_types": ["mamba", "attention"]}),
    "falcon_h1": Family("falcon_h1", {"mamba_d_ssm": 128}),
    "mamba": Family("mamba", _TIED),
    "mamba2": Family("mamba2", {"num_heads": 8, "n_groups": 1, "chunk_size": 16}),
    "falcon_mamba": Family("falcon_mamba", _TIED),
    "jamba": Family("jamba", {
        "attn_layer_period": 2, "attn_layer_offset": 1, "mamba_dt_rank": 4, "use_mamba_kernels": False,
    }),
    "bamba": Family("bamba", {"attn_layer_indices": [1]}),
    "lfm2": Family("lfm2", _kinds("conv", FULL) | {"block_auto_adjust_ff_dim": False}),
    "lfm2_moe": Family("lfm2_moe", _kinds("conv", FULL) | {"num_dense_layers": 1} | _TIED),
    "smollm3": Family("smollm3", _kinds(*[FULL] * 4) | {"no_rope_layers": [1, 1, 1, 0]}),
    "llama4": Family("llama4_text", _kinds(*["chunked_attention"] * 3, FULL) | {
        "num_experts_per_tok": 1, "intermediate_size_mlp": 96, "no_rope_layers": [1, 1, 1, 0], "floor_scale": WINDOW,
    }),
    "exaone4": Family("exaone4", _kinds(*[SLIDING] * 3, FULL)),
    "hunyuan dense": Family("hunyuan_v1_dense", {"head_dim": 16}),
    "hunyuan moe": Family("hunyuan_v1_moe", {"head_dim": 16, "num_experts": 4, "moe_topk": 2},
                          hub={"moe_intermediate_size": [96, 96], "num_shared_expert": [1, 1], "moe_topk": [2, 2]}),
    "ernie4_5": Family("ernie4_5"),
    "ernie4_5_moe": Family("ernie4_5_moe", {"moe_num_shared_experts": 1, "moe_layer_start_index": 1}),
    "seed_oss": Family("seed_oss"),
    "nemotron": Family("nemotron"),
    "nemotron_h": Family("nemotron_h", {
        "layers_block_type": ["mamba", "attention", "mlp"], "num_hidden_layers": 3, "ssm_state_size": 16,
        "mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 1, "chunk_size": 16, "use_mamba_kernels": False,
    }, hub={"num_hidden_layers": 3, "hybrid_override_pattern": "M*-"}),
    "minimax": Family("minimax", _kinds(LINEAR, FULL) | {"block_size": 16}),
    "minimax_m2": Family("minimax_m2", hub={"rotary_dim": 16, **_SIGMOID}),
    "kimi_linear": Family("kimi_linear", _kinds(LINEAR, FULL) | _DENSE_FIRST | {
        "q_lora_rank": None, "linear_head_dim": 16, "linear_num_heads": 4,
    }),
    "bloom": Family("bloom", _TIED),
    "gpt_neox": Family("gpt_neox", hub={"rotary_pct": 0.25}),
    "gpt2": Family("gpt2", _TIED, hub={"n_ctx": 1024}),
    "starcoder2": Family("starcoder2", {"sliding_window": None}),
    "stablelm": Family("stablelm"),
    "apertus": Family("apertus"),
    "arcee": Family("arcee"),
    "afmoe": Family("afmoe", _kinds(*[SLIDING] * 3, FULL) | {"mup_enabled": True}, hub={"route_norm": True}),
    "solar_open": Family("solar_open", hub={"partial_rotary_factor": 1.0}),
    "mimo_v2_flash": Family("mimo_v2_flash", _kinds(SLIDING, FULL) | _DENSE_FIRST | {"v_head_dim": 8}),
}  # fmt: skip
"""Several of one kind, and those whose layers, ropes or windows are to be of more than one sort."""


@cache
def decoders() -> dict[str, str]:
    """What transformers loads to write text, with eyes or without: the kind by transformers' name, and its class."""
    from transformers.models.auto import modeling_auto as auto

    return {**auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, **auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES}


def _sections(*sections: int, **more: Any) -> dict[str, Any]:
    return _rope("default", mrope_section=list(sections), **more)


_HALVES = _sections(2, 1, 1, partial_rotary_factor=0.5)

_NO_VIDEO = {".vision_start_token_id": 5, ".video_token_id": 6}
_FEW_EXPERTS = {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2}
_SLIDING_PART = {
    "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 32, "head_dim": 24,
    "qk_nope_head_dim": 16, "v_head_dim": 16,
}  # fmt: skip
_DOTS3 = {f"swa_{name}": value for name, value in _SLIDING_PART.items()} | {
    "layer_types": ["indexed_attention", SLIDING], "head_dim": 24, "shared_experts_intermediate_size": 32,
}  # fmt: skip
_QWEN4 = {
    "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 16,
    "indexer_compress_ratio": 4, "ple_layer_ids": [1], "ple_embed_dim": 32, "ngram_vocab_size_base": 64,
    "split_ngram_parts": 1,
}  # fmt: skip
_OPTIONS: dict[str, dict[str, Any]] = {
    "bailing_hybrid": {"layer_group_size": 2},
    "chameleon": {"vocabulary_map": {"<image>": 5}},
    "cohere_compass": {"rope_parameters": {FULL: {"rope_type": "default", "rope_theta": 10000.0}}},
    "cohere_compass_text": {"rope_parameters": {FULL: {"rope_type": "default", "rope_theta": 10000.0}}},
    "cosmos3_edge": _sections(4, 2, 2),
    "cpmant": {"prompt_types": 4},
    "dbrx": {
        "attn_config.kv_n_heads": 2, "attn_config.clip_qkv": 8.0, "attn_config.rope_theta": 10000.0,
        "ffn_config.moe_top_k": 2,
    },
    "deepseek_ocr2": _FEW_EXPERTS | _DENSE_FIRST,
    "dots1": _FEW_EXPERTS | {"first_k_dense_replace": 1},
    "dots3_note": _DOTS3 | {
        "vision_config.adapter_in_dim": 32, "vision_config.adapter_out_dim": 64, "vision_config.per_layer_config": {},
        "audio_config.adapter_input_size": 32, "audio_config.adapter_out_dim": 64,
    },
    "dots3_note_text": _DOTS3,
    "emu3": {".vocabulary_map": {"<image>": 5}},
    "ernie4_5_vl_moe": _sections(3, 3, 2) | {"moe_intermediate_size": [32, 32]},
    "gemma": _TIED,
    **dict.fromkeys(("glm46v", "glm4v", "glm4v_moe", "glm_ocr", "glmga"), _HALVES),
    **dict.fromkeys(("paddleocr_vl", "qwen2_5_vl", "qwen2_vl"), _sections(4, 2, 2)),
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": WINDOW},
    "granite4_vision": {".deepstack_layer_map": [[0, 0]], ".downsample_rate": "1/2", "vision_config.hidden_size": 64},
    "hunyuan_vl": {"head_dim": 16} | _rope("dynamic", alpha=1000.0, factor=1.0, mrope_section=[2, 2, 2, 2]),
    "inkling2": {"vision_config.text_hidden_size": 64},
    "inkling_mm_model": {"vision_config.text_hidden_size": 64, "vision_config.n_layers": 2},
    "longcat_flash": {"head_dim": 8},
    "ministral": {"head_dim": 16},
    "molmo2": {"adapter_config.vision_feature_layer": [0, 0]},
    "muse_spark": {
        "audio_config.num_hidden_layers": 1, "audio_config.patch_sizes": [4], "audio_config.hidden_sizes": [32],
        "audio_config.depths": [1],
    },
    "nemotron_h_omni": {"vision_config.video_temporal_patch_size": 2},
    "qwen2_5_omni_thinker": _NO_VIDEO | _sections(4, 2, 2),
    "qwen3_omni_moe_thinker": _NO_VIDEO | _sections(4, 2, 2),
    "qwen4_exp": _QWEN4,
    "qwen4_exp_text": _QWEN4,
    "recurrent_gemma": {"num_hidden_layers": 3, "attention_window_size": WINDOW},
    "reformer": {"is_decoder": True, "axial_pos_embds": False, "attn_layers": ["local", "lsh"], "hash_seed": 7},
    "step3p7": {"sliding_window": WINDOW},
    "xlstm": {"hidden_size": 128, "num_blocks": 2},  # its heads are rounded up to 64 in all, but not everywhere
    "zamba": {"num_hidden_layers": 4, "layers_block_type": [LINEAR, "hybrid", LINEAR, "hybrid"]},
    "zaya": {"num_experts_per_tok": 1},
}  # fmt: skip
"""Of kinds that are the only ones of their kind."""


def _families() -> dict[str, Family]:
    named = {family.model_type for family in _NAMED.values()}
    others = sorted(name for name in decoders() if name not in named and name not in EXCLUDED)
    names = {name: f"{name}, with eyes" if name in _NAMED else name for name in others}
    return _NAMED | {names[name]: Family(name, _OPTIONS.get(name, {})) for name in others}


FAMILIES = _families()
