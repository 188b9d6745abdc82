"""One pass's tokens in the form that llama.cpp takes them, and the one thread in which it computes.

With AMX, ggml sets the shapes of a thread's tile registers at its first product and never again, and torch clears them
when it is done: the next product of llama.cpp in the same thread would end the process (SIGILL). OpenMP's threads
belong to the one that calls them, so that these are llama.cpp's alone, too.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from lbx.base.interrupts import uninterrupted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = Sequence[int] | NDArray[np.int64]


_thread = ThreadPoolExecutor(1, "llama.cpp")


def compute(run: Callable[..., int], *arguments: Any) -> int:
    """What ``llama_decode`` or ``llama_encode`` returns. Ctrl-C takes effect when it has come to its end."""
    with uninterrupted():
        return _thread.submit(run, *arguments).result()


class StepBatch:
    """A ``llama_batch`` over arrays of numpy: filled in a few copies, where one by one 512 tokens take milliseconds.

    Args:
        capacity: tokens.
    """

    def __init__(self, llama_cpp: Any, capacity: int) -> None:
        self.capacity = capacity
        self._token = np.zeros(capacity, np.int32)
        self._position = np.zeros(capacity, np.int32)
        self._count = np.ones(capacity, np.int32)
        self._sequence = np.zeros(capacity, np.int32)
        self._wanted = np.zeros(capacity, np.int8)
        row = self._sequence.strides[0]
        self._rows = self._sequence.ctypes.data + row * np.arange(capacity, dtype=np.uintp)
        number, pointer = ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))
        self.native = llama_cpp.llama_batch(
            n_tokens=0,
            token=self._token.ctypes.data_as(number),
            embd=None,
            pos=self._position.ctypes.data_as(number),
            n_seq_id=self._count.ctypes.data_as(number),
            seq_id=self._rows.ctypes.data_as(pointer),
            logits=self._wanted.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
        )

    def fill(self, tokens: Numbers, positions: Numbers, sequences: int | Numbers, wanted: Sequence[int]) -> None:
        """Hold these tokens.

        Args:
            tokens: at most the capacity.
            positions: of each token in its sequence.
            sequences: of each token, or one for all.
            wanted: indices of the tokens whose logits are wanted.
        """
        count = len(tokens)
        self._token[:count] = tokens
        self._position[:count] = positions
        self._sequence[:count] = sequences
        self._wanted[:count] = 0
        self._wanted[list(wanted)] = 1
        self.native.n_tokens = count
