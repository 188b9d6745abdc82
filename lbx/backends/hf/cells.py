"""What a model of transformers keeps of many sequences: cells and states. Imported only where transformers already is.

Keys and values of all sequences lie in one store of cells. A recurrent state says nothing of how it was at an earlier
token, and has the same size however long its sequence is. The states of sequences that grow in the same pass stand in
the cache's layers as a batch, and stay there as long as the same ones grow; those of others wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DummyLayer,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionAndSlidingWindowAttentionLayer,
    LinearAttentionLayer,
)

from lbx.backends.hf.attention import LAYOUT, Layout
from lbx.inference.cell_table import Reach


@dataclass(slots=True)
class Pass:
    """What one pass of the model writes and looks at.

    Attributes:
        room: how many cells every layer must have.
        top: how many of them, from the first one, have ever been taken.
        written: where the new tokens' states go: a slice, or indices of shape (tokens,).
        seen: which cells attention is given: a slice, or indices of shape (columns,).
        before: what a token's place in the row lacks to its position: one number, or shape (tokens,).
        columns: how many cells hold something that it may look at.
        layouts: what the new tokens see of them, for each reach, where attention is computed part by part.
    """

    room: int
    top: int
    written: slice | torch.Tensor
    seen: slice | torch.Tensor
    before: int | torch.Tensor
    columns: int
    layouts: Mapping[Reach | None, Layout] = field(default_factory=dict)

    def on(self, device: torch.device) -> tuple[slice | torch.Tensor, slice | torch.Tensor]:
        """``written`` and ``seen`` on a layer's device; copied there once a pass where that is not the model's."""
        for name in ("written", "seen"):
            where = getattr(self, name)
            if isinstance(where, torch.Tensor) and where.device != device:
                setattr(self, name, where.to(device))
        return self.written, self.seen


class CellLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers is not typed
    """The cells of one layer: keys and values of shape (1, heads, cells, head size).

    New tokens may come as one row, or as a batch of rows of one token each.
    """

    is_sliding = False

    def __init__(self, store: CellStore, reach: Reach | None) -> None:
        super().__init__()
        self._store, self.reach = store, reach

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        both = (key_states, value_states)
        self.keys, self.values = (states.new_empty((*states.shape[:-2], 0, states.shape[-1])) for states in both)
        self._defined = 0  # cells before this one hold numbers; the others' memory was never touched
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        key_states, value_states = (
            states.transpose(0, 1).flatten(1, 2)[None] if len(states) > 1 else states
            for states in (key_states, value_states)
        )
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
        if now.layouts:
            setattr(keys, LAYOUT, now.layouts[self.reach])
        return keys, values

    def get_seq_length(self) -> int | torch.Tensor:
        """How many of the tokens seen came before those of this pass."""
        return self._store.now.before

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._store.now.columns, 0

    def get_max_length(self) -> int:
        return -1


class CellsAndStates(CellLayer, LinearAttentionAndFullAttentionLayer):  # type: ignore[misc]  # as above
    """A layer that has both attention and a recurrent state."""

    def __init__(self, store: CellStore, reach: Reach | None, states: int) -> None:
        LinearAttentionLayer.__init__(self, states)
        CellLayer.__init__(self, store, reach)

    def lazy_initialization(self, *keys_and_values: torch.Tensor, **states: Any) -> None:
        kind = CellLayer if keys_and_values else LinearAttentionLayer
        kind.lazy_initialization(self, *keys_and_values, **states)


class CellStore(Cache):  # type: ignore[misc]  # transformers is not typed
    """A cache whose places are handed out from outside: before each pass, ``begin`` says which.

    Layers whose attention slides keep every cell, so that a sequence can begin anywhere in another one.

    Raises:
        ValueError: the model has layers of another kind.
    """

    def __init__(self, config: Any) -> None:
        self.now = Pass(0, 0, slice(0, 0), slice(0, 0), 0, 0)
        kinds = getattr(config.get_text_config(decoder=True), "layer_types", None) or ()
        layers = DynamicCache(config=config).layers
        chunked = [kind == "chunked_attention" for kind in kinds] or [False] * len(layers)
        super().__init__(layers=[_cells_for(layer, self, *one) for layer, *one in zip(layers, chunked, strict=False)])

    def begin(self, now: Pass) -> None:
        self.now = now

    @property
    def cells(self) -> list[CellLayer]:
        return [layer for layer in self.layers if isinstance(layer, CellLayer)]

    @property
    def states(self) -> list[LinearAttentionLayer]:
        """The layers that keep a recurrent state of a sequence, whose batch is that of the pass."""
        return [layer for layer in self.layers if isinstance(layer, LinearAttentionLayer)]

    @property
    def layouts(self) -> list[Layout | None]:
        """What this pass's tokens see in each layer."""
        layouts = self.now.layouts
        return [layouts.get(layer.reach) if isinstance(layer, CellLayer) else None for layer in self.layers]

    @property
    def cell_bytes(self) -> int:
        """Size of a cell in all layers together; 0 before the first pass."""
        return sum(
            room.element_size() * room.shape[1] * room.shape[3]
            for layer in self.cells
            if layer.is_initialized
            for room in (layer.keys, layer.values)
        )

    @property
    def bytes(self) -> int:
        return sum(room.nbytes for layer in self.cells if layer.is_initialized for room in (layer.keys, layer.values))


