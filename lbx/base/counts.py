"""How many of something, in words."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, one: str, many: str = "") -> str:
    """As in "1 question" and "1,204 questions"; ``many`` where it is not ``one`` with an s."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def line_spans(numbers: Sequence[int], most: int = 5) -> str:
    """Line numbers, in order: "line 3", "lines 6-10, 12", with the rest left out behind ``most`` spans."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    told = [f"{first}-{last}" if first < last else str(first) for first, last in spans[:most]]
    return f"line{'s' * (len(numbers) > 1)} {', '.join(told)}" + ", ..." * (len(spans) > most)
