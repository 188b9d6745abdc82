"""GGUF models on llama.cpp, through its low-level interface: one sequence, prefilled in fixed chunks, or many.

The high-level class of llama-cpp-python is not used: it reuses any common prefix, so that what was asked before
changes the shapes of the arithmetic, and it hides the flash attention and KV cache settings that parity needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lbx.backends.base import BackendInfo
from lbx.backends.cards import ModelCard
from lbx.backends.llama.context import (
    ContextSize,
    cache_on_gpu,
    check_memory,
    make_context,
    on_gpu,
    room_for,
    window_of,
)
from lbx.backends.llama.layout import PADDING, PassSize
from lbx.backends.llama.library import check_gguf, cpu_variant, library, load_model, log, variants_tried
from lbx.backends.llama.tokenizer import LlamaTokenizer, metadata, own_chat_template
from lbx.backends.loop import Prefilled, answer, reusable
from lbx.backends.memory import available_bytes, kv_cache_bytes
from lbx.backends.options import LlamaOptions, thread_count
from lbx.backends.sampling import left_out, recommended
from lbx.backends.weights import fingerprint, shards
from lbx.errors import BackendError, DoesNotFitError
from lbx.records import Completion, Request, Sampling

if TYPE_CHECKING:
    from lbx.backends.llama.sequence_memory import LlamaSequences
    from lbx.backends.sampling import Logits

__all__ = ["LlamaBackend", "cpu_variant", "load"]

_HARDWARE = ("threads", "n_gpu_layers", "offload_kqv", "max_sequences", "kv_cells")


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
        room: ContextSize,
    ) -> None:
        from lbx.backends.llama.batch import StepBatch  # these load numpy
        from lbx.backends.llama.sequence_memory import LlamaSequences

        self._lib = llama_cpp
        self._model = model
        self._context = context
        self._memory = llama_cpp.llama_get_memory(context)
        self.tokenizer = tokenizer
        self.eos_ids = tokenizer.eos_ids
        self.info = info
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
                room,
                max_step=chunk,
                vocabulary=tokenizer.size,
                take_over=self._forget_prefix,
                on_gpu=info.on_gpu,
                filler=self._filler,
            )

    def generate(self, request: Request) -> Completion:
        window = self.info.context_window
        return answer(self, request, tokenizer=self.tokenizer, eos_ids=self.eos_ids, window=window)

    def sequences(self) -> LlamaSequences | None:
        return self._sequences

    @property
    def single_reason(self) -> str | None:
        return None if self._sequences else "llama.cpp computes its sparse attention for one sequence alone"

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
            self.tokenizer.close()
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
            raise BackendError(f"The model {self.info.model} is closed.")
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
                f"llama.cpp failed with code {code} at position {self._position} of {self.info.context_window}: "
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
        return np.ctypeslib.as_array(pointer, shape=(self.tokenizer.size,)).copy()


def load(card: ModelCard, weights: Path, *, debug: bool = False) -> LlamaBackend:
    """Load a GGUF file.

    Raises:
        ImportError: llama-cpp-python is not installed.
        BackendError: the file is no GGUF model, is damaged, or does not fit into memory.
    """
    options = card.options_as(LlamaOptions)
    check_gguf(weights)
    log.debug = debug
    llama_cpp = library()
    _check_weights(llama_cpp, card, options, weights)
    model = _load_model(llama_cpp, weights, options)
    try:
        window = window_of(llama_cpp, model, card, options)
        room = room_for(llama_cpp, model, card, options, window)
        check_memory(llama_cpp, model, card, options, room.cells)
        context = make_context(llama_cpp, model, card, options, room)
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
    penalty, told = left_out(_recommended_number(llama_cpp, model, "penalty_repeat"))
    info = BackendInfo(
        name="llamacpp",
        version=f"llama-cpp-python {llama_cpp.__version__}",
        model=card.name,
        context_window=window,
        settings=settings,
        hardware=_hardware(options, room) | penalty,
        prefill_chunk=options.prefill_chunk,
        trained_context=settings["trained_context"],
        default_sampling=_default_sampling(llama_cpp, model),
        weights_bytes=llama_cpp.llama_model_size(model),
        kv_bytes_per_token=kv_cache_bytes(llama_cpp, model, options, 1) or None,
        kv_cells=room.cells,
        on_gpu=cache_on_gpu(llama_cpp, options),
        shares_weights=not cache_on_gpu(llama_cpp, options),  # it maps the file
        notes=_notes() + told,
    )
    return LlamaBackend(llama_cpp, model, context, tokenizer, info, chunk=options.prefill_chunk, room=room)


def _load_model(llama_cpp: Any, path: Path, options: LlamaOptions) -> Any:
    model = load_model(llama_cpp, path, n_gpu_layers=options.n_gpu_layers, repack=options.repack)
    if llama_cpp.llama_model_has_encoder(model) or not llama_cpp.llama_model_has_decoder(model):
        llama_cpp.llama_model_free(model)
        raise BackendError(f"{path} is not a decoder-only language model, and lbx runs no others.")
    return model


def _check_weights(llama_cpp: Any, card: ModelCard, options: LlamaOptions, weights: Path) -> None:
    needed, available = sum(path.stat().st_size for path in shards(weights)), available_bytes()
    if on_gpu(llama_cpp, options):
        return  # layers may lie there
    if available is not None and needed > available:
        raise DoesNotFitError(
            f"The weights of {card.name} take {needed / 2**30:.1f} GiB; {available / 2**30:.1f} GiB are available.",
            fix="Use a smaller or more strongly quantised file, or a machine with more memory.",
        )


def _default_sampling(llama_cpp: Any, model: Any) -> Sampling | None:
    """From the header's general.sampling keys, which llama.cpp's converter fills from generation_config.json."""
    keys = {"temperature": "temp", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p"}
    values = {name: _recommended_number(llama_cpp, model, key) for name, key in keys.items()}
    return recommended(values)


def _recommended_number(llama_cpp: Any, model: Any, key: str) -> float | str | None:
    """A value of general.sampling; None where there is none, its text where that is no number."""
    text = metadata(llama_cpp, model, f"general.sampling.{key}")
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _notes() -> tuple[str, ...]:
    chosen, refused = variants_tried()
    return tuple(
        f"llama.cpp's code for {one.variant} is passed over here: it {one.problem}. {chosen.variant} is used."
        for one in refused
    )


def _hardware(options: LlamaOptions, room: ContextSize) -> dict[str, Any]:
    return {
        **cpu_variant(),
        "threads": thread_count(options.threads),
        "n_gpu_layers": options.n_gpu_layers,
        "max_sequences": room.sequences,
        "kv_cells": room.cells,
    }
