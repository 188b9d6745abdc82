"""Files of people's ratings that a benchmark's authors' own page writes, in and out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class RatingForm(NamedTuple):
    """A form of such files.

    Attributes:
        name: of the format.
        read: what a path and the rater's name, where no file says it, hold; nothing is written.
        load: what enters that into a results file, and what makes one rater's files of it; both need the store.
    """

    name: str
    read: Callable[..., Any]
    load: Callable[[], tuple[Callable[..., Any], Callable[..., dict[str, str]]]]
