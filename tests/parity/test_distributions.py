"""Compressed distributions: their error, their size on disk, and the memory that they take meanwhile."""

from __future__ import annotations

import io
import tracemalloc

import numpy as np
import pytest

from lbx.base.errors import BackendError
from lbx.engine.model import TopLogProbs
from lbx.running.distributions import AUDIT_STEP, CERTAIN, Distributions

VOCABULARY = 50_000
TOKENS = [7] * 257


def log_probs(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(float) - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def divergences(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    p, q = log_probs(first), log_probs(second)
    return (np.exp(p) * (p - q)).sum(axis=1)


@pytest.fixture(scope="module")
def logits() -> np.ndarray:
    """Distributions with long tails: 3,000 tokens have a hundredth of the probability."""
    rng = np.random.default_rng(5)
    ranks = np.stack([rng.permutation(VOCABULARY) for _ in range(256)])
    return (-1.7 * np.log1p(ranks) + rng.normal(size=ranks.shape)).astype(np.float32)


def changed(logits: np.ndarray, size: float) -> np.ndarray:
    return (logits + np.random.default_rng(6).normal(scale=size, size=logits.shape)).astype(np.float32)


def stored_again(distributions: Distributions) -> Distributions:
    file = io.BytesIO()
    for values in distributions:
        np.save(file, values)
    file.seek(0)
    return Distributions.load(file)


@pytest.mark.parametrize("size", [0.01, 0.1, 0.7])
def test_the_error_of_the_divergence_is_below_a_ten_thousandth(logits: np.ndarray, size: float) -> None:
    other = changed(logits, size)
    exact = divergences(logits, other)
    stored = stored_again(Distributions.of_logits(logits, TOKENS, 0))
    got = stored.compare(other, TOKENS, 0)
    error = got.divergence - exact
    assert np.abs(error).mean() < 1e-4
    assert abs(error.mean()) < 2e-5, "the estimate is unbiased"
    audited = np.flatnonzero(np.isfinite(got.error))
    assert audited.tolist() == list(range(0, 256, AUDIT_STEP))
    assert got.error[audited] == pytest.approx(np.abs(error[audited]), abs=1e-6)
    assert (got.same_top == (logits.argmax(axis=1) == other.argmax(axis=1))).all()
    for found, source in ((got.reference, logits), (got.candidate, other)):
        assert found == pytest.approx(log_probs(source)[:, 7], abs=1e-5)


def test_equal_distributions_have_no_divergence(logits: np.ndarray) -> None:
    got = Distributions.of_logits(logits, TOKENS, 0).compare(logits, TOKENS, 0)
    assert got.divergence.max() < 5e-5
    assert got.divergence.mean() < 5e-6
    assert got.same_top.all()


def test_a_position_takes_three_bytes_a_token(logits: np.ndarray) -> None:
    stored = Distributions.of_logits(logits, TOKENS, 0)
    certain = (np.exp(log_probs(logits)) >= CERTAIN).sum(axis=1).mean()
    tokens = len(stored.roots) / len(logits)
    assert certain < tokens < 3 * certain
    assert stored.low_bytes.nbytes + stored.roots.nbytes == 3 * len(stored.roots)
    assert stored.counts.nbytes == 2 * 196 * len(logits)


def test_flat_and_certain_distributions() -> None:
    flat = np.zeros((2, 1000), np.float32)
    stored = Distributions.of_logits(flat, TOKENS, 0)
    assert stored.counts.sum(axis=1).tolist() == [1000, 1000]
    certain = flat.copy()
    certain[:, 3] = 80
    # Equal probabilities are rounded the same way.
    assert stored.compare(certain, TOKENS, 0).divergence == pytest.approx(divergences(flat, certain), rel=1e-3)
    got = Distributions.of_logits(certain, TOKENS, 0).compare(flat, TOKENS, 0)
    assert got.divergence == pytest.approx(np.log([1000, 1000]), rel=1e-5)


def test_a_padded_vocabulary_changes_nothing(logits: np.ndarray) -> None:
    other = changed(logits, 0.3)
    stored, usual = (Distributions.of_logits(logits, TOKENS, 0) for _ in range(2))
    longer = np.concatenate([other, np.full((256, 64), -50, np.float32)], axis=1)
    expected = usual.compare(other, TOKENS, 0).divergence
    assert stored.compare(longer, TOKENS, 0).divergence == pytest.approx(expected, abs=1e-6)
    padded = Distributions.of_logits(np.pad(logits, [(0, 0), (0, 64)], constant_values=-60), TOKENS, 0)
    got = padded.compare(other, TOKENS, 0)
    assert got.divergence.mean() == pytest.approx(expected.mean(), abs=2e-5)
    assert np.nanmax(got.error) < 1e-3


def test_passes_of_any_size_have_the_same_numbers(logits: np.ndarray) -> None:
    other = changed(logits, 0.3)
    whole = Distributions.of_logits(logits, TOKENS, 0).compare(other, TOKENS, 0)
    for step in (1, 96):
        starts = range(0, len(logits), step)
        parts = [
            Distributions.of_logits(logits[at : at + step], TOKENS, at).compare(other[at : at + step], TOKENS, at)
            for at in starts
        ]
        for name in whole._fields:
            joined = np.concatenate([getattr(part, name) for part in parts])
            assert np.array_equal(joined, getattr(whole, name), equal_nan=True)


@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_memory_is_that_of_a_few_rows(spread: float) -> None:
    """Beyond the logits of a pass and what is stored, at a vocabulary of 150,000."""
    logits = np.random.default_rng(1).normal(scale=spread, size=(64, 150_000)).astype(np.float32)
    row = logits[0].nbytes
    Distributions.of_logits(logits[:1], TOKENS, 1)  # makes what is kept between passes: two rows
    tracemalloc.start()
    try:
        stored = Distributions.of_logits(logits, TOKENS, 1)
        kept = sum(values.nbytes for values in stored)
        assert tracemalloc.get_traced_memory()[1] < 2 * kept + 8 * row
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        stored.compare(logits, TOKENS, 1)
        assert tracemalloc.get_traced_memory()[1] - before < 20 * row
    finally:
        tracemalloc.stop()


def of_server(logits: np.ndarray, count: int) -> TopLogProbs:
    """The likeliest tokens of all but the last position, as a server returns them."""
    found = log_probs(logits)
    ids = np.argsort(-found, axis=1)[:, :count]
    ids[-1] = -1
    values = np.where(ids >= 0, np.take_along_axis(found, ids, axis=1), -np.inf)
    following = found[:, 7].copy()
    following[-1] = np.nan
    return TopLogProbs(ids, values, ids[:, 0].copy(), following)


def test_of_a_server_all_other_tokens_count_as_one(logits: np.ndarray) -> None:
    other = changed(logits, 0.3)
    p, q = np.exp(log_probs(logits)), np.exp(log_probs(other))
    stored = Distributions.of_logits(logits, TOKENS, 0)
    top = of_server(other, 10)
    got = stored.compare(top, TOKENS, 0)
    own = np.take_along_axis(p, top.ids, axis=1)
    theirs = np.take_along_axis(q, top.ids, axis=1)
    rest, other_rest = 1 - own.sum(axis=1), 1 - theirs.sum(axis=1)
    expected = (own * np.log(own / theirs)).sum(axis=1) + rest * np.log(rest / other_rest)
    assert got.divergence[:-1] == pytest.approx(expected[:-1], abs=3e-5)
    assert (got.divergence <= divergences(logits, other)).all()
    assert (got.same_top[:-1] == (logits.argmax(axis=1) == other.argmax(axis=1))[:-1]).all()
    assert got.candidate[:-1] == pytest.approx(log_probs(other)[:-1, 7])
    assert np.isnan(got.candidate[-1])
    assert np.nanmax(got.error) < 1e-4
    part = stored.compare(top.slice(0, 256), TOKENS, 0)
    assert len(top.slice(100, 300)) == 156
    assert np.array_equal(part.divergence, got.divergence)


def test_a_pass_may_hold_the_last_token_alone() -> None:
    logits = np.zeros((1, 8), np.float32)
    stored = Distributions.of_logits(logits, [1, 2, 3], 2)
    assert np.isnan(stored.next_log_probs).all()
    assert stored.compare(logits, [1, 2, 3], 2).divergence == pytest.approx([0], abs=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_no_numbers_are_no_agreement(bad: float) -> None:
    logits = np.zeros((2, 8), np.float32)
    stored = Distributions.of_logits(logits, [1, 2, 3], 0)
    broken = logits.copy()
    broken[1, 3] = bad
    with pytest.raises(BackendError, match="not numbers"):
        stored.compare(broken, [1, 2, 3], 0)
    with pytest.raises(BackendError, match="not numbers"):
        Distributions.of_logits(broken, [1, 2, 3], 0)