def _cells_for(layer: Any, store: CellStore, chunked: bool) -> Any:
    """What takes the place of a layer of transformers' own cache."""
    kind, window = type(layer), getattr(layer, "sliding_window", None)
    reach = Reach(window, chunked) if window else None
    if kind in (DynamicLayer, DynamicSlidingWindowLayer):
        return CellLayer(store, reach)
    if kind in (LinearAttentionAndFullAttentionLayer, LinearAttentionAndSlidingWindowAttentionLayer):
        return CellsAndStates(store, reach, layer.number_of_states)
    if kind not in (LinearAttentionLayer, DummyLayer):
        raise ValueError(f"its cache has layers of another kind ({kind.__name__})")
    return layer


def _grown(room: torch.Tensor, defined: int, cells: int) -> torch.Tensor:
    if room.shape[-2] >= cells:
        return room
    larger = room.new_empty((*room.shape[:-2], cells, room.shape[-1]))
    larger[..., :defined, :] = room[..., :defined, :]
    return larger


def _selected(room: torch.Tensor, seen: slice | torch.Tensor) -> torch.Tensor:
    return room[..., seen, :] if isinstance(seen, slice) else room.index_select(-2, seen)


_State = list[list[torch.Tensor | None]]
"""Of one sequence: for each layer what it keeps, each of shape (1, ...)."""


class States:
    """Who has which state.

    Args:
        layers: where the states of a pass lie.
    """

    def __init__(self, layers: Sequence[LinearAttentionLayer]) -> None:
        self._layers = layers
        self._waiting: dict[int, _State] = {}  # never written to: several sequences may share one
        self._growing: list[int | None] = []  # whose state is in which row of the layers; None: nobody's

    @property
    def bytes(self) -> int:
        """Of one sequence; 0 before the first pass."""
        kept = (one for layer in self._layers for one in _kept(layer) if one is not None)
        return sum(one.nbytes // len(one) for one in kept)

    def begin(self, sequences: list[int]) -> None:
        """Put the states of these sequences, or of one that is new, into the layers, in this order."""
        if sequences == self._growing:
            return
        states = [self._state(sequence) for sequence in sequences]
        leaving = [one for one in self._growing if one is not None and one not in sequences]
        self._waiting |= {sequence: _cloned(self._state(sequence)) for sequence in leaving}
        self._growing = []
        for at, layer in enumerate(self._layers):
            _put(layer, [state[at] for state in states if state])
        for sequence in sequences:
            self._waiting.pop(sequence, None)
        self._growing = list(sequences)

    def fork(self, source: int, targets: Sequence[int]) -> None:
        state = self._state(source)
        if source in self._growing:
            state = _cloned(state)
        for target in targets:
            self.drop(target)
            if state:
                self._waiting[target] = state

    def drop(self, sequence: int) -> None:
        self._waiting.pop(sequence, None)
        self._growing = [None if one == sequence else one for one in self._growing]

    def _state(self, sequence: int) -> _State:
        """Of no layer where the sequence is new; of one that grows a view."""
        if sequence not in self._growing:
            return self._waiting.get(sequence, [])
        at = self._growing.index(sequence)
        return [[None if one is None else one[at : at + 1] for one in _kept(layer)] for layer in self._layers]


def _kept(layer: LinearAttentionLayer) -> list[torch.Tensor | None]:
    return [*layer.conv_states.values(), *layer.recurrent_states.values()]


def _cloned(state: _State) -> _State:
    return [[None if one is None else one.clone() for one in layer] for layer in state]


def _put(layer: LinearAttentionLayer, rows: Sequence[Sequence[torch.Tensor | None]]) -> None:
    """Let a layer go on from these states, or begin anew where there are none."""
    number = layer.number_of_states
    LinearAttentionLayer.__init__(layer, number)
    if not rows:
        return
    kept = [None if one[0] is None else torch.cat(one) for one in zip(*rows, strict=True)]
    for at, (conv, recurrent) in enumerate(zip(kept[:number], kept[number:], strict=True)):
        layer.conv_states[at], layer.recurrent_states[at] = conv, recurrent
        layer.is_conv_states_initialized[at] = conv is not None
        layer.is_recurrent_states_initialized[at] = recurrent is not None
        layer.conv_kernel_size[at] = None if conv is None else conv.shape[-1]
        layer.has_previous_state[at] = True
        first = recurrent if conv is None else conv
        if first is not None and layer.device is None:
            layer.dtype, layer.device = first.dtype, first.device
