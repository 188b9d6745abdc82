"""Layout of llama.cpp's cache in which a sequence's logits do not depend on other sequences, to the bit.

On a CPU llama.cpp computes attention in as many partial sums as the processor's vectors have lanes, and the number of a
cell selects its sum. A single sequence has token p in cell p. In a batch it gets the same sums if every token is in a
cell of the same lane, every vector has tokens of one sequence only, and they keep their order: zeros do not change
sums.
llama.cpp always takes the first empty cells, so all other cells below are filled by a sequence of fillers that no
sequence attends to, token p in cell p; the cells of a pass are freed before it.
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


class BatchInvariantCells:
    """Batch-invariant cells of the sequences of a context on a CPU.

    Args:
        sequences: number of sequences of the memory; ``EXTRA_SEQUENCES`` more belong to this object.
        batch: computes the first fillers.
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
        """Start over in a new, empty context."""
        self._context, self._memory = context, self._lib.llama_get_memory(context)
        self._blocks = Blocks(cells // GRAIN - 2, self._sequences, GRAIN)
        self.count = (cells // GRAIN - SPARE_BLOCKS) * GRAIN
        self._edge = 0  # cells below are occupied, cells from here on are empty

    @property
    def free(self) -> int:
        """Cells of free blocks."""
        return self._blocks.free_blocks * GRAIN

    @property
    def used(self) -> int:
        """Cells of blocks in use."""
        return self._blocks.used * GRAIN

    def length(self, sequence: int) -> int:
        return self._blocks.length(sequence)

    def required_cells(self, items: Sequence[tuple[int, int]]) -> int:
        """Cells of new blocks that (sequence, tokens) need."""
        return sum(self._blocks.missing(*item) for item in items) * GRAIN

    def start(self) -> None:
        """Fill the first block of an empty cache.

        Raises:
            BackendError: the format of this llama.cpp's state is unknown.
        """
        self.clear()
        if len(self._state):
            self._fill_block(0)
        else:
            self._compute_fillers()
        self._edge = GRAIN

    def allocate(self, items: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
        """Free the cells of (sequence, tokens) for the next pass; returns the cells of all tokens."""
        blocks = self._blocks.assign(items)
        if blocks is None:
            self._compact()
            blocks = self._blocks.assign(items)
            assert blocks is not None, "the tokens exceed the memory"
        cells = np.concatenate(
            [self._blocks.grow(*item, mine) for item, mine in zip(items, blocks, strict=True)], dtype=np.int64
        )
        self._free_cells(np.sort(cells))
        return cells

    def finish_pass(self) -> None:
        """Remove the padding of the pass that was computed."""
        self._remove(self._padding, 0, -1)

    def share(self, source: int, length: int, target: int) -> None:
        """Fork a sequence into an empty one, which shares full blocks and gets a copy of the last one."""
        full_length = length - length % GRAIN
        if full_length:
            self._copy(source, target, 0, full_length)
        self._blocks.share(source, full_length, target)
        if length > full_length:
            state = self._export_state(source, full_length, length)
            self.allocate([(target, length - full_length)])
            self._import_state(state, [target])

    def drop(self, sequence: int) -> None:
        if not self._blocks.length(sequence):
            return
        self._remove(sequence, 0, -1)
        freed = self._blocks.drop(sequence)
        self._lower_edge()
        for block in freed:
            if block * GRAIN < self._edge:
                self._refill_block(block)
        # Every pass attends to all cells up to the edge; to move the used ones costs less than twice their attention.
        if self._edge > 2 * (self.used + GRAIN):
            self._compact()

    def clear(self) -> None:
        """Forget all cells after the cache was cleared; call ``start`` next."""
        self._blocks.clear()
        self._edge = 0

    def _free_cells(self, cells: NDArray[np.int64]) -> None:
        """Make these cells, in rising order, the only empty ones up to the last of them."""
        end = int(cells[-1]) + 1
        beyond = len(cells) - int(np.searchsorted(cells, self._edge))
        if beyond and beyond < end - self._edge:
            while self._edge < end:
                self._fill_block(self._edge)
                self._edge += GRAIN
        inside = cells[cells < self._edge]
        for run in np.split(inside, np.flatnonzero(np.diff(inside) != 1) + 1):
            if len(run):
                self._remove(self._filler, int(run[0]), int(run[-1]) + 1)
        self._edge = max(self._edge, end)

    def _lower_edge(self) -> None:
        """Free the fillers after the last used block: every cell up to the edge costs time in every pass."""
        end = self._blocks.end
        if end < self._edge:
            self._remove(self._filler, end, -1)
            self._edge = end

    def _refill_block(self, block: int) -> None:
        """Fill a block below the edge; parts of it may be filled already."""
        start = block * GRAIN
        self._remove(self._filler, start, start + GRAIN)
        self._fill_block(start)
        self._edge = max(self._edge, start + GRAIN)

    def _compact(self) -> None:
        """Compact the used blocks in their order, so that all free ones are above them."""
        for target, (block, (index, owners)) in enumerate(self._blocks.owners().items()):
            if target == block:
                continue
            start = index * GRAIN
            state = self._export_state(owners[0], start, start + GRAIN)
            for sequence in owners:
                self._remove(sequence, start, start + GRAIN)
            self._refill_block(block)
            tokens = min(self._blocks.length(owners[0]) - start, GRAIN)
            self._remove(self._filler, target * GRAIN, target * GRAIN + tokens)
            self._import_state(state, owners)
            self._blocks.move(block, index, owners, target)
        self._lower_edge()

    def _compute_fillers(self) -> None:
        """Compute one block of fillers and keep its state, from which other blocks are filled."""
        step = min(GRAIN, self._batch.capacity)
        for at in range(0, GRAIN, step):
            count = min(step, GRAIN - at)
            self._batch.fill([self._token] * count, range(at, at + count), self._carrier, [])
            if compute(self._lib.llama_decode, self._context, self._batch.native):
                raise BackendError("llama.cpp failed to compute a few tokens of the model's vocabulary.")
        self._state = self._export_state(self._carrier, 0, GRAIN, in_carrier=True)
        self._positions = _position_views(self._state, self._carrier)
        if not self._positions:
            self._state = np.empty(0, np.uint8)
            raise BackendError(
                "This version of llama-cpp-python writes the state of a sequence in a format that lbx does not know.",
                fix="Install the version in requirements.lock, or set batch_invariant = false under [options] in the "
                "model card: answers may then differ slightly between batches.",
            )
        self._copy(self._carrier, self._filler, 0, GRAIN)
        self._remove(self._carrier, 0, -1)

    def _fill_block(self, start: int) -> None:
        """Fill the first GRAIN empty cells, which begin at ``start``."""
        for positions in self._positions:
            positions[:] = np.arange(start, start + GRAIN)
        self._import_state(self._state, [self._filler])

    def _export_state(self, source: int, start: int, end: int, *, in_carrier: bool = False) -> NDArray[np.uint8]:
        """Export the state of at most GRAIN tokens of a sequence.

        Args:
            in_carrier: the carrier already has the tokens.
        """
        if not in_carrier:
            self._lib.llama_memory_seq_cp(self._memory, source, self._carrier, start, end)
        size = self._lib.llama_state_seq_get_size(self._context, self._carrier)
        state = np.empty(size, np.uint8)
        pointer = state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        if not self._lib.llama_state_seq_get_data(self._context, pointer, size, self._carrier):
            raise BackendError("llama.cpp cannot read the keys and values of a sequence.")
        if not in_carrier:
            self._lib.llama_memory_seq_rm(self._memory, self._carrier, -1, -1)
        return state

    def _import_state(self, state: NDArray[np.uint8], targets: Sequence[int]) -> None:
        """Import tokens into the first empty cells for these sequences."""
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


def _position_views(state: NDArray[np.uint8], sequence: int) -> list[NDArray[np.int32]]:
    """Views of the positions 0, 1, 2 ... of GRAIN tokens in a sequence's exported state; empty if not recognised.

    The record of a token is its position, the number 1, model-specific values, and the sequence. A model with two
    caches, one of them sliding, has two lists of records.
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
