"""The engine's pure parts: settings."""

from __future__ import annotations

import pytest

from lbx.base.errors import UsageError
from lbx.base.records import Prompt, Sampling, Truncation
from lbx.spec.settings import RunSettings


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
