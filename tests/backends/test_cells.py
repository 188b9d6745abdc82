"""The bookkeeping of shared cells, against a plain list of cells for each sequence."""

from __future__ import annotations

import random

import numpy as np
import pytest

from lbx.engine.cell_table import AttentionWindow, CellTable


@pytest.mark.parametrize("block", [1, 8])
@pytest.mark.parametrize("seed", range(8))
def test_owners_are_those_of_plain_lists(seed, block):
    rng = random.Random(seed)
    table, held = CellTable(5, 90, block=block), [[] for _ in range(5)]
    for _ in range(200):
        one, other = rng.sample(range(5), 2)
        match rng.choice(["give", "give", "fork", "drop"]):
            case "give":
                taken = {cell for cells in held for cell in cells}
                free = [cell for cell in range(90) if cell not in taken]
                wanted = rng.randint(1, 12)
                assert table.lowest_free(wanted).tolist() == free[:wanted]
                if len(free) >= wanted:
                    (cells,) = table.choose_cells([one], [wanted])
                    assert set(cells.tolist()) <= set(free)
                    assert len(cells) == wanted and (np.diff(cells) > 0).all()
                    positions = table.allocate(one, cells)
                    assert positions.tolist() == list(range(len(held[one]), len(held[one]) + wanted))
                    held[one] += cells.tolist()
            case "fork":
                length = rng.randint(0, len(held[one]))
                table.fork(one, length, [other])
                held[other] = held[one][:length]
            case "drop":
                gone = [one, other] if rng.random() < 0.3 else [one]
                table.drop(gone)
                for s in gone:
                    held[s] = []
        assert [table.length(s) for s in range(5)] == [len(cells) for cells in held]
        assert table.used == len({cell for cells in held for cell in cells})
        for cells in held:
            assert table.positions[cells].tolist() == list(range(len(cells)))
        check_columns(table, held, [s for s in rng.sample(range(5), rng.randint(1, 3)) if held[s]])
        check_look(table, held, [s for s in rng.sample(range(5), rng.randint(1, 3)) if held[s]], rng)


def check_columns(table, held, named):
    if not named:
        return
    columns = table.mask_columns(named)
    needed = {cell for s in named for cell in held[s]}
    assert needed <= set(columns.cells.tolist())
    if columns.span is None:
        assert needed == set(columns.cells.tolist())
    else:
        assert columns.cells.tolist() == list(range(*columns.span))
        assert len(columns.cells) <= 3 * len(needed)
    assert columns.in_order == (len(named) == 1 and columns.cells.tolist() == held[named[0]])
    owned, places = table.copy_owners(named, columns.span or columns.cells)
    for row, s in zip(owned, named, strict=True):
        assert columns.cells[row].tolist() == sorted(held[s], key=columns.cells.tolist().index)
    assert np.array_equal(places, table.positions[columns.cells])


def cells_of(piece) -> list[int]:
    if piece is None:
        return []
    return list(range(*piece)) if isinstance(piece, tuple) else piece.tolist()


def check_look(table, held, named, rng):
    """Each new token sees every cell that its sequence held before exactly once, and no hidden one counts."""
    if not named:
        return
    newest = [held[s][-rng.randint(1, len(held[s])) :] for s in named]
    if len(named) > 1:  # what several sequences hold is new to none of them
        newest = [[c for c in new if sum(c in cells for cells in held) == 1] for new in newest]
    if not all(newest) or any(new != sorted(new) for new in newest):  # new cells come in rising order
        return
    view = table.attention_view(named, np.array([c for new in newest for c in new]))
    everyone = [c for piece in view.shared_cells for c in cells_of(piece)]
    rest = cells_of(view.masked_cells)
    assert len(set(everyone)) == len(everyone)
    assert not set(everyone) & set(rest)
    assert view.causal == (len(named) == 1 and len(newest[0]) > 1)
    for s, new in zip(named, newest, strict=True):
        if view.causal:
            assert rest == new
            assert sorted(everyone + rest) == sorted(held[s])
            continue
        owned = rest
        if rest:
            mask, _ = table.copy_owners(named, view.masked_cells)
            owned = [c for c, mine in zip(rest, mask[named.index(s)], strict=True) if mine]
        assert sorted(everyone + owned) == sorted(held[s])

    for window in (None, AttentionWindow(rng.randint(1, 12)), AttentionWindow(rng.randint(1, 12), chunked=True)):
        check_parts(table, held, named, newest, window)


