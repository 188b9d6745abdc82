"""How much is left to chance: 50 examples of Hypothesis and a few kills, the same ones in every run of CI; or all of
them, from random seeds, with --hypothesis-profile=all. What those find becomes an explicit ``@example``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import settings

QUICK = 50
KILLS = 2
FILES = 2

settings.register_profile("quick", deadline=None, max_examples=QUICK, derandomize=True)  # no test asserts a duration
settings.register_profile("all", deadline=None)


def examples(wanted: int) -> int:
    """What ``wanted`` examples are in the profile of this test run."""
    return min(wanted, QUICK) if settings.get_current_profile_name() == "quick" else wanted


def every(step: int, values: Sequence[Any]) -> Sequence[Any]:
    """Every value of that step, the first included; all of them in a whole run."""
    return values[::step] if settings.get_current_profile_name() == "quick" else values


def crossed(first: Iterable[Any], second: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Each value of both in a pair at least once; every pair in a whole run."""
    first, second = list(first), list(second)
    if settings.get_current_profile_name() != "quick":
        return [*itertools.product(first, second)]
    longest = max(len(first), len(second))
    return [(first[at % len(first)], second[at % len(second)]) for at in range(longest)]


def chosen(values: Sequence[Any], few: Sequence[Any]) -> Sequence[Any]:
    """All values in a whole run, a few of them otherwise."""
    return few if settings.get_current_profile_name() == "quick" else values


def files(wanted: int) -> int:
    """The same of whole results files, each of which takes seconds."""
    return min(wanted, FILES) if settings.get_current_profile_name() == "quick" else wanted


def changes(wanted: int) -> int:
    """The same of changed values; half of them still change each column."""
    return wanted // 2 if settings.get_current_profile_name() == "quick" else wanted


def kills(wanted: int) -> int:
    """How many times a test kills at random: a few, beside the moments that other tests choose; all in a whole run."""
    return min(wanted, KILLS) if settings.get_current_profile_name() == "quick" else wanted
