"""The engine's pure parts: settings, the prefix tree's size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.engine.planning.run_plan import distinct_tokens
from lbx.engine.settings import RunSettings
from lbx.errors import UsageError
from lbx.records import Prompt, Sampling, Truncation


@given(st.lists(st.lists(st.integers(0, 3), max_size=8), max_size=12))
def test_distinct_tokens_counts_every_prefix_once(sequences: list[list[int]]) -> None:
    prefixes = {tuple(s[: i + 1]) for s in sequences for i in range(len(s))}
    assert distinct_tokens([np.array(s, dtype=np.int32) for s in sequences]) == len(prefixes)


def test_settings_refuse_nonsense() -> None:
    with pytest.raises(UsageError, match="--iterations must be at least 1"):
        RunSettings(iterations=0)
    with pytest.raises(UsageError, match="--sampling"):
        RunSettings(sampling="hot")


def test_sampling_is_the_benchmarks_unless_asked_otherwise() -> None:
    prompt = Prompt("", "", "", 1, Truncation.REFUSE, temperature=0.1)
    card = Sampling(temperature=0.6, top_p=0.95)
    assert RunSettings(model_sampling=card).sampling_for(prompt, 2) == Sampling(temperature=0.1, seed=2)
    by_card = RunSettings(model_sampling=card, sampling="model", seed=5).sampling_for(prompt, 2)
    assert by_card == Sampling(temperature=0.6, top_p=0.95, seed=7)
