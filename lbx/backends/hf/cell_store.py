"""Store of the KV cells and recurrent states of many sequences of a transformers model. Imports transformers.

Keys and values of all sequences are in one store of cells. A recurrent state cannot be cut back to an earlier token.
The states of sequences that grow in the same pass are a batch in the cache's layers as long as the same sequences grow;
the others are kept separately.
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
from lbx.engine.cell_table import AttentionWindow


@dataclass(slots=True)
class Pass:
    """Cells that one pass of the model writes and attends to.

    Attributes:
        capacity: number of cells that every layer must provide.
        high_water: number of leading cells that have ever been used.
        write_slots: cells of the new tokens: a slice, or indices of shape (tokens,).
        visible_cells: cells given to attention: a slice, or indices of shape (columns,).
        position_offset: position of a token minus its index in the row: one number, or shape (tokens,).
        n_columns: columns of the attention mask.
        layouts: layout of each attention window, if attention is computed part by part.
    """

    capacity: int
    high_water: int
    write_slots: slice | torch.Tensor
    visible_cells: slice | torch.Tensor
    position_offset: int | torch.Tensor
    n_columns: int
    layouts: Mapping[AttentionWindow | None, Layout] = field(default_factory=dict)

    def cells_on(self, device: torch.device) -> tuple[slice | torch.Tensor, slice | torch.Tensor]:
        """``write_slots`` and ``visible_cells`` on a layer's device, copied there at most once per pass."""
        for name in ("write_slots", "visible_cells"):
            cells = getattr(self, name)
            if isinstance(cells, torch.Tensor) and cells.device != device:
                setattr(self, name, cells.to(device))
        return self.write_slots, self.visible_cells


class CellLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers is not typed
    """Cells of one layer: keys and values of shape (1, heads, cells, head size).

    New tokens are one row, or a batch of rows of one token each.
    """

    is_sliding = False

    def __init__(self, store: CellStore, window: AttentionWindow | None) -> None:
        super().__init__()
        self._store, self.window = store, window

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        both = (key_states, value_states)
        self.keys, self.values = (states.new_empty((*states.shape[:-2], 0, states.shape[-1])) for states in both)
        self._initialised_cells = 0  # cells before this one are initialised
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
        current = self._store.current_pass
        write_slots, visible_cells = current.cells_on(key_states.device)
        self.make_room()
        self.keys[..., write_slots, :] = key_states
        self.values[..., write_slots, :] = value_states
        keys, values = _select_cells(self.keys, visible_cells), _select_cells(self.values, visible_cells)
        if current.layouts:
            setattr(keys, LAYOUT, current.layouts[self.window])
        return keys, values

    def make_room(self) -> None:
        """Grow to the capacity of the current pass, and initialise the cells that the pass may attend to."""
        current = self._store.current_pass
        self.keys = _with_capacity(self.keys, self._initialised_cells, current.capacity)
        self.values = _with_capacity(self.values, self._initialised_cells, current.capacity)
        if current.high_water > self._initialised_cells:
            # Attention may cover cells that were never written. Their weight is 0, but 0 times NaN is NaN.
            self.keys[..., self._initialised_cells : current.high_water, :] = 0
            self.values[..., self._initialised_cells : current.high_water, :] = 0
            self._initialised_cells = current.high_water

    def get_seq_length(self) -> int | torch.Tensor:
        """Number of visible tokens before the current pass."""
        return self._store.current_pass.position_offset

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._store.current_pass.n_columns, 0

    def get_max_length(self) -> int:
        return -1


class CellsAndStates(CellLayer, LinearAttentionAndFullAttentionLayer):  # type: ignore[misc]  # as above
    """Cache of a layer with both attention and a recurrent state."""

    def __init__(self, store: CellStore, window: AttentionWindow | None, states: int) -> None:
        LinearAttentionLayer.__init__(self, states)
        CellLayer.__init__(self, store, window)

    def lazy_initialization(self, *keys_and_values: torch.Tensor, **states: Any) -> None:
        kind = CellLayer if keys_and_values else LinearAttentionLayer
        kind.lazy_initialization(self, *keys_and_values, **states)


class CellStore(Cache):  # type: ignore[misc]  # transformers is not typed
    """KV cache with cells allocated by the caller: ``begin`` sets the cells of the next pass.

    Layers with a sliding window keep every cell, so that sequences can fork anywhere.

    Raises:
        ValueError: the model contains layers of an unsupported type.
    """

    def __init__(self, config: Any) -> None:
        self.current_pass = Pass(0, 0, slice(0, 0), slice(0, 0), 0, 0)
        kinds = getattr(config.get_text_config(decoder=True), "layer_types", None) or ()
        layers = DynamicCache(config=config).layers
        chunked = [kind == "chunked_attention" for kind in kinds] or [False] * len(layers)
        super().__init__(
            layers=[_replace_layer(layer, self, *flags) for layer, *flags in zip(layers, chunked, strict=False)]
        )

    def begin(self, next_pass: Pass) -> None:
        self.current_pass = next_pass

    @property
    def cell_layers(self) -> list[CellLayer]:
        return [layer for layer in self.layers if isinstance(layer, CellLayer)]

    @property
    def states(self) -> list[LinearAttentionLayer]:
        """Cache layers with a recurrent state for each sequence of the pass."""
        return [layer for layer in self.layers if isinstance(layer, LinearAttentionLayer)]

    @property
    def layouts(self) -> list[Layout | None]:
        """Attention layout of the current pass in each layer, or None for layers without attention."""
        layouts = self.current_pass.layouts
        return [layouts.get(layer.window) if isinstance(layer, CellLayer) else None for layer in self.layers]

    @property
    def cell_bytes(self) -> int:
        """Size of a cell in bytes, over all layers, or 0 before the first pass."""
        return sum(
            states.element_size() * states.shape[1] * states.shape[3]
            for layer in self.cell_layers
            if layer.is_initialized
            for states in (layer.keys, layer.values)
        )

    @property
    def bytes(self) -> int:
        return sum(
            states.nbytes for layer in self.cell_layers if layer.is_initialized for states in (layer.keys, layer.values)
        )


