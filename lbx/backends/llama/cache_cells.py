"""Cells of llama.cpp's cache: counts of free cells, and a layout that gives equal logits in every batch.

llama.cpp does not report the number of free cells. If it chooses the cells itself (``PlainCells``), they are counted
here, so that a batch that does not fit is refused before it is computed.

With ``BatchInvariantCells`` a sequence's logits do not depend on other sequences, to the bit. On a CPU llama.cpp
computes attention in as many partial sums as the processor's vectors have lanes, and the number of a cell selects its
sum. A single sequence has token p in cell p. In a batch it gets the same sums if every token is in a cell of the same
lane, every vector has tokens of one sequence only, and they keep their order: zeros do not change sums. llama.cpp
always takes the first empty cells, so all other cells below are filled by a sequence of fillers that no sequence
attends to, token p in cell p; the cells of a pass are freed before it.
"""

from __future__ import annotations

import ctypes
import platform
from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lbx.backends.llama.library import FIX_MEMORY, compute
from lbx.backends.llama.states import StatePort, state_records
from lbx.base.errors import BackendError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lbx.backends.llama.library import StepBatch


FILLER, CARRIER, PADDING, EXTRA_SEQUENCES = 0, 1, 2, 3
"""Offsets of the extra sequences after the memory's own (filled cells, moved cells, padding), and their count."""


class PlainCells(StatePort):
    """Counter of the cells of each sequence in a context. The cell indices differ from llama.cpp's.

    Args:
        context: None: only count.
    """

    grain = 1

    def __init__(self, count: int, sequences: int, *, llama_cpp: Any = None, context: Any = None) -> None:
        super().__init__(llama_cpp, context, sequences + CARRIER)
        self._cells = [array("i") for _ in range(sequences)]
        self._count(count)

    def move_to(self, context: Any, count: int) -> None:
        """Switch to a new, empty context."""
        self.connect(context)
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
        """Number of cells that extensions, given as (sequence, number of tokens), need."""
        return sum(tokens for _, tokens in items)

    def start(self) -> None:
        self.clear()

    def allocate(self, items: Sequence[tuple[int, int]]) -> None:
        """Count the cells of extensions, given as (sequence, number of tokens), which must be free."""
        for sequence, tokens in items:
            taken = self._free[self.free - tokens : self.free]
            self._users[taken] = 1
            self._cells[sequence].frombytes(taken.tobytes())
            self.free -= tokens

    def finish_pass(self) -> None:
        """Called after each pass."""

    def share(self, source: int, length: int, target: int) -> None:
        """Share the first ``length`` cells of a sequence with an empty sequence."""
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
        super().__init__(count, sequences, llama_cpp=llama_cpp, context=context)
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
            raise BackendError(
                "llama.cpp cannot copy the state of layers with sliding attention.",
                fix="The memory may be full: lower kv_cells or max_sequences in the model card's [options].",
            )


