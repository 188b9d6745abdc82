"""Sequences with separate caches, for models without shareable cells. Imports transformers.

The fallback of ``lbx.backends.hf.packing_probe``: a fork copies the whole cache, because cutting a cache back to an
earlier token may not be possible. Tensors that are only ever appended to are shared by the copies.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from lbx.backends.hf.library import first_line, length_dependent_ropes, release_gpu_memory, reset_rope_lengths
from lbx.backends.hf.single import Forward, GrowingLayer, OwnCache, longrope_length, make_cache
from lbx.base.errors import BackendError
from lbx.engine.model import (
    NEVER_EXTENDS,
    NO_CROSS_ATTENTION,
    NO_LIMIT,
    ONE_BY_ONE_LIMIT,
    MemoryFullError,
    MemoryTraits,
    SequenceExtension,
    check_extensions,
    check_sequence,
)

if TYPE_CHECKING:
    from lbx.engine.model import Logits

SEQUENCES = 8
_APPEND_ONLY_LAYERS = (DynamicLayer, DynamicSlidingWindowLayer, GrowingLayer)
"""Types of cache layers that only append, so that copies can share tensors."""


class HfCopies:
    """Sequence memory (``lbx.engine.model.SequenceMemory``) that computes sequences one after the other.

    Args:
        max_cells: number of tokens of all sequences together, with shared prefixes counted for each sequence.
        max_step: tokens per pass.
        takes_chunks: whether a sequence can be extended by several tokens in one pass.
        single_reason: why prompts cannot share prefixes, a clause, or None if they can.
        name: name of the model in messages.
    """

    def __init__(
        self,
        model: Any,
        *,
        max_cells: int,
        max_step: int,
        takes_chunks: bool = True,
        single_reason: str | None = None,
        name: str = "the model",
    ) -> None:
        self._model = model
        self._forward = Forward(model)
        self._takes_chunks = takes_chunks
        self._name = name
        self.max_sequences = 2 if single_reason else SEQUENCES
        self.traits = MemoryTraits(
            cheap_cells=6 * int(getattr(model.config.get_text_config(), "hidden_size", 0)),
            pass_price=NO_CROSS_ATTENTION,
            forks_anywhere=False,
            trunks=self.max_sequences - 1,  # copies for further answers cost memory without saving time
            copies=True,
            follow_limit=NEVER_EXTENDS if single_reason else NO_LIMIT if takes_chunks else ONE_BY_ONE_LIMIT,
            long_from=longrope_length(model) or NO_LIMIT,
            single_reason=single_reason,
        )
        self._by_length = bool(length_dependent_ropes(model.config))
        self.max_cells, self.max_step = max_cells, max(max_step, SEQUENCES)
        self._sequences: dict[int, tuple[DynamicCache | OwnCache, list[int]]] = {}

    @property
    def used_cells(self) -> int:
        return sum(len(tokens) for _, tokens in self._sequences.values())

    def fit(self, cells: int) -> None:
        """Ignore the call: caches grow on demand."""

    def length(self, sequence: int) -> int:
        check_sequence(sequence, self.max_sequences)
        return len(self._sequences[sequence][1]) if sequence in self._sequences else 0

    def fork(self, source: int, length: int, targets: Sequence[int]) -> None:
        for number in (source, *targets):
            check_sequence(number, self.max_sequences)
        if source in targets:
            raise ValueError(f"sequence {source} is forked onto itself")
        if length != self.length(source):
            raise ValueError(
                f"sequence {source} has {self.length(source)} tokens and can only be forked at its end, not at {length}"
            )
        for target in targets:
            self.drop(target)
            if length:
                cache, tokens = self._sequences[source]
                self._sequences[target] = (_copy_cache(cache), tokens.copy())

    def drop(self, sequence: int) -> None:
        check_sequence(sequence, self.max_sequences)
        self._sequences.pop(sequence, None)

    def close(self) -> None:
        """Free the model and all sequences."""
        self._sequences.clear()
        self._model = self._forward = None  # type: ignore[assignment]

    def extend(self, items: Sequence[SequenceExtension]) -> list[Logits | None]:
        tokens = check_extensions(items, self.max_sequences, self.max_step)
        if not items:
            return []
        if self._model is None:
            raise BackendError(f"The model {self._name} is closed.", fix="Load it again.")
        if (free := self.max_cells - self.used_cells) < tokens:
            raise MemoryFullError(
                f"The memory of {self._name} is full: {tokens} more tokens are needed, but only "
                f"{free} of its {self.max_cells} cells are free.",
                fix="Raise kv_cells in the model card's [options].",
            )
        try:
            return [self._extend(item) for item in items]
        except BaseException as exc:  # also an interruption, after which only some layers have the new tokens
            for item in items:
                self.drop(item.sequence)
            if isinstance(exc, (RuntimeError, TypeError, ValueError, IndexError, MemoryError)):
                release_gpu_memory(exc)
                raise BackendError(
                    f"The model {self._name} failed: {first_line(exc)}",
                    fix="If memory ran out, lower context_window or prefill_chunk in the model card.",
                ) from exc
            raise

    def _extend(self, extension: SequenceExtension) -> Logits | None:
        cache, tokens = self._sequences.get(extension.sequence) or (make_cache(self._model.config), [])
        n_cached = len(tokens)
        tokens.extend(extension.tokens)
        if 0 < n_cached <= self.traits.long_from < len(tokens):  # ``generate`` computes all tokens again here, too
            cache, n_cached = make_cache(self._model.config), 0
        if self._by_length and not n_cached:
            reset_rope_lengths(self._model)
        step = len(tokens) if self._takes_chunks or not n_cached else 1
        logits = None
        for at in range(n_cached, len(tokens), step):
            logits = self._forward(tokens[at : at + step], cache, at)
        self._sequences[extension.sequence] = (cache, tokens)
        if not extension.wants_logits or logits is None:
            return None
        row: Logits = logits[0, -1].float().cpu().numpy()
        return row


def _copy_cache(cache: DynamicCache | OwnCache) -> DynamicCache | OwnCache:
    if isinstance(cache, OwnCache):
        return OwnCache(copy.deepcopy(cache.cache))
    result = copy.copy(cache)
    result.layers = [_copy_layer(layer) for layer in cache.layers]
    return result


def _copy_layer(layer: Any) -> Any:
    result = copy.copy(layer)
    if type(layer) is GrowingLayer and layer.is_initialized:
        result._buffers = (layer.keys, layer.values)  # their spare capacity belongs to the original
    if type(layer) not in _APPEND_ONLY_LAYERS:
        vars(result).update({name: _clone(value) for name, value in vars(layer).items()})
    return result


def _clone(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: _clone(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_clone(item) for item in value)
    return value
