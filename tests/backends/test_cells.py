"""The bookkeeping of shared cells, against a plain list of cells for each sequence."""

from __future__ import annotations

import random

import numpy as np
import pytest

from lbx.backends.cells import CellTable


@pytest.mark.parametrize("seed", range(8))
def test_owners_are_those_of_plain_lists(seed):
    rng = random.Random(seed)
    table, held = CellTable(5, 90), [[] for _ in range(5)]
    for _ in range(200):
        one, other = rng.sample(range(5), 2)
        match rng.choice(["give", "give", "fork", "drop"]):
            case "give":
                taken = {cell for cells in held for cell in cells}
                free = [cell for cell in range(90) if cell not in taken]
                wanted = rng.randint(1, 12)
                cells = table.lowest_free(wanted)
                assert cells.tolist() == free[:wanted]
                if len(cells) == wanted:
                    positions = table.give(one, cells)
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


def check_columns(table, held, named):
    if not named:
        return
    columns = table.columns(named)
    needed = {cell for s in named for cell in held[s]}
    assert needed <= set(columns.cells.tolist())
    if columns.span is None:
        assert needed == set(columns.cells.tolist())
    else:
        assert columns.cells.tolist() == list(range(*columns.span))
        assert len(columns.cells) <= 3 * len(needed)
    assert columns.ordered == (len(named) == 1 and columns.cells.tolist() == held[named[0]])
    owned, places = table.seen(named, columns)
    for row, s in zip(owned, named, strict=True):
        assert columns.cells[row].tolist() == sorted(held[s], key=columns.cells.tolist().index)
    assert np.array_equal(places, table.positions[columns.cells])


def test_nothing_is_taken_at_first_and_after_all_is_dropped():
    table = CellTable(2, 10)
    assert (table.used, table.length(0), table.lowest_free(3).tolist()) == (0, 0, [0, 1, 2])
    table.give(1, table.lowest_free(10))
    assert table.lowest_free(1).tolist() == []
    table.drop([])
    assert table.used == 10
    table.drop([1])
    assert table.lowest_free(20).tolist() == list(range(10))
