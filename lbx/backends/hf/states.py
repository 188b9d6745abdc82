"""Recurrent states of many sequences, for transformers. Imported only where transformers already is.

A state says nothing of how it was at an earlier token, and has the same size however long its sequence is. The states
of sequences that grow in the same pass stand in the cache's layers as a batch, and stay there as long as the same ones
grow; those of others wait.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers.cache_utils import LinearAttentionLayer

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
        found = [self._state(sequence) for sequence in sequences]
        leaving = [one for one in self._growing if one is not None and one not in sequences]
        self._waiting |= {sequence: _cloned(self._state(sequence)) for sequence in leaving}
        self._growing = []
        for at, layer in enumerate(self._layers):
            _put(layer, [state[at] for state in found if state])
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
