"""GGUF models on llama.cpp, through its low-level interface: one sequence, prefilled in fixed chunks, or many.

The high-level class of llama-cpp-python is not used: it reuses any common prefix, so that what was asked before
changes the shapes of the arithmetic, and it hides the flash attention and KV cache settings that parity needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lbx.backends.base import BackendInfo
from lbx.backends.cards import ModelCard
from lbx.backends.llama.layout import EXTRA_SEQUENCES, GRAIN, PADDING, SPARE_BLOCKS, PassSize, pass_size
from lbx.backends.llama.library import check_gguf, cpu_variant, library, load_model, log
from lbx.backends.llama.tokens import LlamaTokenizer, metadata, own_chat_template
from lbx.backends.loop import Prefilled, answer, reusable
from lbx.backends.memory import available_bytes, kv_cache_bytes
from lbx.backends.options import MOST_SEQUENCES, LlamaOptions, thread_count
from lbx.backends.sampling import recommended
from lbx.backends.weights import fingerprint, shards
from lbx.errors import BackendError, DoesNotFitError
from lbx.records import Completion, Request, Sampling

if TYPE_CHECKING:
    from lbx.backends.llama.sequences import LlamaSequences
    from lbx.backends.sampling import Logits

__all__ = ["LlamaBackend", "cpu_variant", "load"]

_HARDWARE = ("threads", "n_gpu_layers", "offload_kqv", "max_sequences", "kv_cells")


class Room(NamedTuple):
    """What a context is made for.

    Attributes:
        cells: tokens in its cache.
        context_cells: the same with the spare ones that laying them out takes.
        sequences: how many may share it; 0 where they cannot.
        sliding: whether the model has layers whose attention slides: sequences then count twice for llama.cpp.
        keeps_prefix: whether it can be cut back; that of recurrent and hybrid models cannot.
        pass_size: what passes are padded to, so that a sequence gets the same numbers alone and among others; None
            where it cannot.
    """

    cells: int
    context_cells: int
    sequences: int
    sliding: bool
    keeps_prefix: bool
    pass_size: PassSize | None

    @property
    def all_sequences(self) -> int:
        """How many llama.cpp must know."""
        return max(1, (self.sequences + (EXTRA_SEQUENCES if self.sequences else 0)) * (2 if self.sliding else 1))


class LlamaBackend:
    """A GGUF model with a KV cache that holds the one sequence of ``generate``, or those of ``sequences``.

    Args:
        model, context: pointers that this object frees.
        room: what the context was made for.
    """

    def __init__(
        self,
        llama_cpp: Any,
        model: Any,
        context: Any,
        tokenizer: LlamaTokenizer,
        info: BackendInfo,
        *,
        chunk: int,
        room: Room,
    ) -> None:
        from lbx.backends.llama.batch import StepBatch  # these load numpy
        from lbx.backends.llama.sequences import LlamaSequences

        self._lib = llama_cpp
        self._model = model
        self._context = context
        self._memory = llama_cpp.llama_get_memory(context)
        self._tokenizer = tokenizer
        self._info = info
        self._chunk = chunk
        self._keeps_prefix = room.keeps_prefix
        self._pass_size = room.pass_size or PassSize()
        self._batch = StepBatch(llama_cpp, self._pass_size.padded(chunk))
        self._padding = room.sequences + PADDING
        self._filler = tokenizer.bos_id or 0
        self._kept: list[int] = []
        self._position = 0
        self._last_row = 0  # of the last pass
        self._sequences: LlamaSequences | None = None
        if room.sequences:
            self._sequences = LlamaSequences(
                llama_cpp,
                context,
                cells=room.context_cells,
                max_sequences=room.sequences,
                max_step=chunk,
                vocabulary=tokenizer.size,
                take_over=self._forget_prefix,
                sliding=room.sliding,
                on_gpu=info.on_gpu,
                pass_size=room.pass_size,
                filler=self._filler,
            )

    @property
    def info(self) -> BackendInfo:
        return self._info

    @property
    def tokenizer(self) -> LlamaTokenizer:
        return self._tokenizer

    @property
    def eos_ids(self) -> frozenset[int]:
        return self._tokenizer.eos_ids

    def generate(self, request: Request) -> Completion:
        return answer(
            self,
            request,
            tokenizer=self._tokenizer,
            eos_ids=self._tokenizer.eos_ids,
            window=self._info.context_window,
        )

    def sequences(self) -> LlamaSequences | None:
        return self._sequences

    def prefill(self, ids: Sequence[int]) -> Prefilled:
        """Compute the prompt in chunks whose bounds are multiples of the chunk, reusing whole chunks."""
        ids = list(ids)
        if self._sequences is not None:
            self._sequences.give_way()
        start = self._cut_back(reusable(self._kept, ids, self._chunk)) if self._keeps_prefix else self._cut_back(0)
        for at in range(start, len(ids), self._chunk):
            part = ids[at : at + self._chunk]
            last = at + len(part) == len(ids)
            self._decode(part, wants_logits=last)
        self._kept = ids
        return Prefilled(self._logits(), start)

    def step(self, token: int) -> Logits:
        if self._sequences is not None and self._sequences.holds:
            raise BackendError("The prompt that a token was to be added to has made room for sequences.")
        self._decode([token], wants_logits=True)
        return self._logits()

    def close(self) -> None:
        if self._context is not None:
            if self._sequences is not None:
                self._sequences.close()
            self._tokenizer.close()
            self._lib.llama_free(self._context)
            self._lib.llama_model_free(self._model)
            self._context = self._model = self._memory = None

    def _cut_back(self, length: int) -> int:
        """Forget all but the first tokens of the cache; returns how many were kept.

        Until the prefill is through, nothing counts as kept: it may fail or be interrupted halfway.
        """
        if self._sequences is not None:  # an interrupted pass may have left some
            self._lib.llama_memory_seq_rm(self._memory, self._padding, -1, -1)
        if not length or not self._lib.llama_memory_seq_rm(self._memory, 0, length, -1):
            self._lib.llama_memory_clear(self._memory, True)
            length = 0
        self._kept = []
        self._position = length
        return length

    def _forget_prefix(self) -> None:
        self._kept = []

    def _decode(self, tokens: Sequence[int], *, wants_logits: bool) -> None:
        """Append tokens (at most a chunk) to the cache.

        So that an answer is the same alone and among others, a pass of fewer tokens than the kernels for many take is
        padded with tokens of another sequence, and as many rows of logits are computed; see ``AlignedCells``.
        """
        if self._context is None:
            raise BackendError(f"The model {self._info.model} is closed.")
        count, padding = len(tokens), self._pass_size.padding(len(tokens))
        last = count - 1
        rows = [last, *range(last), *range(count, count + padding)][: self._pass_size.padded(1)]
        self._batch.fill(
            [*tokens, *[self._filler] * padding],
            [*range(self._position, self._position + count), *range(padding)],
            [0] * count + [self._padding] * padding,
            rows if wants_logits else [],
        )
        log.clear()
        code = self._lib.llama_decode(self._context, self._batch.native)
        if code != 0:
            self._kept = []
            raise BackendError(
                f"llama.cpp failed with code {code} at position {self._position} of {self._info.context_window}: "
                f"{log.said()}.",
                fix="With a GPU, its memory may be full: lower context_window or n_gpu_layers in the model card.",
            )
        if padding:
            self._lib.llama_memory_seq_rm(self._memory, self._padding, -1, -1)
        self._position += count
        self._last_row = last

    def _logits(self) -> Logits:
        """The last token's logits, a copy: shape (vocabulary,)."""
        import numpy as np

        pointer = self._lib.llama_get_logits_ith(self._context, self._last_row)
        if not pointer:
            raise BackendError(f"llama.cpp gave no logits: {log.said()}.")
        return np.ctypeslib.as_array(pointer, shape=(self._tokenizer.size,)).copy()


