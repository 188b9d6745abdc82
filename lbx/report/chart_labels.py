"""Labels of charts: short names that stay different, names at the ends of lines, and legends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from lbx.base.visible import one_line
from lbx.report import svg

_KEY = 14.0  # room of a mark before its name, px
_LONGEST_NAME = 220.0


def short_names(names: Sequence[str], room: float) -> list[str]:
    """Cut names in the middle to the available width in pixels, at a place that keeps different names different.

    Names that differ only far from both ends are cut up to shortly before their first difference.
    """
    counts = dict.fromkeys(names, 0)
    best: dict[str, str] = {}
    for head in (0.5, 0.65, 0.35, 0.8, 0.2):
        candidates = {name: svg.shorten(name, room, head=head) for name in counts}
        if len(set(candidates.values())) > len(set(best.values())):
            best = candidates
        if len(set(best.values())) == len(counts):
            break
    repeats = Counter(best.values())
    alike = [name for name in counts if repeats[best[name]] > 1]
    prefix = _common_prefix(alike)
    for name in alike:
        best[name] = svg.shorten(f"…{name[max(len(prefix) - 2, 0) :]}", room, head=1.0)
    return [best[name] for name in names]


def _common_prefix(names: Sequence[str]) -> str:
    first, last = (min(names), max(names)) if names else ("", "")
    size = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:size]


def spread(targets: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move ascending positions apart to the given gap, by the least squares, within bounds."""
    blocks: list[tuple[float, int]] = []
    for i, target in enumerate(targets):
        mean, count = target - gap * i, 1
        while blocks and blocks[-1][0] > mean:
            other, size = blocks.pop()
            mean, count = (mean * count + other * size) / (count + size), count + size
        blocks.append((mean, count))
    flat = [mean for mean, count in blocks for _ in range(count)]
    most = high - gap * (len(flat) - 1)
    return [max(min(value, most), low) + gap * i for i, value in enumerate(flat)]


def end_label(mark: int, end: tuple[float, float], at: tuple[float, float], name: str, full_name: str) -> str:
    """Draw a line's name with its mark at ``at``, and a thin line from the end of the run's line."""
    (x, y), (label_x, label_y) = end, at
    leader = f'<path class="leader" d="{svg.path([(x + 6, y), (label_x - 7, label_y)])}"/>'
    return leader + svg.key(mark, label_x, label_y) + svg.name(label_x + 9, label_y + 4, name, full_name)


def legend(entries: Iterable[tuple[str, int]], width: float, top: float = 0.0) -> tuple[str, float]:
    """Draw names with their marks in lines of the given width, and return them with their height."""
    of_mark = dict(sorted({mark: name for name, mark in entries}.items()))
    names = list(of_mark.values())
    x, y, parts = 4.0, top + 10, []
    for mark, name, full_name in zip(
        of_mark, short_names(names, min(_LONGEST_NAME, width - 2 * _KEY)), names, strict=True
    ):
        wide = _KEY + svg.text_width(name) + 12
        if x > 4 and x + wide > width:
            x, y = 4.0, y + svg.LINE + 3
        body = svg.key(mark, x + 6, y) + svg.name(x + _KEY, y + 4, name, full_name)
        parts.append(svg.group(mark, body, "key"))
        x += wide
    return "".join(parts), (y + 12 - top if parts else 0.0)


def visible_width(names: Iterable[str], most: float) -> float:
    """Return the room that the longest name needs, up to ``most`` pixels."""
    return min(max((svg.text_width(one_line(name[:200])) for name in names), default=0.0), most)
