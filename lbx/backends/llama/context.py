"""llama.cpp contexts: sizes, parameters and memory needs."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from lbx.backends.cards import ModelCard
from lbx.backends.llama.cache_cells import EXTRA_SEQUENCES, GRAIN, SPARE_BLOCKS, TRUNKS, PassSize
from lbx.backends.llama.flash import FLASH_PASS, FLASH_SEQUENCES
from lbx.backends.llama.library import free_gpu_bytes, log, make_native_context
from lbx.backends.llama.options import MOST_SEQUENCES, LlamaOptions
from lbx.backends.llama.tokenizer import metadata
from lbx.backends.options import thread_count
from lbx.base.errors import BackendError, DoesNotFitError
from lbx.base.resources import available_memory
from lbx.engine.model import MIN_SEQUENCES

_TIP_ANSWERS = 8
"""Number of answers decoded together if sequences cannot be shortened, since each takes a state or windows."""
_MASKED_TOKENS = 256
"""Most tokens that a CPU computes at once without flash attention: faster than 512, and with half the buffers."""

# Bytes of 32 numbers in each cache type; the quantised ones include scales.
_BLOCK_BYTES = {"f32": 128, "f16": 64, "bf16": 64, "q8_0": 34, "q5_1": 24, "q5_0": 22, "q4_1": 20, "q4_0": 18}

_GPU_SWAPPING_VARIABLE = "GGML_CUDA_ENABLE_UNIFIED_MEMORY"  # with it, the driver moves what does not fit to RAM

_IRREGULAR_CACHE_KEYS = ("kv_lora_rank", "shared_kv_layers")
"""Metadata of caches that do not store keys and values of every head in every layer."""


_FULL_LAYER_EVERY = {"gemma3": 6, "gemma3n": 5, "plamo3": 8} | dict.fromkeys(
    ("afmoe", "cohere2", "cohere2moe", "exaone4", "exaone-moe", "llama4", "mellum", "olmo2"), 4
)
"""Period of the full-attention layers of sliding models, from llama.cpp's source; 2 for others."""


