"""How many of something, in words."""

from __future__ import annotations


def counted(count: int, one: str, many: str = "") -> str:
    """As in "1 question" and "1,204 questions"; ``many`` where it is not ``one`` with an s."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
