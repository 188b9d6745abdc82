"""Backend for GGUF models on llama.cpp, through the low-level interface.

The high-level class of llama-cpp-python is not used: it supports one sequence, and it hides the flash attention and KV
cache settings that parity needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lbx.backends.cards import ModelCard, refuse_without_end, require_window, split_files, window_notes
from lbx.backends.headers import declared_window
from lbx.backends.llama.cache_cells import pass_size
from lbx.backends.llama.context import (
    ContextSize,
    cache_bytes,
    cache_on_gpu,
    check_memory,
    choose_context_size,
    gpu_share,
    is_batch_invariant,
    is_split,
    make_context,
    on_gpu,
    short_context,
)
from lbx.backends.llama.formats import check_gguf, format_title, slow_format_warning, tensor_types
from lbx.backends.llama.library import (
    cpu_variant,
    free_gpu_bytes,
    list_devices,
    load_llama_cpp,
    load_model,
    log,
    select_variant,
    unused_libraries,
)
from lbx.backends.llama.options import LlamaOptions
from lbx.backends.llama.sequence_memory import LlamaSequences
from lbx.backends.llama.text_logits import compute_text_logits
from lbx.backends.llama.tokenizer import LlamaTokenizer, metadata, own_chat_template
from lbx.backends.options import thread_count
from lbx.backends.weights import weights_settings
from lbx.base.errors import BackendError, DoesNotFitError
from lbx.base.records import Sampling
from lbx.base.resources import available_memory
from lbx.engine.model import BackendInfo, SuppressedTokens, text_chunk
from lbx.engine.sampling_settings import ignored_repetition_penalty, recommended_sampling

if TYPE_CHECKING:
    from lbx.backends.llama.sequence_memory import LlamaSequences
    from lbx.engine.model import Logits

__all__ = ["LlamaBackend", "cpu_variant", "load"]

_HARDWARE = ("threads", "max_sequences", "kv_cells")


@dataclass(eq=False)
class LlamaBackend:
    """Backend of a GGUF model with a sequence memory.

    Args:
        model: a pointer that this object frees.
    """

    _lib: Any
    _model: Any
    tokenizer: LlamaTokenizer
    info: BackendInfo
    _memory: LlamaSequences
    _make_text_context: Callable[[int], Any]

    def __post_init__(self) -> None:
        self.eos_ids = self.tokenizer.eos_ids

    def sequences(self) -> LlamaSequences:
        if self._model is None:
            raise BackendError(f"The model {self.info.model} is closed.", fix="Load it again.")
        return self._memory

    def text_logits(self, tokens: Sequence[int], chunk: int = 0) -> Iterator[Logits]:
        """Yield the logits after each token of a text (``TextBackend``), with the attention of prompts."""
        self._memory.release()
        chunk = chunk or text_chunk(self.tokenizer.size)
        return compute_text_logits(
            self._lib,
            lambda: self._make_text_context(chunk),
            tokens,
            chunk=chunk,
            vocabulary=self.tokenizer.size,
            filler=self.tokenizer.bos_id or 0,
        )

    def close(self) -> None:
        if self._model is not None:
            self._memory.close()
            self.tokenizer.close()
            self._lib.llama_model_free(self._model)
            self._model = None


def load(card: ModelCard, weights: Path, *, debug: bool = False) -> LlamaBackend:
    """Load a model from a GGUF file.

    Raises:
        ImportError: llama-cpp-python is not installed.
        BackendError: the file is no GGUF model, is damaged, or does not fit into memory.
    """
    options = card.options_as(LlamaOptions)
    check_gguf(weights)
    log.debug = debug
    llama_cpp = load_llama_cpp()
    _check_weights(llama_cpp, card, options, weights)
    free_before = free_gpu_bytes(llama_cpp) if on_gpu(llama_cpp, options) else None
    model = _load_model(llama_cpp, weights, options)
    try:
        declared = declared_window(weights)
        window = require_window(card, declared)
        padding = pass_size(tensor_types(weights) or ("",))
        context_size = choose_context_size(llama_cpp, model, card, options, window, padding=padding)
        check_memory(llama_cpp, model, card, options, context_size)
        model_template = own_chat_template(llama_cpp, model)
        tokenizer = LlamaTokenizer(
            llama_cpp, model, weights, card.chat.choose_template(model_template), card.chat.reasoning
        )
        refuse_without_end(card, tokenizer.eos_ids)
        memory = LlamaSequences(
            llama_cpp,
            lambda cells, flash: make_context(
                llama_cpp, model, card, options, context_size._replace(context_cells=cells), flash=flash
            ),
            context_size,
            max_step=options.prefill_chunk,
            vocabulary=tokenizer.size,
            on_gpu=cache_on_gpu(llama_cpp, options),
            filler=tokenizer.bos_id or 0,
        )
    except BaseException:
        llama_cpp.llama_model_free(model)
        raise
    suppressed_tokens = SuppressedTokens(tokenizer.suppressed_ids)
    settings = {name: value for name, value in asdict(options).items() if name not in _HARDWARE} | {
        "flash_attention": "prompts" if context_size.flash_cells else bool(options.flash_attention),
        "batch_invariant": is_batch_invariant(llama_cpp, model, options),
        **gpu_share(llama_cpp, model, options),
        **weights_settings(card, weights),
        "chat": card.chat.settings(model_template),
        "eos_ids": sorted(tokenizer.eos_ids),
        "trained_context": llama_cpp.llama_model_n_ctx_train(model),
        **suppressed_tokens.settings(),
        **({"tokenizer_gaps": sorted(tokenizer.gaps)} if tokenizer.gaps else {}),
    }
    declared_tokens = 0
    if declared:
        declared_tokens = declared.base_tokens if options.replaces_scaling else declared.tokens
    title, hardware = format_title(weights), _hardware(llama_cpp, options, context_size)
    short = short_context(llama_cpp, model)
    slow = "" if on_gpu(llama_cpp, options) else slow_format_warning(title, hardware["features"])
    penalty, note = ignored_repetition_penalty(_recommended_number(llama_cpp, model, "penalty_repeat"))
    info = BackendInfo(
        name="llamacpp",
        version=f"llama-cpp-python {llama_cpp.__version__}",
        model=card.name,
        context_window=window,
        settings=settings,
        hardware=hardware
        | {"architecture": metadata(llama_cpp, model, "general.architecture") or ""}
        | {"stored_as": title or next(iter(tensor_types(weights) or [""]))}
        | penalty,
        declared_context=declared_tokens,
        default_sampling=_default_sampling(llama_cpp, model),
        weights_bytes=llama_cpp.llama_model_size(model),
        kv_bytes_per_token=cache_bytes(llama_cpp, model, options, context_size) // context_size.cells or None,
        kv_cells=context_size.cells,
        on_gpu=on_gpu(llama_cpp, options),
        is_split=is_split(llama_cpp, model, options),
        free_gpu_bytes=free_before,
        shares_weights=not on_gpu(llama_cpp, options),  # it maps the file
        suppressed_tokens=suppressed_tokens,
        notes=_variant_notes()
        + _library_notes(options)
        + _factor_notes(card.name, window, short)
        + tuple(tokenizer.gaps.values())
        + window_notes(card, declared)
        + note
        + ((slow,) if slow else ()),
    )
    return LlamaBackend(
        llama_cpp,
        model,
        tokenizer,
        info,
        memory,
        lambda chunk: make_context(
            llama_cpp, model, card, options, context_size, flash=bool(context_size.flash_cells), text_chunk=chunk
        ),
    )


def _load_model(llama_cpp: Any, path: Path, options: LlamaOptions) -> Any:
    model = load_model(llama_cpp, path, n_gpu_layers=options.n_gpu_layers, repack=options.repack)
    if llama_cpp.llama_model_has_encoder(model) or not llama_cpp.llama_model_has_decoder(model):
        llama_cpp.llama_model_free(model)
        raise BackendError(
            f"{path} is not a decoder-only language model, the only kind that lbx runs on llama.cpp.",
            fix="Run another kind of model with the backend hf, from its Hugging Face folder, or on a server.",
        )
    return model


def _check_weights(llama_cpp: Any, card: ModelCard, options: LlamaOptions, weights: Path) -> None:
    needed, available = sum(path.stat().st_size for path in split_files(weights)), available_memory()
    if on_gpu(llama_cpp, options):
        return  # layers may be placed there
    if available is not None and needed > available:
        raise DoesNotFitError(
            f"The weights of {card.name} take {needed / 2**30:.1f} GiB; {available / 2**30:.1f} GiB are available.",
            fix="Use a smaller or more strongly quantised file, or a machine with more memory.",
        )


def _default_sampling(llama_cpp: Any, model: Any) -> Sampling | None:
    """Sampling recommended by the header's general.sampling keys, which llama.cpp's converter fills in."""
    keys = {"temperature": "temp", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p"}
    values = {name: _recommended_number(llama_cpp, model, key) for name, key in keys.items()}
    return recommended_sampling(values)


def _recommended_number(llama_cpp: Any, model: Any, key: str) -> float | str | None:
    """Read a value of general.sampling as a number, as text if not a number, or None if missing."""
    text = metadata(llama_cpp, model, f"general.sampling.{key}")
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _variant_notes() -> tuple[str, ...]:
    best, refused = select_variant()
    return tuple(
        f"llama.cpp's code for {check.variant} is not used, because it {check.problem}. In use: {best.variant}."
        for check in refused
    )


def _library_notes(options: LlamaOptions) -> tuple[str, ...]:
    if not options.n_gpu_layers:
        return ()
    return tuple(
        f"llama.cpp's GPU code in {name} is not used, because it does not load ({reason})."
        for name, reason in unused_libraries().items()
    )


def _factor_notes(name: str, window: int, short: int) -> tuple[str, ...]:
    if not 0 < short < window:
        return ()
    return (
        f"{name} has two sets of rotary factors. llama.cpp applies the long ones to prompts of every length, because "
        f"the context window exceeds {short:,} tokens; transformers applies the short ones up to there.",
    )


def _hardware(llama_cpp: Any, options: LlamaOptions, context_size: ContextSize) -> dict[str, Any]:
    gpus = [device for device in list_devices(llama_cpp) if device.is_gpu] if on_gpu(llama_cpp, options) else []
    names = {"gpu": gpus[0].description, "devices": [gpu.name for gpu in gpus]} if gpus else {}
    return names | {
        **cpu_variant(),
        "threads": thread_count(options.threads),
        "n_gpu_layers": options.n_gpu_layers,
        "max_sequences": context_size.sequences,
        "kv_cells": context_size.cells,
    }
