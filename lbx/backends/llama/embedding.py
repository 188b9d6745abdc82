"""Backend for embedding models as GGUF files on llama.cpp, through the low-level interface.

Texts are computed one at a time: a vector is then the same to the bit, whatever else is embedded. The context grows
with the longest text seen, because llama.cpp allocates all of it at once, and few texts come near a model's maximum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lbx.backends.cards import ModelCard
from lbx.backends.embedding import EmbedderInfo, fingerprint_of, unit_rows
from lbx.backends.headers import DeclaredWindow, declared_window
from lbx.backends.llama.context import kv_cache_bytes
from lbx.backends.llama.formats import check_gguf
from lbx.backends.llama.library import (
    FIX_MEMORY,
    StepBatch,
    compute,
    load_llama_cpp,
    load_model,
    log,
    make_native_context,
)
from lbx.backends.llama.options import LlamaEmbeddingOptions, LlamaOptions
from lbx.backends.llama.tokenizer import tokenize
from lbx.backends.options import thread_count
from lbx.backends.weights import fingerprint
from lbx.base.errors import BackendError
from lbx.base.resources import available_memory

if TYPE_CHECKING:
    from lbx.backends.embedding import Vectors

_LEAST_CONTEXT = 512


@dataclass(frozen=True, slots=True)
class _EmbeddingMode:
    """Embedding mode of a model, as reported by a context.

    Attributes:
        pooling: llama.cpp's number of the pooling type.
        has_cache: whether the model uses a KV cache and is decoded; otherwise it is encoded.
        splits: whether a text may be computed in chunks. Otherwise every token must see the last one, or the mean needs
            all.
    """

    pooling: int
    has_cache: bool
    splits: bool


class LlamaEmbedder:
    """Embedding model in a GGUF file on llama.cpp.

    Args:
        model: a pointer that this object frees.
    """

    def __init__(
        self, llama_cpp: Any, model: Any, mode: _EmbeddingMode, info: EmbedderInfo, options: LlamaEmbeddingOptions
    ) -> None:
        self._lib = llama_cpp
        self._model = model
        self._mode = mode
        self.info = info
        self._options = options
        self._vocab = llama_cpp.llama_model_get_vocab(model)
        self._closing = self._closing_tokens()
        self._context: Any = None
        self._batch: Any = None
        self._capacity = 0

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        import numpy as np

        if self._model is None:
            raise BackendError(f"The embedding model {self.info.name} is closed.", fix="Load it again.")
        prefix = self._options.query_prefix if query else self._options.document_prefix
        tokens = [self._tokens(prefix + text) for text in texts]
        vectors = np.zeros((len(tokens), self.info.dimensions), np.float32)
        longest_first = sorted(range(len(tokens)), key=lambda i: -len(tokens[i]))  # one context serves them all
        for index in longest_first:
            if tokens[index]:
                vectors[index] = self._embed_tokens(tokens[index])
        return unit_rows(vectors, self.info.name)

    def close(self) -> None:
        self._drop_context()
        if self._model is not None:
            self._lib.llama_model_free(self._model)
            self._model = None

    def _tokens(self, text: str) -> list[int]:
        """Tokens of a text with the special tokens around it, cut at the end to the model's maximum.

        Marks such as "[SEP]" inside a text count as the tokens they spell, as in sentence-transformers.
        """
        ids = tokenize(self._lib, self._vocab, text, add_special=True, special=True)
        if self._closing and ids[-len(self._closing) :] != self._closing:
            ids = ids + self._closing
        if len(ids) > self.info.max_tokens:
            ids = ids[: self.info.max_tokens - len(self._closing)] + self._closing
        return ids

    def _closing_tokens(self) -> list[int]:
        empty = tokenize(self._lib, self._vocab, "", add_special=True, special=True)
        if empty and empty[0] == self._lib.llama_vocab_bos(self._vocab):
            empty = empty[1:]
        eos = self._lib.llama_vocab_eos(self._vocab)
        if self._options.append_eos and not empty and eos != self._lib.LLAMA_TOKEN_NULL:
            return [int(eos)]
        return empty

    def _embed_tokens(self, ids: list[int]) -> Any:
        """Compute the pooled vector of one text, shape (dimensions,), float32, not scaled."""
        import numpy as np

        self._ensure_capacity(len(ids))
        chunk = min(self._options.prefill_chunk, self._capacity) if self._mode.splits else self._capacity
        if self._mode.has_cache:
            self._lib.llama_memory_clear(self._lib.llama_get_memory(self._context), True)
        for start in range(0, len(ids), chunk):
            self._compute(ids[start : start + chunk], start)
        pointer = self._lib.llama_get_embeddings_seq(self._context, 0)
        if not pointer:
            raise BackendError(
                f"{self.info.name}: llama.cpp returned no vector for {len(ids)} tokens: {log.error_text()}.",
                fix=FIX_MEMORY,
            )
        return np.ctypeslib.as_array(pointer, shape=(self.info.dimensions,)).copy()

    def _compute(self, ids: list[int], start: int) -> None:
        # Pooling takes the tokens that are asked for: all.
        self._batch.fill(ids, range(start, start + len(ids)), 0, range(len(ids)))
        log.clear()
        run = self._lib.llama_decode if self._mode.has_cache else self._lib.llama_encode
        code = compute(run, self._context, self._batch.native)
        if code != 0:
            raise BackendError(
                f"llama.cpp failed with code {code} on a text of {start + len(ids)} tokens: {log.error_text()}.",
                fix=f"If memory ran out, lower max_length or n_gpu_layers in the card of {self.info.name}.",
            )

    def _ensure_capacity(self, tokens: int) -> None:
        """Replace the context by a larger one if it is too small for ``tokens`` tokens."""
        if tokens <= self._capacity:
            return
        self._drop_context()
        capacity = min(max(_LEAST_CONTEXT, 1 << (tokens - 1).bit_length()), max(self.info.max_tokens, tokens))
        chunk = min(self._options.prefill_chunk, capacity) if self._mode.splits else capacity
        self._check_memory(capacity, chunk)
        self._context = _new_context(
            self._lib, self._model, self._options, tokens=capacity, chunk=chunk, name=self.info.name
        )
        self._batch = StepBatch(self._lib, chunk)
        self._capacity = capacity

    def _drop_context(self) -> None:
        if self._context is not None:
            self._lib.llama_free(self._context)
            self._context, self._batch, self._capacity = None, None, 0

    def _check_memory(self, capacity: int, chunk: int) -> None:
        """Refuse a context that exceeds free memory: Linux would grant the memory and later kill the process."""
        if self._options.n_gpu_layers and self._lib.llama_supports_gpu_offload():
            return  # the GPU's driver refuses more than it has
        needed = kv_cache_bytes(self._lib, self._model, LlamaOptions(), capacity) if self._mode.has_cache else 0
        needed += 4 * self._lib.llama_model_n_head(self._model) * capacity * chunk  # the attention of one layer
        available = available_memory()
        if available is not None and needed > available:
            raise BackendError(
                f"{self.info.name} needs {needed / 2**30:.1f} GiB for a text of {capacity} tokens; "
                f"{available / 2**30:.1f} GiB are available.",
                fix="Lower max_length in its card.",
            )


def load(card: ModelCard, weights: Path, *, debug: bool = False) -> LlamaEmbedder:
    """Load an embedding model from a GGUF file.

    Raises:
        ImportError: llama-cpp-python is not installed.
        BackendError: the file is no GGUF model, is damaged, or neither it nor the card gives the pooling.
    """
    options = card.options_as(LlamaEmbeddingOptions)
    check_gguf(weights)
    log.debug = debug
    llama_cpp = load_llama_cpp()
    model = load_model(llama_cpp, weights, n_gpu_layers=options.n_gpu_layers, repack=options.repack)
    try:
        mode = _read_mode(llama_cpp, model, card, options)
        longest = _max_tokens(declared_window(weights), card, options)
        settings = {
            "pooling": mode.pooling,
            "max_length": longest,
            "flash_attention": options.flash_attention,
            "append_eos": options.append_eos,
            "repack": options.repack,
            "prefill_chunk": options.prefill_chunk if mode.splits else 0,
            "prompts": [options.query_prefix, options.document_prefix],
        }
        info = EmbedderInfo(
            name=card.name,
            backend="llamacpp_embedding",
            version=f"llama-cpp-python {llama_cpp.__version__}",
            fingerprint=fingerprint_of("llamacpp_embedding", fingerprint(weights, every_byte=True), settings),
            dimensions=llama_cpp.llama_model_n_embd_out(model),
            max_tokens=longest,
        )
        return LlamaEmbedder(llama_cpp, model, mode, info, options)
    except BaseException:
        llama_cpp.llama_model_free(model)
        raise


def _read_mode(llama_cpp: Any, model: Any, card: ModelCard, options: LlamaEmbeddingOptions) -> _EmbeddingMode:
    """Read settings from a small context, which combines the file, its architecture and the card."""
    context = _new_context(llama_cpp, model, options, tokens=64, chunk=64, name=card.name)
    try:
        pooling = llama_cpp.llama_pooling_type(context)
        causal = bool(llama_cpp.llama_get_causal_attn(context))
        has_cache = bool(llama_cpp.llama_get_memory(context))
    finally:
        llama_cpp.llama_free(context)
    poolings = (llama_cpp.LLAMA_POOLING_TYPE_MEAN, llama_cpp.LLAMA_POOLING_TYPE_LAST, llama_cpp.LLAMA_POOLING_TYPE_CLS)
    if pooling == llama_cpp.LLAMA_POOLING_TYPE_RANK:
        raise BackendError(f"{card.name} is a reranker: it returns no vectors.", fix="Use an embedding model.")
    if pooling not in poolings:
        raise BackendError(
            f"The model file of {card.name} does not define the pooling of token vectors.",
            fix="If it is an embedding model, set pooling in its card as its authors recommend (mean, last or cls). "
            "For a model that writes text, set backend = 'llamacpp'.",
        )
    splits = causal and has_cache and pooling == llama_cpp.LLAMA_POOLING_TYPE_LAST
    return _EmbeddingMode(pooling=pooling, has_cache=has_cache, splits=splits)


def _max_tokens(declared: DeclaredWindow | None, card: ModelCard, options: LlamaEmbeddingOptions) -> int:
    declared_tokens = declared.tokens if declared else options.max_length
    if not declared_tokens:
        raise BackendError(
            f"The header of {card.name} does not declare how many tokens a text may have: context_length is 0.",
            fix="Set max_length in its card.",
        )
    if options.max_length > declared_tokens:
        raise BackendError(
            f"{card.name} has positions for {declared_tokens} tokens, fewer than max_length = {options.max_length}.",
            fix="Lower max_length in its card.",
        )
    return options.max_length or declared_tokens


def _new_context(
    llama_cpp: Any, model: Any, options: LlamaEmbeddingOptions, *, tokens: int, chunk: int, name: str
) -> Any:
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = tokens
    params.n_batch = params.n_ubatch = chunk
    params.n_seq_max = 1
    params.n_threads = params.n_threads_batch = thread_count(options.threads)
    params.embeddings = True
    params.pooling_type = (
        getattr(llama_cpp, f"LLAMA_POOLING_TYPE_{options.pooling.upper()}")
        if options.pooling
        else llama_cpp.LLAMA_POOLING_TYPE_UNSPECIFIED
    )
    params.flash_attn_type = (
        llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED if options.flash_attention else llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    )
    params.swa_full = True
    params.no_perf = True
    context = make_native_context(llama_cpp, model, params)
    if not context:
        raise BackendError(
            f"llama.cpp cannot create a context of {tokens} tokens for {name}: {log.error_text()}.",
            fix="Lower max_length in its card.",
        )
    return context