def load(card: ModelCard, weights: Path, *, debug: bool = False) -> LlamaBackend:
    """Load a GGUF file.

    Raises:
        ImportError: llama-cpp-python is not installed.
        BackendError: the file is no GGUF model, is damaged, or does not fit into memory.
    """
    options = card.options
    if not isinstance(options, LlamaOptions):
        raise TypeError(f"a card with {type(options).__name__} reached llama.cpp")
    check_gguf(weights)
    log.debug = debug
    llama_cpp = library()
    _check_weights(llama_cpp, card, options, weights)
    model = _load_model(llama_cpp, weights, options)
    try:
        window = _window(llama_cpp, model, card, options)
        room = _room(llama_cpp, model, card, options, window)
        _check_memory(llama_cpp, model, card, options, room.cells)
        context = _make_context(llama_cpp, model, card, options, room)
    except BaseException:
        llama_cpp.llama_model_free(model)
        raise
    own = own_chat_template(llama_cpp, model)
    tokenizer = LlamaTokenizer(llama_cpp, model, card.chat.choose(own), card.chat.reasoning)
    settings = {name: value for name, value in asdict(options).items() if name not in _HARDWARE} | {
        "weights": fingerprint(weights),
        "chat": card.chat.settings(own),
        "eos_ids": sorted(tokenizer.eos_ids),
        "trained_context": llama_cpp.llama_model_n_ctx_train(model),
    }
    info = BackendInfo(
        name="llamacpp",
        version=f"llama-cpp-python {llama_cpp.__version__}",
        model=card.name,
        context_window=window,
        settings=settings,
        hardware=_hardware(options, room),
        default_sampling=_default_sampling(llama_cpp, model),
        weights_bytes=llama_cpp.llama_model_size(model),
        kv_bytes_per_token=kv_cache_bytes(llama_cpp, model, options, 1) or None,
        kv_cells=room.cells,
        on_gpu=_cache_on_gpu(llama_cpp, options),
    )
    return LlamaBackend(
        llama_cpp,
        model,
        context,
        tokenizer,
        info,
        chunk=options.prefill_chunk,
        room=room,
    )


