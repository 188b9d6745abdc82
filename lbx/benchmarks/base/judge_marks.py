"""Who judges a question beside metrics, or in place of them: its marks, and the copies of it that they stand for.

A question that both a model and people are to judge stands twice in official files. It is asked once; each copy is a
row of its own to whoever judges it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

LLM, HUMAN = MARKS = ("LLM", "human")
"""A model, and people, in the order of the copies."""
BY_NAME: Mapping[str, tuple[str, ...]] = {"llm": (LLM,), "human": (HUMAN,), "both": MARKS}
"""What options call the questions of some marks."""


def marks_in(meta: object) -> tuple[str, ...]:
    """The marks of a question, by what a sample's ``meta`` says, be it what it may; () where nobody judges it."""
    fields = meta if isinstance(meta, Mapping) else {}
    others = fields.get("judged_by")
    values = [fields.get("evaluation"), *(others if isinstance(others, list | tuple) else ())]
    return tuple(mark for mark in MARKS if mark in values)


def has_copies(marks: Sequence[str]) -> bool:
    """Whether a question stands in official files more than once."""
    return len(marks) == len(MARKS)


def copy_marks(marks: Sequence[str], place: int) -> tuple[str, ...]:
    """The mark of a question's copy by the copy's place; () behind the last one."""
    return tuple(marks[place : place + 1])


def rows_of(marks: Sequence[str], wanted: Collection[str]) -> int:
    """How many rows of an official file a question is, where questions of these marks are asked; at least one."""
    return sum(mark in wanted for mark in marks) or 1


def copies_of(
    marks: Sequence[str], answers: Collection[int], others: Collection[int]
) -> dict[tuple[int, int], tuple[str, ...]]:
    """{(iteration, the opponent's): the marks that this pair counts for}.

    Where a side answered each copy, each is a pair of its own; where it was asked once, one pair counts for both.
    """
    pairs: dict[tuple[int, int], tuple[str, ...]] = {}
    for place, mark in enumerate(marks):
        pair = (place if place in answers else min(answers), place if place in others else min(others))
        pairs[pair] = (*pairs.get(pair, ()), mark)
    return pairs
