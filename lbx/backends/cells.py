"""Who owns which cell of a KV memory: the bookkeeping of many sequences that share their first tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A scattered selection of cells costs a copy of them in every layer, which reads and writes each once more.
_GATHER = 3


class Columns(NamedTuple):
    """The cells that a pass of the model looks at.

    Attributes:
        cells: their numbers, shape (columns,), in the order in which they are looked at.
        span: (first, behind the last) where they lie side by side in rising order, so that none must be copied.
        ordered: they are the tokens 0, 1, 2 ... of one sequence, and nothing else.
    """

    cells: NDArray[np.int64]
    span: tuple[int, int] | None
    ordered: bool


class CellTable:
    """Cells 0 <= cell < ``max_cells``; each holds one token's keys and values for every sequence that shares it.

    The owners are the only record of what a sequence holds. Its length, the free cells and the masks are read from
    them, so that an interruption at any line leaves nothing that contradicts itself.

    Attributes:
        owners: shape (sequences, cells), whether a sequence holds a cell.
        positions: shape (cells,), the place that a cell's token has in every sequence that holds it.
    """

    def __init__(self, max_sequences: int, max_cells: int) -> None:
        self.owners: NDArray[np.bool_] = np.zeros((max_sequences, max_cells), dtype=np.bool_)
        self.positions: NDArray[np.int32] = np.zeros(max_cells, dtype=np.int32)
        self._top = 0  # no cell from here on was ever taken: what lies behind need not be searched

    @property
    def max_sequences(self) -> int:
        return int(self.owners.shape[0])

    @property
    def max_cells(self) -> int:
        return int(self.owners.shape[1])

    @property
    def used(self) -> int:
        """How many cells some sequence holds."""
        return int(np.count_nonzero(self.owners[:, : self._top].any(axis=0)))

    def length(self, sequence: int) -> int:
        return int(np.count_nonzero(self.owners[sequence, : self._top]))

    def lowest_free(self, count: int) -> NDArray[np.int64]:
        """The first free cells, in rising order; fewer than asked for where there are not so many."""
        free = np.flatnonzero(~self.owners[:, : self._top].any(axis=0))[:count]
        fresh = np.arange(self._top, min(self.max_cells, self._top + count - len(free)))
        return np.concatenate([free, fresh])

    def give(self, sequence: int, cells: NDArray[np.int64]) -> NDArray[np.int32]:
        """Let a sequence grow by free cells; the positions of their tokens."""
        start = self.length(sequence)
        positions = np.arange(start, start + len(cells), dtype=np.int32)
        self._top = max(self._top, int(cells[-1]) + 1)
        self.positions[cells] = positions
        self.owners[sequence, cells] = True
        return positions

    def fork(self, source: int, length: int, targets: Sequence[int]) -> None:
        row = self.owners[source] & (self.positions < length)
        self.owners[list(targets)] = row

    def drop(self, sequences: Sequence[int]) -> None:
        self.owners[list(sequences)] = False
        if not self.owners[:, : self._top].any():
            self._top = 0

    def columns(self, sequences: Sequence[int]) -> Columns:
        """What a pass that extends these sequences, already grown, must look at."""
        held = np.flatnonzero(self.owners[list(sequences), : self._top].any(axis=0))
        span = (int(held[0]), int(held[-1]) + 1)
        together = span[1] - span[0] <= _GATHER * len(held)
        if len(sequences) == 1:
            in_order = bool((self.positions[held] == np.arange(len(held))).all())
            if not together and not in_order:
                held, in_order = held[np.argsort(self.positions[held])], True
            if not together or span[1] - span[0] == len(held):
                return Columns(held, span if together else None, in_order)
        return Columns(np.arange(*span), span, False) if together else Columns(held, None, False)

    def seen(self, sequences: Sequence[int], columns: Columns) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
        """Copies of what the masks of a pass are made of.

        Returns:
            Which sequence holds which column, shape (sequences, columns), and the columns' positions, (columns,).
        """
        if columns.span is not None:  # a slice is copied many times faster than a selection
            span = slice(*columns.span)
            return self.owners[list(sequences), span], self.positions[span].copy()
        return self.owners[np.ix_(np.asarray(sequences, dtype=np.int64), columns.cells)], self.positions[columns.cells]
