"""Options of models on llama.cpp."""

from dataclasses import dataclass
from typing import Annotated

from lbx.backends.options import (
    DOCUMENT_PREFIX,
    EXTEND_CONTEXT,
    FLASH_ATTENTION,
    KV_CELLS,
    MAX_SEQUENCES,
    N_GPU_LAYERS,
    POOLING,
    PREFILL_CHUNK,
    QUERY_PREFIX,
    BackendOptions,
    MaxLength,
    Repack,
    Threads,
)
from lbx.base.errors import UsageError
from lbx.options.option import CardOption

CACHE_TYPES = ("f16", "f32", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
ROPE_SCALINGS = ("", "none", "linear", "yarn")
MOST_SEQUENCES = 256  # llama.cpp's own limit
MOST_FLOAT = 1e18


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaOptions(BackendOptions):
    """Options of the llama.cpp backend."""

    prefill_chunk: Annotated[
        int,
        PREFILL_CHUNK.with_help(
            "tokens that a prefill step computes at once; on a CPU without flash attention llama.cpp computes them in "
            "batches of at most 256, which is 5% faster and halves the memory outside the cache, as that grows with "
            "the batch times the window."
        ),
    ] = 512
    flash_attention: Annotated[
        bool | None,
        FLASH_ATTENTION.with_help(
            "use flash attention. Left out: on a CPU, for a prompt's tokens up to the last multiple of 256, where it "
            "is faster; not for answers, where it is slower and flips near-ties. That takes a second KV cache, for one "
            "prompt, both in F16, and a model without sliding windows."
        ),
    ] = None
    cache_type_k: Annotated[
        str,
        CardOption(
            "number format of the cached keys: f16, f32, bf16, q8_0, q5_1, q5_0, q4_1 or q4_0.", choices=CACHE_TYPES
        ),
    ] = "f16"
    cache_type_v: Annotated[
        str,
        CardOption(
            "number format of the cached values, as of cache_type_k; a quantised one needs flash_attention.",
            choices=CACHE_TYPES,
        ),
    ] = "f16"
    n_gpu_layers: Annotated[
        int,
        N_GPU_LAYERS.with_help(
            "layers to put on a GPU; -1 means all, 0 means that the CPU computes everything (no effect if llama.cpp "
            "has no GPU). The actual number is part of the run's identity."
        ),
    ] = -1
    offload_kqv: Annotated[
        bool, CardOption("keep the KV cache on the GPU, too; its actual location is part of the run's identity.")
    ] = True
    threads: Threads = 0
    repack: Repack = True
    rope_scaling: Annotated[
        str,
        CardOption(
            'how to stretch the positions: "none", "linear" or "yarn"; "" keeps the model file\'s way.',
            choices=ROPE_SCALINGS,
        ),
    ] = ""
    rope_freq_base: Annotated[
        float,
        CardOption(
            "base of the rotary frequencies; a larger one stretches the positions. 0 keeps the model file's.",
            minimum=0,
            maximum=MOST_FLOAT,
        ),
    ] = 0.0
    rope_freq_scale: Annotated[
        float,
        CardOption(
            "factor of the positions; 0.25 stretches them 4 times. 0 keeps the model file's.",
            minimum=0,
            maximum=MOST_FLOAT,
        ),
    ] = 0.0
    yarn_original_context: Annotated[
        int, CardOption("context window before stretching by yarn, in tokens; 0 keeps the model file's.")
    ] = 0
    extend_context: Annotated[bool, EXTEND_CONTEXT] = False
    max_sequences: Annotated[
        int,
        MAX_SEQUENCES.with_help(
            "questions that can be answered at once, 1 to 256; llama.cpp's own limit leaves 253 of them. For models "
            "with sliding windows or recurrent states at most eight, and each takes a window or a state.",
            minimum=1,
            maximum=MOST_SEQUENCES,
        ),
    ] = 32
    kv_cells: Annotated[
        int,
        KV_CELLS,
    ] = 0
    batch_invariant: Annotated[
        bool,
        CardOption(
            "give a prompt bit-identical logits in every batch, on a CPU, in models without sliding attention and not "
            "with flash_attention = true. Passes of few tokens are padded for that: on one core a single growing "
            "answer takes 1.3 to 2.1 times as long for weights in F32, F16, BF16 and Q8_0 (padded to 2 tokens), 2.7 "
            "to 5 times for others (to 8)."
        ),
    ] = False

    def __post_init__(self) -> None:
        BackendOptions.__post_init__(self)
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
    """Options of embedding models on llama.cpp."""

    prefill_chunk: Annotated[
        int,
        PREFILL_CHUNK.with_help(
            "tokens computed at once, if the model can be computed in pieces (causal, last token)."
        ),
    ] = 512
    flash_attention: Annotated[bool, FLASH_ATTENTION] = False
    n_gpu_layers: Annotated[
        int,
        N_GPU_LAYERS,
    ] = -1
    threads: Threads = 0
    repack: Repack = True
    max_length: MaxLength = 0
    pooling: Annotated[str, POOLING] = ""
    append_eos: Annotated[
        bool, CardOption("append the end-of-sequence token to every text, for model files that fail to request it.")
    ] = False
    query_prefix: Annotated[str, QUERY_PREFIX] = ""
    document_prefix: Annotated[str, DOCUMENT_PREFIX] = ""
