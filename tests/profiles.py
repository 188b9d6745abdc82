"""How many examples Hypothesis draws: 50 at most, or all that a test asks for with --hypothesis-profile=all."""

from __future__ import annotations

from hypothesis import settings

QUICK = 50

settings.register_profile("quick", deadline=None, max_examples=QUICK)  # no test asserts a duration
settings.register_profile("all", deadline=None)


def examples(wanted: int) -> int:
    """What ``wanted`` examples are in the profile of this test run."""
    return min(wanted, QUICK) if settings.get_current_profile_name() == "quick" else wanted
