"""Formatting of counts, durations, sizes and line numbers."""

from __future__ import annotations

from collections.abc import Sequence

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def format_duration(seconds: float) -> str:
    """Format seconds as "40 s", "12 min", "3 h 20 min" or "2 d 4 h"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < _DAY:
        hours, rest = divmod(round(seconds / _MINUTE), 60)
        return f"{hours} h {rest} min"
    days, rest = divmod(round(seconds / _HOUR), 24)
    return f"{days} d {rest} h"


def format_size(count: int | None) -> str:
    """Format a number of bytes in binary units: "512 bytes", "3 MiB", "1.5 GiB"."""
    if count is None:
        return "unknown"
    value = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:,.1f} GiB"


def format_count(count: int, singular: str, plural: str = "") -> str:
    """Format a count with its noun: "1 question", "1,204 questions". Pass ``plural`` for irregular nouns."""
    return f"{count:,} {singular if count == 1 else plural or f'{singular}s'}"


def line_spans(numbers: Sequence[int], max_spans: int = 5) -> str:
    """Format sorted line numbers as "line 3" or "lines 6-10, 12", with "..." after ``max_spans`` spans."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    parts = [f"{first}-{last}" if first < last else str(first) for first, last in spans[:max_spans]]
    return f"line{'s' * (len(numbers) > 1)} {', '.join(parts)}" + ", ..." * (len(spans) > max_spans)
