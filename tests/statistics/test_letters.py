"""Letters of what cannot be told apart."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.statistics.letters import group_letters


@given(st.data())
def test_two_share_a_letter_if_and_only_if_they_do_not_differ(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 9))
    pairs = list(combinations(range(count), 2))
    differ = data.draw(st.sets(st.sampled_from(pairs))) if pairs else set()
    found = group_letters(count, differ)
    assert all(found), "each has a letter"
    assert {pair for pair in pairs if not {*found[pair[0]]} & {*found[pair[1]]}} == differ
    groups = ["".join(str(n) for n, letters in enumerate(found) if letter in letters) for letter in {*"".join(found)}]
    assert not any({*one} < {*other} for one in groups for other in groups), "no group is a part of another"


@pytest.mark.parametrize(
    ("differ", "letters"),
    [
        ((), ["a", "a", "a"]),
        ([(0, 2)], ["a", "ab", "b"]),
        ([(0, 1), (0, 2), (1, 2)], ["a", "b", "c"]),
        ([(0, 1), (0, 2)], ["a", "b", "b"]),
    ],
)
def test_letters_are_those_of_a_paper(differ: list[tuple[int, int]], letters: list[str]) -> None:
    assert group_letters(3, differ) == letters


def test_further_groups_have_further_letters() -> None:
    assert group_letters(2, [(0, 1)], 3) == ["d", "e"]


def test_more_groups_than_letters_have_none() -> None:
    assert group_letters(60, set(combinations(range(60), 2))) == []
