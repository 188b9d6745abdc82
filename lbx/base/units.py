"""Seconds and bytes as people say them."""

from __future__ import annotations

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def duration(seconds: float) -> str:
    """As in "40 s", "12 min", "3 h 20 min", "2 d 4 h"."""
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


def size(count: int | None) -> str:
    """Bytes, in binary units."""
    if count is None:
        return "unknown"
    value = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
