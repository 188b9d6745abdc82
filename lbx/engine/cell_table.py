"""Table of the cells of a KV memory: the sequences that own each cell, and the cells that new tokens attend to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A scattered selection of cells costs a copy of them in every layer, which reads and writes each once more.
_GATHER = 3

# Smallest run of adjacent cells that gets its own piece, and the largest number of such pieces.
_PIECE, _MOST_PIECES = 256, 6

# Attention over fewer tokens takes as long as over these: it has to read the cells anyway.
_FEW_TOKENS = 16

# Sequences are grouped if joint attention costs at most this factor more than separate: one pass over the cells is
# quicker than many short ones.
_TOGETHER = 1.2

# Larger blocks are hardly faster, and their free cells take memory.
_LARGEST_BLOCK = 256


class AttentionView(NamedTuple):
    """Cells that the new tokens of a group of sequences attend to.

    Attributes:
        shared_cells: cells that all the new tokens attend to: spans (first, end) of adjacent cells, and at most one
            array of scattered cells.
        masked_cells: cells that only some of the tokens attend to, a span or an array.
        causal: the masked cells are the new tokens' own, in order, so that a causal mask does.
        private_cells: in place of masked cells, the cells of each sequence if all grow by one token: shape (sequences,
            columns), padded with -1.
    """

    shared_cells: tuple[tuple[int, int] | NDArray[np.int64], ...]
    masked_cells: tuple[int, int] | NDArray[np.int64] | None
    causal: bool
    private_cells: NDArray[np.int64] | None = None


class AttentionWindow(NamedTuple):
    """Sliding window or chunk that a layer's attention is limited to.

    Attributes:
        size: tokens, the attending token included.
        chunked: whether attention is limited to the token's chunk rather than to the last tokens.
    """

    size: int
    chunked: bool = False

    def first(self, positions: NDArray[np.int32]) -> NDArray[np.int32]:
        """First visible position for a token at each of ``positions``. May be negative."""
        return positions // self.size * self.size if self.chunked else positions - (self.size - 1)


class AttentionSegment(NamedTuple):
    """Cells that a run of new tokens of a pass attends to, without a mask.

    Attributes:
        first_token, tokens: the tokens' first index in the pass, and their number.
        cells: a span (first, end) of adjacent cells or an array of shape (columns,), in the order of positions; or each
            token's own cells, shape (tokens, columns).
        starts, limits: each token sees the columns from its start to its limit, shape (tokens,); None: all.
    """

    first_token: int
    tokens: int
    cells: tuple[int, int] | NDArray[np.int64]
    starts: NDArray[np.int64] | None = None
    limits: NDArray[np.int64] | None = None


class MaskCells(NamedTuple):
    """Cells that form the columns of a pass's attention mask.

    Attributes:
        cells: shape (columns,).
        span: (first, end) if the cells are adjacent and in rising order, so that attention needs no copy of them.
        in_order: whether the cells store exactly the tokens 0, 1, 2 ... of one sequence.
    """

    cells: NDArray[np.int64]
    span: tuple[int, int] | None
    in_order: bool


class CellTable:
    """Table of the cells of a KV memory. A cell stores a token's keys and values for all sequences that share it.

    ``owners`` is the only record: lengths, free cells and masks are derived from it, so that the table is consistent
    after an interruption at any line.

    Args:
        block: number of cells in the first block of a growing sequence; with 1, a token takes the lowest free cell.

    Attributes:
        owners: shape (sequences, cells).
        positions: shape (cells,), position of a cell's token in all sequences that own it.
    """

    def __init__(self, max_sequences: int, max_cells: int, *, block: int = 1) -> None:
        self.owners: NDArray[np.bool_] = np.zeros((max_sequences, max_cells), dtype=np.bool_)
        self.positions: NDArray[np.int32] = np.zeros(max_cells, dtype=np.int32)
        self._block = block
        # Of each sequence, the cell that follows its last one, and the size of the next block. Both may be outdated:
        # they only make adjacent cells likely.
        self._next = np.full(max_sequences, -1)
        self._block_sizes = np.full(max_sequences, block)
        self._top = 0  # high-water mark: no cell from here on was ever used
        self._changes = 0  # number of forks, drops and cuts
        self._decoding: tuple[tuple[int, ...], list[list[int]]] = ((), [])  # last result of groups and its key

    @property
    def max_sequences(self) -> int:
        return int(self.owners.shape[0])

    @property
    def max_cells(self) -> int:
        return int(self.owners.shape[1])

    @property
    def top(self) -> int:
        """Number of leading cells that have ever been used."""
        return self._top

    @property
    def used(self) -> int:
        """Number of cells with an owner."""
        return int(np.count_nonzero(self.owners[:, : self._top].any(axis=0)))

    def length(self, sequence: int) -> int:
        return int(np.count_nonzero(self.owners[sequence, : self._top]))

    def lowest_free(self, count: int) -> NDArray[np.int64]:
        """Indices of the first ``count`` free cells in rising order, or of fewer if the table is full."""
        free = np.flatnonzero(~self.owners[:, : self._top].any(axis=0))[:count]
        fresh = np.arange(self._top, min(self.max_cells, self._top + count - len(free)))
        return np.concatenate([free, fresh])

    def choose_cells(self, sequences: Sequence[int], counts: Sequence[int]) -> list[NDArray[np.int64]]:
        """Choose free cells for the new tokens of each sequence, in rising order. Enough cells must be free.

        With blocks, a sequence goes on after its last cell or, if that cell is in use, in a free block, each twice as
        large as the one before. Without them, sequences that grow together would alternate, and attention would read
        each cell from another page of memory.
        """
        total = sum(counts)
        if self._block == 1:
            return np.split(self.lowest_free(total), np.cumsum(counts)[:-1])
        end = self._top + total + (len(counts) + 1) * _LARGEST_BLOCK
        free = np.ones(min(self.max_cells, end), dtype=np.bool_)
        free[: self._top] = ~self.owners[:, : self._top].any(axis=0)
        chosen, after_piece = [], -1
        for sequence, count in zip(sequences, counts, strict=True):
            start, block = int(self._next[sequence]), int(self._block_sizes[sequence])
            if count > 1:
                block = self._block
                if not free[start : start + 1].any():
                    start = after_piece  # pieces of several tokens remain adjacent: their mask covers the span
            cells = _take_cells(free, start, count, (block, self._block))
            after_piece = int(cells[-1]) + 1 if count > 1 else after_piece
            chosen.append(cells)
        return chosen

    def allocate(self, sequence: int, cells: NDArray[np.int64]) -> NDArray[np.int32]:
        """Append free cells to a sequence, and return the positions of their tokens."""
        start = self.length(sequence)
        positions = np.arange(start, start + len(cells), dtype=np.int32)
        self._top = max(self._top, int(cells[-1]) + 1)
        if len(cells) == 1 and cells[0] != self._next[sequence]:
            self._block_sizes[sequence] = min(_LARGEST_BLOCK, 2 * self._block_sizes[sequence])
        self._next[sequence] = cells[-1] + 1
        self.positions[cells] = positions
        self.owners[sequence, cells] = True
        return positions

    def free(self, cells: NDArray[np.int64]) -> None:
        """Free cells that were just allocated, from all sequences."""
        self._changes += 1
        self.owners[:, cells] = False

    def fork(self, source: int, length: int, targets: Sequence[int]) -> None:
        self._changes += 1
        row = self.owners[source] & (self.positions < length)
        self.owners[list(targets)] = row
        self._next[list(targets)] = self._next[source]
        self._block_sizes[list(targets)] = self._block

    def drop(self, sequences: Sequence[int]) -> None:
        self._changes += 1
        self.owners[list(sequences)] = False
        self._next[list(sequences)] = -1
        self._block_sizes[list(sequences)] = self._block
        if not self.owners[:, : self._top].any():
            self._top = 0

    def groups(self, sequences: Sequence[int], new_tokens: Sequence[int]) -> list[list[int]]:
        """Group sequences to compute their attention together. Returns indices into ``sequences``."""
        shape = (self._changes, *sequences) if all(tokens == 1 for tokens in new_tokens) else ()
        if shape and shape == self._decoding[0]:  # groups of decoding sequences stay the same between forks and drops
            return self._decoding[1]
        groups: list[_SequenceGroup] = []
        for index, (sequence, tokens) in enumerate(zip(sequences, new_tokens, strict=True)):
            single = _SequenceGroup([index], tokens, *2 * (self.owners[sequence, : self._top],))
            for at, group in enumerate(groups):
                both = group.join(single)
                if both.shares(group, single) and both.cost <= _TOGETHER * (group.cost + single.cost):
                    groups[at] = both
                    break
            else:
                groups.append(single)
        index_lists = [group.indices for group in groups]
        self._decoding = (shape, index_lists)
        return index_lists

    def attention_view(
        self,
        sequences: Sequence[int],
        new: NDArray[np.int64],
        ends: NDArray[np.int32] | None = None,
        *,
        per_sequence: bool = False,
    ) -> AttentionView:
        """Return the cells that the new tokens of a group of sequences attend to.

        Args:
            new: cells that were just allocated to the sequences.
            ends: for layers with a window, the first position visible to each sequence's first and last new token:
                shape (2, sequences).
            per_sequence: whether private cells may be gathered per sequence.
        """
        rows = self.owners[list(sequences), : self._top]
        shared_cells: NDArray[np.bool_] = np.all(rows, axis=0)
        in_order = len(sequences) == 1 and len(new) > 1
        if in_order:
            shared_cells[new] = False
        if ends is not None:
            places = self.positions[: self._top]
            rows &= places >= ends[0][:, None]
            shared_cells &= places >= ends[1].max()
            in_order = in_order and bool(ends[1][0] <= self.positions[new[0]])
        masked_cells = np.flatnonzero(np.any(rows, axis=0) & ~shared_cells)
        causal = in_order and len(masked_cells) == len(new)
        if per_sequence and len(sequences) == len(new) > 1:
            private_cells = _true_columns(rows & ~shared_cells)
            if private_cells.size <= _GATHER * len(masked_cells):
                return AttentionView(_split_into_spans(np.flatnonzero(shared_cells)), None, causal, private_cells)
        # A span's mask hides cells without an owner, but shared cells inside it would count twice.
        between = len(masked_cells) > 0 and bool(np.any(shared_cells[int(masked_cells[0]) : int(masked_cells[-1])]))
        return AttentionView(
            _split_into_spans(np.flatnonzero(shared_cells)),
            _bounding_span(masked_cells, 1 if between or causal else _GATHER),
            causal,
        )

    def attention_segments(
        self,
        sequences: Sequence[int],
        new_tokens: Sequence[int],
        positions: NDArray[np.int32],
        window: AttentionWindow | None,
        first_token: int = 0,
    ) -> list[AttentionSegment]:
        """Split the cells that the newest tokens of ``sequences`` attend to into segments without masks.

        Args:
            new_tokens: number of new tokens of each sequence.
            positions: positions of all new tokens.
            first_token: index of the first new token in the pass.
        """
        rows, places = self.owners[list(sequences), : self._top], self.positions[: self._top]
        first_visible = None if window is None else window.first(positions)
        parts: list[AttentionSegment] = []
        if len(sequences) > 1:
            shared = np.all(rows, axis=0)
            if first_visible is not None:
                shared &= places >= first_visible.max()
            if shared.any():
                parts.append(AttentionSegment(first_token, len(positions), _as_span(np.flatnonzero(shared))))
                rows = rows & ~shared
        if len(sequences) == len(positions) > 1:
            if first_visible is not None:
                rows = rows & (places >= first_visible[:, None])
            cells = _true_columns(rows)
            limits = np.count_nonzero(cells >= 0, axis=1)
            return [*parts, AttentionSegment(first_token, len(positions), cells.clip(0), limits=limits)]
        start = 0
        for row, count in zip(rows, new_tokens, strict=True):
            cells, of_tokens = np.flatnonzero(row), slice(start, start + count)
            if first_visible is not None:
                cells = cells[places[cells] >= first_visible[of_tokens].min()]
            cells = cells[np.argsort(places[cells], kind="stable")]
            limits = starts = None
            if count > 1:
                limits = np.searchsorted(places[cells], positions[of_tokens], side="right")
                if first_visible is not None:
                    starts = np.searchsorted(places[cells], first_visible[of_tokens])
            parts.append(AttentionSegment(first_token + start, count, _as_span(cells), starts, limits))
            start += count
        return parts

    def mask_columns(self, sequences: Sequence[int]) -> MaskCells:
        """Return the columns of the attention mask of a pass over ``sequences``."""
        cells = np.flatnonzero(self.owners[list(sequences), : self._top].any(axis=0))
        span = (int(cells[0]), int(cells[-1]) + 1)
        together = span[1] - span[0] <= _GATHER * len(cells)
        if len(sequences) == 1:
            in_order = bool((self.positions[cells] == np.arange(len(cells))).all())
            if not together and not in_order:
                cells, in_order = cells[np.argsort(self.positions[cells])], True
            if not together or span[1] - span[0] == len(cells):
                return MaskCells(cells, span if together else None, in_order)
        return MaskCells(np.arange(*span), span, False) if together else MaskCells(cells, None, False)

    def copy_owners(
        self, sequences: Sequence[int], cells: tuple[int, int] | NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
        """Copies of the owner flags, shape (sequences, cells), and the positions, shape (cells,), of some cells."""
        if isinstance(cells, tuple):  # a slice is copied many times faster than a selection
            span = slice(*cells)
            return self.owners[list(sequences), span], self.positions[span].copy()
        return self.owners[np.ix_(np.asarray(sequences, dtype=np.int64), cells)], self.positions[cells]


class _SequenceGroup:
    """Group of sequences with attention that may be computed together, and the cost of doing so."""

    def __init__(self, indices: list[int], tokens: int, by_all: NDArray[np.bool_], by_any: NDArray[np.bool_]) -> None:
        self.indices = indices
        self._tokens = tokens
        self._owned_by_all = by_all
        self._owned_by_any = by_any
        self._shared_count = int(np.count_nonzero(by_all))
        self.cost = max(tokens, _FEW_TOKENS) * (int(np.count_nonzero(by_any)) + tokens)

    def join(self, other: _SequenceGroup) -> _SequenceGroup:
        return _SequenceGroup(
            self.indices + other.indices,
            self._tokens + other._tokens,
            self._owned_by_all & other._owned_by_all,
            self._owned_by_any | other._owned_by_any,
        )

    def shares(self, first: _SequenceGroup, second: _SequenceGroup) -> bool:
        """Whether this group, joined from two, keeps most of the cells that each shared. Other cells need a mask."""
        return self._shared_count > 0 and 2 * self._shared_count >= min(first._shared_count, second._shared_count)


def _take_cells(free: NDArray[np.bool_], start: int, count: int, block_sizes: Sequence[int]) -> NDArray[np.int64]:
    """Take free cells: from ``start`` on, then from free blocks of the first size found, then any. Updates ``free``."""
    following = free[start : start + count] if start >= 0 else free[:0]
    length = len(following) if following.all() else int(following.argmin())
    cells = np.arange(start, start + length)
    free[cells] = False
    if rest := count - length:
        others = cells[:0]
        for size in block_sizes:
            if len(others) < rest:
                blocks = np.flatnonzero(free[: len(free) // size * size].reshape(-1, size).all(axis=1))
                others = (blocks[: -(-rest // size), None] * size + np.arange(size)).ravel()
        others = (others if len(others) >= rest else np.flatnonzero(free))[:rest]
        free[others] = False
        cells = np.sort(np.concatenate([cells, others]))
    return cells


def _true_columns(rows: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Indices of the True columns of each row, padded with -1."""
    counts = np.count_nonzero(rows, axis=1)
    # Much faster of a flat array than of one with rows.
    cells = np.flatnonzero(rows) - np.repeat(np.arange(len(rows)) * rows.shape[1], counts)
    columns_of = np.full((len(rows), int(counts.max())), -1, dtype=np.int64)
    columns_of[np.arange(columns_of.shape[1]) < counts[:, None]] = cells
    return columns_of


