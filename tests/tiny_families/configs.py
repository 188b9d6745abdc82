"""Causal architectures that people run in 2026, each as the configuration of a tiny model.

Windows, chunks and what rope scaling takes for the trained length are shorter than the prompts, so that they matter;
experts are few, but more than are chosen. What a family does not name is in ``COMMON``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
    "tie_word_embeddings": False,
}


@dataclass(frozen=True)
class Family:
    """A kind of model.

    Attributes:
        model_type: by transformers' name.
        options: of its configuration, beside ``COMMON``.
        without: what of ``COMMON`` it does not know or would take amiss.
        text: the table of a model with eyes that takes all of these; "" where they are the configuration's own.
        beside: what such a model's configuration holds beside that table.
        hub: what config.json of such models has on the hub, and transformers no longer writes; the converter reads it.
    """

    model_type: str
    options: dict[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    text: str = ""
    beside: dict[str, Any] = field(default_factory=dict)
    hub: dict[str, Any] = field(default_factory=dict)

    @property
    def seeing(self) -> bool:
        return bool(self.text) or self.model_type == "mistral4"

    def keywords(self) -> dict[str, Any]:
        """What ``AutoConfig.for_model`` takes."""
        own = {name: value for name, value in COMMON.items() if name not in self.without} | self.options
        if not self.text:
            return own
        ids = {name: own[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id", "tie_word_embeddings")}
        return {self.text: own, **ids, **self.beside}


def _rope(kind: str, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **more}}


def _kinds(*kinds: str) -> dict[str, Any]:
    return {"num_hidden_layers": len(kinds), "layer_types": list(kinds)}


FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True}
_LOCAL_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
_ROUTED = {
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "n_group": 2,
    "topk_group": 1,
}
_ONE_GROUP = {"n_group": 1, "topk_group": 1}
_LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
}
_INDEXED = {"index_topk": 16, "index_head_dim": 16, "index_n_heads": 16, "head_dim": 8}
_DELTA = {
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "head_dim": 16,
}
_MAMBA2 = {
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_state": 16,
    "mamba_n_groups": 1,
    "mamba_expand": 2,
    "mamba_chunk_size": 16,
}
_LONG_FACTORS = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8, "original_max_position_embeddings": WINDOW}
_GEMMA = {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": WINDOW, "tie_word_embeddings": True}
_GEMMA3 = _GEMMA | _kinds(*[SLIDING] * 5, FULL)  # llama.cpp takes this order for granted, as others below
_GEMMA3N = (
    _GEMMA
    | _kinds(SLIDING, FULL, SLIDING, FULL)
    | {
        "intermediate_size": [96] * 4,
        "num_kv_shared_layers": 2,
        "laurel_rank": 64,
        "hidden_size_per_layer_input": 256,  # llama.cpp knows no other
        "vocab_size_per_layer_input": VOCABULARY,
        "activation_sparsity_pattern": [0.5, 0.0, 0.0, 0.0],
    }
)
_GEMMA4 = _GEMMA | _kinds(SLIDING, FULL, SLIDING, FULL) | {
    "hidden_size_per_layer_input": 16,
    "vocab_size_per_layer_input": VOCABULARY,
    "num_kv_shared_layers": 2,
}  # fmt: skip
_LLAMA4 = _kinds(*["chunked_attention"] * 3, FULL) | _LOCAL_EXPERTS | {
    "num_experts_per_tok": 1,
    "intermediate_size_mlp": 96,
    "attention_chunk_size": WINDOW,
    "head_dim": 16,
    "no_rope_layers": [1, 1, 1, 0],
    "floor_scale": WINDOW,
}  # fmt: skip
_QWEN35 = _DELTA | _kinds(*[LINEAR] * 3, FULL) | {
    "rope_parameters": {
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1],
    },
}  # fmt: skip
_YARN_MISTRAL = _rope(
    "yarn",
    factor=4.0,
    original_max_position_embeddings=WINDOW,
    llama_4_scaling_beta=0.1,
    mscale=1.0,
    mscale_all_dim=1.0,
)
_SIGMOID = {"scoring_func": "sigmoid"}
_EYES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}

FAMILIES: dict[str, Family] = {
    "llama": Family("llama"),
    "llama3 rope": Family(
        "llama",
        _rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=WINDOW),
    ),
    "linear rope": Family("llama", _rope("linear", factor=4.0)),
    "yarn": Family("qwen2", _rope("yarn", factor=4.0, original_max_position_embeddings=WINDOW)),
    "dynamic rope": Family("llama", _rope("dynamic", factor=4.0) | {"max_position_embeddings": 64}),
    "longrope": Family("phi3", {"original_max_position_embeddings": WINDOW} | _rope("longrope", **_LONG_FACTORS)),
    "qwen2": Family("qwen2"),
    "qwen2_moe": Family("qwen2_moe", _EXPERTS | {"norm_topk_prob": False, "shared_expert_intermediate_size": 32}),
    "qwen3": Family("qwen3", {"head_dim": 16}),
    "qwen3_moe": Family("qwen3_moe", _EXPERTS | {"head_dim": 16}),
    "qwen3_next": Family("qwen3_next", _DELTA | _EXPERTS | _kinds(*[LINEAR] * 3, FULL)
                         | {"shared_expert_intermediate_size": 32}),
    "qwen3_5": Family("qwen3_5_text", _QWEN35),
    "qwen3_5, with eyes": Family("qwen3_5", _QWEN35, text="text_config", beside={
        "vision_config": {"depth": 1, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 64,
                          "num_position_embeddings": 16},
    }),
    "qwen3_5_moe": Family("qwen3_5_moe_text", _QWEN35 | _EXPERTS | {"shared_expert_intermediate_size": 32}),
    "mistral": Family("mistral", {"head_dim": 16, "sliding_window": None}),
    "mistral, window": Family("mistral", {"head_dim": 16, "sliding_window": WINDOW}),
    "mistral3, with eyes": Family("mistral3", {"head_dim": 16, "model_type": "mistral", "sliding_window": None},
                                  text="text_config", beside={
        "vision_config": {"model_type": "pixtral", "image_size": 28, "patch_size": 14, **_EYES},
        "image_token_index": 5,
    }),
    "ministral3": Family("ministral3", {"head_dim": 16} | _YARN_MISTRAL),
    "mistral4": Family("mistral4", _LATENT | _ROUTED | _YARN_MISTRAL),
    "mixtral": Family("mixtral", _LOCAL_EXPERTS | {"head_dim": 16}),
    "gemma2": Family("gemma2", _GEMMA | _kinds(SLIDING, FULL)),
    "gemma3": Family("gemma3_text", _GEMMA3),
    "gemma3, with eyes": Family("gemma3", _GEMMA3, text="text_config", beside={
        "vision_config": {"model_type": "siglip_vision_model", "image_size": 28, "patch_size": 14, **_EYES},
        "mm_tokens_per_image": 4, "image_token_index": 5,
    }),
    "gemma3n": Family("gemma3n_text", _GEMMA3N),
    "gemma4": Family("gemma4_text", _GEMMA4),
    "gpt_oss": Family("gpt_oss", _LOCAL_EXPERTS | _kinds(SLIDING, FULL) | {
        "head_dim": 16, "sliding_window": WINDOW, "intermediate_size": 64,
        **_rope("yarn", factor=8.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                original_max_position_embeddings=WINDOW),
    }),
    "phi3": Family("phi3"),
    "phimoe": Family("phimoe", _LOCAL_EXPERTS),
    "glm4": Family("glm4", {"head_dim": 16}),
    "glm4_moe": Family("glm4_moe", _ROUTED | {"head_dim": 16, "use_qk_norm": True, "num_mtp_layers": 0}),
    "glm4_moe_lite": Family("glm4_moe_lite", _LATENT | _ROUTED | _ONE_GROUP, hub=_SIGMOID),
    "glm_moe_dsa": Family("glm_moe_dsa", _LATENT | _ROUTED | _INDEXED, hub=_SIGMOID),
    "deepseek_v2": Family("deepseek_v2", _LATENT | _ROUTED | _ONE_GROUP | {"topk_method": "greedy"},
                          hub={"scoring_func": "softmax"}),
    "deepseek_v3": Family("deepseek_v3", _LATENT | _ROUTED | {"num_mtp_layers": 0} | _rope(
        "yarn", factor=4.0, mscale=1.0, mscale_all_dim=1.0, original_max_position_embeddings=WINDOW), hub=_SIGMOID),
    "deepseek_v32": Family("deepseek_v32", _LATENT | _ROUTED | _INDEXED, hub=_SIGMOID),
    "olmo2": Family("olmo2"),
    "olmo3": Family("olmo3", _kinds(SLIDING, FULL) | {"sliding_window": WINDOW}),
    "olmoe": Family("olmoe", {"num_key_value_heads": 4, "num_experts": 4, "num_experts_per_tok": 2}),
    "cohere": Family("cohere", {"tie_word_embeddings": True}),
    "cohere2": Family("cohere2", _kinds(*[SLIDING] * 3, FULL) | {"sliding_window": WINDOW, "tie_word_embeddings": True},
                      hub={"rotary_pct": 1.0}),
    "granite": Family("granite", {
        "embedding_multiplier": 2.0, "attention_multiplier": 0.2, "residual_multiplier": 0.5,
    }),
    "granitemoehybrid": Family("granitemoehybrid", _MAMBA2 | _LOCAL_EXPERTS | {
        "num_hidden_layers": 2, "layer_types": ["mamba", "attention"], "shared_intermediate_size": 48,
        "position_embedding_type": "nope",
    }, hub={"layer_types": ["mamba", "attention"]}),
    "falcon_h1": Family("falcon_h1", _MAMBA2 | {"mamba_d_ssm": 128, "head_dim": 16}),
    "mamba": Family("mamba", {"state_size": 16, "tie_word_embeddings": True},
                    without=("intermediate_size", "num_attention_heads", "num_key_value_heads")),
    "mamba2": Family("mamba2", {"num_heads": 8, "head_dim": 16, "state_size": 16, "n_groups": 1, "chunk_size": 16},
                     without=("intermediate_size", "num_attention_heads", "num_key_value_heads")),
    "falcon_mamba": Family("falcon_mamba", {"state_size": 16, "tie_word_embeddings": True},
                           without=("intermediate_size", "num_attention_heads", "num_key_value_heads")),
    "jamba": Family("jamba", {
        "num_experts": 4, "num_experts_per_tok": 2, "attn_layer_period": 2, "attn_layer_offset": 1,
        "mamba_d_state": 16, "mamba_dt_rank": 4, "use_mamba_kernels": False,
    }),
    "bamba": Family("bamba", _MAMBA2 | {"attn_layer_indices": [1]}),
    "lfm2": Family("lfm2", {"layer_types": ["conv", FULL], "block_auto_adjust_ff_dim": False}),
    "lfm2_moe": Family("lfm2_moe", _EXPERTS | {
        "layer_types": ["conv", FULL], "num_dense_layers": 1, "tie_word_embeddings": True,
    }),
    "smollm3": Family("smollm3", {"num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0]}),
    "llama4": Family("llama4_text", _LLAMA4),
    "exaone4": Family("exaone4", _kinds(*[SLIDING] * 3, FULL) | {"sliding_window": WINDOW, "head_dim": 16}),
    "hunyuan dense": Family("hunyuan_v1_dense", {"head_dim": 16}),
    "hunyuan moe": Family("hunyuan_v1_moe", {"head_dim": 16, "num_experts": 4, "moe_topk": 2},
                          hub={"moe_intermediate_size": [96, 96], "num_shared_expert": [1, 1], "moe_topk": [2, 2]}),
    "ernie4_5": Family("ernie4_5", {"head_dim": 16}),
    "ernie4_5_moe": Family("ernie4_5_moe", {
        "moe_intermediate_size": 32, "moe_k": 2, "moe_num_experts": 4, "moe_num_shared_experts": 1,
        "moe_layer_start_index": 1,
    }),
    "seed_oss": Family("seed_oss", {"head_dim": 16}),
    "nemotron": Family("nemotron", {"head_dim": 16}),
    "nemotron_h": Family("nemotron_h", {
        "layers_block_type": ["mamba", "attention", "mlp"], "num_hidden_layers": 3, "head_dim": 16,
        "ssm_state_size": 16, "mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 1, "chunk_size": 16,
        "use_mamba_kernels": False,
    }, hub={"num_hidden_layers": 3, "hybrid_override_pattern": "M*-"}),
    "minimax": Family("minimax", _LOCAL_EXPERTS | _kinds(LINEAR, FULL) | {"head_dim": 16, "block_size": 16}),
    "minimax_m2": Family("minimax_m2", _LOCAL_EXPERTS | {"head_dim": 16}, hub={"rotary_dim": 16, **_SIGMOID}),
    "kimi_linear": Family("kimi_linear", _LATENT | _LOCAL_EXPERTS | _kinds(LINEAR, FULL) | {
        "q_lora_rank": None, "moe_intermediate_size": 32, "n_shared_experts": 1, "linear_head_dim": 16,
        "linear_num_heads": 4, "mlp_layer_types": ["dense", "sparse"],
    }),
    "bloom": Family("bloom", {"n_layer": 2, "n_head": 4, "tie_word_embeddings": True},
                    without=("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size")),
    "gpt_neox": Family("gpt_neox", without=("num_key_value_heads",), hub={"rotary_pct": 0.25}),
    "gpt2": Family("gpt2", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 1024, "tie_word_embeddings": True},
                   without=("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                            "intermediate_size", "max_position_embeddings"), hub={"n_ctx": 1024}),
    "starcoder2": Family("starcoder2", {"sliding_window": None}),
    "stablelm": Family("stablelm"),
    "apertus": Family("apertus"),
    "arcee": Family("arcee", {"head_dim": 16}),
    "mimo_v2_flash": Family("mimo_v2_flash", _ROUTED | _kinds(SLIDING, FULL) | {
        "head_dim": 16, "v_head_dim": 8, "sliding_window": WINDOW, "mlp_layer_types": ["dense", "sparse"],
    }),
}  # fmt: skip
