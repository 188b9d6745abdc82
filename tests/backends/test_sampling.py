"""The sampler: cuts, seeds, and what it refuses."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from lbx.base.errors import BackendError
from lbx.base.records import Request, SampleKey, Sampling
from lbx.engine.sampler import Sampler, gumbel_noise
from lbx.engine.sampling_settings import ignored_repetition_penalty, recommended_sampling

PROBABILITIES = np.array([0.05, 0.4, 0.3, 0.15, 0.1])
KNOWN = [1.800888126, 1.839280096, 0.483048701]
"""Numpy 2.4 on x86-64 gave them."""
LOGITS = np.log(PROBABILITIES).astype(np.float32)


def sampler(number: int = 0, **sampling) -> Sampler:
    key = SampleKey("b", "t", str(number))
    return Sampler(Request(key, (1,), 8, sampling=Sampling(**sampling)))


def drawn(**sampling) -> Counter[int]:
    return Counter(sampler(n, **sampling).choose(LOGITS, 0) for n in range(4000))


def test_greedy_takes_the_likeliest_and_the_lower_id_of_a_tie():
    assert sampler().choose(LOGITS, 0) == 1
    assert sampler().choose(np.array([0.0, 2.0, 2.0], np.float32), 0) == 1
    assert sampler(temperature=1.0, top_k=1).choose(np.array([0.0, 2.0, 2.0], np.float32), 0) == 1


def test_draws_follow_the_distribution():
    counts = drawn(temperature=1.0)
    found = np.array([counts[n] for n in range(5)]) / 4000
    assert np.abs(found - PROBABILITIES).max() < 0.03  # four standard deviations


def test_temperature_sharpens():
    counts = drawn(temperature=0.5)
    squared = PROBABILITIES**2 / (PROBABILITIES**2).sum()
    assert abs(counts[1] / 4000 - squared[1]) < 0.035


@pytest.mark.parametrize(
    ("cut", "left"),
    [
        ({"top_k": 2}, {1, 2}),
        ({"top_p": 0.39}, {1}),
        ({"top_p": 0.41}, {1, 2}),
        ({"top_p": 0.8}, {1, 2, 3}),
        ({"min_p": 0.5}, {1, 2}),
        ({"min_p": 0.9}, {1}),
        ({"top_k": 4, "top_p": 0.9}, {1, 2, 3, 4}),  # of the four's 0.95, 0.85 stand before the last
        ({"top_k": 3, "min_p": 0.4}, {1, 2}),
    ],
)
def test_cuts_keep_the_likeliest(cut, left):
    assert set(drawn(temperature=1.0, **cut)) == left


@pytest.mark.parametrize("top_k", [1, 7, 40, 199, 200, 500])
def test_top_k_keeps_what_sorting_everything_keeps(top_k):
    rng = np.random.default_rng(top_k)
    for logits in (rng.normal(size=200), rng.integers(0, 9, 200), np.where(rng.random(200) < 0.9, -np.inf, 1.0)):
        order = np.argsort(-logits, kind="stable")[:top_k].tolist()  # ties to the lower id
        assert sampler(temperature=1.0, top_k=top_k)._candidate_ids(logits.astype(np.float32)).tolist() == order


def test_top_p_agrees_with_transformers():
    torch = pytest.importorskip("torch")
    from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    logits = np.random.default_rng(3).normal(0, 3, 60).astype(np.float32)
    scores = torch.tensor(logits)[None]
    for warper in (TemperatureLogitsWarper(0.8), TopKLogitsWarper(30), TopPLogitsWarper(0.9), MinPLogitsWarper(0.05)):
        scores = warper(None, scores)
    allowed = set(torch.isfinite(scores[0]).nonzero().flatten().tolist())
    settings = {"temperature": 0.8, "top_k": 30, "top_p": 0.9, "min_p": 0.05}
    found = Counter(sampler(n, **settings).choose(logits, 0) for n in range(4000))
    assert set(found) <= allowed
    expected = torch.softmax(scores[0], 0).numpy()
    assert max(abs(found[n] / 4000 - expected[n]) for n in range(60)) < 0.035


def test_what_is_forbidden_is_not_chosen():
    assert sampler().choose(LOGITS, 0, {1}) == 2
    assert sampler().choose(LOGITS, 0, {1, 2}) == 3
    hot = Counter(sampler(n, temperature=1.0).choose(LOGITS, 0, {1, 4}) for n in range(500))
    assert set(hot) == {0, 2, 3}
    assert LOGITS[1] == np.float32(np.log(0.4)), "the caller's logits are not changed"


def test_noise_is_fixed_by_its_arguments():
    first = gumbel_noise(1, "a/b/c", 2, np.arange(1000))
    assert np.array_equal(first, gumbel_noise(1, "a/b/c", 2, np.arange(1000)))
    assert np.array_equal(first[:10], gumbel_noise(1, "a/b/c", 2, np.arange(10))), "a padded vocabulary changes nothing"
    assert np.array_equal(first[[7, 3]], gumbel_noise(1, "a/b/c", 2, np.array([7, 3])))
    assert len({gumbel_noise(s, k, n, np.arange(1))[0] for s in (1, 2) for k in ("a", "b") for n in (0, 1)}) == 8
    assert np.round(gumbel_noise(7, "k", 3, np.arange(3)), 9).tolist() == KNOWN, "another numpy, the same numbers"
    many = gumbel_noise(0, "k", 0, np.arange(100_000))
    assert np.isfinite(many).all()
    assert abs(many.mean() - 0.5772) < 0.02  # Euler's constant, and pi / sqrt(6)
    assert abs(many.std() - 1.2825) < 0.02


def test_the_last_bits_of_logits_hardly_ever_change_a_draw():
    random = np.random.default_rng(5)
    logits = random.normal(0, 2, 5000).astype(np.float32)
    moved = logits + random.normal(0, 1e-5, 5000).astype(np.float32)
    draws = [(sampler(n, temperature=1.0), sampler(n, temperature=1.0, top_p=0.95)) for n in range(500)]
    assert sum(one.choose(logits, 0) != one.choose(moved, 0) for pair in draws for one in pair) <= 2


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_broken_numbers_are_an_error_not_token_zero(broken):
    with pytest.raises(BackendError, match="NaN"):
        sampler().choose(np.array([0, broken, 1], np.float32), 0)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, None),
        ({"do_sample": None, "temperature": None}, None),
        ({"do_sample": True}, Sampling(temperature=1.0)),
        ({"do_sample": False}, Sampling()),
        ({"do_sample": False, "temperature": 0.6}, Sampling()),
        (
            {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0},
            Sampling(temperature=0.6, top_p=0.95, top_k=20),
        ),
        ({"temperature": 0.7}, Sampling(temperature=0.7)),
        ({"top_k": 20.0}, Sampling(temperature=1.0, top_k=20)),
        ({"top_p": 0.9}, Sampling(temperature=1.0, top_p=0.9)),
        ({"temperature": 0}, Sampling()),
        ({"temperature": -1}, None),
        ({"temperature": float("nan")}, None),
        ({"temperature": "hot"}, None),
        ({"temperature": True}, None),
        ({"temperature": 0.6, "top_p": 0}, None),
        ({"top_p": 1.5}, None),
        ({"top_k": -1}, None),
        ({"top_k": 2.5}, None),
        ({"min_p": 1}, None),
        ({"do_sample": "yes", "temperature": 0.6}, None),
    ],
)
def test_what_the_makers_recommend(values, expected):
    found = recommended_sampling(values)
    assert found == expected
    assert found is None or isinstance(found.top_k, int)


def test_a_repetition_penalty_is_named_and_left_out():
    stored, told = ignored_repetition_penalty(1.05)
    assert stored == {"repetition_penalty_left_out": 1.05}
    assert "repetition penalty of 1.05" in told[0]
    for nothing in (None, 1, 1.0, "much", float("nan"), True):
        assert ignored_repetition_penalty(nothing) == ({}, ())