def check_parts(table, held, named, newest, window):
    """Each new token sees the cells up to its own that the window shows, once, without a mask."""
    tokens = [(s, cell) for s, new in zip(named, newest, strict=True) for cell in new]
    positions = np.array([table.positions[cell] for _, cell in tokens], dtype=np.int32)
    seen = [[] for _ in tokens]
    for part in table.attention_segments(named, [len(new) for new in newest], positions, window, 5):
        for row in range(part.tokens):
            cells = part.cells[row].tolist() if np.ndim(part.cells) == 2 else cells_of(part.cells)
            start = 0 if part.starts is None else part.starts[row]
            seen[part.first_token - 5 + row] += cells[start : None if part.limits is None else part.limits[row]]
    for (s, cell), cells, position in zip(tokens, seen, positions, strict=True):
        first = window.first(position) if window else 0
        assert sorted(cells) == sorted(c for c in held[s] if first <= table.positions[c] <= position), (s, cell)


def grown(table, sequence, count):
    cells = table.lowest_free(count)
    table.allocate(sequence, cells)
    return cells


def test_what_all_hold_lies_in_few_pieces_however_scattered():
    """Ten runs of 300 cells and ten of 10: six spans, and the rest as one array."""
    table = CellTable(3, 8000)
    for _ in range(10):
        grown(table, 0, 300)
        grown(table, 1, 5)
        grown(table, 0, 10)
        grown(table, 1, 5)
    table.drop([1])
    table.fork(0, table.length(0), [1, 2])
    new = np.concatenate([grown(table, s, 2) for s in (1, 2)])
    view = table.attention_view([1, 2], new)
    spans = [piece for piece in view.shared_cells if isinstance(piece, tuple)]
    assert [stop - start for start, stop in spans] == [300] * 6
    assert len(view.shared_cells) == 7
    assert len(view.shared_cells[-1]) == 4 * 300 + 10 * 10
    assert cells_of(view.masked_cells) == new.tolist()


def test_sequences_look_together_where_they_share_most():
    table = CellTable(12, 9000)
    grown(table, 0, 4000)
    table.fork(0, 4000, range(1, 6))
    for s in range(1, 6):
        grown(table, s, 60)
    grown(table, 6, 3000)
    table.fork(6, 3000, [7, 8])
    # Decoding: one group a document. Strangers, and what begins from nothing, stand apart.
    assert table.groups([1, 7, 2, 8, 3, 9], [1] * 6) == [[0, 2, 4], [1, 3], [5]]
    # A long piece of another document beside them, and one of their own.
    assert table.groups([1, 2, 6, 3], [1, 1, 500, 1]) == [[0, 1, 3], [2]]
    assert table.groups([1, 2, 0], [1, 1, 500]) == [[0, 1, 2]]
    # What shares a few tokens only is not worth a mask over all the rest.
    table.fork(6, 100, [10])
    grown(table, 10, 1500)
    assert table.groups([7, 8, 10], [1, 1, 400]) == [[0, 1], [2]]