def _short_context(llama_cpp: Any, model: Any) -> int:
    """Tokens up to which a model with two sets of rotary factors uses the short one; llama.cpp goes by the cache's
    size, not by the text's. 0 for other models.
    """
    architecture = metadata(llama_cpp, model, "general.architecture")
    if metadata(llama_cpp, model, f"{architecture}.rope.scaling.type") in ("linear", "yarn", "none"):
        return 0
    return int(metadata(llama_cpp, model, f"{architecture}.rope.scaling.original_context_length") or 0)


def _load_model(llama_cpp: Any, path: Path, options: LlamaOptions) -> Any:
    model = load_model(llama_cpp, path, n_gpu_layers=options.n_gpu_layers, repack=options.repack)
    if llama_cpp.llama_model_has_encoder(model) or not llama_cpp.llama_model_has_decoder(model):
        llama_cpp.llama_model_free(model)
        raise BackendError(f"{path} is no decoder-only language model; lbx runs no others.")
    return model


def _window(llama_cpp: Any, model: Any, card: ModelCard, options: LlamaOptions) -> int:
    trained: int = llama_cpp.llama_model_n_ctx_train(model)
    window = card.context_window or trained
    stretched = options.rope_scaling or options.rope_freq_base or options.rope_freq_scale
    if window > trained and not stretched and not options.extend_context:
        raise BackendError(
            f"{card.name} was trained for a context of {trained} tokens; context_window = {window} is beyond it.",
            fix="Lower it; or set rope_scaling (yarn), or extend_context = true, under the card's [options].",
        )
    return window


