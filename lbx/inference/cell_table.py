"""Who owns which cell of a KV memory: the bookkeeping of many sequences that share their first tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A scattered selection of cells costs a copy of them in every layer, which reads and writes each once more.
_GATHER = 3

# Cells side by side that are worth a piece of their own, and how many such pieces there are at most.
_PIECE, _MOST_PIECES = 256, 6

# Attention over few tokens takes as long as over so many: it has to read the cells anyway.
_FEW_TOKENS = 16

# Sequences look together where that costs at most so much more than looking apart: one pass over the cells is
# quicker than many short ones.
_TOGETHER = 1.2


class Look(NamedTuple):
    """What the new tokens of some sequences look at.

    Attributes:
        everyone: cells that each of these tokens sees whole: spans (first, behind the last) of cells side by side,
            and at most one array of scattered ones.
        rest: cells that some of them see, a span or an array; None where there are none.
        causal: the rest are these tokens themselves in their order, each seeing those up to itself.
        own: where each sequence has one token, the rest by sequence instead: shape (sequences, columns), -1 behind its
            last.
    """

    everyone: tuple[tuple[int, int] | NDArray[np.int64], ...]
    rest: tuple[int, int] | NDArray[np.int64] | None
    causal: bool
    own: NDArray[np.int64] | None = None


class Reach(NamedTuple):
    """How far back a token sees that does not see everything.

    Attributes:
        tokens: the last so many, itself among them, or the length of chunks.
        chunked: only its own chunk.
    """

    tokens: int
    chunked: bool = False

    def first(self, positions: NDArray[np.int32]) -> NDArray[np.int32]:
        """The first position that tokens at these positions see, or one below 0."""
        return positions // self.tokens * self.tokens if self.chunked else positions - (self.tokens - 1)


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
        self._changes = 0  # how often sequences were cut or began
        self._decoding: tuple[tuple[int, ...], list[list[int]]] = ((), [])  # the last answer of groups, and to what

    @property
    def max_sequences(self) -> int:
        return int(self.owners.shape[0])

    @property
    def max_cells(self) -> int:
        return int(self.owners.shape[1])

    @property
    def top(self) -> int:
        """How many cells, from the first one, have ever been taken."""
        return self._top

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

    def take_back(self, cells: NDArray[np.int64]) -> None:
        """Let nobody hold these cells, which were given last."""
        self._changes += 1
        self.owners[:, cells] = False

    def fork(self, source: int, length: int, targets: Sequence[int]) -> None:
        self._changes += 1
        row = self.owners[source] & (self.positions < length)
        self.owners[list(targets)] = row

    def drop(self, sequences: Sequence[int]) -> None:
        self._changes += 1
        self.owners[list(sequences)] = False
        if not self.owners[:, : self._top].any():
            self._top = 0

    def groups(self, sequences: Sequence[int], new_tokens: Sequence[int]) -> list[list[int]]:
        """Which sequences, about to grow by so many tokens, should look at their cells together.

        Returns:
            Their places in ``sequences``, each in one group.
        """
        shape = (self._changes, *sequences) if all(tokens == 1 for tokens in new_tokens) else ()
        if shape and shape == self._decoding[0]:  # answers that only grow stay together; a step a token asks this
            return self._decoding[1]
        groups: list[_Group] = []
        for place, (sequence, tokens) in enumerate(zip(sequences, new_tokens, strict=True)):
            alone = _Group([place], tokens, *2 * (self.owners[sequence, : self._top],))
            for at, group in enumerate(groups):
                both = group.joined(alone)
                if both.shares(group, alone) and both.cost <= _TOGETHER * (group.cost + alone.cost):
                    groups[at] = both
                    break
            else:
                groups.append(alone)
        places = [group.places for group in groups]
        self._decoding = (shape, places)
        return places

    def look(
        self,
        sequences: Sequence[int],
        new: NDArray[np.int64],
        ends: NDArray[np.int32] | None = None,
        *,
        apart: bool = False,
    ) -> Look:
        """What the new cells of these sequences, already theirs, look at.

        Args:
            ends: where they do not see everything, the first position that each sequence's first new token sees, and
                that its last one does: shape (2, sequences).
            apart: whether sequences may look at what is their own by copies of it, side by side.
        """
        rows = self.owners[list(sequences), : self._top]
        everyone: NDArray[np.bool_] = np.all(rows, axis=0)
        ordered = len(sequences) == 1 and len(new) > 1
        if ordered:
            everyone[new] = False
        if ends is not None:
            places = self.positions[: self._top]
            rows &= places >= ends[0][:, None]
            everyone &= places >= ends[1].max()
            ordered = ordered and bool(ends[1][0] <= self.positions[new[0]])
        rest = np.flatnonzero(np.any(rows, axis=0) & ~everyone)
        causal = ordered and len(rest) == len(new)
        if apart and len(sequences) == len(new) > 1:
            own = _own(rows & ~everyone)
            if own.size <= _GATHER * len(rest):
                return Look(_pieces(np.flatnonzero(everyone)), None, causal, own)
        # A span's mask hides what no sequence holds, but what everyone sees must not be seen twice.
        between = len(rest) > 0 and bool(np.any(everyone[int(rest[0]) : int(rest[-1])]))
        return Look(_pieces(np.flatnonzero(everyone)), _span(rest, 1 if between or causal else _GATHER), causal)

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

    def seen(
        self, sequences: Sequence[int], cells: tuple[int, int] | NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
        """Copies of what a mask is made of.

        Args:
            cells: the mask's columns, a span or an array.

        Returns:
            Which sequence holds which column, shape (sequences, columns), and the columns' positions, (columns,).
        """
        if isinstance(cells, tuple):  # a slice is copied many times faster than a selection
            span = slice(*cells)
            return self.owners[list(sequences), span], self.positions[span].copy()
        return self.owners[np.ix_(np.asarray(sequences, dtype=np.int64), cells)], self.positions[cells]


class _Group:
    """Sequences that may look together: what all of them hold, and what any of them does."""

    def __init__(self, places: list[int], tokens: int, everyone: NDArray[np.bool_], anyone: NDArray[np.bool_]) -> None:
        self.places = places
        self._tokens = tokens
        self._everyone = everyone
        self._anyone = anyone
        self._shared = int(np.count_nonzero(everyone))
        self.cost = max(tokens, _FEW_TOKENS) * (int(np.count_nonzero(anyone)) + tokens)

    def joined(self, other: _Group) -> _Group:
        return _Group(
            self.places + other.places,
            self._tokens + other._tokens,
            self._everyone & other._everyone,
            self._anyone | other._anyone,
        )

    def shares(self, one: _Group, other: _Group) -> bool:
        """Whether most of what either shares would still be shared: what is not, needs a mask."""
        return self._shared > 0 and 2 * self._shared >= min(one._shared, other._shared)


def _own(rows: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The columns of each row that are True, -1 behind them."""
    counts = np.count_nonzero(rows, axis=1)
    # Much faster of a flat array than of one with rows.
    cells = np.flatnonzero(rows) - np.repeat(np.arange(len(rows)) * rows.shape[1], counts)
    places_of = np.full((len(rows), int(counts.max())), -1, dtype=np.int64)
    places_of[np.arange(places_of.shape[1]) < counts[:, None]] = cells
    return places_of


def _pieces(cells: NDArray[np.int64]) -> tuple[tuple[int, int] | NDArray[np.int64], ...]:
    """Cells, in rising order, as spans where they lie side by side, and the scattered ones as one array."""
    runs = np.split(cells, np.flatnonzero(np.diff(cells) != 1) + 1) if len(cells) else []
    ranked = sorted(runs, key=len, reverse=True)
    pieces = [run for run in ranked[:_MOST_PIECES] if len(run) >= _PIECE or len(runs) == 1]
    spans = sorted((int(run[0]), int(run[-1]) + 1) for run in pieces)
    scattered = ranked[len(pieces) :]
    return (*spans, np.sort(np.concatenate(scattered))) if scattered else tuple(spans)


def _span(cells: NDArray[np.int64], waste: int) -> tuple[int, int] | NDArray[np.int64] | None:
    """Cells in rising order as the span that holds them, where it has at most ``waste`` times as many."""
    if not len(cells):
        return None
    span = (int(cells[0]), int(cells[-1]) + 1)
    return span if span[1] - span[0] <= waste * len(cells) else cells