def test_groups_follow_every_change():
    table = CellTable(5, 2000)
    grown(table, 0, 400)
    table.fork(0, 400, [1, 2])
    grown(table, 3, 500)
    assert table.groups([1, 2, 3], [1, 1, 1]) == [[0, 1], [2]]
    for s in (1, 2, 3):
        grown(table, s, 1)
    assert table.groups([1, 2, 3], [1, 1, 1]) == [[0, 1], [2]]
    table.drop([2])
    table.fork(3, 501, [2])
    assert table.groups([1, 2, 3], [1, 1, 1]) == [[0], [1, 2]]
    table.fork(0, 400, [2])
    table.free(np.arange(390, 400))
    assert table.groups([1, 2, 3], [1, 1, 1]) == [[0, 1], [2]]
    assert table.groups([1, 2, 3], [1, 1, 300]) == [[0, 1], [2]]


def test_what_was_given_can_be_taken_back():
    table = CellTable(3, 50)
    grown(table, 0, 10)
    table.fork(0, 10, [1])
    cells = np.concatenate([grown(table, s, 4) for s in (0, 1)])
    table.free(cells)
    assert (table.length(0), table.length(1), table.used) == (10, 10, 10)
    assert table.lowest_free(8).tolist() == cells.tolist()


def test_nothing_is_taken_at_first_and_after_all_is_dropped():
    table = CellTable(2, 10)
    assert (table.used, table.length(0), table.lowest_free(3).tolist()) == (0, 0, [0, 1, 2])
    table.allocate(1, table.lowest_free(10))
    assert table.lowest_free(1).tolist() == []
    table.drop([])
    assert table.used == 10
    table.drop([1])
    assert table.lowest_free(20).tolist() == list(range(10))


def lengthened(table, sequences, counts):
    chosen = table.choose_cells(sequences, counts)
    for sequence, cells in zip(sequences, chosen, strict=True):
        table.allocate(sequence, cells)
    return [cells.tolist() for cells in chosen]


def runs_of(table, sequence):
    """Lengths of the runs of adjacent cells of a sequence, in the order of its tokens."""
    cells = np.flatnonzero(table.owners[sequence])
    cells = cells[np.argsort(table.positions[cells])]
    return [len(run) for run in np.split(cells, np.flatnonzero(np.diff(cells) != 1) + 1)]


def test_sequences_that_grow_together_keep_adjacent_cells():
    table = CellTable(5, 2000, block=64)
    lengthened(table, [0], [100])
    table.fork(0, 100, [1, 2, 3])
    assert lengthened(table, [1, 2, 3], [20, 30, 10]) == [
        [*range(100, 120)], [*range(120, 150)], [*range(150, 160)]
    ]  # fmt: skip
    for _ in range(130):
        lengthened(table, [1, 2, 3], [1, 1, 1])
    # Of three sequences, the last piece is followed by free cells. A second block is twice as large as the first.
    assert [runs_of(table, sequence) for sequence in (1, 2, 3)] == [[120, 64, 66], [100, 30, 64, 66], [100, 42, 64, 34]]


def test_a_piece_continues_in_the_block_that_its_sequence_began():
    table = CellTable(3, 2000, block=64)
    assert lengthened(table, [0], [100]) == [[*range(100)]]
    assert lengthened(table, [0], [100]) == [[*range(100, 200)]]
    assert lengthened(table, [1], [1]) == [[256]]
    assert lengthened(table, [0], [100]) == [[*range(200, 256), *range(320, 364)]]


def test_a_table_without_free_blocks_gives_every_cell():
    table = CellTable(8, 130, block=64)
    lengthened(table, range(8), [1] * 8)
    given = [cell for _ in range(15) for cells in lengthened(table, range(8), [1] * 8) for cell in cells]
    assert len(set(given)) == 120
    assert table.used == 128
    left = table.lowest_free(2).tolist()
    assert lengthened(table, [3], [2]) == [left]


def test_cells_of_dropped_sequences_are_chosen_again():
    table = CellTable(3, 192, block=64)
    lengthened(table, [0, 1, 2], [1, 1, 1])
    table.drop([1])
    assert lengthened(table, [1], [1]) == [[64]]
    table.drop([0, 1, 2])
    assert lengthened(table, [2], [1]) == [[0]]
