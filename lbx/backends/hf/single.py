"""Single sequences with a KV cache, and the test whether prompts may be computed in chunks. Imports transformers."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from lbx.backends.hf.library import first_line, input_device, model_tokens
from lbx.base.errors import BackendError

_BLOCK = 256
_OWN_CACHES = ("minimax", "rwkv", "xlstm")


class GrowingLayer(DynamicLayer):  # type: ignore[misc]  # transformers is not typed
    """Keys and values of one layer in a buffer with spare capacity.

    ``DynamicLayer`` copies all keys and values for each new token; at 100,000 tokens that is most of the work of a
    decode step. Here they are copied only when the buffer is full. ``keys`` and ``values``, of shape (batch, heads,
    tokens, head size), are the same.
    """

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states[..., :0, :], value_states[..., :0, :]
            self._buffers = (self.keys, self.values)
        n_cached = self.keys.shape[-2]
        self._buffers = (
            _append(self._buffers[0], self.keys, key_states),
            _append(self._buffers[1], self.values, value_states),
        )
        self.keys, self.values = (buffer[..., : n_cached + key_states.shape[-2], :] for buffer in self._buffers)
        return self.keys, self.values


def _append(buffer: torch.Tensor, states: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """Append new states to the buffer of ``states``, and return the buffer, enlarged if necessary."""
    before, needed = states.shape[-2], states.shape[-2] + new.shape[-2]
    if needed > buffer.shape[-2]:
        tokens = -(-max(needed, buffer.shape[-2] * 5 // 4) // _BLOCK) * _BLOCK
        buffer = new.new_empty((*new.shape[:-2], tokens, new.shape[-1]))
        buffer[..., :before, :] = states
    buffer[..., before:needed, :] = new
    return buffer


class OwnCache:
    """Cache of a model that only accepts the cache created in its first pass.

    Attributes:
        cache: the model's cache, or None before the first pass.
    """

    def __init__(self, cache: Any = None) -> None:
        self.cache = cache


def make_cache(config: Any) -> DynamicCache | OwnCache:
    """Make an empty cache for one sequence."""
    if config.model_type in _OWN_CACHES:
        return OwnCache()
    cache = DynamicCache(config=config)
    # Sliding windows and recurrent states keep their own kinds of layer.
    cache.layers = [GrowingLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


_CACHE_ARGUMENTS = ("past_key_values", "cache_params", "state")
"""Names of a model's cache argument; models silently ignore a cache passed by another name."""

_TOKEN_LAYERS = (DynamicLayer, DynamicSlidingWindowLayer)
"""Cache layers that every model of transformers can continue from, by one token or by many."""

_PIECES = (11, 24)
_WINDOW = 8
_TRY_GGUF = "Try a GGUF file of the model on llama.cpp."
_ROUNDING, _HALF_ROUNDING = 1e-3, 0.05
_MAX_ERROR = 0.2
"""Fractions of the logits' range: rounding errors are below the first two, in every number format below the last."""


class Forward:
    """Function that computes the next tokens of a sequence, with the arguments that the model accepts."""

    def __init__(self, model: Any) -> None:
        self._model, self._device = model, input_device(model)
        takes = inspect.signature(model.forward).parameters
        self._cache = next((name for name in _CACHE_ARGUMENTS if name in takes), _CACHE_ARGUMENTS[0])
        self._positions = "position_ids" in takes
        self._keeps = "logits_to_keep" in takes

    def __call__(self, tokens: Sequence[int], cache: Any, n_cached: int) -> Any:
        """Append tokens to a cache of ``n_cached`` tokens. Returns logits, (1, 1 or len(tokens), vocabulary)."""
        ids = torch.tensor([tokens], dtype=torch.long)
        with torch.inference_mode():
            return self.run(ids, torch.arange(n_cached, n_cached + len(tokens))[None], cache, keep=1)

    def run(self, ids: torch.Tensor, positions: torch.Tensor, cache: Any, *, keep: int | list[int], **more: Any) -> Any:
        """Compute the logits of tokens at ``positions``, both of shape (batch, tokens).

        Args:
            keep: number or indices of the last tokens with logits, if the model can leave others out. A list, because
                accelerate would carry a tensor to the first device of many, and it is used on the last.
        """
        more = {name: value for name, value in more.items() if value is not None}
        is_own_cache = isinstance(cache, OwnCache)
        arguments: dict[str, Any] = {self._cache: cache.cache if is_own_cache else cache, **more}
        if self._keeps:
            arguments["logits_to_keep"] = keep
        if self._positions:  # otherwise a recurrent first layer would be asked, which keeps no count
            arguments["position_ids"] = positions.to(self._device)
        output = self._model(input_ids=ids.to(self._device), use_cache=True, **arguments)
        if is_own_cache:
            cache.cache = output[self._cache]
        return output.logits


def keeps_tokens(model: Any) -> bool:
    """Whether all layers keep keys and values of tokens, from which every model of transformers can continue."""
    return all(type(layer) in _TOKEN_LAYERS for layer in DynamicCache(config=model.config).layers)