class ContextSize(NamedTuple):
    """Sizes of a llama.cpp context.

    Attributes:
        cells: tokens in the cache.
        context_cells: number of cells, including spare cells for the layout.
        keeps_prefix: whether a sequence can be cut back; with recurrent states or sliding layers, it can only be
            copied as a whole.
        pass_size: padding of passes for batch-invariant numbers, or None if the context cannot give them.
        slides: whether sliding layers store little more than their window; they store everything if that is smaller.
        has_stacked_cells: whether llama.cpp keeps a single sequence and all others are prefixes of it.
        shrinks: whether a smaller cache gives the same numbers, faster.
        flash_cells: tokens in the cache of a second context, where the beginnings of prompts are computed with flash
            attention; 0: there is none.
    """

    cells: int
    context_cells: int
    sequences: int
    keeps_prefix: bool
    pass_size: PassSize | None
    slides: bool = False
    has_stacked_cells: bool = False
    shrinks: bool = False
    flash_cells: int = 0

    def cells_for(self, cells: int) -> int:
        """Value of ``context_cells`` for ``cells`` tokens, rounded up to a multiple of 256 as in llama.cpp."""
        spare = self.context_cells - self.cells
        return min(self.context_cells, -(-(cells + spare) // 256) * 256) if self.shrinks else self.context_cells

    @property
    def all_sequences(self) -> int:
        """Number of sequences that the llama.cpp context needs."""
        if self.has_stacked_cells:
            return 1
        # llama.cpp stores a window for each, and the windows of prefixes that answers share.
        return self.sequences + (EXTRA_SEQUENCES if self.keeps_prefix else (self.sequences - TRUNKS + 1) // 2)


def short_context(llama_cpp: Any, model: Any) -> int:
    """Largest cache with which a model of two sets of rotary factors uses the short ones, or 0 for other models.

    llama.cpp chooses by the size of the cache, a multiple of 256, whatever the length of a prompt.
    """
    architecture = metadata(llama_cpp, model, "general.architecture")
    if metadata(llama_cpp, model, f"{architecture}.rope.scaling.type") in ("linear", "yarn", "none"):
        return 0
    return int(metadata(llama_cpp, model, f"{architecture}.rope.scaling.original_context_length") or 0) // 256 * 256


def choose_context_size(
    llama_cpp: Any, model: Any, card: ModelCard, options: LlamaOptions, window: int, *, padding: PassSize
) -> ContextSize:
    """Choose the sizes of the context for a model and its card.

    Args:
        padding: pass size for batch-invariant numbers.

    Raises:
        BackendError: kv_cells is smaller than the window, or so large that the model would compute differently.
    """
    n_sequences = TRUNKS + max(1, min(options.max_sequences - TRUNKS, _TIP_ANSWERS))
    if llama_cpp.llama_model_is_recurrent(model) or llama_cpp.llama_model_is_hybrid(model):
        return ContextSize(window, window, n_sequences, keeps_prefix=False, pass_size=None)
    if not _attends_by_mask(llama_cpp, model):
        return ContextSize(window, window, MIN_SEQUENCES, keeps_prefix=True, pass_size=None, has_stacked_cells=True)
    cells = options.kv_cells or window
    if cells < window:
        raise BackendError(
            f"kv_cells = {cells} of {card.name} is smaller than its context window of {window} tokens.",
            fix="Raise kv_cells, or remove it: it then equals context_window.",
        )
    trained = short_context(llama_cpp, model)
    if window <= trained < cells:
        raise BackendError(
            f"{card.name} computes differently in a cache of more than {trained} tokens; kv_cells = {cells}.",
            fix=f"Lower kv_cells to {trained}, or raise context_window above it.",
        )
    if llama_cpp.llama_model_n_swa(model):
        context_size = ContextSize(cells, cells, n_sequences, keeps_prefix=False, pass_size=None, slides=True)
        return context_size._replace(slides=_window_cells(llama_cpp, model, options, context_size) < cells)
    sequences = min(max(MIN_SEQUENCES, options.max_sequences), MOST_SEQUENCES - EXTRA_SEQUENCES)
    context_cells = (-(-cells // GRAIN) + SPARE_BLOCKS) * GRAIN
    invariant = is_batch_invariant(llama_cpp, model, options)
    shrinks = not trained and not on_gpu(llama_cpp, options)
    flash_cells = window if not trained and _has_flash_prefill(llama_cpp, model, options) else 0
    if not invariant or window <= trained < context_cells:  # there, spare cells would change the model's numbers
        return ContextSize(
            cells, cells, sequences, keeps_prefix=True, pass_size=None, shrinks=shrinks, flash_cells=flash_cells
        )
    return ContextSize(
        cells, context_cells, sequences, keeps_prefix=True, pass_size=padding, shrinks=shrinks, flash_cells=flash_cells
    )


def is_batch_invariant(llama_cpp: Any, model: Any, options: LlamaOptions) -> bool:
    """Whether cells and passes are laid out for batch invariance."""
    return (
        options.batch_invariant
        and not on_gpu(llama_cpp, options)  # kernels there depend on the number of tokens
        and not llama_cpp.llama_model_n_swa(model)
        and not options.flash_attention
    )


def _has_flash_prefill(llama_cpp: Any, model: Any, options: LlamaOptions) -> bool:
    """Whether prompts are prefilled with flash attention and answers are decoded without."""
    architecture = metadata(llama_cpp, model, "general.architecture")
    return (
        options.flash_attention is None
        and not on_gpu(llama_cpp, options)
        # The kernel for many tokens takes F32, too, but rounds in F16: a cache in F32 is there to avoid that.
        and options.cache_type_k == options.cache_type_v == "f16"
        and architecture != "grok"  # llama.cpp computes it without
        and metadata(llama_cpp, model, f"{architecture}.attention.kv_lora_rank") is None  # it has no values of its own
    )


def _attends_by_mask(llama_cpp: Any, model: Any) -> bool:
    """Whether attention masks the cells of other sequences.

    Sparse attention selects tokens or blocks by an indexer. In a shared cache llama.cpp computes MiniMax M3's as dense
    attention, which gives other numbers; other models of that kind were not tried.
    """
    architecture = metadata(llama_cpp, model, "general.architecture")
    indexer = metadata(llama_cpp, model, f"{architecture}.attention.indexer.head_count")
    return indexer is None and not llama_cpp.llama_model_is_diffusion(model)


def cache_bytes(llama_cpp: Any, model: Any, options: LlamaOptions, context_size: ContextSize) -> int:
    """Size of the KV cache in bytes, or 0 if unknown."""
    return kv_cache_bytes(
        llama_cpp, model, options, context_size.cells, _window_cells(llama_cpp, model, options, context_size)
    )


def _window_cells(llama_cpp: Any, model: Any, options: LlamaOptions, context_size: ContextSize) -> int:
    """Number of tokens that sliding layers store, or 0 if they store all."""
    return (
        llama_cpp.llama_model_n_swa(model) * context_size.all_sequences + min(options.prefill_chunk, _MASKED_TOKENS)
        if context_size.slides
        else 0
    )


def check_memory(llama_cpp: Any, model: Any, card: ModelCard, options: LlamaOptions, context_size: ContextSize) -> None:
    """Raise DoesNotFitError if the KV caches, including the cache of flash attention, exceed the free memory."""
    cells, needed = context_size.cells, cache_bytes(llama_cpp, model, options, context_size)
    needed += needed * context_size.flash_cells // cells
    uses_gpu = cache_on_gpu(llama_cpp, options)
    if uses_gpu and (is_split(llama_cpp, model, options) or os.environ.get(_GPU_SWAPPING_VARIABLE)):
        return  # the driver refuses more than it has
    available = free_gpu_bytes(llama_cpp) if uses_gpu else available_memory()
    if available is not None and needed > available:
        name = "kv_cells" if options.kv_cells else "context_window"
        raise DoesNotFitError(
            f"The KV cache of {card.name} for {cells} tokens takes {needed / 2**30:.1f} GiB; "
            f"{available / 2**30:.1f} GiB {'of GPU memory ' if uses_gpu else ''}are available.",
            fix=f"Lower {name} in the model card: {cells * available // needed} tokens would fill it."
            + (" Or set offload_kqv = false: the cache is then in RAM." if uses_gpu else "")
            + (
                " Or set flash_attention = false: prompts then take no second cache."
                if context_size.flash_cells
                else ""
            ),
        )


def on_gpu(llama_cpp: Any, options: LlamaOptions) -> bool:
    """Whether some layers may be on a GPU."""
    return bool(options.n_gpu_layers and llama_cpp.llama_supports_gpu_offload())


def cache_on_gpu(llama_cpp: Any, options: LlamaOptions) -> bool:
    return options.offload_kqv and on_gpu(llama_cpp, options)


def gpu_share(llama_cpp: Any, model: Any, options: LlamaOptions) -> dict[str, Any]:
    """GPU settings in effect: number of layers on the GPU, output layer included, and whether it stores the cache."""
    layers = int(llama_cpp.llama_model_n_layer(model)) + 1
    gpu_layers = options.n_gpu_layers if 0 <= options.n_gpu_layers < layers else layers
    return {
        "n_gpu_layers": gpu_layers if on_gpu(llama_cpp, options) else 0,
        "offload_kqv": cache_on_gpu(llama_cpp, options),
    }


def is_split(llama_cpp: Any, model: Any, options: LlamaOptions) -> bool:
    """Whether weights and cache are partly on a GPU and partly in RAM."""
    share = gpu_share(llama_cpp, model, options)
    return 0 < share["n_gpu_layers"] <= llama_cpp.llama_model_n_layer(model) or (
        on_gpu(llama_cpp, options) and not share["offload_kqv"]
    )


def make_context(
    llama_cpp: Any,
    model: Any,
    card: ModelCard,
    options: LlamaOptions,
    context_size: ContextSize,
    *,
    flash: bool = False,
    text_chunk: int = 0,
) -> Any:
    """Make a llama.cpp context, which the caller frees.

    Args:
        flash: whether to make the context for the beginnings of prompts.
        text_chunk: number of tokens of a pass if all tokens' logits are read, or 0.

    Raises:
        BackendError: llama.cpp cannot create a context of that size.
    """
    cells, size, sequences = (
        context_size.context_cells,
        context_size.pass_size or PassSize(),
        context_size.all_sequences,
    )
    if flash or (text_chunk and not context_size.has_stacked_cells):
        size, sequences = FLASH_PASS, FLASH_SEQUENCES
        cells = min(cells, context_size.flash_cells if flash else context_size.cells)
        padded = size.padded_size(cells) + size.padded_size(1)
        cells = cells if cells <= short_context(llama_cpp, model) < padded else padded
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = cells
    params.n_batch = size.padded_size(text_chunk or options.prefill_chunk)
    masks_on_cpu = not flash and not on_gpu(llama_cpp, options)  # layouts for batch invariance need whole passes
    params.n_ubatch = min(
        params.n_batch, _MASKED_TOKENS if masks_on_cpu and not context_size.pass_size else params.n_batch
    )
    params.n_seq_max = sequences
    # One cache for all sequences, so that they can share its cells.
    params.kv_unified = not context_size.has_stacked_cells
    # No buffer for a whole chunk if few tokens' logits are read.
    params.n_outputs_max = size.padded_size(text_chunk or sequences)
    params.n_threads = params.n_threads_batch = thread_count(options.threads)
    params.flash_attn_type = (
        llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        if flash or options.flash_attention
        else llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    )
    params.type_k = _number_type(llama_cpp, options.cache_type_k)
    params.type_v = _number_type(llama_cpp, options.cache_type_v)
    params.offload_kqv = options.offload_kqv
    params.op_offload = options.n_gpu_layers != 0  # with 0 layers on a GPU, the CPU computes everything
    params.swa_full = not context_size.slides
    params.no_perf = True
    if options.rope_scaling:
        params.rope_scaling_type = getattr(llama_cpp, f"LLAMA_ROPE_SCALING_TYPE_{options.rope_scaling.upper()}")
    params.rope_freq_base = options.rope_freq_base
    params.rope_freq_scale = options.rope_freq_scale
    params.yarn_orig_ctx = options.yarn_original_context
    context = make_native_context(llama_cpp, model, params)
    if not context or llama_cpp.llama_n_ctx(context) < cells:
        if context:
            llama_cpp.llama_free(context)
        raise BackendError(
            f"llama.cpp cannot create a context of {context_size.cells} tokens for {card.name}: {log.error_text()}.",
            fix="Lower context_window (or kv_cells) in the model card, or use a smaller model or cache type.",
        )
    return context


def _number_type(llama_cpp: Any, name: str) -> int:
    number: int = getattr(llama_cpp, f"GGML_TYPE_{name.upper()}", 30)  # llama-cpp-python leaves out bf16, which is 30
    return number


def kv_cache_bytes(llama_cpp: Any, model: Any, options: LlamaOptions, cells: int, sliding_cells: int = 0) -> int:
    """Size in bytes of a KV cache for ``cells`` tokens, or 0 if unknown.

    It is unknown for recurrent and hybrid models, compressed or shared caches, and layers with different heads.

    Args:
        sliding_cells: tokens that sliding layers store; 0: all.
    """
    if llama_cpp.llama_model_is_recurrent(model) or llama_cpp.llama_model_is_hybrid(model):
        return 0
    architecture = metadata(llama_cpp, model, "general.architecture")
    if any(metadata(llama_cpp, model, f"{architecture}.attention.{key}") for key in _IRREGULAR_CACHE_KEYS):
        return 0
    heads, queries = llama_cpp.llama_model_n_head_kv(model), llama_cpp.llama_model_n_head(model)
    # llama.cpp keeps no lists in its metadata: a missing value that is not the default was a list.
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
