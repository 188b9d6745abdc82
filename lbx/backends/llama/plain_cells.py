"""Counts of the cells of llama.cpp's cache if llama.cpp chooses them.

llama.cpp does not report the number of free cells. They are counted here, so that a batch that does not fit is refused
before it is computed.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from lbx.base.errors import BackendError


class PlainCells:
    """Count of each sequence's cells in a context; its cell indices are not llama.cpp's.

    Args:
        memory: llama.cpp's memory of the context; None: only count.
    """

    grain = 1

    def __init__(self, count: int, sequences: int, *, llama_cpp: Any = None, memory: Any = None) -> None:
        self._lib = llama_cpp
        self._memory = memory
        self._cells = [array("i") for _ in range(sequences)]
        self._count(count)

    def move_to(self, context: Any, count: int) -> None:
        """Start over in a new, empty context."""
        self._memory = self._lib.llama_get_memory(context)
        self._count(count)

    def _count(self, count: int) -> None:
        self.count = count
        self._users = np.zeros(count, np.int32)  # number of sequences that own each cell
        self._free = np.empty(count, np.int32)  # a stack: the first ``free`` are free
        self.clear()

    @property
    def used(self) -> int:
        return self.count - self.free

    def length(self, sequence: int) -> int:
        return len(self._cells[sequence])

    def required_cells(self, items: Sequence[tuple[int, int]]) -> int:
        """Cells that (sequence, tokens) need."""
        return sum(tokens for _, tokens in items)

    def start(self) -> None:
        self.clear()

    def allocate(self, items: Sequence[tuple[int, int]]) -> None:
        """Count the cells of (sequence, tokens), which must be free."""
        for sequence, tokens in items:
            taken = self._free[self.free - tokens : self.free]
            self._users[taken] = 1
            self._cells[sequence].frombytes(taken.tobytes())
            self.free -= tokens

    def finish_pass(self) -> None:
        """Called after each pass."""

    def share(self, source: int, length: int, target: int) -> None:
        """Share a sequence's first cells with an empty one."""
        self._cells[target] = self._cells[source][:length]
        if not length:
            return
        self._users[np.frombuffer(self._cells[target], np.int32)] += 1
        if self._memory is not None:
            self._lib.llama_memory_seq_cp(self._memory, source, target, 0, length)

    def drop(self, sequence: int) -> None:
        buffer, self._cells[sequence] = self._cells[sequence], array("i")
        if not buffer:
            return
        cells = np.frombuffer(buffer, np.int32)
        self._users[cells] -= 1
        freed = cells[self._users[cells] == 0]
        self._free[self.free : self.free + len(freed)] = freed
        self.free += len(freed)
        if self._memory is not None:
            self._lib.llama_memory_seq_rm(self._memory, sequence, -1, -1)

    def clear(self) -> None:
        """Forget all cells after the cache was cleared."""
        self._users[:] = 0
        self._free[:] = np.arange(self.count, dtype=np.int32)
        self._cells = [array("i") for _ in self._cells]
        self.free = self.count


class SlidingCells(PlainCells):
    """Cells of a context with sliding layers that store little more than their window.

    llama.cpp reuses cells outside the window of their only sequence. Before a fork, the source's are freed: they
    would stay as long as a fork owns them.
    """

    def __init__(self, count: int, sequences: int, *, llama_cpp: Any, context: Any) -> None:
        super().__init__(count, sequences, llama_cpp=llama_cpp, memory=llama_cpp.llama_get_memory(context))
        self._context = context
        self._trim_lengths: dict[int, int] = {}  # length of each sequence when it was last trimmed

    def share(self, source: int, length: int, target: int) -> None:
        if self._trim_lengths.get(source) != length:
            self._trim(source)
            self._trim_lengths[source] = length
        super().share(source, length, target)
        self._trim_lengths[target] = length

    def drop(self, sequence: int) -> None:
        self._trim_lengths.pop(sequence, None)
        super().drop(sequence)

    def clear(self) -> None:
        self._trim_lengths = {}
        super().clear()

    def _trim(self, sequence: int) -> None:
        """Export the window of a sequence and import it again, which frees the other cells."""
        windows = self._lib.LLAMA_STATE_SEQ_FLAGS_SWA_ONLY
        size = self._lib.llama_state_seq_get_size_ext(self._context, sequence, windows)
        state = (ctypes.c_uint8 * size)()
        written = self._lib.llama_state_seq_get_data_ext(self._context, state, size, sequence, windows)
        if not written or not self._lib.llama_state_seq_set_data_ext(self._context, state, size, sequence, windows):
            raise BackendError("llama.cpp cannot copy the state of layers with sliding attention.")


class StackedCells(PlainCells):
    """Cells of a context with a single sequence; all sequences of the memory are prefixes of it.

    Only the longest one can be extended. When it is dropped, the context's sequence is cut back to the next longest.
    """

    def __init__(self, count: int, sequences: int, *, llama_cpp: Any, memory: Any) -> None:
        super().__init__(count, sequences, llama_cpp=llama_cpp)
        self._stack = memory

    def allocate(self, items: Sequence[tuple[int, int]]) -> None:
        ((sequence, _),) = items
        if (length := self.length(sequence)) < self.used:
            raise ValueError(f"sequence {sequence} has {length} tokens, but another has {self.used}")
        super().allocate(items)

    def drop(self, sequence: int) -> None:
        before = self.used
        super().drop(sequence)
        if self.used < before and not self._lib.llama_memory_seq_rm(self._stack, 0, self.used, -1):
            self._lib.llama_memory_clear(self._stack, True)
            self.clear()