def _replace_layer(layer: Any, store: CellStore, is_chunked: bool) -> Any:
    """Make the cache layer that replaces a layer of transformers' own cache."""
    kind, size = type(layer), getattr(layer, "sliding_window", None)
    window = AttentionWindow(size, is_chunked) if size else None
    if kind in (DynamicLayer, DynamicSlidingWindowLayer):
        return CellLayer(store, window)
    if kind in (LinearAttentionAndFullAttentionLayer, LinearAttentionAndSlidingWindowAttentionLayer):
        return CellsAndStates(store, window, layer.number_of_states)
    if kind not in (LinearAttentionLayer, DummyLayer):
        raise ValueError(f"its cache has layers of another kind ({kind.__name__})")
    return layer


def _with_capacity(states: torch.Tensor, initialised_cells: int, cells: int) -> torch.Tensor:
    if states.shape[-2] >= cells:
        return states
    larger = states.new_empty((*states.shape[:-2], cells, states.shape[-1]))
    larger[..., :initialised_cells, :] = states[..., :initialised_cells, :]
    return larger


def _select_cells(states: torch.Tensor, cells: slice | torch.Tensor) -> torch.Tensor:
    return states[..., cells, :] if isinstance(cells, slice) else states.index_select(-2, cells)


_State = list[list[torch.Tensor | None]]
"""Recurrent state of one sequence: the tensors of each layer, of shape (1, ...)."""


class States:
    """Recurrent states of all sequences.

    Args:
        layers: cache layers with the states of the current pass.
    """

    def __init__(self, layers: Sequence[LinearAttentionLayer]) -> None:
        self._layers = layers
        self._waiting: dict[int, _State] = {}  # never modified: forks share them
        self._active: list[int | None] = []  # sequence of each row of the layers; None: dropped

    @property
    def bytes(self) -> int:
        """Size of the recurrent state of one sequence in bytes, or 0 before the first pass."""
        tensors = (tensor for layer in self._layers for tensor in _tensors_of(layer) if tensor is not None)
        return sum(tensor.nbytes // len(tensor) for tensor in tensors)

    def begin(self, sequences: list[int]) -> None:
        """Load the states of ``sequences``, in this order, into the layers. A new sequence starts without a state."""
        if sequences == self._active:
            return
        states = [self._state(sequence) for sequence in sequences]
        leaving = [number for number in self._active if number is not None and number not in sequences]
        self._waiting |= {sequence: _clone(self._state(sequence)) for sequence in leaving}
        self._active = []
        for at, layer in enumerate(self._layers):
            _set_states(layer, [state[at] for state in states if state])
        for sequence in sequences:
            self._waiting.pop(sequence, None)
        self._active = list(sequences)

    def fork(self, source: int, targets: Sequence[int]) -> None:
        state = self._state(source)
        if source in self._active:
            state = _clone(state)
        for target in targets:
            self.drop(target)
            if state:
                self._waiting[target] = state

    def drop(self, sequence: int) -> None:
        self._waiting.pop(sequence, None)
        self._active = [None if number == sequence else number for number in self._active]

    def _state(self, sequence: int) -> _State:
        """State of a sequence: a view if the sequence is active, empty for a new sequence."""
        if sequence not in self._active:
            return self._waiting.get(sequence, [])
        at = self._active.index(sequence)
        return [
            [None if tensor is None else tensor[at : at + 1] for tensor in _tensors_of(layer)] for layer in self._layers
        ]


def _tensors_of(layer: LinearAttentionLayer) -> list[torch.Tensor | None]:
    return [*layer.conv_states.values(), *layer.recurrent_states.values()]


def _clone(state: _State) -> _State:
    return [[None if tensor is None else tensor.clone() for tensor in layer] for layer in state]


def _set_states(layer: LinearAttentionLayer, rows: Sequence[Sequence[torch.Tensor | None]]) -> None:
    """Load states into a cache layer, or reset the layer if there are none."""
    number = layer.number_of_states
    LinearAttentionLayer.__init__(layer, number)
    if not rows:
        return
    states = [None if column[0] is None else torch.cat(column) for column in zip(*rows, strict=True)]
    for at, (conv, recurrent) in enumerate(zip(states[:number], states[number:], strict=True)):
        layer.conv_states[at], layer.recurrent_states[at] = conv, recurrent
        layer.is_conv_states_initialized[at] = conv is not None
        layer.is_recurrent_states_initialized[at] = recurrent is not None
        layer.conv_kernel_size[at] = None if conv is None else conv.shape[-1]
        layer.has_previous_state[at] = True
        first = recurrent if conv is None else conv
        if first is not None and layer.device is None:
            layer.dtype, layer.device = first.dtype, first.device