def _room(llama_cpp: Any, model: Any, card: ModelCard, options: LlamaOptions, window: int) -> Room:
    """How large a cache to make.

    Raises:
        BackendError: kv_cells is smaller than the window, or larger than what the model's numbers hold for.
    """
    if llama_cpp.llama_model_is_recurrent(model) or llama_cpp.llama_model_is_hybrid(model):
        return Room(window, window, 0, sliding=False, keeps_prefix=False, pass_size=None)
    if not _attends_by_mask(llama_cpp, model):
        return Room(window, window, 0, sliding=False, keeps_prefix=True, pass_size=None)
    cells = options.kv_cells or window
    if cells < window:
        raise BackendError(
            f"kv_cells = {cells} of {card.name} is smaller than its context window of {window} tokens.",
            fix="Raise kv_cells, or leave it out: it is then as large as context_window.",
        )
    trained = _short_context(llama_cpp, model)
    if window <= trained < cells:
        raise BackendError(
            f"{card.name} computes otherwise in a cache of more than {trained} tokens; kv_cells = {cells}.",
            fix=f"Lower kv_cells to {trained}, or raise context_window above it.",
        )
    slides = llama_cpp.llama_model_n_swa(model)
    copies = 2 if slides else 1
    sequences = min(options.max_sequences, MOST_SEQUENCES // copies - EXTRA_SEQUENCES)
    # Kernels on a GPU depend on how many tokens there are; and what has slid out of sight is no part of a state.
    size, context_cells = None, cells
    if options.batch_invariant and not _on_gpu(llama_cpp, options) and not 0 < slides < GRAIN:
        whole = (-(-cells // GRAIN) + SPARE_BLOCKS) * GRAIN
        context_cells = cells if window <= trained < whole else whole
        if context_cells > 2 * SPARE_BLOCKS * GRAIN:
            size = pass_size(metadata(llama_cpp, model, "general.file_type"))
    return Room(cells, context_cells, sequences, slides > 0, keeps_prefix=True, pass_size=size)


def _attends_by_mask(llama_cpp: Any, model: Any) -> bool:
    """Whether a token sees its own sequence alone, wherever other sequences' cells lie between.

    Sparse attention picks the tokens or blocks that it sees by an indexer. In a cache that sequences share llama.cpp
    computes MiniMax M3's as dense attention, which gives other numbers; none of that kind was tried.
    """
    architecture = metadata(llama_cpp, model, "general.architecture")
    indexer = metadata(llama_cpp, model, f"{architecture}.attention.indexer.head_count")
    return indexer is None and not llama_cpp.llama_model_is_diffusion(model)


def _check_weights(llama_cpp: Any, card: ModelCard, options: LlamaOptions, weights: Path) -> None:
    needed, available = sum(path.stat().st_size for path in shards(weights)), available_bytes()
    if _on_gpu(llama_cpp, options):
        return  # layers may lie there
    if available is not None and needed > available:
        raise DoesNotFitError(
            f"The weights of {card.name} take {needed / 2**30:.1f} GiB; {available / 2**30:.1f} GiB are available.",
            fix="Use a smaller or more strongly quantised file, or a machine with more memory.",
        )


def _check_memory(llama_cpp: Any, model: Any, card: ModelCard, options: LlamaOptions, cells: int) -> None:
    if _cache_on_gpu(llama_cpp, options):
        return  # the driver refuses what it does not have
    needed, available = kv_cache_bytes(llama_cpp, model, options, cells), available_bytes()
    if available is not None and needed > available:
        name = "kv_cells" if options.kv_cells else "context_window"
        raise DoesNotFitError(
            f"The KV cache of {card.name} for {cells} tokens takes {needed / 2**30:.1f} GiB; "
            f"{available / 2**30:.1f} GiB are available.",
            fix=f"Lower {name} in the model card: {cells * available // needed} tokens would fill it.",
        )


def _on_gpu(llama_cpp: Any, options: LlamaOptions) -> bool:
    """Whether some layers may lie on one."""
    return bool(options.n_gpu_layers and llama_cpp.llama_supports_gpu_offload())


def _cache_on_gpu(llama_cpp: Any, options: LlamaOptions) -> bool:
    return options.offload_kqv and _on_gpu(llama_cpp, options)


def _make_context(llama_cpp: Any, model: Any, card: ModelCard, options: LlamaOptions, room: Room) -> Any:
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = room.context_cells
    size = room.pass_size or PassSize()
    params.n_batch = params.n_ubatch = size.padded(options.prefill_chunk)
    params.n_seq_max = room.all_sequences
    params.kv_unified = room.sequences > 0  # one cache for all sequences, so that they can share its cells
    params.n_outputs_max = size.padded(
        params.n_seq_max
    )  # only last tokens' logits are read: no buffer for all of a chunk's
    params.n_threads = params.n_threads_batch = thread_count(options.threads)
    params.flash_attn_type = (
        llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED if options.flash_attention else llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    )
    params.type_k = _number_type(llama_cpp, options.cache_type_k)
    params.type_v = _number_type(llama_cpp, options.cache_type_v)
    params.offload_kqv = options.offload_kqv
    params.swa_full = True  # a cache cut to the sliding window could not keep a prefix
    params.no_perf = True
    if options.rope_scaling:
        params.rope_scaling_type = getattr(llama_cpp, f"LLAMA_ROPE_SCALING_TYPE_{options.rope_scaling.upper()}")
    params.rope_freq_base = options.rope_freq_base
    params.rope_freq_scale = options.rope_freq_scale
    params.yarn_orig_ctx = options.yarn_original_context
    log.clear()
    context = llama_cpp.llama_init_from_model(model, params)
    if not context or llama_cpp.llama_n_ctx(context) < room.context_cells:
        if context:
            llama_cpp.llama_free(context)
        raise BackendError(
            f"llama.cpp cannot make a context of {room.cells} tokens for {card.name}: {log.said()}.",
            fix="Lower context_window (or kv_cells) in the model card, or use a smaller model or cache type.",
        )
    return context


def _number_type(llama_cpp: Any, name: str) -> int:
    number: int = getattr(llama_cpp, f"GGML_TYPE_{name.upper()}", 30)  # llama-cpp-python leaves out bf16, which is 30
    return number


def _default_sampling(llama_cpp: Any, model: Any) -> Sampling | None:
    """From the header's general.sampling keys, which llama.cpp's converter fills from generation_config.json."""
    values: dict[str, object] = {}
    for name, key in {"temperature": "temp", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p"}.items():
        text = metadata(llama_cpp, model, f"general.sampling.{key}")
        try:
            values[name] = None if text is None else float(text)
        except ValueError:
            return None
    return recommended(values)


def _hardware(options: LlamaOptions, room: Room) -> Mapping[str, Any]:
    return {
        **cpu_variant(),
        "threads": thread_count(options.threads),
        "n_gpu_layers": options.n_gpu_layers,
        "max_sequences": room.sequences,
        "kv_cells": room.cells,
    }
