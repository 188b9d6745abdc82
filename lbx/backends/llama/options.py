"""Options of models on llama.cpp."""

from __future__ import annotations

from dataclasses import dataclass

from lbx.backends.options import POOLINGS, BackendOptions, check_at_least, check_choice
from lbx.base.errors import UsageError

CACHE_TYPES = ("f16", "f32", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
ROPE_SCALINGS = ("", "none", "linear", "yarn")
MOST_SEQUENCES = 256  # llama.cpp's own limit


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaOptions(BackendOptions):
    """Options of the llama.cpp backend.

    Attributes:
        prefill_chunk: tokens that a prefill step computes at once. On a CPU, 256 is 5% faster than llama.cpp's own 512
            and halves the memory outside the cache, which grows with ``prefill_chunk`` times the window; on a GPU a
            larger value may be faster.
        flash_attention: use flash attention. Off by default, because on a CPU it flips near-ties: greedy answers then
            differ from Hugging Face's in float32.
        cache_type_k: number format of the cached keys: f16, f32, bf16, q8_0, q5_1, q5_0, q4_1 or q4_0.
        cache_type_v: number format of the cached values, as of cache_type_k; a quantised one needs flash_attention.
        n_gpu_layers: layers to put on a GPU; -1 means all, 0 means that the CPU computes everything (no effect if
            llama.cpp has no GPU). The actual number is part of the run's identity.
        offload_kqv: keep the KV cache on the GPU, too; its actual location is part of the run's identity.
        threads: CPU threads; 0 means one for each CPU that this process may use.
        repack: let llama.cpp rearrange quantised weights for this CPU (faster, other rounding).
        rope_scaling: how to stretch the positions: "none", "linear" or "yarn"; "" keeps the model file's way.
        rope_freq_base: base of the rotary frequencies; a larger one stretches the positions. 0 keeps the model file's.
        rope_freq_scale: factor of the positions; 0.25 stretches them 4 times. 0 keeps the model file's.
        yarn_original_context: context window before stretching by yarn, in tokens; 0 keeps the model file's.
        extend_context: allow a context_window above the one that the model file declares.
        max_sequences: questions that can be answered at once, 1 to 256; llama.cpp's own limit leaves 253 of them. For
            models with sliding windows or recurrent states at most eight, and each takes a window or a state.
        kv_cells: size of the KV cache in tokens; shared tokens count once. 0 means context_window. A larger cache
            answers more questions on a long document at once.
        batch_invariant: give a prompt bit-identical logits in every batch, on a CPU without flash_attention, in
            models without sliding attention; passes of few tokens are padded for that. Left out: true for weights in
            F32, F16, BF16 and Q8_0 (padded to 2 tokens: a single growing answer takes 1.3 times as long on one
            core), false for others (to 8 tokens: 2.7 to 5 times).
    """

    prefill_chunk: int = 256
    flash_attention: bool = False
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    n_gpu_layers: int = -1
    offload_kqv: bool = True
    threads: int = 0
    repack: bool = True
    rope_scaling: str = ""
    rope_freq_base: float = 0.0
    rope_freq_scale: float = 0.0
    yarn_original_context: int = 0
    extend_context: bool = False
    max_sequences: int = 32
    kv_cells: int = 0
    batch_invariant: bool | None = None

    def __post_init__(self) -> None:
        check_at_least(self, 1, "prefill_chunk", "max_sequences")
        check_at_least(self, 0, "threads", "yarn_original_context", "kv_cells", "rope_freq_base", "rope_freq_scale")
        check_at_least(self, -1, "n_gpu_layers")
        if self.max_sequences > MOST_SEQUENCES:
            raise UsageError(f"max_sequences = {self.max_sequences} is too large: it must be at most {MOST_SEQUENCES}.")
        check_choice(self, CACHE_TYPES, "cache_type_k", "cache_type_v")
        check_choice(self, ROPE_SCALINGS, "rope_scaling")
        if self.cache_type_v.startswith("q") and not self.flash_attention:
            raise UsageError(
                f"cache_type_v = {self.cache_type_v!r} needs flash attention.",
                fix="Set flash_attention = true, or cache_type_v to f16.",
            )

    @property
    def replaces_scaling(self) -> bool:
        """Whether the model file's rope scaling is replaced."""
        return bool(self.rope_scaling or self.rope_freq_base or self.rope_freq_scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaEmbeddingOptions(BackendOptions):
    """Options of embedding models on llama.cpp.

    Attributes:
        prefill_chunk: tokens computed at once, if the model can be computed in pieces (causal, last token).
        flash_attention: use flash attention; off by default, as for models that write text.
        n_gpu_layers: layers to put on a GPU; -1 means all (no effect if llama.cpp was built without GPU).
        threads: CPU threads; 0 means one for each CPU that this process may use.
        repack: let llama.cpp rearrange quantised weights for this CPU (faster, other rounding).
        max_length: cut texts to this many tokens, at their end; 0 means the model's own maximum.
        pooling: pooling of token vectors ("mean", "last" or "cls"); "" keeps the model file's value.
        append_eos: append the end-of-sequence token to every text, for model files that fail to request it.
        query_prefix: precedes a query in retrieval.
        document_prefix: precedes every other text.
    """

    prefill_chunk: int = 512
    flash_attention: bool = False
    n_gpu_layers: int = -1
    threads: int = 0
    repack: bool = True
    max_length: int = 0
    pooling: str = ""
    append_eos: bool = False
    query_prefix: str = ""
    document_prefix: str = ""

    def __post_init__(self) -> None:
        check_at_least(self, 1, "prefill_chunk")
        check_at_least(self, -1, "n_gpu_layers")
        check_at_least(self, 0, "threads", "max_length")
        check_choice(self, POOLINGS, "pooling")
