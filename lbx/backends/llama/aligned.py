"""Cells of llama.cpp's cache chosen so that a sequence's logits do not depend on its neighbours, to the bit.

On a CPU llama.cpp adds up attention in as many partial sums as the processor's vectors have lanes: which cell goes
into which sum depends on the cell's number. Alone, token p lies in cell p. Among others a sequence gets the same sums
if every token lies in a cell of the same lane, every vector holds tokens of that sequence alone, and they follow each
other in the same order: sums of zeros change nothing. llama.cpp itself takes the first empty cells. So that those are
the right ones, all others below are occupied by a sequence of fillers that nobody looks at, token p of which lies in
cell p: the cells that a pass is to take are freed one by one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lbx.backends.llama.layout import CARRIER, FILLER, GRAIN, PADDING, SPARE_BLOCKS, Blocks
from lbx.backends.llama.library import compute
from lbx.base.errors import BackendError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lbx.backends.llama.library import StepBatch


class AlignedCells:
    """The cells of sequences in a context on a CPU.

    Args:
        cells: of the context's cache.
        sequences: how many of the engine's there are; ``EXTRA_SEQUENCES`` more belong to this object.
        batch: to compute the first fillers with.
        filler: a token of the vocabulary.
    """

    def __init__(
        self, llama_cpp: Any, context: Any, *, cells: int, sequences: int, batch: StepBatch, filler: int
    ) -> None:
        self._lib = llama_cpp
        self._batch = batch
        self._token = filler
        self._filler, self._carrier, self._padding = sequences + FILLER, sequences + CARRIER, sequences + PADDING
        self._sequences = sequences
        self._state = np.empty(0, np.uint8)  # of GRAIN fillers, as llama.cpp writes it
        self._positions: list[NDArray[np.int32]] = []  # views of their positions in it

        self.move_to(context, cells)

    grain = GRAIN

    def move_to(self, context: Any, cells: int) -> None:
        """Be the cells of a new context, in which nothing is yet."""
        self._context, self._memory = context, self._lib.llama_get_memory(context)
        self._blocks = Blocks(cells // GRAIN - 2, self._sequences, GRAIN)
        self.count = (cells // GRAIN - SPARE_BLOCKS) * GRAIN
        self._edge = 0  # cells below are occupied, cells from here on are empty

    @property
    def free(self) -> int:
        """Cells in blocks that nobody holds."""
        return self._blocks.free * GRAIN

    @property
    def used(self) -> int:
        """Cells in blocks that some sequence holds."""
        return self._blocks.used * GRAIN

    def length(self, sequence: int) -> int:
        return self._blocks.length(sequence)

    def needed(self, items: Sequence[tuple[int, int]]) -> int:
        """Cells that (sequence, tokens) take besides those of blocks that are theirs already."""
        return sum(self._blocks.missing(*item) for item in items) * GRAIN

    def start(self) -> None:
        """Begin in an empty cache.

        Raises:
            BackendError: this llama.cpp writes its state in a way that is not known here.
        """
        self.clear()
        if len(self._state):
            self._occupy(0)
        else:
            self._first_fillers()
        self._edge = GRAIN

    def place(self, items: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
        """Make room for (sequence, tokens); the cells of all tokens, which the next to come occupy in rising order."""
        blocks = self._blocks.assign(items)
        if blocks is None:
            self._move_down()
            blocks = self._blocks.assign(items)
            assert blocks is not None, "asked for more than fits"
        cells = np.concatenate(
            [self._blocks.grow(*item, mine) for item, mine in zip(items, blocks, strict=True)], dtype=np.int64
        )
        self._vacate(np.sort(cells))
        return cells

    def settle(self) -> None:
        """What was placed has been computed, and padding, which the first cells behind all others took."""
        self._remove(self._padding, 0, -1)

    def share(self, source: int, length: int, target: int) -> None:
        """Let an empty sequence begin as another: full blocks are held by both, of the last one it gets a copy."""
        whole = length - length % GRAIN
        if whole:
            self._copy(source, target, 0, whole)
        self._blocks.share(source, whole, target)
        if length > whole:
            state = self._carried(source, whole, length)
            self.place([(target, length - whole)])
            self._land(state, [target])

    def drop(self, sequence: int) -> None:
        if not self._blocks.length(sequence):
            return
        self._remove(sequence, 0, -1)
        freed = self._blocks.drop(sequence)
        self._lower_edge()
        for block in freed:
            if block * GRAIN < self._edge:
                self._refill(block)
        # Every pass looks at all cells up to the edge. To copy what is in use costs less than to look at as much again.
        if self._edge > 2 * (self.used + GRAIN):
            self._move_down()

    def clear(self) -> None:
        """The cache was emptied; ``start`` begins anew."""
        self._blocks.clear()
        self._edge = 0

    def _vacate(self, cells: NDArray[np.int64]) -> None:
        """Leave these cells, in rising order, the only empty ones up to the last of them."""
        end = int(cells[-1]) + 1
        beyond = len(cells) - int(np.searchsorted(cells, self._edge))
        if beyond and beyond < end - self._edge:
            while self._edge < end:
                self._occupy(self._edge)
                self._edge += GRAIN
        inside = cells[cells < self._edge]
        for run in np.split(inside, np.flatnonzero(np.diff(inside) != 1) + 1):
            if len(run):
                self._remove(self._filler, int(run[0]), int(run[-1]) + 1)
        self._edge = max(self._edge, end)

    def _lower_edge(self) -> None:
        """Free the fillers behind all sequences: every cell up to the edge costs time in every pass."""
        end = self._blocks.end
        if end < self._edge:
            self._remove(self._filler, end, -1)
            self._edge = end

    def _refill(self, block: int) -> None:
        """Let fillers occupy a block below the edge, whatever part of it they have."""
        start = block * GRAIN
        self._remove(self._filler, start, start + GRAIN)
        self._occupy(start)
        self._edge = max(self._edge, start + GRAIN)

    def _move_down(self) -> None:
        """Let all blocks in use lie side by side, in the order they have: what is free is above all of them then."""
        for target, (block, (place, holders)) in enumerate(self._blocks.holders().items()):
            if target == block:
                continue
            start = place * GRAIN
            state = self._carried(holders[0], start, start + GRAIN)
            for sequence in holders:
                self._remove(sequence, start, start + GRAIN)
            self._refill(block)
            tokens = min(self._blocks.length(holders[0]) - start, GRAIN)
            self._remove(self._filler, target * GRAIN, target * GRAIN + tokens)
            self._land(state, holders)
            self._blocks.move(block, place, holders, target)
        self._lower_edge()

    def _first_fillers(self) -> None:
        """Compute a block of fillers, and keep their state: it is loaded wherever fillers are needed later."""
        step = min(GRAIN, self._batch.capacity)
        for at in range(0, GRAIN, step):
            count = min(step, GRAIN - at)
            self._batch.fill([self._token] * count, range(at, at + count), self._carrier, [])
            if compute(self._lib.llama_decode, self._context, self._batch.native):
                raise BackendError("llama.cpp cannot compute a first few tokens of its vocabulary.")
        self._state = self._carried(self._carrier, 0, GRAIN, there=True)
        self._positions = _positions(self._state, self._carrier)
        if not self._positions:
            self._state = np.empty(0, np.uint8)
            raise BackendError(
                "This version of llama-cpp-python writes the state of a sequence in a way that lbx does not know.",
                fix="Install the version in requirements.lock; or set batch_invariant = false under [options] in the "
                "model card: answers may then differ a little alone and among others.",
            )
        self._copy(self._carrier, self._filler, 0, GRAIN)
        self._remove(self._carrier, 0, -1)

    def _occupy(self, start: int) -> None:
        """Let fillers occupy the first GRAIN empty cells, which begin at this one."""
        for positions in self._positions:
            positions[:] = np.arange(start, start + GRAIN)
        self._land(self._state, [self._filler])

    def _carried(self, source: int, start: int, end: int, *, there: bool = False) -> NDArray[np.uint8]:
        """The state of some of a sequence's tokens, at most GRAIN of them, as bytes.

        Args:
            there: they are the carrier's already.
        """
        if not there:
            self._lib.llama_memory_seq_cp(self._memory, source, self._carrier, start, end)
        size = self._lib.llama_state_seq_get_size(self._context, self._carrier)
        state = np.empty(size, np.uint8)
        pointer = state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        if not self._lib.llama_state_seq_get_data(self._context, pointer, size, self._carrier):
            raise BackendError("llama.cpp cannot read the keys and values of a sequence.")
        if not there:
            self._lib.llama_memory_seq_rm(self._memory, self._carrier, -1, -1)
        return state

    def _land(self, state: NDArray[np.uint8], targets: Sequence[int]) -> None:
        """Write tokens into the first empty cells, as these sequences'."""
        pointer = state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        if not self._lib.llama_state_seq_set_data(self._context, pointer, len(state), self._carrier):
            raise BackendError("llama.cpp cannot write the keys and values of a sequence.")
        for target in targets:
            self._copy(self._carrier, target, 0, -1)
        self._lib.llama_memory_seq_rm(self._memory, self._carrier, -1, -1)

    def _copy(self, source: int, target: int, start: int, end: int) -> None:
        self._lib.llama_memory_seq_cp(self._memory, source, target, start, end)

    def _remove(self, sequence: int, start: int, end: int) -> None:
        self._lib.llama_memory_seq_rm(self._memory, sequence, start, end)


def _positions(state: NDArray[np.uint8], sequence: int) -> list[NDArray[np.int32]]:
    """Where the bytes of a sequence's state say that its GRAIN tokens have positions 0, 1, 2 ...: views of them.

    A token's record is its position, the number 1, what else the model needs to know, and the sequence. A model with
    two caches, one of which slides, has two lists of them. None where the bytes are of another form.
    """
    numbers = state[: len(state) // 4 * 4].view(np.int32)
    starts = np.flatnonzero((numbers[:-1] == 0) & (numbers[1:] == 1))
    views = []
    for start in starts:
        for size in range(3, 9):
            records = numbers[start : start + size * GRAIN]
            if len(records) < size * GRAIN:
                continue
            table = records.reshape(GRAIN, size)
            if (
                np.array_equal(table[:, 0], np.arange(GRAIN))
                and (table[:, 1] == 1).all()
                and (table[:, -1] == sequence).all()
            ):
                views.append(table[:, 0])
    return views
