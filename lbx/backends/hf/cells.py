"""Keys and values of many sequences in one store, for transformers. Imported only where transformers already is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from lbx.backends.hf.attention import LAYOUT, Layout


@dataclass(slots=True)
class Pass:
    """What one pass of the model writes and looks at.

    Attributes:
        room: how many cells every layer must have.
        top: how many of them, from the first one, have ever been taken.
        written: where the new tokens' states go: a slice, or indices of shape (tokens,).
        seen: which cells attention is given: a slice, or indices of shape (columns,).
        columns: how many cells hold something that it may look at.
        layout: what the new tokens see of them, where attention is computed part by part.
    """

    room: int
    top: int
    written: slice | torch.Tensor
    seen: slice | torch.Tensor
    columns: int
    layout: Layout | None = None

    def on(self, device: torch.device) -> tuple[slice | torch.Tensor, slice | torch.Tensor]:
        """``written`` and ``seen`` on a layer's device; copied there once a pass where that is not the model's."""
        for name in ("written", "seen"):
            where = getattr(self, name)
            if isinstance(where, torch.Tensor) and where.device != device:
                setattr(self, name, where.to(device))
        return self.written, self.seen


class CellLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers is not typed
    """The cells of one layer: keys and values of shape (1, heads, cells, head size)."""

    is_sliding = False

    def __init__(self, store: CellStore) -> None:
        super().__init__()
        self._store = store

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        both = (key_states, value_states)
        self.keys, self.values = (states.new_empty((*states.shape[:-2], 0, states.shape[-1])) for states in both)
        self._defined = 0  # cells before this one hold numbers; the others' memory was never touched
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        now = self._store.now
        written, seen = now.on(key_states.device)
        self.keys = _grown(self.keys, self._defined, now.room)
        self.values = _grown(self.values, self._defined, now.room)
        if now.top > self._defined:
            # A cell that nobody has written yet may lie among those looked at. Its weight is 0, and 0 times NaN is NaN.
            self.keys[..., self._defined : now.top, :] = 0
            self.values[..., self._defined : now.top, :] = 0
            self._defined = now.top
        self.keys[..., written, :] = key_states
        self.values[..., written, :] = value_states
        keys, values = _selected(self.keys, seen), _selected(self.values, seen)
        if now.layout is not None:
            setattr(keys, LAYOUT, now.layout)
        return keys, values

    def get_seq_length(self) -> int:
        """How many of the tokens seen came before those of this pass."""
        return self._store.now.columns - self._store.new_tokens

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._store.now.columns, 0

    def get_max_length(self) -> int:
        return -1


class CellStore(Cache):  # type: ignore[misc]  # transformers is not typed
    """A cache whose places are handed out from outside: before each pass, ``begin`` says which."""

    def __init__(self, layers: int) -> None:
        self.now = Pass(0, 0, slice(0, 0), slice(0, 0), 0)
        self.new_tokens = 0
        super().__init__(layers=[CellLayer(self) for _ in range(layers)])

    def begin(self, now: Pass, new_tokens: int) -> None:
        self.now, self.new_tokens = now, new_tokens

    @property
    def cell_bytes(self) -> int:
        """Size of a cell in all layers together; 0 before the first pass."""
        return sum(
            room.element_size() * room.shape[1] * room.shape[3]
            for layer in self.layers
            if layer.is_initialized
            for room in (layer.keys, layer.values)
        )

    @property
    def bytes(self) -> int:
        return sum(room.nbytes for layer in self.layers if layer.is_initialized for room in (layer.keys, layer.values))


def _grown(room: torch.Tensor, defined: int, cells: int) -> torch.Tensor:
    if room.shape[-2] >= cells:
        return room
    larger = room.new_empty((*room.shape[:-2], cells, room.shape[-1]))
    larger[..., :defined, :] = room[..., :defined, :]
    return larger


def _selected(room: torch.Tensor, seen: slice | torch.Tensor) -> torch.Tensor:
    return room[..., seen, :] if isinstance(seen, slice) else room.index_select(-2, seen)