def _split_into_spans(cells: NDArray[np.int64]) -> tuple[tuple[int, int] | NDArray[np.int64], ...]:
    """Split cells, given in rising order, into spans of adjacent cells and one array of scattered cells."""
    runs = np.split(cells, np.flatnonzero(np.diff(cells) != 1) + 1) if len(cells) else []
    ranked = sorted(runs, key=len, reverse=True)
    pieces = [run for run in ranked[:_MOST_PIECES] if len(run) >= _PIECE or len(runs) == 1]
    spans = sorted((int(run[0]), int(run[-1]) + 1) for run in pieces)
    scattered = ranked[len(pieces) :]
    return (*spans, np.sort(np.concatenate(scattered))) if scattered else tuple(spans)


def _as_span(cells: NDArray[np.int64]) -> tuple[int, int] | NDArray[np.int64]:
    """Convert cells (at least one) to a span if they are adjacent and in rising order, or else return the array."""
    span = (int(cells[0]), int(cells[-1]) + 1)
    return span if span[1] - span[0] == len(cells) and bool((np.diff(cells) == 1).all()) else cells


def _bounding_span(cells: NDArray[np.int64], waste: int) -> tuple[int, int] | NDArray[np.int64] | None:
    """Span from the first to the last cell, ``cells`` if it is over ``waste`` times as long, or None without cells."""
    if not len(cells):
        return None
    span = (int(cells[0]), int(cells[-1]) + 1)
    return span if span[1] - span[0] <= waste * len(cells) else cells
