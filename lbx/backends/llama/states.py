"""Keys and values of sequences in llama.cpp's own format, copied within a context or to another context."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lbx.backends.llama.library import FIX_MEMORY
from lbx.base.errors import BackendError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class StatePort:
    """Port that exports and imports the keys and values of tokens in a context's sequences.

    Args:
        context: llama.cpp context, or None if not connected.
        carrier: an empty sequence of the context, through which the tokens go.
    """

    def __init__(self, llama_cpp: Any, context: Any, carrier: int) -> None:
        self._lib, self._carrier = llama_cpp, carrier
        self.connect(context)

    def connect(self, context: Any) -> None:
        self._context = context
        self._memory = None if context is None else self._lib.llama_get_memory(context)

    def export_state(self, source: int, start: int, end: int) -> NDArray[np.uint8]:
        """Export a sequence's tokens from ``start`` to ``end``."""
        if source != self._carrier:
            self._copy(source, self._carrier, start, end)
        size = self._lib.llama_state_seq_get_size(self._context, self._carrier)
        state = np.empty(size, np.uint8)
        if not self._lib.llama_state_seq_get_data(self._context, _pointer(state), size, self._carrier):
            raise BackendError("llama.cpp cannot copy keys and values out of its KV cache.", fix=FIX_MEMORY)
        if source != self._carrier:
            self._remove(self._carrier, -1, -1)
        return state

    def import_state(self, state: NDArray[np.uint8], targets: Sequence[int]) -> None:
        """Import tokens into the first empty cells, for the sequences ``targets``."""
        if not self._lib.llama_state_seq_set_data(self._context, _pointer(state), len(state), self._carrier):
            raise BackendError("llama.cpp cannot copy keys and values into its KV cache.", fix=FIX_MEMORY)
        for target in targets:
            self._copy(self._carrier, target, 0, -1)
        self._remove(self._carrier, -1, -1)

    def _copy(self, source: int, target: int, start: int, end: int) -> None:
        self._lib.llama_memory_seq_cp(self._memory, source, target, start, end)

    def _remove(self, sequence: int, start: int, end: int) -> None:
        self._lib.llama_memory_seq_rm(self._memory, sequence, start, end)


def _pointer(state: NDArray[np.uint8]) -> Any:
    return state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))


_HEADER_BYTES = 16
"""Bytes of the header: a constant, the sequence, the number of streams, and the number of tokens."""
_VALUE_BYTES = 2  # of F16, the only format in which prompts are computed with flash attention


def state_records(state: NDArray[np.uint8]) -> NDArray[np.int32]:
    """View of the token records of an exported sequence, shape (tokens, numbers).

    The record of a token is its position, the number 1, model-specific numbers, and the sequence.

    Raises:
        BackendError: the format is unknown.
    """
    _, _, streams, tokens = state[:_HEADER_BYTES].view(np.int32).tolist()
    numbers = state[_HEADER_BYTES : len(state) // 4 * 4].view(np.int32)
    for size in range(3, 9):
        records = numbers[: size * tokens].reshape(-1, size) if len(numbers) >= size * tokens > 0 else numbers[:0]
        is_table = streams == 1 and len(records) == tokens and bool((records[:, 1] == 1).all())
        if is_table and (np.diff(records[:, 0]) == 1).all() and (records[:, -1] == records[0, -1]).all():
            return records
    raise BackendError(
        "This version of llama-cpp-python writes the state of a sequence in a format that lbx does not know.",
        fix="Install the version in requirements.lock, or set batch_invariant = false and flash_attention = false "
        "under [options] in the model card.",
    )


def transpose_values(state: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Convert an exported sequence between contexts with and without flash attention.

    Keys are stored by token in both. Values are stored by token with flash attention, and by dimension without.
    """
    records = state_records(state)
    tokens, at = len(records), _HEADER_BYTES + records.nbytes
    is_transposed, layers = state[at : at + 8].view(np.uint32).tolist()
    at += 8
    for _ in range(layers):  # a number type, the bytes of a row, the rows
        at += 12 + tokens * int(state[at + 4 : at + 12].view(np.uint64)[0])
    parts = [state[:at].copy()]
    parts[0][_HEADER_BYTES + records.nbytes :][:4].view(np.uint32)[0] = not is_transposed
    while at < len(state):
        number_type = state[at : at + 4]
        if is_transposed:  # the bytes of a number, the count of rows
            size, rows = state[at + 4 : at + 12].view(np.uint32).tolist()
            header, shape = np.array([rows * size], np.uint64), (rows, tokens)
        else:
            size = _VALUE_BYTES
            rows = int(state[at + 4 : at + 12].view(np.uint64)[0]) // size
            header, shape = np.array([size, rows], np.uint32), (tokens, rows)
        at += 12
        values = state[at : at + tokens * rows * size].view(f"u{size}").reshape(shape)
        parts += [number_type, header.view(np.uint8), values.T.reshape(-1).view(np.uint8)]
        at += values.nbytes
    return np.concatenate(parts)
