"""Keys and values of many sequences in one store, for transformers. Imported only where transformers already is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

PACKED_ATTENTION = "lbx_packed"

# Up to so many rows a head, the mask is repeated for the query heads that share keys; beyond, keys are.
_PACKED_ROWS = 512


@dataclass(slots=True)
class Pass:
    """What one pass of the model writes and looks at.

    Attributes:
        room: how many cells every layer must have.
        written: where the new tokens' states go: a slice, or indices of shape (tokens,).
        seen: which cells attention sees: a slice, or indices of shape (columns,).
        columns: how many those are.
    """

    room: int
    written: slice | torch.Tensor
    seen: slice | torch.Tensor
    columns: int


class CellLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers is not typed
    """The cells of one layer: keys and values of shape (1, heads, cells, head size)."""

    is_sliding = False

    def __init__(self, store: CellStore) -> None:
        super().__init__()
        self._store = store

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.keys, self.values = key_states[..., :0, :], value_states[..., :0, :]
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        now = self._store.now
        self.keys, self.values = _grown(self.keys, now.room), _grown(self.values, now.room)
        self.keys[..., now.written, :] = key_states
        self.values[..., now.written, :] = value_states
        return _selected(self.keys, now.seen), _selected(self.values, now.seen)

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
        self.now = Pass(0, slice(0, 0), slice(0, 0), 0)
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


def _grown(room: torch.Tensor, cells: int) -> torch.Tensor:
    held = room.shape[-2]
    if held >= cells:
        return room
    larger = room.new_empty((*room.shape[:-2], cells, room.shape[-1]))
    larger[..., :held, :] = room
    # A cell that nobody has written yet may lie among those looked at. Its weight is 0, and 0 times NaN is NaN.
    larger[..., held:, :] = 0
    return larger


def _selected(room: torch.Tensor, seen: slice | torch.Tensor) -> torch.Tensor:
    return room[..., seen, :] if isinstance(seen, slice) else room.index_select(-2, seen)


def _packed_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """As "sdpa", but query heads that share keys are computed without a copy of the keys for each of them.

    transformers makes that copy whenever there is a mask: of all cells, in every layer and decode step.
    """
    batch, heads, tokens, size = query.shape
    kv_heads = key.shape[1]
    shared = heads // kv_heads
    if attention_mask is None or shared == 1 or attention_mask.shape[1] != 1 or "position_bias" in kwargs:
        found, _ = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
        return found, None
    attend = torch.nn.functional.scaled_dot_product_attention
    if tokens * shared <= _PACKED_ROWS:
        rows = query.reshape(batch, kv_heads, shared * tokens, size)
        out = attend(rows, key, value, attn_mask=attention_mask.repeat(1, 1, shared, 1), scale=scaling)
        out = out.reshape(batch, heads, tokens, value.shape[-1])
    elif query.device.type == "cpu":
        out = attend(query, key, value, attn_mask=attention_mask, scale=scaling, enable_gqa=True)
    else:  # elsewhere enable_gqa with a mask falls back to a kernel that keeps all weights
        found, _ = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
        return found, None
    return out.transpose(1, 2).contiguous(), None


ALL_ATTENTION_FUNCTIONS.register(PACKED_ATTENTION, _packed_attention)
