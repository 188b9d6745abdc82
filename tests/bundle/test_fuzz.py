"""A bounded part of what `just fuzz` does: broken archives, and a reader that says no or is right."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz_archive import Fuzzer
from tests.profiles import examples


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Fuzzer:
    return Fuzzer(tmp_path_factory.mktemp("fuzz"))


@settings(max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck))
@given(rng=st.randoms(use_true_random=False))
def test_a_broken_archive_is_refused_or_read_rightly(fuzzer: Fuzzer, rng: random.Random) -> None:
    fuzzer.one(rng)


def test_the_fuzzer_comes_past_the_first_check(fuzzer: Fuzzer) -> None:
    """Or it would only test how sums are compared."""
    before = dict(fuzzer.counts)
    for number in range(40):
        fuzzer.one(random.Random(number))
    assert all(fuzzer.counts[kind] - before[kind] >= 5 for kind in ("refused", "read"))
