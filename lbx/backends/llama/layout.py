"""Sizes of passes and blocks of llama.cpp's cache, and the owners of blocks. Imports no heavy package."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


GRAIN = 32
"""Cells of a block: a multiple of the lanes of all vectors that llama.cpp uses to sum 16 or 32-bit values."""

SPARE_BLOCKS = 4
"""Two for the partial blocks at the ends of trunks, one for overshoot, one for padding."""

FILLER, CARRIER, PADDING, EXTRA_SEQUENCES = 0, 1, 2, 3
"""Sequences after the memory's own: for filled cells, for cells that are moved, for padding."""


TRUNKS = 4
"""Sequences for prefixes of prompts if sequences cannot be shortened."""


class PassSize(NamedTuple):
    """Numbers of tokens, and rows of logits, for which a pass is batch-invariant.

    llama.cpp has different kernels for few tokens, which round sums differently.

    Attributes:
        min_tokens: least number of tokens for the kernels for many.
        multiple: number of tokens that a kernel computes together.
    """

    min_tokens: int = 1
    multiple: int = 1

    def padding(self, tokens: int) -> int:
        """Number of padding tokens of a pass; 0 if it is empty."""
        return max(self.min_tokens, -(-tokens // self.multiple) * self.multiple) - tokens if tokens else 0

    def padded_size(self, tokens: int) -> int:
        return tokens + self.padding(tokens)


_SGEMM = {"F32", "F16", "Q8_0", "BF16"}
PAIRS, _EIGHTS = PassSize(2), PassSize(8, 4)


def pass_size(types: Iterable[str]) -> PassSize:
    """Size that a model's passes are padded to on a CPU.

    From llama.cpp's source: ``llamafile_sgemm`` takes 2 tokens or more on x86 (8 on ARM, not seen running there),
    the kernels for K-quants 8, and those for rearranged weights (``repack``) four at a time.

    Args:
        types: of all tensors. general.file_type in the header names only the most frequent: files with another type
            for the output or some layers are common.
    """
    arm = platform.machine().lower() in ("aarch64", "arm64")
    return PAIRS if _SGEMM.issuperset(types) and not arm else _EIGHTS


class Blocks:
    """Blocks of ``grain`` cells: token p of a sequence is in cell p modulo ``grain`` of a block.

    A sequence's blocks are in rising order. Full blocks may be shared; a partial last block has one owner.
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
        """Number of new blocks that a sequence needs for these tokens."""
        return -(-(self._lengths[sequence] + tokens) // self.grain) - len(self._blocks[sequence])

    def assign(self, items: Iterable[tuple[int, int]]) -> list[list[int]] | None:
        """Choose the lowest free blocks above each sequence's last one; None if there are too few.

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
        """Append tokens to a sequence, in its last block and the new ones; returns their cells, shape (tokens,)."""
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
        """Remove a sequence; returns the blocks that became free, in rising order."""
        blocks, self._blocks[sequence] = self._blocks[sequence], []
        self._lengths[sequence] = 0
        self._users[blocks] -= 1
        return [block for block in blocks if not self._users[block]]

    def clear(self) -> None:
        for sequence in range(len(self._blocks)):
            self.drop(sequence)

    def owners(self) -> dict[int, tuple[int, list[int]]]:
        """{block: (its index within a sequence, its sequences)} of the blocks in use, in rising order."""
        owners: dict[int, tuple[int, list[int]]] = {}
        for sequence, blocks in enumerate(self._blocks):
            for index, block in enumerate(blocks):
                owners.setdefault(block, (index, []))[1].append(sequence)
        return dict(sorted(owners.items()))

    def move(self, block: int, index: int, owners: Sequence[int], target: int) -> None:
        """Replace a block by a free one in all its owners."""
        for sequence in owners:
            self._blocks[sequence][index] = target
        self._users[target], self._users[block] = len(owners), 0
