"""In which order a server is asked."""

from __future__ import annotations

import random
import threading

from hypothesis import given
from hypothesis import strategies as st

from lbx.backends.endpoint.backend import RequestQueue, group_by_prefix

PROMPTS = st.lists(st.lists(st.integers(0, 2), max_size=8), max_size=25)


@given(PROMPTS, st.booleans(), st.integers(1, 5))
def test_every_request_is_handed_out_once_whoever_takes_it(
    prompts: list[list[int]], one_by_one: bool, hands: int
) -> None:
    order, chance = RequestQueue(prompts, one_by_one=one_by_one), random.Random(0)
    taken: list[int] = []
    held: list[int] = []
    while len(taken) < len(prompts) or held:
        # What would wait: no group is warm, none is fresh.
        if len(held) < hands and len(taken) < len(prompts) and (order._warm or order._fresh):
            index = order.take()
            assert index is not None
            taken.append(index)
            held.append(index)
        else:
            order.release_followers(held.pop(chance.randrange(len(held))))
    assert order.take() is None
    assert sorted(taken) == list(range(len(prompts)))


@given(PROMPTS)
def test_groups_are_all_of_them(prompts: list[list[int]]) -> None:
    assert sorted(index for group in group_by_prefix(prompts) for index in group) == list(range(len(prompts)))


DOCUMENTS = [[n] * 100 for n in range(3)]
QUESTIONS = [DOCUMENTS[n % 3] + [50 + n] * 5 for n in range(12)]


def test_one_hand_reads_document_after_document() -> None:
    order = RequestQueue(QUESTIONS, one_by_one=False)
    taken = []
    for _ in QUESTIONS:
        index = order.take()
        assert index is not None
        taken.append(index)
        order.release_followers(index)
    assert [index % 3 for index in taken] == [0] * 4 + [1] * 4 + [2] * 4


def test_a_documents_first_question_goes_alone() -> None:
    order = RequestQueue(QUESTIONS, one_by_one=False)
    first = [order.take() for _ in range(3)]
    assert [index % 3 for index in first if index is not None] == [0, 1, 2], "nobody else while the first is read"
    assert first[1] is not None
    order.release_followers(first[1])
    assert [index % 3 for index in (order.take(), order.take(), order.take()) if index is not None] == [1, 1, 1]


def test_one_by_one_never_asks_two_of_a_document() -> None:
    order = RequestQueue(QUESTIONS, one_by_one=True)
    held = [order.take() for _ in range(3)]
    for _ in range(9):
        index = held.pop(0)
        assert index is not None
        order.release_followers(index)
        held.append(order.take())
        assert len({one % 3 for one in held if one is not None}) == 3


def test_who_waits_is_woken() -> None:
    order = RequestQueue([[1] * 9, [1] * 9], one_by_one=True)
    first = order.take()
    assert first is not None
    found: list[int | None] = []
    waiting = [threading.Thread(target=lambda: found.append(order.take())) for _ in range(2)]
    for thread in waiting:
        thread.start()
    order.release_followers(first)
    for thread in waiting:
        thread.join(30)
    assert sorted(found, key=str) == [1 - first, None]


def test_stopped_hands_out_nothing() -> None:
    order = RequestQueue(QUESTIONS, one_by_one=False)
    order.stop()
    assert order.take() is None