def can_compute_in_chunks(model: Any, name: str) -> bool:
    """Whether a prompt may be computed in chunks: some recurrent layers forget the state before several new tokens.

    A few tokens, more than the model's windows, are computed in chunks and all at once.

    Raises:
        BackendError: even single tokens after a prefix give other logits than computing all at once.
    """
    if not any(cache in inspect.signature(model.forward).parameters for cache in _CACHE_ARGUMENTS):
        raise BackendError(
            f"{name} cannot continue a sequence: it accepts no cache argument ({', '.join(_CACHE_ARGUMENTS)}).",
            fix=_TRY_GGUF,
        )
    usual = keeps_tokens(model)
    tokens = model_tokens(model, _PIECES[-1] + 1, 5)
    first, second, last = tokens[: _PIECES[0]], tokens[_PIECES[0] : _PIECES[1]], tokens[_PIECES[1] :]
    try:
        with shrink_windows(model):
            expected = full_logits(model, tokens)[-1] if usual else _last_logits(model, [tokens])
            cuts = ([first, second + last], [first, second, last])
            by_chunks = max(_distance(_last_logits(model, cut), expected) for cut in cuts)
            by_steps = by_chunks if usual else _distance(_last_logits(model, [first + second, last]), expected)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, KeyError) as exc:
        raise BackendError(
            f"{name} cannot be computed token by token: {first_line(exc)}",
            fix="lbx uses the default cache of transformers, but this model needs another one.",
        ) from exc
    if not by_steps <= (2 * rounding_tolerance(model) if usual else _MAX_ERROR):
        raise BackendError(
            f"{name} has other logits if it is computed in parts: those after {_PIECES[1]} tokens and one more differ "
            f"by {by_steps:.2g} of their range from a single pass.",
            fix=f"Its tokens may attend to later tokens, as in an encoder, or this version of transformers computes "
            f"it wrongly. {_TRY_GGUF}",
        )
    return by_chunks <= rounding_tolerance(model)


@contextmanager
def shrink_windows(model: Any) -> Iterator[None]:
    """Make windows and chunks so small that the tokens of a trial exceed them."""
    config = model.config.get_text_config(decoder=True)
    names = ("sliding_window", "attention_chunk_size")
    sizes = {name: size for name in names if isinstance(size := getattr(config, name, None), int)}
    with _temporary_settings(config, {name: _WINDOW for name, size in sizes.items() if size > _WINDOW}):
        yield


@contextmanager
def _temporary_settings(config: Any, values: Mapping[str, int]) -> Iterator[None]:
    before = {name: getattr(config, name) for name in values}
    try:
        for name, value in values.items():
            setattr(config, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(config, name, value)


def longrope_length(model: Any) -> int | None:
    """Length beyond which a longrope model computes all tokens of a sequence with its long factors.

    None for other models, and for a longrope model whose ``generate`` keeps the keys it has cached with the short
    factors when an answer grows beyond that length.
    """
    text = model.config.get_text_config(decoder=True)
    rope = getattr(text, "rope_parameters", None)
    tables = [rope, *rope.values()] if isinstance(rope, dict) else []
    lengths = [
        table.get("original_max_position_embeddings")
        for table in tables
        if isinstance(table, dict) and table.get("rope_type") == "longrope"
    ]
    return int(lengths[0]) if len(lengths) == 1 and lengths[0] and _drops_cache(model) else None


def _drops_cache(model: Any) -> bool:
    """Whether ``generate`` drops the cache when an answer grows beyond ``original_max_position_embeddings``."""
    name = "original_max_position_embeddings"
    with _temporary_settings(model.config, {name: 1} if hasattr(model.config, name) else {}):
        inputs = model.prepare_inputs_for_generation(
            torch.zeros((1, 2), dtype=torch.long, device=input_device(model)),
            past_key_values=DynamicCache(config=model.config),
            next_sequence_length=1,
        )
    return inputs.get("past_key_values") is None


def rounding_tolerance(model: Any) -> float:
    """Tolerated rounding error of logits, as a fraction of the logits' range."""
    return _ROUNDING if model.dtype in (torch.float32, torch.float64) else _HALF_ROUNDING


def full_logits(model: Any, tokens: Sequence[int]) -> torch.Tensor:
    """Logits after each token, computed with the model's own defaults, shape (tokens, vocabulary)."""
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([tokens], device=input_device(model)), use_cache=False).logits
    rows: torch.Tensor = logits[0].float()
    return rows


def _last_logits(model: Any, chunks: Sequence[Sequence[int]]) -> torch.Tensor:
    """Logits after the last of several chunks of one sequence."""
    forward, cache, n_cached = Forward(model), make_cache(model.config), 0
    for chunk in chunks:
        logits = forward(chunk, cache, n_cached)
        n_cached += len(chunk)
    row: torch.Tensor = logits[0, -1].float()
    return row


def _distance(logits: torch.Tensor, reference: torch.Tensor) -> float:
    """Largest difference of two vectors of logits, as a fraction of the reference's range."""
    return float((logits - reference).abs().max() / (reference.max() - reference.min()))