class StackedCells(PlainCells):
    """Cells of a context with a single sequence. All sequences of the memory are prefixes of it.

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


GRAIN = 32
"""Cells of a block: a multiple of the lanes of all vectors that llama.cpp uses to sum 16 or 32-bit values."""

SPARE_BLOCKS = 4
"""Number of spare blocks: two for the partial blocks at the ends of trunks, one for overshoot, one for padding."""

TRUNKS = 4
"""Number of sequences for prefixes of prompts if sequences cannot be shortened."""


class PassSize(NamedTuple):
    """Padding that makes a pass batch-invariant.

    llama.cpp computes few tokens with other kernels, which round sums differently.

    Attributes:
        min_tokens: smallest pass that uses the large-batch kernels.
        multiple: number of tokens that a kernel computes together.
    """

    min_tokens: int = 1
    multiple: int = 1

    def padding(self, tokens: int) -> int:
        """Number of padding tokens of a pass with ``tokens`` tokens, or 0 for an empty pass."""
        return max(self.min_tokens, -(-tokens // self.multiple) * self.multiple) - tokens if tokens else 0

    def padded_size(self, tokens: int) -> int:
        return tokens + self.padding(tokens)


_SGEMM = {"F32", "F16", "Q8_0", "BF16"}


def pass_size(types: Iterable[str]) -> PassSize:
    """Padding of a model's passes on a CPU, by the types of the model's tensors.

    From llama.cpp's source: ``llamafile_sgemm`` takes 2 tokens or more on x86 (8 on ARM, not seen running there),
    the kernels for K-quants 8, and those for rearranged weights (``repack``) four at a time.

    Args:
        types: types of all tensors. general.file_type in the header names only the most frequent: files with another
            type for the output or some layers are common.
    """
    arm = platform.machine().lower() in ("aarch64", "arm64")
    return PassSize(2) if _SGEMM.issuperset(types) and not arm else PassSize(8, 4)


class Blocks:
    """Blocks of ``grain`` cells: token p of a sequence is in cell p modulo ``grain`` of a block.

    A sequence's blocks are in rising order. Full blocks may be shared. A partial last block belongs to one sequence.
    """

    def __init__(self, count: int, sequences: int, grain: int) -> None:
        self.grain = grain
        self._users = np.zeros(count, np.int32)
        self._blocks: list[list[int]] = [[] for _ in range(sequences)]
        self._lengths = [0] * sequences

    @property
    def free_blocks(self) -> int:
        """Number of blocks without an owner."""
        return int(np.count_nonzero(self._users == 0))

    @property
    def used(self) -> int:
        return len(self._users) - self.free_blocks

    @property
    def end(self) -> int:
        """End of the highest block in use, as the index of a cell."""
        return (int(np.flatnonzero(self._users)[-1]) + 1) * self.grain if self._users.any() else 0

    def length(self, sequence: int) -> int:
        return self._lengths[sequence]

    def missing(self, sequence: int, tokens: int) -> int:
        """Number of new blocks that a sequence needs for ``tokens`` more tokens."""
        return -(-(self._lengths[sequence] + tokens) // self.grain) - len(self._blocks[sequence])

    def assign(self, items: Iterable[tuple[int, int]]) -> list[list[int]] | None:
        """Choose the lowest free blocks above the last block of each sequence, or None if there are too few.

        Args:
            items: (sequence, number of new tokens); ``grow`` makes the change.
        """
        free, assigned = self._users == 0, []
        for sequence, tokens in items:
            missing, sequence_blocks = self.missing(sequence, tokens), self._blocks[sequence]
            above = sequence_blocks[-1] + 1 if sequence_blocks else 0
            blocks = above + np.flatnonzero(free[above:])[:missing]
            if len(blocks) < missing:
                return None
            free[blocks] = False
            assigned.append([int(block) for block in blocks])
        return assigned

    def grow(self, sequence: int, tokens: int, blocks: Sequence[int]) -> NDArray[np.int64]:
        """Append tokens to a sequence, in the last block and in new blocks, and return the cells, shape (tokens,)."""
        start = self._lengths[sequence]
        self._users[list(blocks)] += 1
        self._blocks[sequence].extend(blocks)
        self._lengths[sequence] = start + tokens
        positions = np.arange(start, start + tokens)
        sequence_blocks = np.asarray(self._blocks[sequence], dtype=np.int64)
        return sequence_blocks[positions // self.grain] * self.grain + positions % self.grain

    def share(self, source: int, length: int, target: int) -> None:
        """Share the source's first tokens, a multiple of ``grain``, with an empty sequence."""
        blocks = self._blocks[source][: length // self.grain]
        self._blocks[target] = list(blocks)
        self._users[blocks] += 1
        self._lengths[target] = length

    def drop(self, sequence: int) -> list[int]:
        """Remove a sequence, and return the blocks that became free, in rising order."""
        blocks, self._blocks[sequence] = self._blocks[sequence], []
        self._lengths[sequence] = 0
        self._users[blocks] -= 1
        return [block for block in blocks if not self._users[block]]

    def clear(self) -> None:
        for sequence in range(len(self._blocks)):
            self.drop(sequence)

    def owners(self) -> dict[int, tuple[int, list[int]]]:
        """Return {block: (index within a sequence, sequences)} of the blocks in use, in rising order."""
        owners: dict[int, tuple[int, list[int]]] = {}
        for sequence, blocks in enumerate(self._blocks):
            for index, block in enumerate(blocks):
                owners.setdefault(block, (index, []))[1].append(sequence)
        return dict(sorted(owners.items()))

    def move(self, block: int, index: int, owners: Sequence[int], target: int) -> None:
        """Replace a block by a free block in all sequences that own it."""
        for sequence in owners:
            self._blocks[sequence][index] = target
        self._users[target], self._users[block] = len(owners), 0


class BatchInvariantCells(StatePort):
    """Cells of a context on a CPU, laid out so that a sequence's logits do not depend on other sequences.

    Args:
        sequences: number of sequences of the memory; ``EXTRA_SEQUENCES`` more belong to this object.
        batch: computes the first fillers.
        filler: a token of the vocabulary.
    """

    def __init__(
        self, llama_cpp: Any, context: Any, *, cells: int, sequences: int, batch: StepBatch, filler: int
    ) -> None:
        super().__init__(llama_cpp, context, sequences + CARRIER)
        self._batch = batch
        self._token = filler
        self._filler, self._padding = sequences + FILLER, sequences + PADDING
        self._sequences = sequences
        self._state = np.empty(0, np.uint8)  # of GRAIN fillers, as llama.cpp writes it
        self._positions = np.empty(0, np.int32)  # a view of their positions in it
        self.move_to(context, cells)

    grain = GRAIN

    def move_to(self, context: Any, cells: int) -> None:
        """Switch to a new, empty context."""
        self.connect(context)
        self._blocks = Blocks(cells // GRAIN - 2, self._sequences, GRAIN)
        self.count = (cells // GRAIN - SPARE_BLOCKS) * GRAIN
        self._edge = 0  # cells below are occupied, cells from here on are empty

    @property
    def free(self) -> int:
        """Number of cells in free blocks."""
        return self._blocks.free_blocks * GRAIN

    @property
    def used(self) -> int:
        """Number of cells in blocks in use."""
        return self._blocks.used * GRAIN

    def length(self, sequence: int) -> int:
        return self._blocks.length(sequence)

    def required_cells(self, items: Sequence[tuple[int, int]]) -> int:
        """Number of cells in the new blocks that extensions, given as (sequence, number of tokens), need."""
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
        """Free the cells for extensions, given as (sequence, number of tokens), and return the cells of all tokens."""
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
        """Remove the padding of the last pass."""
        self._remove(self._padding, 0, -1)

    def share(self, source: int, length: int, target: int) -> None:
        """Fork a sequence into an empty sequence, which shares the full blocks and gets a copy of the last block."""
        full_length = length - length % GRAIN
        if full_length:
            self._copy(source, target, 0, full_length)
        self._blocks.share(source, full_length, target)
        if length > full_length:
            state = self.export_state(source, full_length, length)
            self.allocate([(target, length - full_length)])
            self.import_state(state, [target])

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
        """Forget all cells after the cache was cleared. Call ``start`` next."""
        self._blocks.clear()
        self._edge = 0

    def _free_cells(self, cells: NDArray[np.int64]) -> None:
        """Make ``cells``, in rising order, the only empty cells up to the last of them."""
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
        """Fill a block below the edge, which may be partly filled."""
        start = block * GRAIN
        self._remove(self._filler, start, start + GRAIN)
        self._fill_block(start)
        self._edge = max(self._edge, start + GRAIN)

    def _compact(self) -> None:
        """Move the used blocks, in order, below all free blocks."""
        for target, (block, (index, owners)) in enumerate(self._blocks.owners().items()):
            if target == block:
                continue
            start = index * GRAIN
            state = self.export_state(owners[0], start, start + GRAIN)
            for sequence in owners:
                self._remove(sequence, start, start + GRAIN)
            self._refill_block(block)
            tokens = min(self._blocks.length(owners[0]) - start, GRAIN)
            self._remove(self._filler, target * GRAIN, target * GRAIN + tokens)
            self.import_state(state, owners)
            self._blocks.move(block, index, owners, target)
        self._lower_edge()

    def _compute_fillers(self) -> None:
        """Compute one block of fillers and keep its state, from which other blocks are filled."""
        step = min(GRAIN, self._batch.capacity)
        for at in range(0, GRAIN, step):
            count = min(step, GRAIN - at)
            self._batch.fill([self._token] * count, range(at, at + count), self._carrier, [])
            if compute(self._lib.llama_decode, self._context, self._batch.native):
                raise BackendError("llama.cpp failed to compute the first tokens of the KV cache.", fix=FIX_MEMORY)
        self._state = self.export_state(self._carrier, 0, GRAIN)
        self._positions = state_records(self._state)[:, 0]
        self._copy(self._carrier, self._filler, 0, GRAIN)
        self._remove(self._carrier, 0, -1)

    def _fill_block(self, start: int) -> None:
        """Fill the first GRAIN empty cells, which begin at ``start``."""
        self._positions[:] = np.arange(start, start + GRAIN)
        self.import_state(self._state, [self._filler])
