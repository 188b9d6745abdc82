"""Marks of questions that a model or people should judge, and the copies of a question.

Official files contain a question with both marks twice. It is asked once; each copy counts by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

LLM, HUMAN = MARKS = ("LLM", "human")
"""Marks of questions for a judge or for people, in the order of a question's copies."""
BY_NAME: Mapping[str, tuple[str, ...]] = {"llm": (LLM,), "human": (HUMAN,), "both": MARKS}
"""Marks by the value of a command-line option."""


def marks_in(meta: object) -> tuple[str, ...]:
    """Return the marks in a sample's ``meta``, which comes from a file, so any value is possible."""
    fields = meta if isinstance(meta, Mapping) else {}
    copy_marks = fields.get("judged_by")
    values = [fields.get("evaluation"), *(copy_marks if isinstance(copy_marks, list | tuple) else ())]
    return tuple(mark for mark in MARKS if mark in values)


def has_copies(marks: Sequence[str]) -> bool:
    return len(marks) == len(MARKS)


def copy_marks(marks: Sequence[str], index: int) -> tuple[str, ...]:
    """Return the mark of a question's copy; () after the last one."""
    return tuple(marks[index : index + 1])


def row_count(marks: Sequence[str], asked_marks: Collection[str]) -> int:
    """Return the number of rows that an official file has for a question with these marks; at least one."""
    return sum(mark in asked_marks for mark in marks) or 1


def copy_pairs(
    marks: Sequence[str], answers: Collection[int], opponent_answers: Collection[int]
) -> dict[tuple[int, int], tuple[str, ...]]:
    """Return {(iteration, opponent's iteration): marks of the copies that this pair counts for}.

    If a side answered each copy, each is a pair of its own; if it was asked once, one pair counts for both.
    """
    pairs: dict[tuple[int, int], tuple[str, ...]] = {}
    for index, mark in enumerate(marks):
        pair = (
            index if index in answers else min(answers),
            index if index in opponent_answers else min(opponent_answers),
        )
        pairs[pair] = (*pairs.get(pair, ()), mark)
    return pairs
