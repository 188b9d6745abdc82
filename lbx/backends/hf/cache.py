"""A KV cache for transformers that grows in place. Imported only where transformers already is."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

_BLOCK = 256
_OWN_CACHES = ("minimax", "rwkv", "xlstm")


class GrowingLayer(DynamicLayer):  # type: ignore[misc]  # transformers is not typed
    """The keys and values of one layer, with room to spare behind them.

    ``DynamicLayer`` copies everything it holds for each new token; at 100,000 tokens that is most of the work of a
    decode step. Here a token is written behind the others, and all is copied only when the room is used up. What
    attention sees, ``keys`` and ``values`` of shape (batch, heads, tokens, head size), holds the same numbers.
    """

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states[..., :0, :], value_states[..., :0, :]
            self._rooms = (self.keys, self.values)
        held = self.keys.shape[-2]
        self._rooms = (
            _with_room(self._rooms[0], self.keys, key_states),
            _with_room(self._rooms[1], self.values, value_states),
        )
        self.keys, self.values = (room[..., : held + key_states.shape[-2], :] for room in self._rooms)
        return self.keys, self.values


def _with_room(room: torch.Tensor, held: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """The room with the new states behind those held; a larger one where they do not fit."""
    before, needed = held.shape[-2], held.shape[-2] + new.shape[-2]
    if needed > room.shape[-2]:
        tokens = -(-max(needed, room.shape[-2] * 5 // 4) // _BLOCK) * _BLOCK
        room = new.new_empty((*new.shape[:-2], tokens, new.shape[-1]))
        room[..., :before, :] = held
    room[..., before:needed, :] = new
    return room


class OwnCache:
    """What a model makes for itself in its first pass, and hands out: it takes no other.

    Attributes:
        held: None before that pass.
    """

    def __init__(self, held: Any = None) -> None:
        self.held = held


def make_cache(config: Any) -> DynamicCache | OwnCache:
    """An empty cache for one sequence of a model of this configuration."""
    if config.model_type in _OWN_CACHES:
        return OwnCache()
    cache = DynamicCache(config=config)
    # Sliding windows and recurrent states keep their own kinds of layer.
    cache.layers = [GrowingLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache
