"""Distributions of two models by position in long texts."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from lbx.backends import Backend, load, read_card
from lbx.base.errors import BackendError, UsageError
from lbx.report.rows.depth_parity import summarise_by_bin
from lbx.running import distributions
from lbx.running.depth import Depth, DepthText, compare_by_depth
from tests.parity.test_measuring import F32, card
from tests.running.engine_parts import scripted

Load = Callable[[], Backend]


def text(words: int, seed: int = 0, **limits: int) -> DepthText:
    chosen = random.Random(seed).choices(["one", "two", "the river", "Paris", "is", "of a", "7", ".\n"], k=words)
    return DepthText(f"text {seed}", " ".join(chosen), **limits)


@pytest.fixture
def hf(tiny: Path, tmp_path: Path) -> Path:
    return card(tmp_path, "hf", tiny / "hf", 'dtype = "float32"\n')


@pytest.fixture
def gguf(tiny: Path, tmp_path: Path) -> Path:
    return card(tmp_path, "llamacpp", tiny / "tiny.gguf", F32)


def loads(path: Path) -> Load:
    return lambda: load(read_card(path))


def compared(texts: Sequence[DepthText], folder: Path, first: Path, *others: Path, chunk: int = 0) -> Depth:
    work = folder / "work"
    work.mkdir(exist_ok=True)
    return compare_by_depth(texts, loads(first), [loads(one) for one in others], folder=work, chunk=chunk)


def full_logits(path: Path, tokens: Sequence[int]) -> np.ndarray:
    """Of one pass of transformers over the whole text, without a cache."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    with torch.inference_mode():
        return model(torch.tensor([tokens])).logits[0].double().numpy()


def log_probs(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def divergences(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    p, q = log_probs(first), log_probs(second)
    return (np.exp(p) * (p - q)).sum(axis=1)


@pytest.fixture
def noisy(tiny: Path, tmp_path: Path) -> Path:
    """The tiny model with slightly different weights."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(tiny / "hf", dtype=torch.float32)
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    model.save_pretrained(tmp_path / "noisy")
    AutoTokenizer.from_pretrained(tiny / "hf").save_pretrained(tmp_path / "noisy")
    return tmp_path / "noisy"


def test_the_numbers_are_those_of_a_plain_loop(tiny: Path, hf: Path, noisy: Path, tmp_path: Path) -> None:
    texts = [text(700, max_tokens=1500), text(900, 1, max_tokens=1500)]
    other = card(tmp_path, "hf", noisy, 'dtype = "float32"\n')
    found = compared(texts, tmp_path, hf, other)
    ((_, bins),) = found.pairs
    backend = load(read_card(hf))
    for one in texts:
        tokens = one.token_ids(backend)[: one.max_tokens]
        first, second = full_logits(tiny / "hf", tokens), full_logits(noisy, tokens)
        kl, count = divergences(first, second)[:-1], len(tokens) - 1
        at = np.arange(count)
        for got in (item for item in bins if item.text == one.name):
            part = slice(got.start, min(got.stop, count))
            assert got.positions == len(kl[part])
            assert got.kl == pytest.approx(kl[part].mean(), abs=1e-4)
            assert got.kl_p99 == pytest.approx(np.quantile(kl[part], 0.99), rel=1e-3)
            assert got.kl_max == pytest.approx(kl[part].max(), rel=1e-3)
            same = first[:-1].argmax(axis=1) == second[:-1].argmax(axis=1)
            assert got.same_top == pytest.approx(same[part].mean(), abs=2 / got.positions)
            for logits, mean in ((first, got.reference_log_prob), (second, got.log_prob)):
                assert mean == pytest.approx(log_probs(logits)[at, tokens[1:]][part].mean(), abs=1e-5)
    assert sum(item.audited_positions for item in bins) == 2 * -(-1500 // distributions.AUDIT_STEP)
    backend.close()
    assert max(item.kl_error_max or 0 for item in bins) < 1e-4
    assert all(item.seconds > 0 and item.reference_seconds > 0 for item in bins)


@pytest.mark.parametrize("backend", ["hf", "gguf"])
def test_chunks_and_order_change_nothing(backend: str, hf: Path, gguf: Path, noisy: Path, tmp_path: Path) -> None:
    first = {"hf": hf, "gguf": gguf}[backend]
    other = card(tmp_path, "hf", noisy, 'dtype = "float32"\n')
    texts = [text(700), text(650, 1)]
    usual = compared(texts, tmp_path, first, other)
    for chunk in (64, 256):
        for got, item in zip(
            compared(texts[::-1], tmp_path, first, other, chunk=chunk).pairs[0].bins,
            sorted(usual.pairs[0].bins, key=lambda item: -int(item.text[-1])),
            strict=True,
        ):
            assert (got.text, got.start, got.positions) == (item.text, item.start, item.positions)
            for name in ("kl", "kl_p99", "log_prob", "reference_log_prob"):
                assert getattr(got, name) == pytest.approx(getattr(item, name), abs=1e-5)


def test_two_formats_of_the_same_weights(hf: Path, gguf: Path, tmp_path: Path) -> None:
    (pair,) = compared([text(900)], tmp_path, hf, gguf).pairs
    row, *_ = summarise_by_bin(pair.bins)
    assert row["kl"] < 1e-5 and row["kl_p99"] < 1e-4 and row["same_top"] > 0.99
    assert row["perplexity_ratio"] == pytest.approx(1, abs=1e-4)
    assert (row["kl_low"], row["same_top_low"], row["perplexity_ratio_low"]) == (None, None, None)


def test_a_rotary_base_that_is_off_by_one_percent_shows_with_depth(tiny: Path, gguf: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    base = card(wrong, "llamacpp", tiny / "tiny.gguf", F32 + "rope_freq_base = 10100.0\n")
    found = compared([text(1900, seed, max_tokens=2048) for seed in range(6)], tmp_path, gguf, base)
    early, late = summarise_by_bin(found.pairs[0].bins)
    assert (early["start"], late["start"], early["texts"], late["texts"]) == (0, 1024, 6, 6)
    assert late["kl_low"] is not None and early["kl_high"] is not None
    assert late["kl"] > early["kl"] > 0


def test_types_of_keys_and_values_are_compared(demo_gguf: Path, tmp_path: Path) -> None:
    cards = []
    for name in ("f32", "f16", "q8_0"):
        folder = tmp_path / name
        folder.mkdir()
        types = f'cache_type_k = "{name}"\ncache_type_v = "{name}"\nflash_attention = true\n'
        cards.append(card(folder, "llamacpp", demo_gguf, types))
    found = compared([text(900, max_tokens=1024)], tmp_path, *cards)
    kl = [summarise_by_bin(pair.bins)[0]["kl"] for pair in found.pairs]
    assert 0 <= kl[0] < kl[1]
    first, second = (pair.row.kv_bytes_per_token for pair in found.pairs)
    assert first and second and first > second


def test_rarely_likely_tokens_are_stored_as_one() -> None:
    rng = np.random.default_rng(5)
    logits = (-3.0 * np.log1p(np.arange(50_000)) + rng.normal(size=(256, 50_000))).astype(np.float32)
    other = (logits + rng.normal(scale=0.3, size=logits.shape)).astype(np.float32)
    tokens = [0] * 257
    stored = distributions.Distributions.of_logits(logits, tokens, 0)
    assert (stored.rest_mass <= distributions.REST_MASS).all() and stored.rest_mass.max() > 0
    assert stored.counts.mean() < 5_000
    exact = divergences(logits.astype(float), other.astype(float))
    got = stored.divergences(other, distributions.softmax(other)[1])
    assert np.abs(got - exact).max() < 1e-4
    assert stored.whole_divergences(other) == pytest.approx(exact[:: distributions.AUDIT_STEP], abs=1e-6)
    flat = distributions.Distributions.of_logits(np.zeros((2, 50_000), np.float32), [0, 1, 2], 0)
    assert flat.counts.tolist() == [50_000, 50_000] and not flat.rest_mass.any()
    longer = np.concatenate([other, np.full((256, 64), -50, np.float32)], axis=1)
    padded = stored.divergences(longer, distributions.softmax(longer)[1])
    assert padded == pytest.approx(got, abs=1e-6)


def test_what_cannot_be_compared_is_refused(hf: Path, gguf: Path, demo_gguf: Path, tmp_path: Path) -> None:
    stranger = card(tmp_path, "llamacpp", demo_gguf, F32)
    with pytest.raises(UsageError, match="different token ids"):
        compared([text(700)], tmp_path, gguf, stranger)
    with pytest.raises(UsageError, match="less than half of the first bin"):
        compared([text(20)], tmp_path, gguf, gguf)
    with pytest.raises(UsageError, match="more than the context window"):
        compared([text(3000, max_tokens=3000)], tmp_path, gguf, gguf)
    scripted(tmp_path / "scripted", {"key": "answer"})
    card_path = tmp_path / "scripted" / "model.toml"
    with pytest.raises(BackendError, match="does not return logits within a text"):
        compare_by_depth([text(2000)], lambda: load(read_card(card_path)), [loads(gguf)], folder=tmp_path)
